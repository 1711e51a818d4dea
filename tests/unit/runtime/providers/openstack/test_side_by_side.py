# SPDX-License-Identifier: Apache-2.0
"""The conformance kit's case of Services that change concurrently, with a shared load balancer of Octavia in memory.

It runs in virtual time and in many orders. The order of all calls depends only on the seed.
"""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Container
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ccm.cloud import Cloud, Limits, LoadBalancerSpec, ProviderConfig, Transient
from ccm.conformance import Outcome, Subject, World, check
from ccm.conformance import trial as trial_module
from ccm.conformance.cases import side_by_side
from ccm.providers.openstack.annotations import PREFIX
from ccm.providers.openstack.load_balancers import load_balancer_owners
from ccm.providers.openstack.load_balancers.job import Job
from ccm.providers.openstack.load_balancers.listing import LOAD_BALANCER
from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark
from ccm.providers.openstack.load_balancers.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.load_balancers.tags import Tags
from ccm.providers.openstack.settings_sections import LoadBalancerSection

from ...gateway.virtual import in_virtual_time, now
from .octavia_in_memory import FakeOpenStack, the
from .test_shared_balancers import nodes

(CASE,) = side_by_side.COLLECTION.cases


class InMemory(Cloud):
    name: ClassVar[str] = "in-memory"

    def __init__(self, fake: FakeOpenStack) -> None:
        super().__init__(ProviderConfig())
        self.limits = Limits(calls_per_second=1e6, burst=10**6, concurrency=100)
        self.load_balancers = OctaviaLoadBalancers(fake, clock=now)  # type: ignore[arg-type]


class InMemoryWorld(World):
    def __init__(self, fake: FakeOpenStack) -> None:
        self._fake = fake

    async def load_balancer_ports(self, name: str) -> frozenset[int]:
        (balancer,) = [row["id"] for row in self._fake.balancers.values() if row["name"] == name]
        rows = self._fake.listeners.values()
        return frozenset(row["protocol_port"] for row in rows if row["_balancer"] == balancer)

    async def share(self, spec: LoadBalancerSpec, name: str) -> LoadBalancerSpec:
        (balancer,) = [row["id"] for row in self._fake.balancers.values() if row["name"] == name]
        return dataclasses.replace(spec, annotations={f"{PREFIX}load-balancer-id": balancer})


class Stumbling(FakeOpenStack):
    """Octavia that answers some POSTs with 500, as it does when its database deadlocks.

    `stumbles`: which of the POSTs about parts of the Service `whose`, counted from 1.
    """

    def __init__(self, section: LoadBalancerSection, stumbles: Container[int], whose: str) -> None:
        super().__init__(section)
        self._stumbles, self._whose, self._writes = stumbles, whose, 0

    async def call(self, method: str, service: str, path: str, **more: Any) -> Any:
        if method == "POST" and self._whose in str(more.get("body")):
            self._writes += 1
            if self._writes in self._stumbles:
                await self._pass()
                raise Transient(f"{method} {path}: 500 Deadlock found when trying to get lock")
        return await super().call(method, service, path, **more)


async def outcome(seed: int, monkeypatch: pytest.MonkeyPatch, stumbles: Container[int] = (), whose: str = "") -> Any:
    section = LoadBalancerSection(subnet_id=the("sub-nodes"), floating_network_id=the("net-public"))
    fake = Stumbling(section, stumbles, whose)
    fake.interleaving = random.Random(seed)
    names = random.Random(seed)
    monkeypatch.setattr(trial_module, "time", SimpleNamespace(monotonic=now))
    monkeypatch.setattr(trial_module.uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128)))
    monkeypatch.setattr(side_by_side.secrets, "randbits", lambda _: seed)

    async def backends(_: Any, count: int = 2) -> Any:
        return list(nodes(*range(1, count + 1)))

    monkeypatch.setattr(trial_module.Trial, "backends", backends)
    subject = Subject(
        "in-memory", lambda _: InMemory(fake), allow_writes=True, world=InMemoryWorld(fake), patience=600.0
    )
    result = await check(CASE, subject)
    assert not (left := sorted(row["name"] for row in fake.balancers.values())), (left, result.detail)
    return result


@pytest.mark.threat("tenant-own-load-balancers-only")
@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_octavia_in_memory_passes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = await outcome(seed, monkeypatch)
    assert result.outcome is Outcome.PASSED, result.detail


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_cloud_that_fails_now_and_then_passes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = await outcome(seed, monkeypatch, stumbles=range(2, 1000, 5))
    assert result.outcome is Outcome.PASSED, result.detail


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_failed_case_leaves_nothing_behind(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Service fails for good while the other one is being changed. If the change continued, it would create again
    what the clean-up removes."""
    began = now()
    result = await outcome(seed, monkeypatch, stumbles=range(3, 1000), whose="web-8000")
    assert result.outcome is Outcome.FAILED and "LEFT BEHIND" not in result.detail, result.detail
    assert "Deadlock" in result.detail and now() - began < 60


@in_virtual_time
async def test_the_case_notices_when_tags_are_written_from_an_old_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags were written like this before there was a lock with a fresh read."""

    async def sign(self: Tags, job: Job, owner: Mark, **_: Any) -> Job:
        tags = load_balancer_owners.tags_with(job.row, job.desired.name, owner)
        body = {"loadbalancer": {"tags": tags}}
        await self._api.call("PUT", LOAD_BALANCER, f"/lbaas/loadbalancers/{job.id}", body=body)
        return dataclasses.replace(job, row={**job.row, "tags": tags})

    monkeypatch.setattr(Tags, "sign", sign)
    for seed in range(60):
        if (await outcome(seed, monkeypatch)).outcome is Outcome.FAILED:
            return
    raise AssertionError("no order was found in which a tag is lost")
