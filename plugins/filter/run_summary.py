# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: run_summary
short_description: Sum up what a run did, host by host
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Turns what the role C(ccm_install) kept of its steps on every host into one entry for each - its state, the edits that were made
    of those that were planned, and the seconds they took. Nothing is read or written here.
positional: _input
options:
  _input:
    description: The facts of all hosts, C(hostvars).
    type: dict
    required: true
  hosts:
    description: The hosts to sum up.
    type: list
    elements: str
    required: true
  plan:
    description: The result of P(outoftree.ccm.migration_plan#filter), empty when the run did not get that far.
    type: dict
    required: true
  seconds:
    description: Seconds since the run began.
    type: float
    default: 0.0
  max_failed:
    description: How many of O(hosts) may fail, as a number or as a share such as V(10%).
    type: raw
    default: 0
  node_only:
    description: Whether the cloud-controller-manager was left with its node controller alone.
    type: bool
    default: false
  services:
    description: The number of Services of type LoadBalancer.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Sum up
  ansible.builtin.debug:
    msg: "{{ (hostvars | outoftree.ccm.run_summary(groups['all'], plan)).lines }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.hosts) has C(host), C(state), C(edits), C(planned), C(seconds) and C(detail) of each host, RV(_value.lines) is the
      same as lines of text with what to do next, RV(_value.ok) says whether no host failed, RV(_value.failed) has the names of those
      that did, RV(_value.allowed) how many may, RV(_value.stop) whether more did, and RV(_value.seconds) how long the run took.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import summary


def run_summary(facts, hosts, plan, seconds=0.0, max_failed=0, node_only=False, services=0):
    try:
        tolerated = summary.allowed(max_failed, len(list(hosts)))
    except ValueError as exc:
        raise AnsibleFilterError(str(exc)) from exc
    try:
        entries = summary.summarise({host: facts[host] for host in hosts}, plan)
    except (KeyError, TypeError) as exc:
        raise AnsibleFilterError("run_summary needs hostvars, names of hosts in it, and a plan: {0}".format(exc)) from exc
    lines = summary.table(entries, float(seconds)) + summary.retry(entries)
    meaning = summary.node_only(plan, int(services)) if node_only else []
    failed = summary.failed(entries)
    return {"hosts": entries, "lines": lines + meaning, "seconds": round(float(seconds), 1), "ok": not failed, "failed": failed,
            "allowed": tolerated, "stop": len(failed) > tolerated}


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self):
        return {"run_summary": run_summary}
