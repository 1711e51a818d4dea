# SPDX-License-Identifier: Apache-2.0
"""The verdict of a traffic check: it names the cause of each breakage, and no other cause."""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List

import pytest

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import traffic, traffic_verdict

NODES = ["w-1", "w-2", "w-3", "w-4"]
Evidence = Dict[str, Any]


def result(name: str = "", asked: int = 3, error: str = "", nodes: Any = (), answered: int = -1) -> Dict[str, Any]:
    good = (0 if error else asked) if answered < 0 else answered
    shares = {node: good // len(nodes) for node in nodes} if good else {}
    return {"name": name, "asked": asked, "answered": good, "nodes": shares, "errors": {error: asked - good} if good < asked else {},
            "ms": [2.0] * good}


def ring(kind: str, name: str) -> List[Dict[str, Any]]:
    return [result("{0}:{1}".format(kind, other)) for other in traffic.neighbours(name, NODES)]


def healthy() -> Evidence:
    """Return the evidence of a cluster in which everything works."""
    both = {name: [result("service:", 5), result("balancer:", 5)] for name in NODES}
    return {
        "limit": 60,
        "nodes": [{"name": name, "ready": True, "backend": True, "address": "10.0.0.1", "linux": True} for name in NODES],
        "pods": {name: {"ready": True, "reason": "", "ip": "10.244.0.1", "pod": "check-" + name} for name in NODES},
        "unheard": {},
        "controller": {"leads": True, "holder": "cp-1_6f1a", "age": 1.0, "offers": True, "why": "", "address": "", "differences": ""},
        "service": {"refused": "", "created": True, "class": "", "finalizer": True, "address": "203.0.113.7", "seconds": 2.0, "waited": 2.0, "events": [],
                    "node_port": 30080, "health_port": 32000, "cluster_ip": "10.96.0.9"},
        "first": {"outside": result("", 48, nodes=NODES), "seconds": 0.3,
                  "inside": {name: both[name] + ring("pod", name) + ring("node", name) for name in NODES}},
        "second": {"outside": result("", 48, nodes=NODES), "seconds": 1.0, "old": result("", 1, "refused"),
                   "inside": {name: both[name] + ring("health", name) for name in NODES}},
        "removal": {"seconds": 3.0, "left": [], "after": result("", 1, "refused")},
        "changed_nodes": [],
    }


def inside(evidence: Evidence, phase: str, name: str, error: str, askers: Any = ()) -> None:
    for asker in askers or NODES:
        found = evidence[phase]["inside"][asker]
        evidence[phase]["inside"][asker] = [result(each["name"], each["asked"], error) if each["name"] == name else each for each in found]


def no_address(evidence: Evidence, **service: Any) -> None:
    evidence["service"].update({"address": "", "seconds": 0.0, "waited": 60.2}, **service)
    evidence["first"].pop("outside")
    evidence["second"] = {}
    evidence["removal"]["after"] = None
    for name in NODES:
        evidence["first"]["inside"][name] = [each for each in evidence["first"]["inside"][name] if each["name"] != "balancer:"]


def silent(evidence: Evidence, error: str) -> None:
    evidence["first"]["outside"] = result("", 3, error)
    evidence["second"] = {}
    evidence["removal"]["after"] = None


def no_route(evidence: Evidence) -> None:
    for asker in ("w-1", "w-3", "w-4"):
        inside(evidence, "first", "pod:w-2", "timeout", [asker])
    inside(evidence, "first", "service:", "timeout")
    evidence["first"]["outside"] = result("", 48, "timeout", NODES, answered=36)


def closed(evidence: Evidence) -> None:
    silent(evidence, "timeout")


def wrong_port(evidence: Evidence) -> None:
    silent(evidence, "refused")


def health_port_blocked(evidence: Evidence) -> None:
    for name in ("w-1", "w-2"):
        inside(evidence, "second", "health:" + name, "timeout")
    evidence["second"]["outside"] = result("", 48, nodes=["w-3", "w-4"])


def every_health_port_blocked(evidence: Evidence) -> None:
    for name in NODES:
        inside(evidence, "second", "health:" + name, "refused")
    evidence["second"]["outside"] = result("", 3, "refused")


def half_missing(evidence: Evidence) -> None:
    evidence["second"]["outside"] = result("", 48, nodes=["w-1", "w-2"])


def stranger(evidence: Evidence) -> None:
    silent(evidence, "stranger")


def other_address(evidence: Evidence) -> None:
    silent(evidence, "timeout")
    evidence["controller"]["address"] = "203.0.113.8"


def quota(evidence: Evidence) -> None:
    message = "the cloud refused: quota exceeded for load balancers (429)"
    no_address(evidence, events=[{"type": "Warning", "reason": "SyncLoadBalancerFailed", "message": message}])


def quota_of_namespaces(evidence: Evidence) -> None:
    no_address(evidence, created=False, refused="services is forbidden: exceeded quota: default, limited: services.loadbalancers=0 (403)")


def foreign_class(evidence: Evidence) -> None:
    no_address(evidence, **{"class": "example.com/internal", "finalizer": False})


def slow_cloud(evidence: Evidence) -> None:
    no_address(evidence)


def dead_controller(evidence: Evidence) -> None:
    no_address(evidence, finalizer=False)
    evidence["controller"].update(leads=False, age=95.0)


BREAKAGES: Dict[str, Any] = {
    "no-route": (no_route, "w-1 to w-2 (timeout)"),
    "security-group": (closed, "although w-1...w-4 answer(s) Pods at the node port 30080"),
    "wrong-port": (wrong_port, "203.0.113.7:80 refuses connections"),
    "health-port": (health_port_blocked, "w-1, w-2 did not answer: their health port 32000 is closed"),
    "missing-nodes": (half_missing, "2 of 4 Nodes answered none of 48 requests: w-3, w-4"),
    "stale-address": (stranger, "another server answers at 203.0.113.7:80"),
    "quota": (quota, "quota exceeded for load balancers"),
    "foreign-class": (foreign_class, "the class example.com/internal"),
    "slow-cloud": (slow_cloud, "there is no address after 60 s"),
    "dead-controller": (dead_controller, "has not renewed it for 95.0 s"),
}


@pytest.mark.parametrize("cause", BREAKAGES)
def test_each_breakage_is_found_and_named(cause: str):
    plant, text = BREAKAGES[cause]
    evidence = healthy()
    plant(evidence)
    verdict = traffic_verdict.judge(evidence)
    assert not verdict["ok"] and verdict["cause"] == cause, verdict["lines"]
    assert text in verdict["message"][0]
    assert verdict["advice"] and verdict["advice"].split()[0] in " ".join(verdict["lines"]).partition("Do next: ")[2]
    assert max(map(len, verdict["lines"])) <= 80 or cause == "foreign-class", verdict["lines"]


@pytest.mark.parametrize(
    ("plant", "cause", "text"),
    [
        (other_address, "stale-address", "the load balancer in the cloud has 203.0.113.8"),
        (quota_of_namespaces, "quota", "limited: services.loadbalancers=0"),
        (every_health_port_blocked, "health-port", "their health port 32000: w-1...w-4 (refused)"),
    ],
)
def test_another_form_of_a_breakage_has_the_same_name(plant: Callable[[Evidence], None], cause: str, text: str):
    evidence = healthy()
    plant(evidence)
    verdict = traffic_verdict.judge(evidence)
    assert verdict["cause"] == cause and text in " ".join(verdict["message"]), verdict["message"]


def test_a_healthy_cluster_passes_every_question_with_counts_and_times():
    verdict = traffic_verdict.judge(healthy())
    assert verdict["ok"] and verdict["cause"] == verdict["advice"] == "" and verdict["message"] == []
    assert {check["state"] for check in verdict["checks"]} == {"ok"}
    assert verdict["requests"]["outside"] == {"asked": 48, "answered": 48, "errors": {}, "median_ms": 2.0, "slowest_ms": 2.0}
    assert verdict["requests"]["pod from Pods"]["asked"] == 36
    assert max(map(len, verdict["lines"])) <= 80
    text = "\n".join(verdict["lines"])
    starts = {text.index(check["detail"][:12]) - text.rindex("\n", 0, text.index("  " + check["detail"][:12])) for check in verdict["checks"][1:]}
    assert len(starts) == 1, text


def change(place: str, **values: Any) -> Callable[[Evidence], None]:
    return lambda evidence: evidence[place].update(values)


@pytest.mark.parametrize(
    ("plant", "cause"),
    [
        (lambda evidence: silent(evidence, "unreachable"), "unreachable"),
        (lambda evidence: (silent(evidence, "timeout"), [inside(evidence, "first", "node:" + name, "timeout") for name in NODES]), "node-ports"),
        (lambda evidence: evidence["first"].update(outside=result("", 48, "timeout", NODES, answered=24)), "lost-requests"),
        (lambda evidence: evidence["second"].update(outside=result("", 3, "refused"), old=result("", 1)), "not-updated"),
        (lambda evidence: evidence["second"].update(old=result("", 1)), "not-updated"),
        (lambda evidence: inside(evidence, "first", "service:", "refused", ["w-3"]), "inside"),
        (change("removal", left=["the Service waits for its controller"]), "left-over"),
        (change("removal", after=result("", 1)), "left-over"),
        (lambda evidence: evidence.update(changed_nodes=["w-2 is gone"]), "changed-nodes"),
        (lambda evidence: no_address(evidence, finalizer=False), "not-taken"),
        (lambda evidence: no_address(evidence, created=False, refused="admission webhook denied the request (403)"), "refused"),
    ],
)
def test_other_faults_are_told_apart(plant: Callable[[Evidence], Any], cause: str):
    evidence = healthy()
    plant(evidence)
    verdict = traffic_verdict.judge(evidence)
    assert verdict["cause"] == cause and cause in traffic_verdict.ADVICE, verdict["lines"]


def lose_inside(evidence: Evidence, phase: str, kind: str, again: Any) -> None:
    """Let w-3 lose one of five requests, and then `again` of 20 more; None: w-3 could not send these 20."""
    lost = result(kind, 5, "timeout", answered=4)
    if again is not None:
        lost["again"] = result(kind, 20, "timeout", answered=20 - again)
    evidence[phase]["inside"]["w-3"] = [lost if each["name"] == kind else each for each in evidence[phase]["inside"]["w-3"]]


@pytest.mark.parametrize("phase", ["first", "second"])
@pytest.mark.parametrize(("kind", "label"), [("service:", "service"), ("balancer:", "balancer")])
@pytest.mark.parametrize(("again", "text"), [
    (0, "reach the Service and the load balancer; 1 of 80 requests lost, and none of 20 when asked again"),
    (1, "w-3: 23 of 25 requests answered"),
    (20, "w-3: 4 of 25 requests answered"),
    (None, "w-3: 4 of 5 requests answered"),
])  # fmt: skip
def test_requests_that_pods_lose_once_and_not_again_are_no_failure(phase: str, kind: str, label: str, again: Any, text: str):
    evidence = healthy()
    lose_inside(evidence, phase, kind, again)
    verdict = traffic_verdict.judge(evidence)
    assert (verdict["ok"], verdict["cause"]) == ((True, "") if again == 0 else (False, "inside")), verdict["lines"]
    assert text in next(check["detail"] for check in verdict["checks"] if check["name"] == "inside")
    counts = verdict["requests"][label + " from Pods" + (" after the change" if phase == "second" else "")]
    assert counts["asked"] == 20 + (20 if again is not None else 0), counts


def test_without_an_image_nothing_was_asked_and_that_is_no_success():
    evidence = healthy()
    for name in NODES:
        evidence["pods"][name].update(ready=False, reason="ErrImagePull: no such image")
    no_address(evidence)
    evidence["first"], evidence["service"]["finalizer"] = {}, False
    verdict = traffic_verdict.judge(evidence)
    assert verdict["cause"] == "no-image" and "ErrImagePull: no such image" in verdict["message"][0]
    assert [check["state"] for check in verdict["checks"][4:6]] == ["not asked", "not asked"]


def test_nodes_without_the_image_are_named_and_the_others_are_asked():
    evidence = healthy()
    evidence["pods"]["w-4"].update(ready=False, reason="ImagePullBackOff: Back-off")
    evidence["second"]["outside"] = result("", 48, nodes=NODES[:3])
    verdict = traffic_verdict.judge(evidence)
    assert verdict["ok"]
    pods = verdict["checks"][0]
    assert pods["state"] == "not asked" and "3 of 4 Nodes" in pods["detail"] and "w-4: ImagePullBackOff" in pods["detail"]


def test_a_controller_without_load_balancers_is_no_failure_but_the_report_says_what_was_not_asked():
    evidence = healthy()
    no_address(evidence, finalizer=False)
    lease = {"held": True, "holder": "cp-1_6f1a", "age": 1.0, "annotations": {
        "controllers": "cloud-node-controller", "not-offered": "service-lb-controller", "cloud-provider": "static"}}
    evidence["controller"] = traffic.controller(lease, True)
    verdict = traffic_verdict.judge(evidence)
    assert verdict["ok"], verdict["lines"]
    states = {check["name"]: check for check in verdict["checks"]}
    assert states["pod-network"]["state"] == "ok"
    assert states["address"]["state"] == states["outside"]["state"] == states["nodes-behind"]["state"] == "not asked"
    assert "its provider static has no load balancers" in states["address"]["detail"]


def test_one_node_that_answers_alone_is_no_proof_against_the_others():
    """A load balancer may choose the Node by the client's address."""
    evidence = healthy()
    evidence["second"]["outside"] = result("", 48, nodes=["w-1"])
    verdict = traffic_verdict.judge(evidence)
    assert verdict["ok"] and verdict["checks"][5]["state"] == "not asked"


def test_a_slow_cloud_that_answers_in_time_is_named():
    evidence = healthy()
    evidence["service"]["seconds"] = 45.0
    verdict = traffic_verdict.judge(evidence)
    assert verdict["ok"] and "the cloud is slow" in verdict["checks"][2]["detail"]


def test_the_judge_changes_no_evidence():
    evidence = healthy()
    half_missing(evidence)
    before = copy.deepcopy(evidence)
    traffic_verdict.judge(evidence)
    assert evidence == before


def test_pods_that_lose_different_numbers_of_requests_share_a_sentence():
    evidence = healthy()
    for name, answered in (("w-1", 1), ("w-2", 3)):
        lost = result("service:", 5, "timeout" if name == "w-1" else "unreachable", answered=answered)
        evidence["first"]["inside"][name] = [lost if each["name"] == "service:" else each for each in evidence["first"]["inside"][name]]
    message = traffic_verdict.judge(evidence)["message"]
    assert message == ["inside: w-1, w-2: 4 of 10 requests answered at the Service's cluster IP (timeout, unreachable) [inside]"]


@pytest.mark.parametrize(("missing", "state", "text"), [
    (3, "not asked", "3 of 300 Nodes did not answer, but 1200 answers are too few to judge that: a load balancer that chooses Nodes at random leaves about 5"),
    (100, "failed", "100 of 300 Nodes answered none of 1200 requests"),
])  # fmt: skip
def test_nodes_that_a_random_choice_may_leave_out_are_no_failure(missing: int, state: str, text: str):
    evidence = healthy()
    names = ["n-{0:03}".format(number) for number in range(300)]
    evidence["nodes"] = [dict(evidence["nodes"][0], name=name) for name in names]
    evidence["pods"] = {name: dict(evidence["pods"]["w-1"], pod="check-" + name) for name in names}
    evidence["second"]["outside"] = result("", 1200, nodes=names[missing:])
    check = next(check for check in traffic_verdict.judge(evidence)["checks"] if check["name"] == "nodes-behind")
    assert check["state"] == state and text in check["detail"]
