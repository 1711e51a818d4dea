#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_node_info
short_description: Read the cloud state of Nodes, and wait until they are initialised
description:
  - Reads taints, providerID, addresses, zone, region and type of Nodes, and classifies each Node.
  - With O(wait_for), waits until the condition holds for every selected Node. After O(wait_timeout), the module fails with what is missing
    on each Node, and returns the Nodes in their last state.
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
  - outoftree.ccm.api
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
options:
  names:
    description: Names of the Nodes to read. If empty, the module reads all Nodes.
    type: list
    elements: str
    default: []
  provider_id_prefix:
    description: Prefix of the cloud's providerIDs, for example V(sim://). If empty, the providerIDs of any cloud are accepted.
    type: str
    default: ''
  expected_provider_ids:
    description: The expected providerID of each Node, by name. A Node with another one is V(mismatched).
    type: dict
    default: {}
  wait_for:
    description:
      - V(initialized) - the Node has a providerID and an IP address, and the taint is gone.
      - V(ready) - the Node's Ready condition is true, and its condition C(EtcdIsVoter), if it has one.
      - V(tainted) - the Node has the taint C(node.cloudprovider.kubernetes.io/uninitialized).
    type: str
    choices: [initialized, ready, tainted]
  heartbeat_after:
    description:
      - With O(wait_for), also waits for a heartbeat of the kubelet (its Lease or its status) after this time. The time is in RFC 3339
        and UTC, by the kubelet's clock. A Node stays Ready for a while after its kubelet dies.
    type: str
    default: ''
  heartbeats_after:
    description: Times for single Nodes, by name, in place of O(heartbeat_after).
    type: dict
    default: {}
  wait_timeout:
    description: Seconds to wait.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Wait until the cloud-controller-manager has initialised every Node
  outoftree.ccm.ccm_node_info:
    provider_id_prefix: sim://
    wait_for: initialized
    wait_timeout: 60
  register: nodes

- name: Show the Nodes that belong to another provider
  ansible.builtin.debug:
    msg: "{{ nodes.nodes | selectattr('class', 'eq', 'foreign') | map(attribute='name') }}"
"""

RETURN = r"""
nodes:
  description: The Nodes.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the Node.
      type: str
      returned: always
    class:
      description:
        - V(initialized) (this provider's providerID, no taint), V(uninitialized) (tainted, waits for the controller), V(unmanaged)
          (registered without C(--cloud-provider=external), neither providerID nor taint), V(foreign) (another provider's
          providerID) or V(mismatched) (not the expected providerID).
      type: str
      returned: always
    reason:
      description: Why the Node is in that class, and what to do.
      type: str
      returned: always
    uid:
      description: UID of the Node, which changes with each registration.
      type: str
      returned: always
    resource_version:
      description: The resourceVersion at which the Node was read.
      type: str
      returned: always
    provider_id:
      description: The Node's providerID, empty if it has none.
      type: str
      returned: always
    uninitialized:
      description: Whether the Node has the taint C(node.cloudprovider.kubernetes.io/uninitialized).
      type: bool
      returned: always
    taints:
      description: All taints of the Node, as kubectl shows them.
      type: list
      elements: str
      returned: always
    addresses:
      description: The Node's addresses, each with C(type) and C(address).
      type: list
      elements: dict
      returned: always
    zone:
      description: The Node's label C(topology.kubernetes.io/zone).
      type: str
      returned: always
    region:
      description: The Node's label C(topology.kubernetes.io/region).
      type: str
      returned: always
    instance:
      description: The providerID of the instance that the cloud has for the Node. Empty if there is none, or if the cloud was not asked.
      type: str
      returned: always
    primary:
      description: The Node's first InternalIP, or ExternalIP without one, and the first address of the other IP family. Empty if the cloud was not asked.
      type: list
      elements: str
      returned: always
    primary_after:
      description: What RV(nodes[].primary) will be after the controller has written the cloud's addresses. Empty if the cloud was not asked.
      type: list
      elements: str
      returned: always
    instance_type:
      description: The Node's label C(node.kubernetes.io/instance-type).
      type: str
      returned: always
    control_plane:
      description: Whether the Node has the label C(node-role.kubernetes.io/control-plane).
      type: bool
      returned: always
    etcd_voter:
      description: The Node's condition C(EtcdIsVoter), which k3s and RKE2 set. Null if there is none.
      type: bool
      returned: always
    managed_by:
      description: The managed service (EKS, GKE, AKS) according to the Node's labels, empty if there is none.
      type: str
      returned: always
    ready:
      description: Whether the Node's Ready condition is true.
      type: bool
      returned: always
    ready_reason:
      description: Message of the Ready condition.
      type: str
      returned: always
    heartbeat:
      description: When the kubelet last wrote the Ready condition, by the kubelet's clock.
      type: str
      returned: always
    kubelet_version:
      description: The version of the Node's kubelet.
      type: str
      returned: always
  sample:
    - name: worker-1
      class: initialized
      reason: ''
      uid: 6f1a2c1e-52f5-4a3e-9d3c-0c7c1e3f8a11
      resource_version: "4711"
      provider_id: sim://north/i-2
      uninitialized: false
      taints: []
      addresses: [{type: InternalIP, address: 10.89.77.12}]
      zone: north-a
      region: north
      instance: sim://north/i-2
      primary: [10.89.77.12]
      primary_after: [10.89.77.12]
      instance_type: sim.small
      control_plane: false
      etcd_voter: null
      managed_by: ''
      ready: true
      ready_reason: kubelet is posting ready status
      heartbeat: "2026-11-21T09:15:00Z"
      kubelet_version: v1.36.3
waited:
  description: Seconds until the condition held.
  returned: always
  type: float
  sample: 2.1
missing:
  description: What is missing on each Node, by name.
  returned: failure
  type: dict
  sample: {worker-1: [providerID]}
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import nodes as _nodes

POLL = 0.5


def read(api, params):
    """Return the summaries of the selected Nodes that exist, each with the renew time of its Lease if it needs a heartbeat."""
    wanted = params["names"]
    if wanted:
        nodes = [node for node in (api.get(_api.node_path(name)) for name in wanted) if node]
    else:
        nodes = api.items("/api/v1/nodes")
    summaries = []
    for node in nodes:
        name = node["metadata"]["name"]
        item = _nodes.summary(node, params["provider_id_prefix"], params["expected_provider_ids"].get(name))
        if after(params, name):
            lease = api.get(_api.lease_path(name, "kube-node-lease")) or {}
            item["lease_renewed"] = _nodes.seconds_time((lease.get("spec") or {}).get("renewTime", ""))
        summaries.append(item)
    return summaries


def after(params, name):
    """Return the time after which the Node needs a heartbeat, '' if it needs none."""
    return str(params["heartbeats_after"].get(name) or params["heartbeat_after"])


def find_missing(params, nodes):
    missing = {node["name"]: _nodes.missing(node, params["wait_for"], after(params, node["name"])) for node in nodes}
    for name in params["names"]:
        missing.setdefault(name, ["the Node itself"])
    return {name: parts for name, parts in missing.items() if parts}


def main():
    module = AnsibleModule(
        argument_spec=dict(
            names=dict(type="list", elements="str", default=[]),
            provider_id_prefix=dict(type="str", default=""),
            expected_provider_ids=dict(type="dict", default={}),
            wait_for=dict(type="str", choices=["initialized", "ready", "tainted"]),
            heartbeat_after=dict(type="str", default=""),
            heartbeats_after=dict(type="dict", default={}),
            wait_timeout=dict(type="int", default=120),
            **_api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    params = module.params
    api = _api.connect(module)
    begun = time.monotonic()
    nodes, problem = [], ""
    while True:
        try:
            nodes, problem = read(api, params), ""
            missing = find_missing(params, nodes) if params["wait_for"] else {}
            if not missing:
                break
        except _api.ApiError as exc:
            # A wait tolerates an API server that restarts. Without a wait, this is an error.
            problem, missing = _api.explain(exc), {}
            if not params["wait_for"] or exc.status in (401, 403):
                module.fail_json(msg="cannot read the Nodes: {0}".format(problem))
        if time.monotonic() - begun > params["wait_timeout"]:
            details = "; ".join("{0}: missing {1}".format(name, ", ".join(parts)) for name, parts in sorted(missing.items()))
            module.fail_json(msg="after {0} s, not every Node is {1}: {2}".format(
                params["wait_timeout"], params["wait_for"], problem or details), nodes=nodes, missing=missing)
        time.sleep(POLL)
    module.exit_json(changed=False, nodes=nodes, waited=round(time.monotonic() - begun, 1))


if __name__ == "__main__":
    main()
