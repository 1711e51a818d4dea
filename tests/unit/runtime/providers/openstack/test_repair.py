# SPDX-License-Identifier: Apache-2.0
"""Failures in Octavia and foreign changes are found and repaired. A repair that does not help is reported as an error
before the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ccm.cloud import ComparesLoadBalancers, Conflict, Ingress, RetryAfter
from ccm.providers.openstack.settings_sections import LoadBalancerSection

from .octavia_in_memory import FakeOpenStack, the
from .test_shared_balancers import TLS, WEB, ensured, nodes, only, patiently, provider, service


def cloud(**options: Any) -> FakeOpenStack:
    section = {"subnet_id": the("sub-nodes"), "floating_network_id": the("net-public"), "create_monitor": True}
    return FakeOpenStack(LoadBalancerSection(**section | options))


def parts(fake: FakeOpenStack) -> dict[str, dict[str, Any]]:
    pool = next(iter(fake.pools.values()))
    return {
        "listeners": next(iter(fake.listeners.values())),
        "pools": pool,
        "members": pool["_members"][0],
        "healthmonitors": next(iter(fake.monitors.values())),
    }


async def turns(fake: FakeOpenStack, call: Callable[[], Any], most: int) -> list[type[BaseException]]:
    """Call up to `most` times, until it succeeds. Returns the types of the errors before."""
    found: list[type[BaseException]] = []
    for _ in range(most):
        try:
            await call()
            return found
        except (RetryAfter, Conflict) as error:
            found.append(type(error))
            fake.settle()
    return found


# --- parts in ERROR ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("kind", ["listeners", "pools", "members", "healthmonitors"])
async def test_a_part_in_error_is_written_again_before_it_is_signed(kind: str, serial: bool) -> None:
    fake = cloud(provider_requires_serial_api_calls=serial)
    await ensured(fake, service("u-1", "web"))
    parts(fake)[kind]["provisioning_status"] = "ERROR"
    await ensured(fake, service("u-1", "web", settings={"connection-limit": "7"}))
    assert "ERROR" not in {part.get("provisioning_status") for part in parts(fake).values()}
    assert len(fake.members(next(iter(fake.pools)))) == 2


@pytest.mark.parametrize("kind", ["listeners", "pools", "members", "healthmonitors"])
async def test_a_part_that_stays_in_error_is_reported_and_not_signed_as_right(kind: str) -> None:
    fake = cloud()
    await ensured(fake, service("u-1", "web"))
    balancers, what = provider(fake), service("u-1", "web", settings={"connection-limit": "7"})
    fake.broken = {kind}
    parts(fake)[kind]["provisioning_status"] = "ERROR"
    with pytest.raises(Conflict, match="in state ERROR in Octavia, and writing them again did not help"):
        await patiently(balancers.ensure, what, nodes(1, 2))
    writes = fake.count
    with pytest.raises(Conflict, match="did not help"):
        await patiently(balancers.ensure, what, nodes(1, 2))
    assert fake.count - writes < 20
    assert (await provider(fake).list("prod"))[0].fingerprint != balancers.fingerprint(what, nodes(1, 2))
    fake.broken = set()
    assert (await patiently(balancers.ensure, what, nodes(1, 2))).ready


async def test_a_part_of_somebody_else_in_error_is_left_alone() -> None:
    fake = cloud(create_monitor=False)
    await ensured(fake, service("u-1", "web"))
    guest = service("u-2", "guest", TLS, settings={"load-balancer-id": only(fake.balancers)["id"]})
    await ensured(fake, guest)
    others = next(row for row in fake.listeners.values() if row["protocol_port"] == 80)
    others["provisioning_status"] = "ERROR"
    changed = service(
        "u-2", "guest", TLS, settings={"load-balancer-id": only(fake.balancers)["id"], "connection-limit": "7"}
    )
    assert (await ensured(fake, changed)).ready and others["provisioning_status"] == "ERROR"


# --- drift ------------------------------------------------------------------------------------------------------------


def emptied(fake: FakeOpenStack) -> None:
    next(iter(fake.pools.values()))["_members"] = []


def opened(fake: FakeOpenStack) -> None:
    next(iter(fake.listeners.values()))["allowed_cidrs"] = ["0.0.0.0/0", "198.51.100.0/24"]


def detached(fake: FakeOpenStack) -> None:
    only(fake.floating)["port_id"] = None


def unwatched(fake: FakeOpenStack) -> None:
    next(iter(fake.pools.values()))["healthmonitor_id"] = None
    fake.monitors.clear()


def listener_gone(fake: FakeOpenStack) -> None:
    del fake.listeners[next(iter(fake.listeners))]


def failed(fake: FakeOpenStack) -> None:
    parts(fake)["members"]["provisioning_status"] = "ERROR"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("change", [emptied, opened, detached, unwatched, listener_gone, failed])
async def test_what_somebody_else_changed_is_found_and_repaired(
    change: Callable[[FakeOpenStack], None], restarted: bool
) -> None:
    fake = cloud()
    what = service("u-1", "web", WEB, source_ranges=("192.0.2.0/24",))
    await ensured(fake, what)
    balancers = provider(fake)
    await balancers.list("prod")
    assert isinstance(balancers, ComparesLoadBalancers)
    fake.calls.clear()
    assert not await balancers.deviations(what, nodes(1, 2))
    assert fake.count <= 7 and all(call.startswith("GET") for call in fake.calls), fake.calls
    before = {"members": fake.members(next(iter(fake.pools))), "ip": only(fake.floating)["floating_ip_address"]}
    change(fake)
    if restarted:
        balancers = provider(fake)
    assert await balancers.deviations(what, nodes(1, 2))
    await patiently(balancers.ensure, what, nodes(1, 2))
    assert not await balancers.deviations(what, nodes(1, 2))
    assert {"members": fake.members(only(fake.listeners)["default_pool_id"]), "ip": before["ip"]} == before
    assert only(fake.listeners)["allowed_cidrs"] == ["192.0.2.0/24"] and fake.monitors
    assert only(fake.floating)["port_id"]


async def test_one_that_is_gone_or_failed_deviates_and_one_that_is_changed_does_not() -> None:
    fake = cloud()
    await ensured(fake, service("u-1", "web"))
    row, what = only(fake.balancers), service("u-1", "web")
    for state, found in (("PENDING_UPDATE", False), ("ERROR", True), ("PENDING_DELETE", True), ("ACTIVE", False)):
        row["provisioning_status"] = state
        assert bool(await provider(fake).deviations(what, nodes(1, 2))) is found
    fake.balancers.clear()
    assert await provider(fake).deviations(what, nodes(1, 2)) == ("it is gone",)


# --- failures that do not end -----------------------------------------------------------------------------------------


async def test_a_failover_that_does_not_help_is_not_tried_at_each_turn() -> None:
    fake = cloud()
    await ensured(fake, service("u-1", "web"))
    served = service("u-1", "web", ingress=(Ingress(ip=only(fake.floating)["floating_ip_address"]),))
    only(fake.balancers)["provisioning_status"] = "ERROR"
    fake.may_fail_over, fake.broken = True, {"loadbalancers"}
    balancers = provider(fake)
    outcomes = await turns(fake, lambda: balancers.ensure(served, nodes(1, 2)), 30)
    failures = outcomes.count(Conflict)
    assert failures == 15, "each attempt is followed by a failure, which the framework's back-off counts"
    assert fake.calls["PUT loadbalancers/ID/failover"] == failures
    fake.broken = set()
    assert (await patiently(balancers.ensure, served, nodes(1, 2))).ready


async def test_one_that_fails_at_each_creation_is_not_created_at_each_turn() -> None:
    fake = cloud()
    fake.fails = ["web"]
    balancers = provider(fake)
    await balancers.ensure(service("u-1", "web"), nodes(1))
    outcomes = []
    for _ in range(30):
        outcomes += await turns(fake, lambda: balancers.ensure(service("u-1", "web"), nodes(1)), 1)
    assert outcomes.count(Conflict) >= fake.calls["POST loadbalancers"] - 2 > 0
