# SPDX-License-Identifier: Apache-2.0
"""The kit distinguishes a provider that waits in a call from a cloud whose every call is slow. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from ccm.cloud import Backend, Cloud, Limits, LoadBalancer, LoadBalancerSpec, RetryAfter
from ccm.conformance import CASES, Subject, Trouble, World
from ccm.conformance.trial import Failed, Trial

from ..gateway.virtual import in_virtual_time

(CASE,) = (case for case in CASES if case.name == "load_balancers.nothing_is_waited_for")


class Slow(World):
    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        yield


class Balancers:
    """`call`: seconds that each call to the cloud takes. `held`: seconds that `ensure` waits in addition."""

    def __init__(self, call: float, held: float, ready: bool) -> None:
        self.call, self.held, self.is_ready = call, held, ready
        self.listings = 0

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        await asyncio.sleep(8 * self.call + self.held)
        if not self.is_ready:
            raise RetryAfter("the cloud works", 5.0)
        return LoadBalancer(spec.uid, "lb")

    async def list(self, cluster: str) -> list[LoadBalancer]:
        self.listings += 1
        await asyncio.sleep(self.call)
        return []


class Provider:
    instances = None
    limits = Limits(1e6, 10**6, deadline=90.0)

    def __init__(self, balancers: Balancers) -> None:
        self.load_balancers = balancers


async def run(balancers: Balancers) -> None:
    cloud = cast(Cloud, Provider(balancers))
    await CASE.function(Trial(Subject("slow", lambda config: cloud, world=Slow()), cloud))


@pytest.mark.parametrize("call", [0.01, 0.5, 3.0])
@in_virtual_time
async def test_slow_calls_hold_nobody(call: float) -> None:
    await run(Balancers(call, held=0.0, ready=False))


@pytest.mark.parametrize(("call", "held"), [(0.01, 6.0), (0.1, 10.0), (1.0, 40.0)])
@in_virtual_time
async def test_a_wait_for_the_cloud_is_noticed(call: float, held: float) -> None:
    with pytest.raises(Failed, match=f"ensure took {8 * call + held:.1f} s, where a listing takes {call:.1f} s"):
        await run(Balancers(call, held, ready=False))


@in_virtual_time
async def test_a_balancer_that_is_ready_while_the_cloud_works_is_noticed() -> None:
    with pytest.raises(Failed, match="ready=True"):
        await run(Balancers(0.01, held=0.0, ready=True))


@in_virtual_time
async def test_an_ensure_that_is_quick_costs_no_listing() -> None:
    balancers = Balancers(0.1, held=0.0, ready=False)
    await run(balancers)
    assert balancers.listings == 0
