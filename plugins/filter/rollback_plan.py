# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rollback_plan
short_description: Plan what a rollback restores in each file
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Makes a plan from the results of M(outoftree.ccm.ccm_component_flags_info) on every host, mainly its journal, and of
    M(outoftree.ccm.ccm_cluster_info). The plan has the same shape as a plan of P(outoftree.ccm.migration_plan#filter). The filter reads
    and writes nothing.
  - If nobody else changed a file after the migration, the rollback restores its original bytes. Otherwise it undoes only the migration's
    own changes, which are flags and the mounts that belong to them. Everything else stays, including versions.
  - A flag that was set after the migration keeps its value. A flag with which the current release does not start is not restored. Both
    are warnings. Three things are problems - changes that cannot be told apart, a missing original, and a kubelet that needs the
    controller although the journal has no record of the kubelet's change.
positional: _input
extends_documentation_fragment:
  - outoftree.ccm.detected
options:
  excluded_hosts:
    description: The inventory hosts that this run excludes (C(--limit)). They need the controller, so it stays.
    type: list
    elements: str
    default: []
  force:
    description:
      - Whether to continue despite problems with files. The rollback then replaces a file whose flags cannot be told apart with its
        original, and keeps a copy. A file without an original, and a kubelet without a journal, stay as they are.
    type: bool
    default: false
  copies:
    description:
      - The result of M(outoftree.ccm.ccm_journal_copy) with C(state=read). The facts of a host that lost its journal must already come
        from its copy.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Plan the rollback
  ansible.builtin.set_fact:
    plan: "{{ detected | outoftree.ccm.rollback_plan(cluster, groups['kube_control_plane']) }}"
"""

RETURN = r"""
_value:
  description:
    - The same as P(outoftree.ccm.migration_plan#filter) returns, with these additions.
    - RV(_value.files) has C(host), C(file), C(component) and C(mode) of every file in a journal. C(mode) is V(bytes), V(flags), or
      V(done) if there is nothing to undo. RV(_value.unrestored) has C(host), C(file) and C(reason) of what O(force) skips.
    - RV(_value.controller) says whether there is a controller of this collection to remove. RV(_value.paused) has the other controllers
      that then resume, and RV(_value.tainted) the Nodes that no controller will initialise.
    - RV(_value.copies) has the Secret of each host whose journal comes from the cluster. RV(_value.held) has the Services with the load
      balancer finalizer, and RV(_value.forget) the hosts whose journals have kubeadm's configuration.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.isolation import isolated
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback import make_rollback_plan


def rollback_plan(detected, cluster, control_plane, excluded_hosts=(), force=False, copies=None):
    if not isinstance(detected, dict) or not isinstance(cluster, dict):
        raise AnsibleFilterError("rollback_plan needs the results of ccm_component_flags_info by host, and the result of ccm_cluster_info")
    return isolated(lambda hosts: make_rollback_plan(hosts, cluster, list(control_plane), list(excluded_hosts), bool(force), copies), detected)


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"rollback_plan": rollback_plan}
