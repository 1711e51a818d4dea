# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serving certificates of kubelets that ask the cluster for them (serverTLSBootstrap): who approves, and what is missing.

Pure. Kubernetes signs these requests but never approves them by itself. A kubelet sends a new request whenever its Node's addresses
change, and an external cloud-controller-manager may change them.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ApiObject, Approver, NodeFacts, ServingFacts, SigningRequest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.others import NAMESPACE
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts

SIGNER = "kubernetes.io/kubelet-serving"


def may_approve(role: ApiObject) -> bool:
    """Return whether a ClusterRole is meant for approvers. A role that allows everything is not."""
    for rule in role.get("rules") or []:
        groups, resources, verbs, names = (rule.get(key) or [] for key in ("apiGroups", "resources", "verbs", "resourceNames"))
        if ({"certificates.k8s.io", "*"} & set(groups) and "signers" in resources and {"approve", "*"} & set(verbs)
                and (not names or {SIGNER, "kubernetes.io/*"} & set(names))):
            return True
    return False


def approvers(roles: Iterable[ApiObject], bindings: Iterable[ApiObject]) -> List[Approver]:
    """Return who has the right to approve, as dicts of C(kind), C(namespace), C(name) and C(role)."""
    able = {role["metadata"]["name"] for role in roles if may_approve(role)}
    candidates: List[Approver] = [
        {"kind": subject["kind"], "namespace": subject.get("namespace", ""), "name": subject["name"], "role": binding["roleRef"]["name"]}
        for binding in bindings if binding["roleRef"]["name"] in able for subject in binding.get("subjects") or []]
    return sorted(candidates, key=lambda item: (item["kind"], item["namespace"], item["name"]))


def pending(requests: Iterable[ApiObject]) -> List[SigningRequest]:
    """Return the requests for kubelets' serving certificates that nobody answered, newest last, as dicts of C(name), C(node) and C(created)."""
    waiting: List[SigningRequest] = [
        {"name": request["metadata"]["name"], "node": (request["spec"].get("username") or "").rpartition(":")[2],
         "created": request["metadata"].get("creationTimestamp") or ""}
        for request in requests
        if request["spec"].get("signerName") == SIGNER and not (request.get("status") or {}).get("conditions")]
    return sorted(waiting, key=lambda item: (item["created"], item["name"]))


def who(approver: Approver) -> str:
    name = "{namespace}/{name}" if approver["namespace"] else "{name}"
    return ("{kind} " + name + " (ClusterRole {role})").format(**approver)


def predict(detected: Dict[str, HostFacts], serving: ServingFacts, own: Optional[str] = None, approves: bool = False) -> Tuple[List[str], List[str]]:
    """Return (notes, warnings) for preflight: who approves the requests that the migration, or a change of addresses, causes.

    ``own`` is the name of the runtime's ServiceAccount, and ``approves`` whether the runtime approves requests after this run. What the
    ServiceAccount may do now is ignored.
    """
    hosts = sorted(host for host, facts in detected.items() if bootstraps(facts))
    if not hosts:
        return [], []
    notes, warnings = [], []
    about = "{0} kubelet(s) request their serving certificates from the cluster (serverTLSBootstrap)".format(len(hosts))
    others = [item for item in serving["approvers"] if (item["kind"], item["namespace"], item["name"]) != ("ServiceAccount", NAMESPACE, own)]
    running = [item for item in others if item["kind"] == "ServiceAccount" and item["running"]]
    idle = [item for item in others if item["kind"] == "ServiceAccount" and not item["running"]]
    people = [item for item in others if item["kind"] != "ServiceAccount"]
    if approves:
        notes.append("{0}; the runtime will approve those whose names and addresses the cloud confirms".format(about))
        if running:
            warnings.append("{0} approves requests for serving certificates, too. So requests that the cloud does not confirm may be approved. "
                            "Remove it after this run".format(" and ".join(map(who, running))))
    elif running:
        notes.append("{0}; {1} approves them".format(about, " and ".join(map(who, running))))
    elif people and not idle:
        notes.append("{0}; {1} may approve them, but preflight cannot check whether that happens automatically".format(
            about, " and ".join(map(who, people))))
    else:
        missing = "{0} has the permission, but none of its Pods runs. Start it".format(" and ".join(map(who, idle))) if idle else \
            ("only cluster admins have the permission 'approve' for {0}. Add kubelet-serving-csr-controller to ccm_runtime_controllers, or "
             "install an approver").format(SIGNER)
        warnings.append(
            "{0}, but nothing approves them automatically: {1}. Or approve each request by hand ('kubectl get csr', 'kubectl certificate "
            "approve NAME'), now, for every new Node, and whenever a Node's addresses change. Otherwise 'kubectl logs' and 'exec' fail on "
            "that Node".format(about, missing))
    if serving["pending"] and approves:
        notes.append("{0} request(s) for serving certificates wait: the runtime will check them when it starts".format(len(serving["pending"])))
    elif serving["pending"]:
        warnings.append("{0} request(s) for serving certificates wait for approval: {1}".format(
            len(serving["pending"]), approve(serving["pending"])))
    return notes, warnings


def bootstraps(facts: HostFacts) -> bool:
    return "serving" in facts["kubelet"] and facts["kubelet"]["serving"]["bootstrap"]


def approve(requests: List[SigningRequest], shown: int = 5) -> str:
    """Return the command that approves the requests. It names only the C(shown) newest ones, and the number of the others."""
    more = " ... ({0} more: kubectl get csr)".format(len(requests) - shown) if len(requests) > shown else ""
    return "check them, then run 'kubectl certificate approve {0}{1}'".format(" ".join(r["name"] for r in requests[-shown:]), more)


def without_certificate(detected: Dict[str, HostFacts], nodes: List[NodeFacts], serving: ServingFacts) -> List[str]:
    """Return the failures that verify reports, each with a way out: a kubelet with serverTLSBootstrap must serve a valid certificate that has
    all IP addresses of its Node."""
    by_name = {node["name"]: node for node in nodes}
    failures = []
    for host, facts in sorted(detected.items()):
        if not bootstraps(facts):
            continue
        name, seen = facts["node_name"], facts["kubelet"]["serving"]
        wanted = [a["address"] for a in (by_name[name]["addresses"] if name in by_name else []) if a["type"].endswith("IP")]
        absent = [address for address in wanted if address not in seen["names"]]
        waits = [request for request in serving["pending"] if request["node"] == name]
        reason = seen["problem"] or ("its serving certificate does not have the Node's address {0}".format(", ".join(absent)) if absent else "")
        if reason:
            way_out = "its newest request waits for approval: " + approve(waits[-1:]) if waits else \
                "it has no pending request ('kubectl get csr'): search 'journalctl -u kubelet' on the host for 'certificate'"
            failures.append("{0}: {1}; {2}".format(host, reason, way_out))
    return failures
