# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: leader_migration_plan
short_description: Plan the first stage of a leader migration
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Plans the change of kube-controller-manager in clusters up to Kubernetes 1.30. After that, it runs its in-tree cloud loops only while it holds
    the migration Lease (KEP-2436), so that an external cloud-controller-manager can take the loops over. The filter reads and writes nothing.
  - From Kubernetes 1.31 on, there is nothing to hand over. The plan then has a problem that says so.
positional: _input
extends_documentation_fragment:
  - outoftree.ccm.detected
options:
  lease:
    description: Name of the migration Lease in kube-system.
    type: str
    default: cloud-provider-extraction-migration
seealso:
  - plugin: outoftree.ccm.migration_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Plan
  ansible.builtin.set_fact:
    plan: "{{ detected | outoftree.ccm.leader_migration_plan(cluster, groups['kube_control_plane']) }}"
"""

RETURN = r"""
_value:
  description:
    - The same as P(outoftree.ccm.migration_plan#filter) returns, but only for kube-controller-manager.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.isolation import isolated
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.leader_migration import make_leader_migration_plan


def leader_migration_plan(detected, cluster, control_plane, lease="cloud-provider-extraction-migration"):
    if not isinstance(detected, dict) or not isinstance(cluster, dict):
        raise AnsibleFilterError("leader_migration_plan needs the results of ccm_component_flags_info by host, and the result of "
                                 "ccm_cluster_info")
    return isolated(lambda hosts: make_leader_migration_plan(hosts, cluster, list(control_plane), lease), detected)


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"leader_migration_plan": leader_migration_plan}
