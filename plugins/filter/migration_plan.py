# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: migration_plan
short_description: Plan every edit that takes a cluster to an external cloud-controller-manager
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Turns what M(outoftree.ccm.ccm_component_flags_info) found on every host and what M(outoftree.ccm.ccm_cluster_info) found in
    the cluster into a plan - all edits with their reasons and risks, the new content of every file, the Nodes to adopt, and all
    that stands in the way. Nothing is read or written here.
  - Only spans of text are replaced - comments, order, anchors, quoting and line ends of everything else stay.
positional: _input
extends_documentation_fragment:
  - outoftree.ccm.detected
options:
  adopt:
    description: Whether Nodes without a providerID are to be adopted.
    type: bool
    default: true
  reregister:
    description: Whether agents of k3s and RKE2 with the embedded controller's providerID are to be drained and registered anew.
    type: bool
    default: false
  excluded_hosts:
    description: The inventory hosts that this run leaves out (C(--limit)), so that nothing is known of them.
    type: list
    elements: str
    default: []
  takeover:
    description: Whether another cloud-controller-manager that runs is to be paused; it is a problem otherwise.
    type: bool
    default: false
  cluster_name:
    description: The name under which load balancers and routes will be looked for; another one of the paused controller is a problem.
    type: str
    default: ""
  names:
    description:
      - What the inventory calls each host and where it reaches it, as lists by host. A worker's Node is tainted, or drained and
        deleted, only when one of them is the Node's name or one of its addresses; the host's own word is not enough.
      - A host that is not in it is known by its name in the inventory.
    type: dict
    default: {}
  port:
    description: The new controller's port on its nodes. Another controller that has it cannot run beside it.
    type: int
    default: 10258
"""

EXAMPLES = r"""
- name: Plan
  ansible.builtin.set_fact:
    plan: "{{ detected | outoftree.ccm.migration_plan(cluster, groups['kube_control_plane']) }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.go) and RV(_value.problems) say whether the migration may begin, RV(_value.edits) is a list of dictionaries with
      C(host), C(component), C(file), C(flag), C(now), C(then), C(why) and C(risk), RV(_value.table) the same as lines of text,
      RV(_value.hosts) the steps for each host (options of M(outoftree.ccm.ccm_component_config)), RV(_value.kubeadm_config)
      options of M(outoftree.ccm.ccm_kubeadm_config) or nothing, RV(_value.report) all of it without the contents of files,
      RV(_value.new_nodes) what Nodes that join later need as lines of text, RV(_value.adopt) the Nodes to take through
      initialisation, RV(_value.node_only) whether the runtime has to begin with its node controller alone, and RV(_value.takeover) the
      other cloud-controller-managers to pause (C(kind), C(namespace), C(name)) and whether each hands over by the Lease (C(handover)).
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan


def migration_plan(detected, cluster, control_plane, adopt=True, excluded_hosts=(), takeover=False, cluster_name="",
                   port=10258, reregister=False, names=None):
    if not isinstance(detected, dict) or not isinstance(cluster, dict):
        raise AnsibleFilterError("migration_plan needs the results of ccm_component_flags_info by host, and the result of "
                                 "ccm_cluster_info")
    return make_plan(detected, cluster, list(control_plane), adopt, list(excluded_hosts), takeover, cluster_name, port,
                     reregister=bool(reregister), names=names)


class FilterModule:
    """The filter as Ansible finds it."""

    def filters(self):
        return {"migration_plan": migration_plan}
