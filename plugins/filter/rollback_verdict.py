# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rollback_verdict
short_description: Check whether every host is restored, so that the controller can be removed
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Checks the results of M(outoftree.ccm.ccm_component_flags_info) after a rollback. The filter reads and writes nothing.
positional: _input
options:
  _input:
    description: The result of P(outoftree.ccm.rollback_plan#filter).
    type: dict
    required: true
  detected:
    description: Results of M(outoftree.ccm.ccm_component_flags_info) by inventory host, after the rollback.
    type: dict
    required: true
  inventory:
    description: All hosts of the inventory. The controller stays if a host was not inspected.
    type: list
    elements: str
    required: true
  predicted:
    description: Whether the run is in check mode, so that the journals did not change.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check the rollback
  ansible.builtin.set_fact:
    verdict: "{{ plan | outoftree.ccm.rollback_verdict(detected, groups['all']) }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.restored) says whether every host is restored as planned, so that the controller can be removed. RV(_value.waiting) has
      messages about the hosts that are not. RV(_value.complete) is true if, in addition, nothing was skipped (RV(_value.unrestored)).
      RV(_value.lines) describe what was restored and how, and what a rollback cannot undo.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.isolation import isolated
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback_verdict import judge


def rollback_verdict(plan, detected, inventory, predicted=False):
    if not isinstance(plan, dict) or not isinstance(detected, dict):
        raise AnsibleFilterError("rollback_verdict needs the result of rollback_plan, and those of ccm_component_flags_info by host")
    return isolated(lambda hosts: judge(plan, hosts, list(inventory), bool(predicted)), detected)


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"rollback_verdict": rollback_verdict}
