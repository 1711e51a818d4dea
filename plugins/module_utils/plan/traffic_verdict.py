# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the answers to a check of the traffic mean: what works, what does not and for which cause, and what could not be asked. Pure.

The evidence is data: M(outoftree.ccm.ccm_load_balancer_check) collects it. A text says no more than what was seen. If two causes look the
same from here, the text names both.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import columns, grouping, traffic

Row = Dict[str, Any]

OK, FAILED, UNASKED = "ok", "failed", "not asked"

#: Reasons of a kubelet for an image that it does not have.
_IMAGE = re.compile(r"ErrImage|ImagePull|ImageInspect|InvalidImageName|ErrImageNeverPull|RegistryUnavailable")

#: What to do about each cause.
ADVICE = {
    "no-image": "Name an image with Python that every Node has or can pull (image of ccm_install_verify_active_details).",
    "no-pods": "Look at the reason above. The check needs a Pod on at least one Node.",
    "no-route": "Look at the routes in the cloud, --cluster-cidr and --configure-cloud-routes, and at the Pod network's own agents.",
    "foreign-class": "Find the webhook that sets loadBalancerClass (kubectl get mutatingwebhookconfigurations).",
    "dead-controller": "Run outoftree.ccm.verify, and look at the controller's log: kubectl -n kube-system logs ds/cloud-controller-manager",
    "no-support": "Nothing to do, if the cluster needs no load balancers.",
    "quota": "Raise the quota of load balancers or addresses in the cloud, or delete some.",
    "refused": "Read the message: it is the API server's or the cloud's own.",
    "slow-cloud": "Look at the load balancer in the cloud. Set ccm_install_services_timeout higher if the cloud needs longer.",
    "not-taken": "Look at the controller's log: it leads, but did not begin with the Service.",
    "stale-address": "Compare the Service's address with the load balancer's in the cloud, and look for another writer of its status.",
    "wrong-port": "Compare the load balancer's ports and the ports of its targets in the cloud with the Service.",
    "security-group": "Allow the load balancer to reach the Nodes' ports: security groups, firewalls and network policies.",
    "node-ports": "Look at kube-proxy on the Nodes, and at firewalls of the hosts.",
    "unreachable": "Run the check on a host that reaches the load balancers as users do: set ccm_install_api_host.",
    "lost-requests": "Compare the load balancer's targets and their health in the cloud with the Nodes.",
    "not-updated": "Look at the controller's log for the Service's update, and at the load balancer's ports in the cloud.",
    "health-port": "Allow the health check's port on these Nodes, and look at kube-proxy there.",
    "missing-nodes": "Compare the load balancer's targets in the cloud with the Nodes. ccm explain node NAME says why one is left out.",
    "inside": "Look at kube-proxy (or its replacement) on these Nodes.",
    "left-over": "Delete the load balancer in the cloud if it is still there. A controller that works removes it with the Service.",
    "changed-nodes": "Look at what else changes Nodes: an autoscaler, or a repair of machines.",
}


class Check(NamedTuple):
    """One question and its answer. C(cause) is a key of ADVICE, or ''; a failed check always has one."""

    name: str
    state: str
    detail: str
    cause: str = ""


def judge(evidence: Row) -> Row:
    """Return {ok, cause, checks, message, advice, lines, requests}. C(cause) and C(advice) are those of the first question that failed, '' if none did."""
    checks = [question(evidence) for question in (_pods, _pod_network, _address, _outside, _port_change, _behind, _inside, _removal, _nodes)]
    failed = [check for check in checks if check.state == FAILED]
    lines = [_line(check) for check in checks]
    advice = ADVICE[failed[0].cause] if failed else ""
    if failed and evidence["controller"]["differences"]:
        lines += ["", "The controller compared the load balancer with the Service: " + evidence["controller"]["differences"]]
    if failed:
        lines += ["", "Do next: " + advice]
    return {"ok": not failed, "cause": failed[0].cause if failed else "", "checks": [dict(check._asdict()) for check in checks],
            "message": ["{0}: {1} [{2}]".format(check.name, check.detail, check.cause) for check in failed],
            "advice": advice, "lines": columns.fitted(lines),
            "requests": {name: _counts(result) for name, result in _asked(evidence)}}


def _line(check: Check) -> str:
    mark = {OK: "ok  ", FAILED: "FAIL", UNASKED: "-   "}[check.state]
    cause = " [{0}]".format(check.cause) if check.state == FAILED else ""
    return "{0}  {1}  {2}{3}".format(mark, check.name.ljust(12), check.detail, cause)


def _asked(evidence: Row) -> Iterator[Tuple[str, Row]]:
    """Yield (name, result) of the requests from outside, and of each kind of question from Pods."""
    for phase in ("first", "second"):
        rows = evidence[phase]
        if rows.get("outside"):
            yield "outside" if phase == "first" else "outside after the change", rows["outside"]
        by_kind: Dict[str, List[Row]] = {}
        for results in rows.get("inside", {}).values():
            for result in results:
                by_kind.setdefault(result["name"].partition(":")[0], []).append(_with_again(result))
        for kind, results in sorted(by_kind.items()):
            yield "{0} from Pods{1}".format(kind, "" if phase == "first" else " after the change"), traffic.merged(results)


def _counts(result: Row) -> Row:
    ms = sorted(result["ms"])
    return {"asked": result["asked"], "answered": result["answered"], "errors": result["errors"],
            "median_ms": ms[len(ms) // 2] if ms else None, "slowest_ms": ms[-1] if ms else None}


def _said(result: Row) -> str:
    counts = _counts(result)
    text = "{0} of {1} requests answered".format(result["answered"], result["asked"])
    if result["ms"]:
        text += ", median {0:.0f} ms, slowest {1:.0f} ms".format(counts["median_ms"], counts["slowest_ms"])
    if result["errors"]:
        text += " ({0})".format(", ".join("{0} {1}".format(count, kind) for kind, count in sorted(result["errors"].items())))
    return text


def _pods(evidence: Row) -> Check:
    pods = evidence["pods"]
    ready = sorted(name for name, pod in pods.items() if pod["ready"])
    missing = sorted(name for name, pod in pods.items() if not pod["ready"])
    reasons = grouping.equal_messages(["{0}: {1}".format(name, pods[name]["reason"] or "not Ready") for name in missing])
    image = any(_IMAGE.search(pods[name]["reason"]) for name in missing)
    if not ready:
        return Check("pods", FAILED, "no Pod of the check runs, so nothing was asked. {0}".format("; ".join(reasons) or "There is no Ready Node"),
                     "no-image" if image else "no-pods")
    unheard = grouping.equal_messages(["{0}: {1}".format(*item) for item in sorted(evidence["unheard"].items())])
    if missing or unheard:
        return Check("pods", UNASKED, "{0} of {1} Nodes run the check. Nothing was asked from the others: {2}".format(
            len(ready), len(pods), "; ".join(reasons + unheard)), "no-image" if image else "no-pods")
    return Check("pods", OK, "{0} Node(s) run the check's server".format(len(ready)))


def _results(evidence: Row, phase: str, kind: str) -> List[Tuple[str, str, Row]]:
    """Return (asking Node, asked Node or '', result) of one kind of question."""
    return [(asker, result["name"].partition(":")[2], result) for asker, results in sorted(evidence[phase].get("inside", {}).items())
            for result in results if result["name"].partition(":")[0] == kind]


def _pod_network(evidence: Row) -> Check:
    pairs = _results(evidence, "first", "pod")
    if not pairs:
        return Check("pod-network", UNASKED, "no Pod on another Node could be asked")
    broken = [(asker, other, result) for asker, other, result in pairs if not result["answered"]]
    if broken:
        return Check("pod-network", FAILED, "Pods do not reach Pods on other Nodes: {0}".format(_pairs(broken)), "no-route")
    return Check("pod-network", OK, "{0} pairs of Nodes: Pods reach each other".format(len(pairs)))


def _pairs(broken: Sequence[Tuple[str, str, Row]]) -> str:
    shown = ["{0} to {1} ({2})".format(asker, other, _kinds(result)) for asker, other, result in broken]
    return grouping.compact(shown)


def _kinds(result: Row) -> str:
    return ", ".join(sorted(result["errors"])) or "not asked"


def _most(result: Row) -> str:
    """Return how most of the failed attempts ended, '' if none failed."""
    errors = result["errors"]
    return max(sorted(errors), key=lambda kind: errors[kind]) if errors else ""


def _address(evidence: Row) -> Check:
    service, controller, waited = evidence["service"], evidence["controller"], evidence["service"]["waited"]
    if service["refused"]:
        return Check("address", FAILED, "the API server refused the Service: {0}".format(service["refused"]),
                     "quota" if traffic.QUOTA.search(service["refused"]) else "refused")
    if service["address"]:
        late = service["seconds"] > min(traffic.LATE, evidence["limit"] / 2)
        return Check("address", OK, "{0} after {1:.1f} s{2}".format(service["address"], service["seconds"], ": the cloud is slow" if late else ""))
    if not service["created"]:
        return Check("address", UNASKED, "no Service was created")
    if service["class"]:
        return Check("address", FAILED, "something gave the Service the class {0}, so another controller must serve it. This one does "
                     "not".format(service["class"]), "foreign-class")
    if not controller["leads"]:
        return Check("address", FAILED, "no cloud-controller-manager is at work: {0}".format(_lease(controller)), "dead-controller")
    if controller["offers"] is False:
        return Check("address", UNASKED, "the controller does not run the service controller ({0}), so nobody can create a load balancer".format(
            controller["why"]), "no-support")
    warning = traffic.last_warning(service["events"])
    if warning:
        return Check("address", FAILED, "there is no address after {0:.0f} s. The controller says: {1}".format(waited, warning),
                     "quota" if traffic.QUOTA.search(warning) else "refused")
    if service["finalizer"]:
        return Check("address", FAILED, "the cloud is slow: the controller works on the Service and reports no error, but there is no address "
                     "after {0:.0f} s".format(waited), "slow-cloud")
    return Check("address", FAILED, "no controller took the Service within {0:.0f} s, although {1} leads".format(waited, controller["holder"]),
                 "not-taken")


def _lease(controller: Row) -> str:
    if not controller["holder"]:
        return "nobody holds its Lease"
    return "{0} holds its Lease, but has not renewed it for {1} s".format(controller["holder"], controller["age"])


def _outside(evidence: Row) -> Check:
    result, service = evidence["first"].get("outside"), evidence["service"]
    if not result:
        return Check("outside", UNASKED, "there is no address to ask" if not service["address"] else "nothing was asked")
    if result["answered"] == result["asked"]:
        return Check("outside", OK, "{0}; the first one {1:.1f} s after the address".format(_said(result), evidence["first"]["seconds"]))
    if result["answered"]:
        return Check("outside", FAILED, "{0} at {1}:{2}".format(_said(result), service["address"], traffic.FIRST_PORT), "lost-requests")
    return Check("outside", FAILED, *_silent(evidence, "first", traffic.FIRST_PORT))


def _silent(evidence: Row, phase: str, port: int) -> Tuple[str, str]:
    """Return (text, cause) for a load balancer that answered no request."""
    service, result = evidence["service"], evidence[phase]["outside"]
    kind, where = _most(result), "{0}:{1}".format(service["address"], port)
    known = evidence["controller"].get("address") or ""
    if known and known != service["address"]:
        return "the Service names {0}, but the load balancer in the cloud has {1}: the address is stale".format(service["address"], known), "stale-address"
    if kind == "stranger":
        return "another server answers at {0}: the address is stale, or belongs to something else".format(where), "stale-address"
    serving = [item for item in _results(evidence, "first", "node") if item[2]["answered"]]
    if _results(evidence, "first", "node") and not serving:
        return "nothing answers at {0} ({1}), and no Node answers Pods at its node port {2}".format(where, kind, service["node_port"]), "node-ports"
    if kind == "refused":
        return ("{0} refuses connections: the load balancer does not listen there, or sends them to a port on which the Nodes do not "
                "listen{1}".format(where, _nodes_answer(serving, service))), "wrong-port"
    if kind in ("unreachable", "name"):
        return "{0} cannot be reached from here ({1})".format(where, kind), "unreachable"
    return ("{0} gives no answer ({1}){2}. A security group or firewall between them is closed, the health check fails, or nobody has the "
            "address".format(where, kind, _nodes_answer(serving, service))), "security-group"


def _nodes_answer(serving: Sequence[Any], service: Row) -> str:
    names = sorted({other for unused, other, unused2 in serving})
    return ", although {0} answer(s) Pods at the node port {1}".format(grouping.compact(names), service["node_port"]) if names else ""


def _port_change(evidence: Row) -> Check:
    second, port = evidence["second"], traffic.SECOND_PORT
    result = second.get("outside")
    if not result:
        return Check("port-change", UNASKED, second.get("why") or "the load balancer did not answer before the change")
    old = second.get("old") or {"answered": 0}
    if result["answered"] and old["answered"]:
        return Check("port-change", FAILED, "the load balancer still answers at the old port {0}".format(traffic.FIRST_PORT), "not-updated")
    if result["answered"] == result["asked"]:
        return Check("port-change", OK, "port {0} after {1:.1f} s, the old one is closed; {2}".format(port, second["seconds"], _said(result)))
    deaf = _deaf(evidence)
    if deaf:
        return Check("port-change", FAILED, "{0} at port {1}. These Nodes do not answer at their health port {2}: {3} ({4})".format(
            _said(result), port, evidence["service"]["health_port"], grouping.compact(sorted(item[1] for item in deaf)), _kinds(deaf[0][2])),
            "health-port")
    if result["answered"]:
        return Check("port-change", FAILED, "{0} at port {1}".format(_said(result), port), "lost-requests")
    if old["answered"]:
        return Check("port-change", FAILED, "the load balancer answers at the old port {0}, and not at the new one, {1}".format(
            traffic.FIRST_PORT, port), "not-updated")
    return Check("port-change", FAILED, "port {0} gives no answer after the change ({1}). With externalTrafficPolicy Local, the load balancer asks "
                 "each Node's health port {2}, which a firewall may block".format(port, _most(result), evidence["service"]["health_port"]), "health-port")


def _deaf(evidence: Row) -> List[Tuple[str, str, Row]]:
    """Return (asking Node, asked Node, result), once for each asked Node whose health port no Pod reached."""
    asked = _results(evidence, "second", "health")
    heard = {other for unused, other, result in asked if result["answered"]}
    return list({item[1]: item for item in asked if item[1] not in heard}.values())


def _behind(evidence: Row) -> Check:
    result = evidence["second"].get("outside")
    expected = traffic.expected(evidence["nodes"], evidence["pods"])
    if not result or not result["answered"]:
        return Check("nodes-behind", UNASKED, "the load balancer does not answer")
    missing = [name for name in expected if name not in result["nodes"]]
    if not missing:
        return Check("nodes-behind", OK, "all {0} Node(s) answered behind the load balancer".format(len(expected)))
    deaf = [item for item in _deaf(evidence) if item[1] in missing]
    if deaf:
        return Check("nodes-behind", FAILED, "{0} did not answer: their health port {1} is closed ({2})".format(
            grouping.compact(sorted(item[1] for item in deaf)), evidence["service"]["health_port"], _kinds(deaf[0][2])), "health-port")
    if len(result["nodes"]) == 1:
        return Check("nodes-behind", UNASKED, "all {0} answers came from {1}: the load balancer chooses a Node by the client's address, or has no "
                     "other one".format(result["answered"], next(iter(result["nodes"]))), "missing-nodes")
    by_chance = traffic.left_out_by_chance(len(expected), result["answered"])
    if by_chance > traffic.CHANCE and len(missing) <= 3 * by_chance + 3:
        return Check("nodes-behind", UNASKED, "{0} of {1} Nodes did not answer, but {2} answers are too few to judge that: a load balancer that chooses Nodes "
                     "at random leaves about {3:.2g} of them out".format(len(missing), len(expected), result["answered"], by_chance), "missing-nodes")
    return Check("nodes-behind", FAILED, "{0} of {1} Nodes answered none of {2} requests: {3}. They are not targets of the load balancer, or it "
                 "considers them unhealthy".format(len(missing), len(expected), result["asked"], grouping.compact(missing)), "missing-nodes")


def _inside(evidence: Row) -> Check:
    """Check whether Pods reach the Service and the load balancer. Requests that were lost once, and not again, are not a failure."""
    failures: Dict[str, List[Tuple[str, Row]]] = {}
    results = []
    for phase in ("first", "second"):
        for kind, what in (("service", "the Service's cluster IP"), ("balancer", "the load balancer's address")):
            # Pods need not reach a load balancer that nobody reaches from outside.
            if kind == "balancer" and not (evidence[phase].get("outside") or {"answered": 0})["answered"]:
                continue
            for asker, unused, result in _results(evidence, phase, kind):
                results.append(result)
                if not _all(result) and not _all(result.get("again") or result):
                    failures.setdefault(what, []).append((asker, _with_again(result)))
    if failures:
        return Check("inside", FAILED, "; ".join(_lossy(what, rows) for what, rows in failures.items()), "inside")
    if not results:
        return Check("inside", UNASKED, "no Pod asked")
    askers = {asker for phase in ("first", "second") for asker in evidence[phase].get("inside", {})}
    return Check("inside", OK, "Pods on {0} Node(s) reach the Service{1}{2}".format(
        len(askers), " and the load balancer" if (evidence["first"].get("outside") or {"answered": 0})["answered"] else "", _lost_once(results)))


def _lossy(what: str, rows: Sequence[Tuple[str, Row]]) -> str:
    """Return how many requests of these (asking Node, result) were answered, as one sentence for all these Nodes."""
    total, names = traffic.merged([result for unused, result in rows]), grouping.compact(sorted({asker for asker, unused in rows}))
    return "{0}: {1} of {2} requests answered at {3} ({4})".format(names, total["answered"], total["asked"], what, _kinds(total))


def _all(result: Row) -> bool:
    return result["answered"] == result["asked"]


def _with_again(result: Row) -> Row:
    """Return the result together with that of the repeated requests (C(again)), if the Pod asked again."""
    return traffic.merged([result, result["again"]]) if "again" in result else result


def _lost_once(results: Sequence[Row]) -> str:
    """Return how many requests were lost, and how many the Pods then repeated, none of which was lost; '' if no request was lost at first."""
    lost = sum(result["asked"] - result["answered"] for result in results)
    return "; {0} of {1} requests lost, and none of {2} when asked again".format(
        lost, sum(result["asked"] for result in results), sum(result["again"]["asked"] for result in results if "again" in result)) if lost else ""


def _removal(evidence: Row) -> Check:
    removal = evidence["removal"]
    if removal["left"]:
        return Check("removal", FAILED, "{0}. In the cloud, the load balancer may still exist".format("; ".join(removal["left"])), "left-over")
    if removal["after"] and removal["after"]["answered"]:
        return Check("removal", FAILED, "{0} still answers after the Service is gone".format(evidence["service"]["address"]), "left-over")
    return Check("removal", OK, "everything that the check created is gone after {0:.1f} s".format(removal["seconds"])
                 + (", and the address no longer answers" if removal["after"] else ""))


def _nodes(evidence: Row) -> Check:
    changed = evidence["changed_nodes"]
    if changed:
        return Check("nodes", FAILED, "Nodes changed during the check: {0}".format("; ".join(grouping.equal_messages(changed))), "changed-nodes")
    return Check("nodes", OK, "{0} Node(s) are as before".format(len(evidence["nodes"])))
