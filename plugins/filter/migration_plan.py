# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: migration_plan
short_description: Plan every edit of a migration to an external cloud-controller-manager
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Makes a plan from the results of M(outoftree.ccm.ccm_component_flags_info) on every host and of M(outoftree.ccm.ccm_cluster_info).
    The plan has all edits with their reasons and risks, the new content of every file, the Nodes to adopt, and all problems. The
    filter reads and writes nothing.
  - The edits replace only spans of text. Comments, order, anchors, quoting and line ends of everything else stay.
positional: _input
extends_documentation_fragment:
  - outoftree.ccm.detected
options:
  adopt:
    description: Whether to adopt Nodes without a providerID.
    type: bool
    default: true
  reregister:
    description: Whether to drain agents of k3s and RKE2 with the embedded controller's providerID and to register them again.
    type: bool
    default: false
  excluded_hosts:
    description: The inventory hosts that this run excludes (C(--limit)).
    type: list
    elements: str
    default: []
  takeover:
    description: Whether to pause another cloud-controller-manager that runs. If V(false), such a controller is a problem.
    type: bool
    default: false
  cluster_name:
    description: Name that marks this cluster's load balancers and routes in the cloud. It is a problem if the paused controller uses another one.
    type: str
    default: ""
  names:
    description:
      - The inventory's names and addresses of each host, as lists by host. A worker's Node is tainted, or drained and deleted, only if one
        of them is the Node's name or one of its addresses. The host's own answer is not enough.
      - For a host that this option does not have, only its name in the inventory counts.
    type: dict
    default: {}
  volumes_ignore:
    description:
      - CSI drivers that need not be registered on the Nodes whose kubelet the run restarts. Any other driver is a problem if it is not
        registered there although Pods there use volumes of the in-tree plug-in that it replaced.
    type: list
    elements: str
    default: []
  runtime_name:
    description: Name of the runtime's DaemonSet and ServiceAccount.
    type: str
    default: cloud-controller-manager
  serving_csr:
    description: Whether the runtime approves kubelets' requests for serving certificates after this run.
    type: bool
    default: false
  cluster_cidr:
    description:
      - Ranges for which the new controller creates routes, separated by commas; empty if it creates none. It is a problem if
        kube-controller-manager's in-tree provider creates routes for other ranges. If omitted, the ranges are not compared.
    type: str
  clouds:
    description:
      - The clouds of the new controller, its first one first. The plan notes which cloud will have which Node and Service, and warns of
        Services that no cloud serves any more.
      - Each has C(provider), and may have C(nodes), C(load_balancer_classes) and C(default_load_balancers), as in the variable
        C(ccm_runtime_clouds).
    type: list
    elements: dict
    default: []
  provider_ids:
    description: The prefix of each provider's providerIDs; missing or empty if it is not known.
    type: dict
    default: {}
  max_failed:
    description:
      - Number or share of the workers that the run may leave out because they returned something that cannot be planned. It is a problem if
        there are more.
    type: raw
    default: 0
  port:
    description: Port of the new controller on its nodes. Another controller with the same port cannot run at the same time.
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
    - RV(_value.go) and RV(_value.problems) say whether the migration can start. RV(_value.message) has the problems as at most 20 lines, those
      of one kind as one.
    - RV(_value.edits) is a list of dictionaries with C(host), C(component), C(file), C(flag), C(now), C(then), C(why) and C(risk).
      RV(_value.table) has the same as lines of text, and RV(_value.report) has everything without the contents of files.
    - RV(_value.hosts) has the steps for each host (options of M(outoftree.ccm.ccm_component_config)). RV(_value.kubeadm_config) has
      options of M(outoftree.ccm.ccm_kubeadm_config), or nothing.
    - RV(_value.unseen) has the reason for each host that could not be inspected. RV(_value.left_out) has those of the workers that the run
      leaves out (O(max_failed)), if there are any.
    - RV(_value.adopt) has the Nodes to initialise, and RV(_value.new_nodes) what Nodes that join later need, as lines of text.
    - RV(_value.node_only) says whether the runtime must start with only its node controller.
    - RV(_value.volumes) has the in-tree cloud plug-ins of volumes that the cluster uses, with their objects and their CSI drivers.
    - RV(_value.takeover) has the other cloud-controller-managers to pause (C(kind), C(namespace), C(name)), and whether each hands over
      by the Lease (C(handover)).
    - RV(_value.way_back) says what to do if the new controller does not become healthy. C(resume) are the workloads to resume, C(remove)
      says whether to remove the new controller before that, and C(paused) are workloads that stay paused.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.clouds import NOBODY, Cloud, default_of
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.isolation import isolated, leave_out
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices, NewController


def migration_plan(detected, cluster, control_plane, adopt=True, excluded_hosts=(), takeover=False, cluster_name="",
                   port=10258, reregister=False, names=None, volumes_ignore=(), runtime_name="cloud-controller-manager",
                   serving_csr=False, cluster_cidr=None, max_failed=0, clouds=(), provider_ids=None):
    if not isinstance(detected, dict) or not isinstance(cluster, dict):
        raise AnsibleFilterError("migration_plan needs the results of ccm_component_flags_info by host, and the result of "
                                 "ccm_cluster_info")

    choices = Choices(adopt, takeover, bool(reregister), list(excluded_hosts), list(volumes_ignore))
    controller = NewController(cluster_name, port, runtime_name, bool(serving_csr), cluster_cidr, served(clouds, provider_ids or {}))

    def make(hosts):
        return make_plan(hosts, cluster, list(control_plane), names, choices, controller)

    return leave_out(isolated(make, detected), detected, list(control_plane), max_failed)


def served(clouds, provider_ids):
    """Return the clouds in the form of the plan. The cloud with C(default_load_balancers) serves Services without a class. If there is no such cloud,
    the cloud that default_of() names serves them, unless C(default_load_balancers) of the first cloud is false: then no cloud does.
    """
    marked = [cloud["provider"] for cloud in clouds if cloud.get("default_load_balancers")]
    nobody = any(cloud.get("default_load_balancers") is False for cloud in clouds[:1])
    default = marked[0] if marked else NOBODY if nobody else default_of([cloud["provider"] for cloud in clouds])
    return [Cloud(cloud["provider"], provider_ids.get(cloud["provider"]) or "", list(cloud.get("nodes") or []), list(cloud.get("load_balancer_classes") or []),
                  cloud["provider"] == default) for cloud in clouds]


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"migration_plan": migration_plan}
