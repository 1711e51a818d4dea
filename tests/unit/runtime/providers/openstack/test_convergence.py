# SPDX-License-Identifier: Apache-2.0
"""Changes to the parts of a load balancer: which calls they take, and whether the state kept in memory equals
Octavia's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from ccm.cloud import Port, RetryAfter
from ccm.cloud.toolkit.steps import Step
from ccm.providers.openstack.load_balancers import load_balancer_steps as diff
from ccm.providers.openstack.load_balancers.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.load_balancers.parts import Parts
from ccm.providers.openstack.settings_sections import LoadBalancerSection

from .octavia_in_memory import FakeOpenStack, the
from .test_shared_balancers import ensured, nodes, only, patiently, provider, service

WEB, TLS, DNS = Port("http", "TCP", 80, 30080), Port("https", "TCP", 443, 30443), Port("dns", "UDP", 53, 30053)
MONITOR = {"enable-health-monitor": "true"}
#: Desired states. Between any two of them, parts are added, changed or removed.
STATES: list[tuple[tuple[Port, ...], dict[str, str]]] = [
    ((WEB,), {}),
    ((WEB, TLS), {}),
    ((WEB, TLS, DNS), {**MONITOR, "connection-limit": "7"}),
    ((WEB, DNS), {**MONITOR, "health-monitor-delay": "9", "lb-method": "SOURCE_IP"}),
    ((WEB,), {"x-forwarded-for": "true"}),
    ((WEB, TLS), {"proxy-protocol": "true"}),
]


def cloud(**options: Any) -> FakeOpenStack:
    section = {"subnet_id": the("sub-nodes"), "floating_network_id": the("net-public")}
    return FakeOpenStack(LoadBalancerSection(**section | options))


async def changed(fake: FakeOpenStack, balancers: OctaviaLoadBalancers, what: Any) -> Counter[str]:
    """Ensure the Service's load balancer until it is ready. Returns the number of each call."""
    fake.calls.clear()
    assert (await patiently(balancers.ensure, what, nodes(1, 2))).ready
    return Counter(fake.calls)


async def test_parts_are_read_once_when_a_port_is_added() -> None:
    """cloud-provider-openstack needs 19 calls for this change."""
    fake = cloud()
    balancers = provider(fake)
    await changed(fake, balancers, service("u-1", "web", WEB, TLS))
    calls = await changed(fake, balancers, service("u-1", "web", WEB, TLS, DNS))
    reads = {"GET listeners": 1, "GET pools": 1, "GET pools/ID/members": 2, "GET loadbalancers/ID/status": 1}
    assert {call: calls[call] for call in reads} == reads
    assert calls.total() <= 18, calls


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(STATES, 2)))
async def test_what_is_kept_is_what_octavia_has(one: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each step, the kept state equals the state that is read."""
    fake = cloud()
    balancers = provider(fake)
    await changed(fake, balancers, service("u-1", "web", *one[0], settings=one[1]))
    after, kept = diff.after, []

    def noted(seen: diff.Observed, step: Step, answer: Any) -> diff.Observed | None:
        kept.append(after(seen, step, answer))
        return kept[-1]

    monkeypatch.setattr(diff, "after", noted)
    what = service("u-1", "web", *other[0], settings=other[1])
    parts = Parts(fake)  # type: ignore[arg-type]
    for _ in range(40):
        count = len(kept)
        try:
            await balancers.ensure(what, nodes(1, 2))
            break
        except RetryAfter:
            fake.settle()
        if len(kept) > count:
            assert kept[-1] is not None
            read = await parts.observe(only(fake.balancers))
            assert _essence(kept[-1]) == _essence(read)
    assert kept and {row["protocol_port"] for row in fake.listeners.values()} == {port.port for port in other[0]}


def _essence(seen: diff.Observed) -> Any:
    members = {
        pool: {(row["address"], row["protocol_port"]) for row in seen.members.get(pool, ())}
        for pool in (row["id"] for row in seen.pools)
    }
    monitors = {pool: seen.monitors[pool] for pool in members if pool in seen.monitors}

    def by_id(rows: Any) -> dict[str, Any]:
        kept = {"default_pool_id", "protocol", "connection_limit", "insert_headers", "lb_algorithm"}
        return {row["id"]: {key: row[key] for key in kept & row.keys()} for row in rows}

    return by_id(seen.listeners), by_id(seen.pools), members, {pool: row["id"] for pool, row in monitors.items()}


async def test_what_somebody_else_adds_meanwhile_is_seen() -> None:
    fake = cloud()
    balancers = provider(fake)
    await changed(fake, balancers, service("u-1", "web", WEB))
    await _started(fake, balancers)
    fake.settle()
    balancer = only(fake.balancers)
    foreign = fake._new_listener(balancer, {"protocol": "TCP", "protocol_port": 443, "tags": ["somebody"]})
    with pytest.raises(Exception, match=f"port 443/TCP .* listener {foreign['id']}, which"):
        await patiently(balancers.ensure, service("u-1", "web", WEB, TLS), nodes(1, 2))


async def test_what_is_kept_is_read_again_after_a_minute() -> None:
    fake, now = cloud(), 1000.0
    balancers = OctaviaLoadBalancers(fake, clock=lambda: now)  # type: ignore[arg-type]
    await changed(fake, balancers, service("u-1", "web", WEB))
    await _started(fake, balancers)
    fake.settle()
    now += 61
    calls = await changed(fake, balancers, service("u-1", "web", WEB, TLS))
    assert calls["GET listeners"] == 1


async def test_a_part_that_fails_while_others_are_changed_is_written_again() -> None:
    """Octavia may set a part to ERROR after it accepted the change."""
    fake = cloud()
    await ensured(fake, service("u-1", "web", WEB, TLS))
    balancers = provider(fake)
    await _started(fake, balancers)
    fake.settle()
    failed = next(iter(fake.listeners.values()))
    failed["provisioning_status"] = "ERROR"
    assert (await patiently(balancers.ensure, service("u-1", "web", WEB, TLS, DNS), nodes(1, 2))).ready
    assert failed["provisioning_status"] == "ACTIVE"


async def test_states_that_may_not_be_read_are_read_from_the_parts() -> None:
    """Octavia's policy may forbid the call for the status tree."""
    fake = cloud()
    balancers = provider(fake)
    await changed(fake, balancers, service("u-1", "web", WEB))
    fake.hides_states = True
    calls = await changed(fake, balancers, service("u-1", "web", WEB, TLS))
    assert calls["GET listeners"] == 2


async def _started(fake: FakeOpenStack, balancers: OctaviaLoadBalancers) -> None:
    """Run the first turn of a change, which reads the parts and removes the tag. The next turn changes a part."""
    fake.at_once = False
    with pytest.raises(RetryAfter, match="about to be changed"):
        await balancers.ensure(service("u-1", "web", WEB, TLS, DNS), nodes(1, 2))
    fake.at_once = True
