# SPDX-License-Identifier: Apache-2.0
"""Foreign changes are found by comparing one load balancer after the other, or immediately if a user asks for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest

from ccm.cloud import Backend, CloudError, Conflict, LoadBalancerSpec, RetryAfter, Transient
from ccm.controllers.services import comparison_rules as rules
from ccm.controllers.services.comparison_rules import ANNOTATION, PACE, Compared
from ccm.engine.objects import ObjectMeta, Service

from ..gateway.virtual import in_virtual_time
from .services_harness import Balancers, Cluster, until


class Comparing(Balancers):
    """Load balancers that can be compared. `broken`: names of Services whose load balancer somebody changed."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        return await self._call("deviations", spec, lambda: ["the pool is empty"] if spec.name in self.broken else [])

    def _write(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Any:
        self.broken.discard(spec.name)
        return super()._write(spec, backends)


class Comparable(Cluster):
    def __init__(self) -> None:
        super().__init__()
        self.cloud = Comparing()


def asking(value: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {ANNOTATION: value}}}


@in_virtual_time
async def test_each_is_compared_in_turn_and_what_differs_is_written_again() -> None:
    async with Comparable() as c:
        c.serve()
        c.add_node("n0")
        for name in ("a", "b", "c"):
            c.add_service(name)
        await until(lambda: all(c.api.ingress(name) for name in "abc"))
        c.cloud.broken = {"b"}
        c.cloud.calls.clear()
        await until(lambda: c.cloud.count("deviations") == 6, 7 * PACE)
        assert [c.cloud.count("deviations", name=name) for name in "abc"] == [2, 2, 2]
        assert c.cloud.count("ensure") == c.cloud.count("ensure", name="b") == 1 and not c.cloud.broken
        (message,) = c.api.told("LoadBalancerDeviates", "b")
        assert "the pool is empty" in message
        times = [at for at, verb, _ in c.cloud.calls if verb == "deviations"]
        assert all(later - earlier >= PACE - 1 for earlier, later in itertools.pairwise(times))


@in_virtual_time
async def test_a_user_asks_for_one_and_is_answered() -> None:
    async with Comparable() as c:
        c.serve()
        c.add_node("n0")
        c.add_service("web")
        await until(lambda: c.api.ingress())
        c.cloud.broken = {"web"}
        c.api.change("services", "shop/web", asking("1"))
        await until(lambda: c.cloud.count("ensure") == 2, PACE / 3)
        c.api.change("services", "shop/web", asking("2"))
        await until(lambda: c.api.told("LoadBalancerChecked"), PACE / 3)
        assert c.cloud.count("ensure") == 2 and c.cloud.count("deviations") == 2


@in_virtual_time
async def test_a_provider_that_cannot_compare_writes_it_again_if_a_user_asks() -> None:
    async with Cluster() as c:
        c.serve()
        c.add_node("n0")
        c.add_service("web")
        await until(lambda: c.api.ingress())
        c.api.change("services", "shop/web", asking("1"))
        await until(lambda: c.cloud.count("ensure") == 2, PACE / 3)


class Selecting(Comparing):
    """Load balancers that use only Nodes with the label `pool: public`."""

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        return super().fingerprint(spec, [each for each in backends if each.labels.get("pool") == "public"])


@pytest.mark.parametrize("asked", [False, True], ids=["in turn", "asked for"])
def test_labels_of_nodes_alone_take_effect_when_the_load_balancer_is_compared(asked: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster = Comparable()
        cluster.cloud = Selecting()
        async with cluster as c:
            c.serve()
            c.add_node("n0")
            c.add_service("web")
            await until(lambda: c.api.ingress() and c.cloud.count("deviations"), 2 * PACE)
            c.api.change("nodes", "n0", {"metadata": {"labels": {"pool": "public"}}})
            if asked:
                c.api.change("services", "shop/web", asking("1"))
            await until(lambda: c.cloud.count("update") == 1, PACE / 3 if asked else 2 * PACE)
            assert c.cloud.count("ensure") == 1

    run()


@pytest.mark.parametrize("error", [Transient("down"), RetryAfter("busy", 1.0)])
def test_a_comparison_that_fails_is_no_failure_of_the_service_unless_a_user_asks(error: CloudError) -> None:
    @in_virtual_time
    async def run() -> None:
        async with Comparable() as c:
            c.serve()
            c.add_node("n0")
            c.add_service("web")
            await until(lambda: c.api.ingress())
            c.cloud.fault = lambda verb, _: error if verb == "deviations" else None
            await until(lambda: c.cloud.count("deviations") == 1, 2 * PACE)
            assert not c.api.told("SyncLoadBalancerFailed") and c.cloud.count("ensure") == 1
            c.api.change("services", "shop/web", asking("1"))
            await until(lambda: c.cloud.count("deviations") == 2, PACE / 3)
            c.cloud.fault = lambda verb, _: None
            await until(lambda: c.api.told("LoadBalancerChecked"), PACE / 2)

    run()


@in_virtual_time
async def test_a_conflict_is_a_deviation() -> None:
    """For example, somebody else's listener took the port: the load balancer is written again, the write fails, and an
    Event says so."""
    async with Comparable() as c:
        c.serve()
        c.add_node("n0")
        c.add_service("web")
        await until(lambda: c.api.ingress())
        c.cloud.fault = lambda verb, _: Conflict("port 80 is taken") if verb in ("deviations", "ensure") else None
        await until(lambda: c.api.told("SyncLoadBalancerFailed"), 2 * PACE)
        assert "port 80 is taken" in c.api.told("LoadBalancerDeviates")[0]


def test_whose_turn_it_is() -> None:
    never, written, old, new = (
        Compared("d", 5.0),
        Compared("c", 90.0, 80.0),
        Compared("b", 1.0, 50.0),
        Compared("a", 1, 60),
    )
    assert rules.following([new, old, written, never]) == "d" and never.compared_at == -math.inf
    assert rules.following([new, old, written]) == "c"
    assert rules.following([new, old]) == "b" and rules.following([]) is None
    assert rules.following([Compared("a", 5.0, 5.0), Compared("b", 8.0, 7.0)]) == "b"


def test_a_message_names_some() -> None:
    assert rules.some(["a", "b"]) == "a, b"
    assert rules.some([str(number) for number in range(5)]) == "0, 1, 2, 3, 4"
    assert rules.some([str(number) for number in range(8)]) == "0, 1, 2, 3, 4, and 3 more"


@pytest.mark.parametrize(
    ("old", "new", "asked"),
    [
        pytest.param(None, "now", False, id="our-start"),
        pytest.param("", "now", True, id="asked"),
        pytest.param("now", "again", True, id="asked-again"),
        pytest.param("now", "now", False, id="asked-before"),
        pytest.param("now", "", False, id="taken-away"),
        pytest.param("", "", False, id="never"),
    ],
)
def test_when_a_comparison_is_asked_for(old: str | None, new: str, asked: bool) -> None:
    def service(value: str) -> Service:
        return Service(metadata=ObjectMeta(annotations={ANNOTATION: value} if value else {}))

    assert rules.is_asked_for(None if old is None else service(old), service(new)) is asked
