# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: run_summary
short_description: Summarise what a run did on each host
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Makes one entry for each host from the results that the role C(ccm_install) stored. The entry has the host's state, its planned and
    completed edits, and the seconds that they took. The filter reads and writes nothing.
positional: _input
options:
  _input:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  hosts:
    description: The hosts to summarise.
    type: list
    elements: str
    required: true
  plan:
    description: The result of P(outoftree.ccm.migration_plan#filter), empty if the run has no plan.
    type: dict
    required: true
  seconds:
    description: Seconds since the run started.
    type: float
    default: 0.0
  max_failed:
    description: How many of O(hosts) may fail, as a number or as a share such as V(10%).
    type: raw
    default: 0
  node_only:
    description: Whether the cloud-controller-manager runs only its node controller.
    type: bool
    default: false
  services:
    description: The number of Services of type LoadBalancer.
    type: int
    default: 0
  disruption:
    description: What M(outoftree.ccm.ccm_disruption_probe) returned at the end of the run, empty without it.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Summarise the run
  ansible.builtin.debug:
    msg: "{{ (hostvars | outoftree.ccm.run_summary(groups['all'], plan)).lines }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.hosts) has C(host), C(state), C(edits), C(planned), C(seconds) and C(detail) of each host. RV(_value.lines) has the same as
      lines of text, and what to do next. RV(_value.advice) has only what to do next.
    - RV(_value.ok) says whether no host failed. RV(_value.failed) has the names of failed hosts, RV(_value.named) a short form of those whose
      own change failed, RV(_value.allowed) how many may fail, and RV(_value.stop) whether more failed. RV(_value.seconds) is the
      duration of the run. RV(_value.disruption) is the result of O(disruption). RV(_value.measured) has the lines about it, which
      RV(_value.lines) also contains.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping, summary


def run_summary(facts, hosts, plan, seconds=0.0, max_failed=0, node_only=False, services=0, disruption=None):
    try:
        tolerated = summary.allowed(max_failed, len(list(hosts)))
    except ValueError as exc:
        raise AnsibleFilterError(str(exc)) from exc
    try:
        entries = summary.summarise({host: facts[host] for host in hosts}, plan)
    except (KeyError, TypeError) as exc:
        raise AnsibleFilterError("run_summary needs hostvars, names of hosts in it, and a plan: {0}".format(exc)) from exc
    measured = list((disruption or {}).get("lines") or [])
    lines = summary.table(entries, float(seconds)) + measured + summary.retry(entries)
    meaning = summary.node_only(plan, int(services)) if node_only else []
    failed = summary.failed(entries)
    advice = summary.retry(entries) + meaning
    return {"hosts": entries, "advice": advice, "lines": lines + meaning, "seconds": round(float(seconds), 1), "ok": not failed, "failed": failed,
            "measured": measured, "disruption": (disruption or {}).get("result") or {},
            "named": grouping.compact(summary.failed(entries, summary.NAMED)),
            "allowed": tolerated, "stop": len(failed) > tolerated}


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"run_summary": run_summary}
