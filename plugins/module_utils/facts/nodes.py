# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Node's fields mean for a cloud-controller-manager, and when a wait for the Node ends.

Pure and stdlib-only: it takes Node objects as dicts from the API, and returns plain data.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ApiObject, CloudMatch, NodeFacts

#: The taint with which a kubelet with --cloud-provider=external registers. The controller removes it (KEP-2392).
TAINT_KEY = "node.cloudprovider.kubernetes.io/uninitialized"
TAINT: Dict[str, str] = {"key": TAINT_KEY, "value": "true", "effect": "NoSchedule"}

#: Labels that only nodes of a managed service have.
MANAGED_LABELS = (("eks.amazonaws.com/nodegroup", "EKS"), ("cloud.google.com/gke-nodepool", "GKE"),
                  ("kubernetes.azure.com/cluster", "AKS"))

#: providerID prefixes of the controllers embedded in k3s and RKE2. They belong to no cloud.
EMBEDDED = ("k3s://", "rke2://")

#: What to do about a wrong providerID.
REGISTER_AGAIN = "a providerID cannot be changed: drain and delete the Node and restart its kubelet"

#: The same for servers of k3s and RKE2, which remove a deleted server's member from etcd.
KEEP_SERVER = ("this is a server of k3s or RKE2, whose Node must not be deleted, because that removes its member from etcd. Replace servers "
               "one at a time, as for an upgrade")

#: The conditions that a caller may wait for.
PREDICATES = ("initialized", "ready", "tainted")


def summary(node: ApiObject, scheme: str, expected_id: Optional[str] = None) -> NodeFacts:
    """Return the needed facts of a Node; C(scheme) is the provider's providerID prefix such as 'sim://' ('' accepts those of any cloud)."""
    meta, spec, status = node.get("metadata") or {}, node.get("spec") or {}, node.get("status") or {}
    labels = meta.get("labels") or {}
    ready: ApiObject = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), {})
    voter = next((c.get("status") == "True" for c in status.get("conditions") or [] if c.get("type") == "EtcdIsVoter"), None)
    taints = spec.get("taints") or []
    result: NodeFacts = {
        "name": meta.get("name", ""),
        "uid": meta.get("uid", ""),
        "resource_version": meta.get("resourceVersion", ""),
        "provider_id": spec.get("providerID") or "",
        "taints": ["{0}{1}:{2}".format(t.get("key"), "=" + t["value"] if t.get("value") else "", t.get("effect"))
                   for t in taints],
        "uninitialized": any(t.get("key") == TAINT_KEY for t in taints),
        "addresses": [{"type": a.get("type"), "address": a.get("address")} for a in status.get("addresses") or []],
        "zone": labels.get("topology.kubernetes.io/zone", ""),
        "region": labels.get("topology.kubernetes.io/region", ""),
        "instance_type": labels.get("node.kubernetes.io/instance-type", ""),
        "control_plane": "node-role.kubernetes.io/control-plane" in labels,
        "etcd_voter": voter,
        "managed_by": next(("{0} (label {1})".format(service, label) for label, service in MANAGED_LABELS if label in labels), ""),
        "ready": ready.get("status") == "True",
        "ready_reason": ready.get("message", "") or ready.get("reason", ""),
        "heartbeat": ready.get("lastHeartbeatTime", ""),
        "kubelet_version": (status.get("nodeInfo") or {}).get("kubeletVersion", ""),
        # What only the cloud can answer; see judged().
        "instance": "",
        "primary": [],
        "primary_after": [],
        "class": "",
        "reason": "",
    }
    result["class"], result["reason"] = classify(result, scheme, expected_id)
    return result


def selected(nodes: List[ApiObject], selector: Dict[str, str]) -> int:
    """Return how many Nodes have every label of a selector."""
    return sum(selector.items() <= ((node.get("metadata") or {}).get("labels") or {}).items() for node in nodes)


def classify(node: NodeFacts, scheme: str, expected_id: Optional[str] = None) -> "tuple[str, str]":
    """Return (class, reason); see RETURN of ccm_node_info for the classes."""
    provider_id = node["provider_id"]
    if provider_id and expected_id and provider_id != expected_id:
        return "mismatched", ("its providerID is {0} but {1} is expected; {2}".format(provider_id, expected_id, way_out(node)))
    if provider_id.startswith(EMBEDDED) and not scheme:
        return "foreign", ("its providerID {0} comes from the embedded controller, not from a cloud; {1}".format(provider_id, way_out(node)))
    if provider_id and scheme and not provider_id.startswith(scheme):
        return "foreign", ("its providerID {0} belongs to another provider than {1}; {2}".format(provider_id, scheme, way_out(node)))
    if node["uninitialized"]:
        return "uninitialized", "it waits until the cloud-controller-manager removes the taint {0}".format(TAINT_KEY)
    if not provider_id:
        return "unmanaged", "it registered without --cloud-provider=external, so it has no providerID and no taint"
    return "initialized", ""


def way_out(node: NodeFacts) -> str:
    """Return what to do about a wrong providerID. A Node with a condition about its vote in etcd is a server of k3s or
    RKE2."""
    server = node["etcd_voter"] is not None or node["control_plane"] and node["provider_id"].startswith(EMBEDDED)
    return "a providerID cannot be changed, and " + KEEP_SERVER if server else REGISTER_AGAIN


def judged(nodes: List[NodeFacts], matches: List[CloudMatch]) -> List[NodeFacts]:
    """Return the summaries, with classes corrected by comparing the Nodes with each other and with the cloud.

    C(matches) is the result of C(ccm nodes), which also knows the instance and the primary addresses. An inconclusive answer of the cloud
    changes nothing. A Node that is foreign by its prefix, or mismatched by its expected providerID, keeps its class.
    """
    holders: Dict[str, List[str]] = {}
    for node in nodes:
        holders.setdefault(node["provider_id"], []).append(node["name"])
    matches_by_name = {match["name"]: match for match in matches}
    result = []
    for node in nodes:
        match: CloudMatch = matches_by_name.get(node["name"], {})
        others = [name for name in holders[node["provider_id"]] if name != node["name"]]
        kind, reason = node["class"], node["reason"]
        if kind in ("foreign", "mismatched"):
            pass
        elif match.get("verdict") == "mismatched":
            kind, reason = "mismatched", match["reason"]
            if "delete the Node" in reason and way_out(node) != REGISTER_AGAIN:
                reason = "{0}; but {1}".format(reason, KEEP_SERVER)
        elif match.get("verdict") == "foreign":
            kind, reason = "foreign", "{0}; {1}".format(match["reason"], way_out(node))
        elif node["provider_id"] and others and match.get("verdict") != "ok":
            kind, reason = "mismatched", "{1} has the same providerID {0}, but one machine cannot be two Nodes. For the wrong one: {2}".format(
                node["provider_id"], " and ".join(others), way_out(node))
        facts = node.copy()
        facts["class"], facts["reason"] = kind, reason
        if "instance" in match:
            facts["instance"] = match["instance"]
        if "primary" in match:
            facts["primary"] = match["primary"]
        if "primary_after" in match:
            facts["primary_after"] = match["primary_after"]
        result.append(facts)
    return result


def missing(node: NodeFacts, predicate: str, heartbeat_after: str = "") -> List[str]:
    """Return what is missing on a Node for a condition; an empty list ends the wait."""
    absent = []
    if predicate == "initialized":
        if not node["provider_id"]:
            absent.append("providerID")
        if not any(a["type"] in ("InternalIP", "ExternalIP") for a in node["addresses"]):
            absent.append("an IP address")
        if node["uninitialized"]:
            absent.append("removal of the taint {0}".format(TAINT_KEY))
    elif predicate == "tainted":
        if not node["uninitialized"]:
            absent.append("the taint {0}".format(TAINT_KEY))
    elif predicate == "ready":
        if not node["ready"]:
            absent.append("Ready ({0})".format(node["ready_reason"] or "no status yet"))
        if node.get("etcd_voter") is False:
            absent.append("a vote in etcd (condition EtcdIsVoter)")
    if heartbeat_after and max(node["heartbeat"], node.get("lease_renewed", "")) < heartbeat_after:
        absent.append("a heartbeat after {0}".format(heartbeat_after))
    return absent


def with_taint(node: ApiObject) -> List[ApiObject]:
    """Return the Node's taints with the uninitialized taint."""
    taints = [t for t in (node.get("spec") or {}).get("taints") or [] if t.get("key") != TAINT_KEY]
    return taints + [dict(TAINT)]


def without_taint(node: ApiObject) -> List[ApiObject]:
    """Return the Node's taints without the uninitialized taint."""
    return [t for t in (node.get("spec") or {}).get("taints") or [] if t.get("key") != TAINT_KEY]


def seconds_time(text: str) -> str:
    """Return an RFC 3339 UTC time without fractions of a second, so that such times can be compared as text."""
    return re.sub(r"\.\d+", "", text or "")
