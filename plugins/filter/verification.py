# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verification
short_description: Check whether the migration of a cluster is complete
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Runs every check on the results of M(outoftree.ccm.ccm_component_flags_info), M(outoftree.ccm.ccm_cluster_info) and
    M(outoftree.ccm.ccm_health_info). The filter reads and writes nothing.
positional: _input
extends_documentation_fragment:
  - outoftree.ccm.detected
options:
  health:
    description: The result of M(outoftree.ccm.ccm_health_info).
    type: dict
    required: true
  names:
    description: The inventory's names and addresses of each host, as for P(outoftree.ccm.migration_plan#filter).
    type: dict
    default: {}
  controller:
    description: Name of the vendor's controller that runs, for the messages. If empty, they say "the controller".
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Verify the migration
  ansible.builtin.set_fact:
    verdict: "{{ detected | outoftree.ccm.verification(cluster, health, groups['kube_control_plane']) }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.ok) says whether all checks passed. RV(_value.checks) has C(name), C(ok) and C(detail) of each check, RV(_value.failures) has
      those that failed. RV(_value.notes) names old cloud configurations. RV(_value.lines) has all of it as text.
      RV(_value.nodes) has the Nodes as lines of text.
  type: dict
"""

from ansible_collections.outoftree.ccm.plugins.module_utils.plan.isolation import isolated
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.verify import nodes_table, verify


def verification(detected, cluster, health, control_plane, names=None, controller=""):
    verdict = isolated(lambda hosts: verify(hosts, cluster, health, list(control_plane), names, controller), detected)
    return dict(verdict, nodes=nodes_table(cluster["nodes"]))


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"verification": verification}
