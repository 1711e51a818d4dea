# SPDX-License-Identifier: Apache-2.0
"""How long the check takes with its own time limits, in virtual time: it names each planted breakage within 90 seconds.

Cluster and cloud take as long as real ones on a slow day. Whether the causes are right is tested with a real API
server (tests/integration/collection/test_ccm_load_balancer_check.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import jinja2
import pytest
import yaml

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import traffic, traffic_verdict
from ansible_collections.outoftree.ccm.plugins.modules import ccm_load_balancer_check as module

NODES = ["w-1", "w-2", "w-3", "w-4"]
#: Seconds until Pods are Ready, a cloud has a load balancer, health checks pass, a Service or a namespace is deleted.
START, CREATE, HEALTHY, DELETE = 8.0, 6.0, 12.0, 6.0
CALL, REQUEST, COMMAND = 0.05, 0.02, 1.0
LIMIT, TIMEOUT = 180, 2.0
OPTIONS: Dict[str, Any] = {
    "name": "ccm", "lease": "ccm", "check_namespace": "check", "image": "i", "python": "python3", "annotations": {},
    "wait_timeout": LIMIT, "request_timeout": TIMEOUT,
}  # fmt: skip
ADDRESS = "192.0.2.10"


class World:
    """A cluster, a cloud and a network in which one thing is broken. Time passes only with waits and calls."""

    def __init__(self, broken: str) -> None:
        self.broken, self.now = broken, 0.0
        self.service: Dict[str, Any] = {}
        self.changed = self.deleted = -1.0
        self.address = "lb.example.com" if broken == "name" else ADDRESS
        self.created = CREATE if broken not in ("slow", "slow and lossy") else 40.0
        #: How many times each Pod has sent requests to the Service, by the Pod and the port. One in five may be lost.
        self.looks: Dict[Tuple[str, int], int] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    # -- the API server ------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        self.now += CALL
        if "/leases/" in path:
            renewed = "2026-11-26T10:00:00Z" if self.broken == "dead" else "2099-01-01T00:00:00Z"
            return {"metadata": {}, "spec": {"holderIdentity": "cp_1", "renewTime": renewed, "leaseDurationSeconds": 15}}
        if "/daemonsets/" in path or self.service == {}:
            return None
        if path.endswith("/services/check"):
            return None if self.is_gone(0) else self.service | {"status": {"loadBalancer": {"ingress": self.ingress()}}}
        return None if self.is_gone(DELETE) else {"metadata": {}}

    def is_gone(self, more: float) -> bool:
        finalizer = DELETE if self.broken not in ("dead", "class") else 0
        return 0 <= self.deleted < self.now - finalizer - more

    def ingress(self) -> List[Any]:
        comes = self.broken not in ("dead", "quota", "class") and self.now > self.created
        return [{"hostname" if self.broken == "name" else "ip": self.address}] if comes else []

    def items(self, path: str, query: Any = None) -> List[Any]:
        self.now += CALL
        if path.endswith("/nodes"):
            ready, address = {"type": "Ready", "status": "True"}, {"type": "InternalIP", "address": "10.0.0.1"}
            return [{"metadata": {"name": name, "uid": name}, "status": {"conditions": [ready], "addresses": [address]}}
                    for name in NODES]  # fmt: skip
        if path.endswith("/pods"):
            ready = {"type": "Ready", "status": str(self.now > START)}
            status = {"phase": "Running", "podIP": "10.1.0.1", "conditions": [ready]}
            return [{"metadata": {"name": name}, "spec": {"nodeName": name}, "status": status} for name in NODES]
        quota = {"type": "Warning", "reason": "SyncLoadBalancerFailed", "message": "quota exceeded"}
        return [quota] if self.broken == "quota" else []

    def call(self, method: str, path: str, body: Any = None) -> Any:
        self.now += CALL
        if method == "DELETE":
            self.deleted = self.now if self.deleted < 0 else self.deleted
        elif path.endswith("/services"):
            spec = body["spec"] | {"clusterIP": "10.2.0.1"}
            if self.broken == "class":
                spec["loadBalancerClass"] = "example.com/other"
            spec["ports"] = [spec["ports"][0] | {"nodePort": 30080}]
            self.service = {"metadata": {"uid": "u", "finalizers": [traffic.CLEANUP]}, "spec": spec}
            return self.service
        return {}

    def patch(self, path: str, body: Any) -> None:
        self.changed = self.now
        self.service["spec"] |= body["spec"] | {"healthCheckNodePort": 30081}
        self.service["spec"]["ports"][0]["nodePort"] = 30080

    def execute(self, place: str, pod: str, container: str, words: List[str], seconds: float) -> Tuple[int, str, str]:
        """Run a Pod's command. Commands of all Pods run in parallel, so only the first Pod's command takes time."""
        results = [self.answer(target, pod) for target in json.loads(words[-1])["targets"]]
        slowest = max(result["seconds"] for result in results)
        self.now += COMMAND + slowest if pod == NODES[0] else 0
        return 0, json.dumps(results), ""

    # -- the network ---------------------------------------------------------------------------------------------------

    def ask_all(self, job: Dict[str, Any]) -> List[Dict[str, Any]]:
        results = [self.answer(target, "") for target in job["targets"]]
        self.now += max(result["seconds"] for result in results)
        return results

    def answer(self, target: Dict[str, Any], asker: str) -> Dict[str, Any]:
        kind, unused, other = target["name"].partition(":")
        error, nodes = self.error(kind, other, asker, target["port"]), self.behind() if kind == "balancer" else [other]
        asked = target["count"] if not error else min(3, target["count"])
        found = {nodes[number % len(nodes)]: asked for number in range(asked)} if not error else {}
        if kind == "balancer" and not error and self.broken == "losing" and asked > 1:
            found = {name: found[name] - (name == nodes[-1]) for name in nodes}
            return {"name": target["name"], "asked": asked, "answered": asked - 1, "nodes": found, "errors": {"timeout": 1}, "ms": [],
                    "seconds": TIMEOUT + asked * REQUEST}  # fmt: skip
        if self.loses(kind, asker, target["port"]):
            return {"name": target["name"], "asked": asked, "answered": asked - asked // 5, "nodes": {}, "errors": {"timeout": asked // 5}, "ms": [],
                    "seconds": asked // 5 * TIMEOUT + asked * REQUEST}  # fmt: skip
        waits = TIMEOUT if error == "timeout" else REQUEST
        return {"name": target["name"], "asked": asked, "answered": 0 if error else asked, "nodes": found,
                "errors": {error: asked} if error else {}, "ms": [], "seconds": asked * waits}  # fmt: skip

    def loses(self, kind: str, asker: str, port: int) -> bool:
        """Return whether one request in five is lost: in a lossy world always, in a slow and lossy one when a Pod first asks this port."""
        if kind != "service" or "lossy" not in self.broken:
            return False
        self.looks[(asker, port)] = self.looks.get((asker, port), 0) + 1
        return self.broken == "lossy" or self.looks[(asker, port)] == 1

    def error(self, kind: str, other: str, asker: str, port: int) -> str:
        if kind == "pod" and self.broken == "routes" and "w-2" in (asker, other):
            return "timeout"
        if kind == "health" and (self.now < self.changed + 2 or (self.broken == "health" and other in NODES[:2])):
            return "timeout"
        if kind == "balancer":
            right = traffic.SECOND_PORT if self.changed >= 0 else traffic.FIRST_PORT
            if 0 <= self.deleted or (port != right and self.broken != "address"):
                return "refused"
            ready = max(self.created, self.changed) + HEALTHY < self.now
            return {"security": "timeout", "port": "refused", "address": "stranger"}.get(self.broken, "") or (
                "" if ready else "timeout"
            )
        return ""

    def behind(self) -> List[str]:
        return NODES[2:] if self.broken in ("targets", "health") else NODES


def outcome(broken: str, monkeypatch: pytest.MonkeyPatch) -> Tuple[Dict[str, Any], float]:
    world: Any = World(broken)
    monkeypatch.setattr(module, "time", world)
    monkeypatch.setattr(module.asker, "ask_all", world.ask_all)
    check = module.Check(SimpleNamespace(params=OPTIONS), Api(world))
    assert check.look_around() == "" and module.checked(check) == ""
    return traffic_verdict.judge(check.evidence), world.now


def test_a_fault_of_the_module_itself_leaves_nothing() -> None:
    calls: List[str] = []

    def run() -> None:
        raise KeyError("status")
    assert "please report it: KeyError('status')" in module.checked(SimpleNamespace(run=run, remove=lambda: calls.append("removed")))
    assert calls == ["removed"]


class Api:
    """The part of a client that the check uses. Its clock is 5 s after the last renewal of a live Lease."""

    def __init__(self, world: World) -> None:
        self.get, self.items, self.call = world.get, world.items, world.call
        self.patch, self.execute = world.patch, world.execute
        self.now = module.health.parse_time("2099-01-01T00:00:05Z")


@pytest.mark.parametrize(("broken", "cause"), [
    ("", ""), ("routes", "no-route"), ("security", "security-group"), ("port", "wrong-port"), ("health", "health-port"),
    ("targets", "missing-nodes"), ("address", "stale-address"), ("quota", "quota"), ("class", "foreign-class"),
    ("slow", ""), ("dead", "dead-controller"), ("slow and lossy", ""), ("lossy", "inside"),
])  # fmt: skip
def test_each_breakage_is_named_within_ninety_seconds(broken: str, cause: str, monkeypatch: pytest.MonkeyPatch):
    verdict, seconds = outcome(broken, monkeypatch)
    assert verdict["cause"] == cause, "\n".join(verdict["lines"])
    assert seconds <= 90, (broken, seconds)
    slow = "the cloud is slow" in " ".join(verdict["lines"])
    assert slow == broken.startswith("slow")


def test_a_load_balancer_that_loses_requests_is_waited_for_once(monkeypatch: pytest.MonkeyPatch):
    """If requests are lost before the port changes, the check repeats them for a while. After the change, it repeats them only a few times."""
    unbroken = outcome("", monkeypatch)[1]
    verdict, seconds = outcome("losing", monkeypatch)
    assert verdict["cause"] == "lost-requests" and "36 of 40 requests answered" in " ".join(verdict["message"])
    assert seconds - unbroken < traffic.SETTLED + traffic.LOSSES + 15 * TIMEOUT


@pytest.mark.parametrize(("late", "failed"), [(10, ["address"]), (3600, ["address", "inside"])])
def test_pods_ask_again_until_kube_proxy_knows_them(late: float, failed: List[str], monkeypatch: pytest.MonkeyPatch):
    """No address comes, so nothing but the Pods' own requests shows that kube-proxy was late."""
    error = World.error

    def late_error(world: World, kind: str, *rest: Any) -> str:
        return "refused" if kind == "service" and world.now < START + late else error(world, kind, *rest)

    monkeypatch.setattr(World, "error", late_error)
    verdict, seconds = outcome("dead", monkeypatch)
    assert [check["name"] for check in verdict["checks"] if check["state"] == "failed"] == failed
    assert seconds <= 120


def test_a_name_may_need_the_whole_limit_before_it_answers(monkeypatch: pytest.MonkeyPatch):
    """A cloud may return the name before the load balancer exists."""
    monkeypatch.setitem(globals(), "HEALTHY", 70.0)
    assert outcome("name", monkeypatch)[0]["cause"] == ""
    assert outcome("", monkeypatch)[0]["cause"] == "security-group"


def test_the_lease_of_a_run_outlasts_the_slowest_check(monkeypatch: pytest.MonkeyPatch):
    """A load balancer with a host name instead of an IP address may begin to answer late, so each wait can last nearly as long as the limit."""
    nearly, answer = LIMIT - 15.0, World.answer
    monkeypatch.setitem(globals(), "DELETE", nearly)
    init = World.__init__

    def slow_init(world: World, broken: str) -> None:
        init(world, broken)
        world.created = nearly

    def open_ports(world: World, kind: str, other: str, asker: str, port: int) -> str:
        """A port opens late, and no port ever closes."""
        ready = world.changed if port == traffic.SECOND_PORT else world.created
        return "refused" if kind == "balancer" and world.now < ready + nearly else ""

    def lossy(world: World, target: Dict[str, Any], asker: str) -> Dict[str, Any]:
        found = answer(world, target, asker)
        is_lossy = target["name"].startswith("balancer") and found["answered"] > 1
        return found | {"answered": found["answered"] - 1, "errors": {"timeout": 1}} if is_lossy else found

    for name, slow in (("__init__", slow_init), ("error", open_ports), ("answer", lossy), ("behind", lambda world: NODES[2:])):
        monkeypatch.setattr(World, name, slow)
    verdict, seconds = outcome("name", monkeypatch)
    role = Path(__file__).parents[4] / "roles/ccm_install"
    template = yaml.safe_load((role / "vars/main.yml").read_text())["__ccm_install_traffic_seconds"]
    values = {"ccm_install_services_timeout": LIMIT, "ccm_install_verify_active": True}
    environment = jinja2.Environment()
    environment.filters["bool"] = bool
    allowed = int(environment.from_string(template).render(values))
    assert 7 * nearly < seconds < allowed, (seconds, allowed, verdict["lines"])
