# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of k3s and RKE2 that have the embedded controller's providerID, and what a drain does with each Pod.

A providerID cannot be changed, so such a Node must be drained, deleted, and registered again by its agent. This is never done for a
server, because k3s and RKE2 remove a deleted server's member from etcd. Pure and stdlib-only.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ApiObject, ClusterFacts, NodeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.nodes import EMBEDDED
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts

WHY = "a providerID cannot be changed: the Node is drained, deleted, and registered again by its agent"
RISK = "its Pods are evicted as their PodDisruptionBudgets allow; labels and taints that were added to the Node are lost"
HINT = "; set ccm_install_reregister to true to drain agents of k3s and RKE2 and register them again"

MIRROR = "kubernetes.io/config.mirror"


def agents(detected: Dict[str, HostFacts], cluster: ClusterFacts) -> Dict[str, str]:
    """Return the Node names of the agents to register again, by host. An agent without a Node is included, because an earlier run may have deleted the Node."""
    nodes = {node["name"]: node for node in cluster["nodes"]}
    node_names = {}
    for host, facts in detected.items():
        if facts["service"] and not facts["service"]["server"]:
            node = nodes.get(facts["node_name"])
            if node is None or node["provider_id"].startswith(EMBEDDED):
                node_names[host] = facts["node_name"]
    return node_names


def remark(node: NodeFacts, names: Iterable[str]) -> str:
    """Return what to add to the reason why a Node is not adopted, or ''; C(names) are the Nodes of agents."""
    return HINT if node["provider_id"].startswith(EMBEDDED) and node["name"] in names else ""


class Fates(NamedTuple):
    """What a drain does with a Node's Pods: (namespace, name) of those to evict, and why others prevent the drain."""

    evict: List[Tuple[str, str]]
    refused: List[str]


def fates(pods: Iterable[ApiObject], force: bool) -> Fates:
    """Decide about a Node's Pods as kubectl drain does. Pods of DaemonSets and static Pods stay. C(force): evict Pods
    without a controller and Pods with an emptyDir, too."""
    evict, refused = [], []
    for pod in pods:
        meta = pod["metadata"]
        name = "{0}/{1}".format(meta["namespace"], meta["name"])
        owners: Set[str] = {owner["kind"] for owner in meta.get("ownerReferences") or [] if owner.get("controller")}
        if MIRROR in (meta.get("annotations") or {}) or "DaemonSet" in owners:
            continue
        finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if not finished and not force:
            if not owners:
                refused.append("{0} has no controller that would create it again".format(name))
                continue
            if any("emptyDir" in volume for volume in (pod.get("spec") or {}).get("volumes") or []):
                refused.append("{0} has data in an emptyDir, which would be lost".format(name))
                continue
        evict.append((meta["namespace"], meta["name"]))
    return Fates(evict, refused)
