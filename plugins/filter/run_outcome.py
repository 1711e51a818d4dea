# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: run_outcome
short_description: Make the result that a playbook hands on to the next one of a workflow
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Returns verdict, counts, changes, problems and the report's text of a run. The playbooks pass it to M(ansible.builtin.set_stats) as
    C(outoftree_ccm), which AWX shows as an artifact and hands on to the next node of a workflow. The filter reads and writes nothing.
positional: _input
options:
  _input:
    description: The plan, as P(outoftree.ccm.migration_plan#filter) or P(outoftree.ccm.rollback_plan#filter) returns it, empty without one.
    type: dict
    required: true
  title:
    description: Title of the report.
    type: str
    default: Migration to an external cloud-controller-manager
  summary:
    description: The result of P(outoftree.ccm.run_summary#filter), empty before the first change.
    type: dict
    default: {}
  verified:
    description: The variable C(ccm_install_summary), empty without a verification.
    type: dict
    default: {}
  traffic:
    description: The result of M(outoftree.ccm.ccm_load_balancer_check), empty if the check did not run.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Hand the plan on to the next job of a workflow
  ansible.builtin.set_stats:
    data:
      outoftree_ccm: "{{ plan | outoftree.ccm.run_outcome }}"
    aggregate: false
"""

RETURN = r"""
_value:
  description:
    - RV(_value.verdict) is V(go) or V(no-go) after a plan, V(complete) or V(not complete) after changes, V(passed) or V(failed) after checks
      alone, and RV(_value.ok) says the same as a boolean.
    - RV(_value.counts) has C(edits), C(done), C(problems), C(warnings), and C(hosts) by state. RV(_value.changes) and RV(_value.problems)
      are at most 50 texts. RV(_value.next) says what to do next, and RV(_value.report) is the report as Markdown.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import outcome

TITLE = "Migration to an external cloud-controller-manager"


def run_outcome(plan, title=TITLE, summary=None, verified=None, traffic=None):
    if not isinstance(plan, dict):
        raise AnsibleFilterError("run_outcome needs the result of migration_plan or rollback_plan, or an empty dictionary")
    return outcome.outcome(title, plan, summary or {}, verified or {}, traffic or {})


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"run_outcome": run_outcome}
