# SPDX-License-Identifier: Apache-2.0
"""Leaving Nodes keep their connections: what the service controller writes to clouds that can drain, and to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ccm.cloud import Backend, LoadBalancerSpec, Transient
from ccm.controllers.services.drain_rules import AUTOSCALER_TAINT, Mode

from ..gateway.virtual import in_virtual_time
from .services_harness import Balancers, Cluster, until
from .test_service import settled

TAINTED = {"spec": {"taints": [{"key": AUTOSCALER_TAINT, "effect": "NoSchedule"}]}}
SPOT = {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}}
CALM: dict[str, Any] = {"spec": {"taints": None, "unschedulable": None}}
CORDONED = {"spec": {"unschedulable": True}}
#: What a kubelet with GracefulNodeShutdown writes when its machine shuts down, and when it is back.
SHUTS_DOWN, IS_BACK = (
    {"status": {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}]}}
    for status, reason, message in (
        ("False", "KubeletNotReady", "node is shutting down"),
        ("True", "KubeletReady", "kubelet is posting ready status"),
    )
)


class Draining(Balancers):
    """Load balancers that drain. `can`: names of the Services whose load balancer does; None for all."""

    def __init__(self, can: set[str] | None = None) -> None:
        super().__init__()
        self.can = can

    def drains(self, spec: LoadBalancerSpec) -> bool:
        if spec.annotations.get("lb") == "odd":
            raise Transient("a bug")
        return self.can is None or spec.name in self.can

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        return super().fingerprint(spec, backends) + repr([each.node_name for each in backends if each.draining])

    def shape(self, name: str = "web") -> str:
        (found,) = [each for each in self.made.values() if each["name"] == name]
        return " ".join(("-" if each.draining else "") + each.node_name for each in found["backends"])


def cluster(balancers: Balancers) -> Cluster:
    made = Cluster()
    made.cloud = balancers
    return made


async def begin(c: Cluster, *services: str, mode: Mode = Mode.LEAVING, **spec: Any) -> None:
    for name in ("n0", "n1", "n2"):
        c.add_node(name)
    for port, name in enumerate(services or ("web",), 80):
        c.add_service(name, port=port, **spec)
    c.serve(drains=mode)
    await c.served(*services)
    await settled()


@pytest.mark.parametrize(("leaving", "wanted"), [(TAINTED, CALM), (SHUTS_DOWN, IS_BACK)])
def test_a_node_drains_until_it_is_gone_or_wanted_again(leaving: dict[str, Any], wanted: dict[str, Any]) -> None:
    """SHUTS_DOWN: no taint or cordon announces a shutdown of the operating system, so controllers that look only for
    these lose requests (hcloud-cloud-controller-manager#1303)."""

    @in_virtual_time
    async def run() -> None:
        async with cluster(Draining()) as c:
            await begin(c)
            c.api.change("nodes", "n1", leaving)
            await until(lambda: c.cloud.shape() == "n0 -n1 n2")
            c.api.change("nodes", "n1", wanted)
            await until(lambda: c.cloud.shape() == "n0 n1 n2")
            c.api.change("nodes", "n1", leaving)
            await until(lambda: c.cloud.shape() == "n0 -n1 n2")
            await settled()
            c.api.remove("nodes", "n1")
            await until(lambda: c.cloud.shape() == "n0 n2")
            assert (c.cloud.count("ensure"), c.cloud.count("update")) == (1, 4)

    run()


@in_virtual_time
async def test_the_last_nodes_never_drain() -> None:
    async with cluster(Draining()) as c:
        await begin(c)
        for name in ("n0", "n1", "n2"):
            c.api.change("nodes", name, TAINTED)
        await settled()
        assert c.cloud.shape() == "n0 n1 n2"
        c.add_node("n3")
        await until(lambda: c.cloud.shape() == "-n0 -n1 -n2 n3")


@in_virtual_time
async def test_load_balancers_that_cannot_drain_lose_the_node_at_once_as_upstream() -> None:
    async with cluster(Draining(can={"web"})) as c:
        await begin(c, "web", "old")
        c.api.change("nodes", "n1", TAINTED)
        await until(lambda: (c.cloud.shape(), c.cloud.shape("old")) == ("n0 -n1 n2", "n0 n2"))
        c.api.change("nodes", "n1", SPOT)
        await until(lambda: c.cloud.shape("old") == "n0 n1 n2")
        assert c.cloud.shape() == "n0 -n1 n2"
        before = c.cloud.count("update", name="old")
        c.api.change("nodes", "n1", CALM)
        await until(lambda: c.cloud.shape() == "n0 n1 n2")
        await settled()
        assert c.cloud.count("update", name="old") == before, "nothing changed for it"


@pytest.mark.parametrize("balancers", [Balancers, Draining])
def test_never_is_as_upstream(balancers: type[Balancers]) -> None:
    @in_virtual_time
    async def run() -> None:
        async with cluster(balancers()) as c:
            await begin(c, mode=Mode.NEVER if balancers is Draining else Mode.CORDONED)
            for change in (CORDONED, SPOT):
                c.api.change("nodes", "n1", change)
                await settled()
            assert c.cloud.count("update") == 0
            c.api.change("nodes", "n1", TAINTED)
            await until(lambda: c.cloud.hosts() == ["n0", "n2"])

    run()


@in_virtual_time
async def test_with_local_a_node_that_may_have_the_only_pods_serves_until_its_health_check_fails() -> None:
    async with cluster(Draining()) as c:
        await begin(c, mode=Mode.CORDONED, externalTrafficPolicy="Local", healthCheckNodePort=31000)
        for change in (CORDONED, SPOT):
            c.api.change("nodes", "n1", change)
            await settled()
            assert c.cloud.shape() == "n0 n1 n2" and c.cloud.count("update") == 0
        policy = {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": None}
        c.api.change("services", "shop/web", {"spec": policy})
        await until(lambda: c.cloud.shape() == "n0 -n1 n2")


@in_virtual_time
async def test_cordoned_nodes_drain_if_asked_for_and_not_too_many() -> None:
    async with cluster(Draining()) as c:
        await begin(c, mode=Mode.CORDONED)
        c.api.change("nodes", "n1", CORDONED)
        await until(lambda: c.cloud.shape() == "n0 -n1 n2")
        c.api.change("nodes", "n0", CORDONED)
        await until(lambda: c.cloud.shape() == "n0 n1 n2")
        c.add_node("n3")
        await until(lambda: c.cloud.shape() == "-n0 -n1 n2 n3")


@in_virtual_time
async def test_a_change_that_is_refused_does_not_keep_a_node_from_draining() -> None:
    async with cluster(Draining()) as c:
        await begin(c)
        c.cloud.fault = lambda verb, spec: Transient("no") if verb == "ensure" else None
        c.api.change("services", "shop/web", {"metadata": {"annotations": {"lb": "other"}}})
        await settled()
        c.api.change("nodes", "n1", TAINTED)
        await until(lambda: c.cloud.shape() == "n0 -n1 n2")


@in_virtual_time
async def test_a_provider_that_fails_to_say_whether_it_drains_does_not_drain() -> None:
    async with cluster(Draining()) as c:
        await begin(c, annotations={"lb": "odd"})
        c.api.change("nodes", "n1", TAINTED)
        await until(lambda: c.cloud.shape() == "n0 n2")


@in_virtual_time
async def test_a_restart_while_a_node_drains_writes_nothing() -> None:
    async with cluster(Draining()) as c:
        await begin(c)
        c.api.change("nodes", "n1", TAINTED)
        await until(lambda: c.cloud.shape() == "n0 -n1 n2")
        await settled()
        await c.stop()
        c.serve()
        await settled()
        assert (c.cloud.count("ensure"), c.cloud.count("update")) == (1, 1)


@pytest.mark.parametrize(
    ("balancers", "mode", "is_said"),
    [(Balancers, Mode.CORDONED, True), (Balancers, Mode.LEAVING, False), (Draining, Mode.CORDONED, False)],
)
@in_virtual_time
async def test_a_cloud_that_cannot_drain_is_named_at_the_start(
    caplog: pytest.LogCaptureFixture, balancers: type[Balancers], mode: Mode, is_said: bool
) -> None:
    async with cluster(balancers()) as c:
        await begin(c, mode=mode)
    assert any("cannot drain Nodes" in each for each in caplog.messages) is is_said
