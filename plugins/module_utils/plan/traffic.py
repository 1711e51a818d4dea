# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check of the traffic creates, and to which addresses it sends requests. Pure.

One DaemonSet is server and client on each Node. One Service of type LoadBalancer leads to it: first through every Node, then, with another
port, only through Nodes that have a Pod (C(externalTrafficPolicy: Local)), so that each answer says which Node is behind the load balancer.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ServedClasses

Row = Dict[str, Any]

NAMESPACE = "outoftree-ccm-check"
NAME = "check"
#: The labels of everything that the check creates. A namespace without this C(name) belongs to somebody else.
LABEL = {"app.kubernetes.io/managed-by": "outoftree.ccm", "app.kubernetes.io/name": "outoftree-ccm-check"}

#: Port of the servers, and of the Service before and after the change.
SERVER_PORT, FIRST_PORT, SECOND_PORT = 8080, 80, 8081

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
#: Nodes with one of these taints are not backends.
APART = ("node.cloudprovider.kubernetes.io/uninitialized", "ToBeDeletedByClusterAutoscaler")
#: The role gives this annotation only to Pods of other vendors' controllers.
FOREIGN_POD = "ccm.outoftree.dev/cloud-config"
#: Name of the controller that creates load balancers.
SERVES = "service-lb-controller"
CLEANUP = "service.kubernetes.io/load-balancer-cleanup"

#: Maximum number of other Nodes that each Pod asks, and of Pods that ask.
PEERS, ASKERS = 3, 40
#: Maximum probability that a load balancer that chooses Nodes at random leaves a Node without a request. With MOST_REQUESTS, it may be higher.
CHANCE = 0.001
FEWEST_REQUESTS, MOST_REQUESTS = 40, 1200
#: Number of requests of a Pod to the Service or to the load balancer, and of further requests if some of these were lost. If a fault loses one of
#: five requests by chance, 99 of 100 checks see at least one of the AGAIN requests lost.
FROM_POD, AGAIN = 5, 20
#: Number of connections at a time.
SIDE_BY_SIDE = 4

#: Seconds for which the cluster must report without a break that no address will come, before the check accepts that. They are longer than a
#: change of leaders, and longer than a cloud needs to free what was just deleted.
CERTAIN = 30
#: Seconds without a better answer after which the check regards the answers of a load balancer with an IP address as final, or those of Pods that
#: the Service does not answer. They are longer than the health checks of clouds need to add a Node, and than kube-proxy needs to add a Pod. A
#: cloud reports a name before the load balancer exists, so the check asks a name for the whole limit.
SETTLED = 35
#: Minimum number of seconds for which to ask again if the only fault is that requests get lost.
LOSSES = 4
#: An address that takes longer than this many seconds, or than half of the limit, is late.
LATE = 30
#: Words of clouds and of Kubernetes for a quota that is used up.
QUOTA = re.compile(r"quota|limit ?exceeded|exceeded (?:the )?(?:\w+ )?limit|too many load ?balancers|limit (?:of|on) .{0,40}reached", re.I)


def namespace(name: str) -> Row:
    labels = dict(LABEL, **{"pod-security.kubernetes.io/enforce": "restricted"})
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def no_evidence(limit: int) -> Row:
    """Return the evidence before the check starts, with all keys that it has at the end."""
    return {
        "limit": limit, "nodes": [], "pods": {}, "unheard": {}, "first": {}, "second": {}, "changed_nodes": [],
        "controller": {}, "removal": {"seconds": 0.0, "left": [], "after": None},
        "service": {"refused": "", "created": False, "class": "", "finalizer": False, "address": "", "seconds": 0.0, "waited": 0.0, "events": [],
                    "node_port": 0, "health_port": 0, "cluster_ip": ""},
    }


def refusal(place: str, existing: Optional[Row], image: str) -> str:
    """Return why the check cannot begin, '' if it can. C(existing) is the namespace if it already exists."""
    if existing is not None:
        ours = (existing["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == LABEL["app.kubernetes.io/name"]
        return "the namespace {0} already exists{1}".format(place, (
            ": another check runs, or one was killed. If none runs, remove it: kubectl delete namespace {0}".format(place)) if ours
            else ", and is not this check's own. Choose another one with check_namespace")
    return "" if image else ("there is no image for the Pods: the runtime of this collection does not run here. Name an image with Python (option "
                             "image, variable ccm_install_verify_active_details)")


def program(python: str, *arguments: str) -> List[str]:
    """Return the command of a container. The source is in its environment, because the command of an exec is part of a URL."""
    return [python, "-c", "import os; exec(os.environ['CHECK_SOURCE'])"] + list(arguments)


def daemonset(image: str, python: str, source: str, token: str) -> Row:
    """Return the DaemonSet of the servers. C(python) is the image's interpreter, C(source) what it runs."""
    container = {
        "name": NAME, "image": image, "imagePullPolicy": "IfNotPresent",
        "command": program(python, "serve", str(SERVER_PORT)),
        "env": [{"name": "CHECK_SOURCE", "value": source}, {"name": "CHECK_TOKEN", "value": token},
                {"name": "CHECK_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "ports": [{"name": "http", "containerPort": SERVER_PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": SERVER_PORT}, "periodSeconds": 1, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "automountServiceAccountToken": False, "enableServiceLinks": False, "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/os": "linux"}, "tolerations": [{"operator": "Exists"}], "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    template = {"metadata": {"labels": LABEL}, "spec": pod}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": NAME, "labels": LABEL},
            "spec": {"selector": {"matchLabels": LABEL}, "template": template}}


def service(annotations: Dict[str, str], served: ServedClasses) -> Row:
    """Return the Service: without a class, or with the controller's first class if it serves only Services with one."""
    of_class = {} if served["without"] else {"loadBalancerClass": name for name in served["names"][:1]}
    port = {"name": "http", "port": FIRST_PORT, "targetPort": SERVER_PORT, "protocol": "TCP"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "labels": LABEL, "annotations": annotations},
            "spec": dict(of_class, type="LoadBalancer", externalTrafficPolicy="Cluster", selector=LABEL, ports=[port])}


def changed_service(current: Row) -> Row:
    """Return the merge patch that changes the port and uses only Nodes with a Pod. The node port stays."""
    port = dict(current["spec"]["ports"][0], port=SECOND_PORT)
    return {"spec": {"externalTrafficPolicy": "Local", "ports": [port]}}


def nodes(items: Sequence[Row]) -> List[Row]:
    """Return {name, ready, backend, address, linux} of each Node. C(backend) is whether load balancers use it."""
    return [_node(item) for item in sorted(items, key=lambda item: item["metadata"]["name"])]


def _node(item: Row) -> Row:
    status, spec = item.get("status") or {}, item.get("spec") or {}
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or [])
    labels = item["metadata"].get("labels") or {}
    apart = EXCLUDED in labels or any(taint.get("key") in APART for taint in spec.get("taints") or [])
    addresses = [a["address"] for kind in ("InternalIP", "ExternalIP") for a in status.get("addresses") or [] if a.get("type") == kind]
    return {"name": item["metadata"]["name"], "ready": ready, "backend": ready and not apart, "address": (addresses or [""])[0],
            "linux": labels.get("kubernetes.io/os", "linux") == "linux"}


def identity(items: Sequence[Row]) -> Dict[str, Row]:
    """Return, by the name of each Node, what the check must not change."""
    return {item["metadata"]["name"]: {
        "uid": item["metadata"].get("uid"), "providerID": (item.get("spec") or {}).get("providerID"),
        "unschedulable": bool((item.get("spec") or {}).get("unschedulable"))} for item in items}


def changed_nodes(before: Dict[str, Row], after: Dict[str, Row]) -> List[str]:
    """Return how Nodes changed during the check. A Node that joined is no change."""
    texts = ["{0} is gone".format(name) for name in sorted(before) if name not in after]
    return texts + ["{0} has another {1}".format(name, key) for name in sorted(before) if name in after
                    for key in sorted(before[name]) if before[name][key] != after[name][key]]


def askers(names: Sequence[str]) -> List[str]:
    """Return at most ASKERS of the Nodes, spread over all of them."""
    return [names[place * len(names) // ASKERS] for place in range(ASKERS)] if len(names) > ASKERS else list(names)


def neighbours(name: str, names: Sequence[str]) -> List[str]:
    """Return the next PEERS Nodes after this one, in a circle, so that other Nodes ask each Node."""
    place = list(names).index(name) + 1 if name in names else 0
    circle = list(names[place:]) + list(names[:place])
    return [other for other in circle if other != name][:PEERS]


def world(evidence: Row, port: int) -> Row:
    """Return what Pods may ask: C(pods) (IP by Node), C(nodes), C(node_port), C(health_port) or 0, C(cluster_ip), C(address) or '', and C(port)."""
    service = {key: evidence["service"][key] for key in ("node_port", "health_port", "cluster_ip", "address")}
    return dict(service, pods={name: pod["ip"] for name, pod in evidence["pods"].items() if pod["ready"]}, nodes=evidence["nodes"], port=port)


def question(python: str, targets: Sequence[Row], token: str, timeout: float) -> List[str]:
    """Return the command with which a Pod asks these targets."""
    return program(python, "ask", json.dumps({"targets": targets, "token": token, "timeout": timeout}, separators=(",", ":")))


def inside(name: str, world: Row) -> List[Row]:
    """Return the targets of the world that the Pod of a Node asks."""
    pods, port = world["pods"], world["port"]
    targets = [_target("pod", other, pods[other], SERVER_PORT) for other in neighbours(name, sorted(pods))]
    targets.append(_target("service", "", world["cluster_ip"], port, FROM_POD))
    if world["address"]:
        targets.append(_target("balancer", "", world["address"], port, FROM_POD))
    if world["health_port"]:
        with_pod = {node["name"]: node["address"] for node in world["nodes"] if node["backend"] and node["address"] and node["name"] in pods}
        return targets + [dict(_target("health", other, with_pod[other], world["health_port"], 1), path="/healthz", any=True)
                          for other in _some(name, with_pod)]
    serving = {node["name"]: node["address"] for node in world["nodes"] if node["backend"] and node["address"]}
    if world["node_port"]:
        targets += [_target("node", other, serving[other], world["node_port"]) for other in _some(name, serving)]
    return targets


def _some(name: str, serving: Dict[str, str]) -> List[str]:
    return neighbours(name, sorted(serving)) or sorted(serving)[:1]


def _target(kind: str, node: str, host: str, port: int, count: int = 3) -> Row:
    return {"name": "{0}:{1}".format(kind, node), "host": host, "port": port, "count": count}


def is_reached(inside: Dict[str, List[Row]]) -> bool:
    """Return whether the Service answered each Pod, or cannot be expected to, because a Pod does not reach another Pod."""
    return _is_split(inside) or all(result["answered"] for results in inside.values() for result in results if result["name"] == "service:")


def _is_split(inside: Dict[str, List[Row]]) -> bool:
    """Return whether some Pod does not reach another Pod."""
    return any(result["name"].startswith("pod:") and not result["answered"] for results in inside.values() for result in results)


def lossy(targets: Dict[str, List[Row]], results: Dict[str, List[Row]]) -> Dict[str, List[Row]]:
    """Return, by Node, the targets to ask again with AGAIN requests: the Service and the load balancer, if they answered, but not every request.

    A busy machine loses a request now and then. A fault of the cluster loses requests again. If a Pod does not reach another Pod, there is such a fault
    already. Then no Pod asks again, because each lost request takes as long as a request may take.
    """
    if _is_split(results):
        return {}
    again = {name: [dict(target, count=AGAIN) for target, result in zip(targets[name], answers)
                    if target["name"] in ("service:", "balancer:") and 0 < result["answered"] < result["asked"]] for name, answers in results.items()}
    return {name: rows for name, rows in again.items() if rows}


def asked_again(results: Sequence[Row], repeated: Sequence[Row]) -> List[Row]:
    """Return the results, with the result of the further requests as C(again) where there is one."""
    by_name = {result["name"]: result for result in repeated}
    return [dict(result, again=by_name[result["name"]]) if result["name"] in by_name else result for result in results]


def outside(address: str, port: int, requests: int) -> List[Row]:
    """Return the targets that the module's host asks: the load balancer, on several connections at a time."""
    count = max(1, -(-requests // SIDE_BY_SIDE))
    return [_target("balancer", "", address, port, count) for unused in range(min(SIDE_BY_SIDE, requests))]


def expected(rows: Sequence[Row], pods: Dict[str, Row]) -> List[str]:
    """Return the Nodes that must be behind the load balancer: backends whose Pod is ready."""
    return sorted(node["name"] for node in rows if node["backend"] and pods.get(node["name"], {}).get("ready"))


def is_served(result: Row, names: Sequence[str], inside: Dict[str, List[Row]]) -> bool:
    """Return whether each of these Nodes answered, and each health port that Pods asked. Some requests may still be lost."""
    return all(name in result["nodes"] for name in names) and is_local(inside)


def is_local(inside: Dict[str, List[Row]]) -> bool:
    """Return whether every health port that Pods asked has answered."""
    return all(result["answered"] for results in inside.values() for result in results if result["name"].startswith("health:"))


def requests_for(expected: int) -> int:
    """Return how many requests to send so that each of C(expected) Nodes behind the load balancer very likely answers one (see CHANCE): at least
    FEWEST_REQUESTS, and at most MOST_REQUESTS."""
    enough = math.log(expected / CHANCE) / -math.log1p(-1.0 / expected) if expected > 1 else 0
    return min(MOST_REQUESTS, max(FEWEST_REQUESTS, math.ceil(enough)))


def left_out_by_chance(expected: int, requests: int) -> float:
    """Return how many of C(expected) Nodes on average get none of the requests if the load balancer chooses a Node at random for each."""
    return expected * (1.0 - 1.0 / expected) ** requests


def merged(results: Sequence[Row]) -> Row:
    """Return several results as one."""
    total: Row = {"asked": 0, "answered": 0, "nodes": {}, "errors": {}, "ms": []}
    for result in results:
        for key in ("asked", "answered"):
            total[key] += result[key]
        for key in ("nodes", "errors"):
            for name, count in result[key].items():
                total[key][name] = total[key].get(name, 0) + count
        total["ms"] += result["ms"]
    return total


class Patience:
    """Decides how long to wait for an address: at most for the limit, and at most for CERTAIN seconds while the cluster
    shows that none will come."""

    def __init__(self, limit: float, now: float) -> None:
        self.limit, self.began, self.hope = limit, now, now

    def is_over(self, now: float, service: Row, controller: Row) -> bool:
        """Return whether the address is there, will not come, or did not come in time. Call it repeatedly, because the leader may be changing."""
        if service["address"] or service["class"] or controller["offers"] is False:
            return True
        if controller["leads"] and not QUOTA.search(last_warning(service["events"])):
            self.hope = now
        return now - self.began > self.limit or now - self.hope > CERTAIN

    def is_in_doubt(self, now: float) -> bool:
        """Return whether the last call of is_over saw signs that no address will come."""
        return self.hope < now


class Hope:
    """Decides how long to ask a load balancer again: while its answers get better and for some time afterwards, but not longer than the limit."""

    def __init__(self, limit: float, address: str, now: float) -> None:
        self.settled = SETTLED if _is_ip(address) else limit
        self.end, self.better = now + limit, now
        self.best: Tuple[int, ...] = ()
        self.losing: Optional[float] = None

    def is_over(self, now: float, score: Tuple[int, ...]) -> bool:
        """Return whether to stop asking, because no better answer is expected. C(score): that of the last answer; better is greater."""
        if score > self.best:
            self.best, self.better = score, now
        return self.left(now) < 0

    def shorten(self, now: float, spent: float) -> None:
        """At the first call, shorten the wait by the seconds for which the check has already waited for lost requests, but not below LOSSES."""
        if self.losing is None:
            self.losing, self.settled = now, min(self.settled, max(LOSSES, self.settled - spent))

    def waited_for_losses(self, now: float) -> float:
        return 0.0 if self.losing is None else now - self.losing

    def left(self, now: float) -> float:
        """Return the seconds for which to keep asking if no better answer comes; negative if the time is up."""
        return min(self.end, self.better + self.settled) - now


def _is_ip(address: str) -> bool:
    try:
        return bool(ipaddress.ip_address(address))
    except ValueError:
        return False


def score(result: Row, names: Sequence[str], inside: Dict[str, List[Row]]) -> Tuple[int, ...]:
    """Return how good the answers are: by the health ports that Pods reach, the Nodes that answered, and the answered requests."""
    health = sum(1 for results in inside.values() for one in results if one["answered"] and one["name"].startswith("health:"))
    return health, sum(name in result["nodes"] for name in names), result["answered"]


def events(items: Sequence[Row]) -> List[Row]:
    """Return type, reason and message of Events, the oldest first, with each message on one line."""
    items = sorted(items, key=lambda item: item.get("lastTimestamp") or item.get("eventTime") or "")
    return [{"type": item.get("type"), "reason": item.get("reason"), "message": " ".join((item.get("message") or "").split())} for item in items]


def last_warning(events: Sequence[Row]) -> str:
    """Return reason and message of the newest warning among these Events, '' if there is no warning."""
    return next(("{reason}: {message}".format(**event) for event in reversed(events) if event["type"] == "Warning"), "")


def address_of(item: Row) -> str:
    """Return the first address or name of a Service's load balancer, '' if it has none."""
    for ingress in ((item.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []:
        if ingress.get("ip") or ingress.get("hostname"):
            return ingress.get("ip") or ingress["hostname"]
    return ""


def runtime_image(daemonset: Any) -> str:
    """Return the image of this collection's own runtime from the controller's DaemonSet; '' without a DaemonSet, or if it runs another controller."""
    if not daemonset or (daemonset["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") != LABEL["app.kubernetes.io/managed-by"]:
        return ""
    template = daemonset["spec"]["template"]
    container = template["spec"]["containers"][0]
    foreign = container.get("command") or FOREIGN_POD in ((template.get("metadata") or {}).get("annotations") or {})
    return "" if foreign else container.get("image", "")


def controller(lease: Row, own: bool) -> Row:
    """Return which controller leads, and whether that controller serves Services (None if its Lease does not say, or if C(own) is false).
    C(own): whether it is this collection's runtime.
    """
    notes = lease["annotations"]
    running = [name.strip() for name in notes.get("controllers", "").split(",")]
    absent = [name.strip() for name in notes.get("not-offered", "").split(",")]
    why = "its provider {0} has no load balancers".format(notes.get("cloud-provider", "")) if SERVES in absent else \
        "it runs {0}".format(", ".join(running))
    return {"leads": lease["held"], "holder": lease["holder"], "age": lease["age"], "why": why,
            "offers": SERVES in running if "controllers" in notes and own else None, "address": "", "differences": ""}


def explained(answer: Any) -> Row:
    """Return the load balancer's address in the cloud, and its differences from the Service, from the result of C(ccm explain service).

    Each is '' if that result has none.
    """
    looked = {item.get("what"): str(item.get("answer")) for item in (answer or {}).get("lookedUp") or []} if isinstance(answer, dict) else {}
    listed = re.search(r": (?:not )?ready, (\S+)$", looked.get("its load balancer, by its UID", ""))
    differences = looked.get("differences from the Service", "none")
    return {"address": listed.group(1) if listed else "", "differences": "" if differences == "none" else differences}
