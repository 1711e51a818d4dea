# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rollback_plan
short_description: Plan what a rollback restores, file by file
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Turns what M(outoftree.ccm.ccm_component_flags_info) found on every host, its journal above all, and what
    M(outoftree.ccm.ccm_cluster_info) found in the cluster into a plan of the shape that P(outoftree.ccm.migration_plan#filter) has.
    Nothing is read or written here.
  - A file that nobody else has written since the migration goes back byte for byte. In a file that somebody else has written since, only
    what the migration changed goes back - its flags, and the mounts that went with them. All else stays, versions included.
  - A flag that somebody else has set since stays theirs, and one with which the release of today does not start is not put back. Both are
    warnings. What cannot be told apart, an original that is missing, and a kubelet that needs the controller although no journal knows
    why, are problems.
positional: _input
extends_documentation_fragment:
  - outoftree.ccm.detected
options:
  excluded_hosts:
    description: The inventory hosts that this run leaves out (C(--limit)). They keep the controller.
    type: list
    elements: str
    default: []
  force:
    description:
      - Whether what is a problem of a file is given up. The original is put over a file whose flags cannot be told apart, and a copy is kept.
        A file whose original is missing, and a kubelet without a journal, stay as they are.
    type: bool
    default: false
  copies:
    description:
      - The result of M(outoftree.ccm.ccm_journal_copy) with C(state=read). The facts of a host whose journal is lost have been read with
        its copy.
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
    - As P(outoftree.ccm.migration_plan#filter) returns it. RV(_value.files) has C(host), C(file), C(component) and C(mode) of every file
      that a journal knows - V(bytes), V(flags), or V(done) for one with nothing to undo. RV(_value.unrestored) has C(host), C(file) and
      C(reason) of what was given up by force, RV(_value.controller) says whether there is a controller of this collection to remove,
      RV(_value.paused) has the other controllers that run again then, RV(_value.tainted) the Nodes that nobody will initialise,
      RV(_value.copies) the Secret by host whose journal comes from the cluster, RV(_value.held) the Services with a load balancer's
      finalizer, and RV(_value.forget) the hosts whose journals know kubeadm's configuration.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback import make_rollback_plan


def rollback_plan(detected, cluster, control_plane, excluded_hosts=(), force=False, copies=None):
    if not isinstance(detected, dict) or not isinstance(cluster, dict):
        raise AnsibleFilterError("rollback_plan needs the results of ccm_component_flags_info by host, and the result of ccm_cluster_info")
    return make_rollback_plan(detected, cluster, list(control_plane), list(excluded_hosts), bool(force), copies)


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self):
        return {"rollback_plan": rollback_plan}
