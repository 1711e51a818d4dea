# SPDX-License-Identifier: Apache-2.0
"""Security groups of Services (`manage-security-groups`) in large clusters, and after a person deleted one."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest

from ccm.cloud import Ingress, NotFound, RetryAfter
from ccm.providers.openstack.load_balancers import security_groups
from ccm.providers.openstack.settings_sections import LoadBalancerSection

from .octavia_in_memory import FakeOpenStack, the
from .test_shared_balancers import ensured, nodes, only, patiently, provider, service

MANY = range(1, 251)


class Slow(FakeOpenStack):
    """An OpenStack that counts concurrent writes of ports. `most`: the most at one time."""

    def __init__(self, **options: Any) -> None:
        section = {"subnet_id": the("sub-nodes"), "internal_lb": True, "manage_security_groups": True}
        super().__init__(LoadBalancerSection(**section | options))
        self.under_way = self.most = 0

    async def call(self, method: str, service: str, path: str, **more: Any) -> Any:
        writes = method == "PUT" and path.startswith("/ports/")
        self.under_way += writes
        self.most = max(self.most, self.under_way)
        for _ in range(3 if writes else 0):
            await asyncio.sleep(0)
        try:
            return await super().call(method, service, path, **more)
        finally:
            self.under_way -= writes


async def writes_of_each_turn(fake: FakeOpenStack, call: Any, *args: Any) -> list[int]:
    """Repeat the call until it is done. Returns the number of writes of ports in each turn."""
    found: list[int] = []
    for _ in range(50):
        before = fake.calls["PUT ports/ID"]
        done = False
        with contextlib.suppress(NotFound):
            try:
                await call(*args)
                done = True
            except RetryAfter:
                pass
        found.append(fake.calls["PUT ports/ID"] - before)
        if done:
            return found
    return found


async def test_hundreds_of_ports_are_changed_side_by_side_and_some_at_a_turn() -> None:
    """A call of the provider has a deadline of 65 s, and Neutron takes up to two seconds for each change."""
    fake = Slow()
    for number in MANY:
        fake.server(number)
    turns = await writes_of_each_turn(fake, provider(fake).ensure, service("u-1", "web"), nodes(*MANY))
    group = only(fake.groups)["id"]
    assert all(group in fake.ports[f"port-{number}"]["security_groups"] for number in MANY)
    assert sum(turns) == len(MANY) and max(turns) == security_groups.PORTS_AT_ONCE
    assert fake.most == security_groups.SIDE_BY_SIDE
    turns = await writes_of_each_turn(fake, provider(fake).delete, service("u-1", "web"))
    assert sum(turns) == len(MANY) and max(turns) == security_groups.PORTS_AT_ONCE and not fake.groups


async def test_one_port_that_cannot_be_changed_does_not_keep_others_from_it() -> None:
    fake = Slow()
    for number in (1, 2, 3):
        fake.server(number)
    fake.ports["port-1"]["revision_number"] = None
    with pytest.raises(RetryAfter):
        await provider(fake).ensure(service("u-1", "web"), nodes(1, 2, 3))
    assert [len(fake.ports[f"port-{number}"]["security_groups"]) for number in (1, 2, 3)] == [1, 2, 2]


async def test_a_group_that_a_person_deleted_is_created_again() -> None:
    fake = Slow()
    for number in (1, 2, 3):
        fake.server(number)
    balancers = provider(fake)
    await patiently(balancers.ensure, service("u-1", "web"), nodes(1, 2))
    old = only(fake.groups)["id"]
    for port in fake.ports.values():
        port["security_groups"] = ["sg-default"]
    fake.groups.clear()
    await patiently(balancers.update_backends, service("u-1", "web"), nodes(1, 2, 3))
    group = only(fake.groups)
    assert group["id"] != old and len(group["security_group_rules"]) == 1
    assert all(group["id"] in port["security_groups"] for port in fake.ports.values())


async def test_a_comparison_sees_that_a_group_or_a_rule_is_missing() -> None:
    fake = Slow()
    fake.server(1)
    what, balancers = service("u-1", "web"), provider(fake)
    await patiently(balancers.ensure, what, nodes(1))
    assert not await balancers.deviations(what, nodes(1))
    only(fake.groups)["security_group_rules"].clear()
    assert await balancers.deviations(what, nodes(1))
    await patiently(balancers.ensure, what, nodes(1))
    assert only(fake.groups)["security_group_rules"] and not await balancers.deviations(what, nodes(1))
    fake.ports["port-1"]["security_groups"] = ["sg-default"]
    assert await balancers.deviations(what, nodes(1))
    await ensured(fake, what, nodes(1))


@pytest.mark.parametrize("by", ["ours", "theirs"])
async def test_a_group_goes_when_groups_are_no_longer_managed(by: str) -> None:
    """Otherwise node ports would stay open. cloud-provider-openstack leaves no sign of the group on a load balancer."""
    fake = Slow()
    fake.server(1)
    what = dataclasses.replace(service("u-1", "web"), ingress=(Ingress(ip="10.0.1.1"),))
    await ensured(fake, what, nodes(1))
    if by == "theirs":
        balancer = only(fake.balancers)
        balancer["tags"] = [tag for tag in balancer["tags"] if not tag.startswith("ccm:")]
        what = dataclasses.replace(what, ingress=(Ingress(ip=balancer["vip_address"]),))
    fake.settings.load_balancer = dataclasses.replace(fake.settings.load_balancer, manage_security_groups=False)
    await ensured(fake, what, nodes(1))
    assert not fake.groups and fake.ports["port-1"]["security_groups"] == ["sg-default"]
    fake.calls.clear()
    await ensured(fake, dataclasses.replace(what, session_affinity="ClientIP"), nodes(1))
    assert not [call for call in fake.calls if "security-groups" in call]
