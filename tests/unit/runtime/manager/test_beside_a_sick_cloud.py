# SPDX-License-Identifier: Apache-2.0
"""How much longer Nodes and Services of a healthy cloud wait if another cloud of the process is down or slow.

They hardly wait longer if it is clear which cloud owns the Nodes. Waits are measured in virtual time, in a process with
one cloud and in the same process with a second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ccm.cloud import Instance, Page, RateLimited, Transient, Unauthorized
from ccm.controllers.nodes.owners import PATIENCE
from ccm.gateway.instance_directory import SPACING_PER_PAGE

from ..controllers.nodes_harness import TAINT, until
from ..gateway.virtual import in_virtual_time, now
from .test_cloud_sets import NODES, MetalMachines, Place, Process, world

ALONE = ("--cloud-provider=fake", NODES)
BESIDE = ("--cloud-provider=fake,metal", "--default-load-balancer-provider=fake", NODES)
#: Number of groups of Nodes that join, Nodes in a group, and seconds between two groups.
GROUPS, SIZE, APART = 3, 3, 47.0
#: Seconds between two checks, and thus the precision of a measured wait.
STEP = 0.02
#: Seconds that a hanging cloud takes for an answer: longer than any deadline of a call.
FOREVER = 1e6

__all__ = ["world"]


class SlowMachines(MetalMachines):
    """`delay`: seconds until an answer."""

    delay = 0.0

    async def list_page(self, token: str | None) -> Page:
        await asyncio.sleep(self.delay)
        return await super().list_page(token)

    async def get(self, ref: object) -> Instance:
        await asyncio.sleep(self.delay)
        return await super().get(ref)


def fails(error: Exception) -> Callable[[Place], None]:
    def fail(place: Place) -> None:
        place.error = error

    return fail


def delays(seconds: float) -> Callable[[Place], None]:
    def delay(place: Place) -> None:
        place.machines.delay = seconds

    return delay


SICK = {
    "down": fails(Transient("503")),
    "refuses": fails(Unauthorized("401")),
    "throttled": fails(RateLimited("429", retry_after=60.0)),
    "hangs": delays(FOREVER),
    "slow": delays(4.0),
    "very slow": delays(20.0),
    "well": delays(0.0),
}


async def waits(p: Process, spoil: Callable[[Place], None] | None, *, proved: bool, at_start: bool) -> dict[str, float]:
    """Let Nodes and Services of `fake` come in groups. Return how long each of them waited.

    `spoil`: makes the other cloud sick, at the start or once it has answered; None without another cloud. `proved`:
    whether the firmware's UUID shows which cloud owns a Node.
    """
    began: dict[str, float] = {}
    found: dict[str, float] = {}
    p.metal.machines = SlowMachines(p.api)
    p.metal.machines.put("other", "192.0.2.77", provider_id="metal://other")
    if spoil is not None and at_start:
        spoil(p.metal)
    await p.lead()
    if not at_start:
        await asyncio.sleep(60.0)
        if spoil is not None:
            spoil(p.metal)

    async def watch() -> None:
        while True:
            for name in began.keys() - found.keys():
                if not p.api.is_tainted(name) if name in p.api.objects["nodes"] else p.api.ingress(name):
                    found[name] = now() - began[name]
            await asyncio.sleep(STEP)

    watching = asyncio.create_task(watch())
    for group in range(GROUPS):
        for number in range(SIZE):
            name, uuid = f"a-{group}-{number}", f"uuid-{group}-{number}"
            p.fake.machines.put(name, f"192.0.2.{group * SIZE + number}", system_uuids=(uuid,) if proved else ())
            p.add_node(name, provider_id="", taints=[TAINT], system_uuid=uuid if proved else "")
            began[name] = now()
        service = f"s-{group}"
        p.add_service(service, port=1000 + group)
        began[service] = now()
        await asyncio.sleep(APART)
    await until(lambda: len(found) == len(began), 3600)
    watching.cancel()
    return found


def compared(world: Callable[..., Process], sick: str, *more: str, proved: bool, at_start: bool) -> dict[str, float]:
    """Return how much longer each Node and Service waited beside the sick cloud than alone, in seconds."""
    measured: list[dict[str, float]] = []

    @in_virtual_time
    async def run() -> None:
        async with world(*ALONE) as p:
            measured.append(await waits(p, None, proved=proved, at_start=at_start))

    @in_virtual_time
    async def run_beside() -> None:
        async with world(*BESIDE, *more) as p:
            measured.append(await waits(p, SICK[sick], proved=proved, at_start=at_start))

    run()
    run_beside()
    alone, beside = measured
    assert alone.keys() == beside.keys() and len(alone) == GROUPS * (SIZE + 1)
    return {name: beside[name] - alone[name] for name in alone}


@pytest.mark.parametrize("at_start", [True, False], ids=["since the start", "later"])
@pytest.mark.parametrize("decided", ["by UUID", "by declaration"])
@pytest.mark.parametrize("sick", SICK)
def test_nobody_waits_longer_where_the_owner_is_clear(world, sick, decided, at_start):
    declared = ("--cloud-nodes=fake=a-*",) if decided == "by declaration" else ()
    longer = compared(world, sick, *declared, proved=not declared, at_start=at_start)
    # Clouds are compared by a listing when they start, and the next listing comes a moment later.
    first = {name: longer.pop(name) for name in [f"a-0-{number}" for number in range(SIZE)]} if at_start else {}
    assert max(first.values(), default=0.0) <= SPACING_PER_PAGE, first
    assert not {name: seconds for name, seconds in longer.items() if seconds > STEP}


@pytest.mark.parametrize(
    ("sick", "first", "later"),
    [
        ("down", 0.0, 0.0),
        ("refuses", 0.0, 0.0),
        ("throttled", 0.0, 0.0),
        ("hangs", PATIENCE, 0.0),
        ("slow", 4.0, 4.0),
        ("very slow", PATIENCE, 0.0),
        ("well", 0.0, 0.0),
    ],
)
def test_otherwise_a_cloud_that_answers_in_time_is_waited_for(world, sick, first, later):
    """The other cloud may have a machine of the same name, so it is waited for. If it does not answer in time, only the
    first Nodes wait in vain."""
    longer = compared(world, sick, proved=False, at_start=False)
    by_group: dict[str, float] = {}
    for name, seconds in longer.items():
        group = name.split("-")[1]
        by_group[group] = max(by_group.get(group, 0.0), seconds)
    assert by_group.pop("0") <= first + STEP
    assert max(by_group.values()) <= later + STEP


def test_a_slow_cloud_gets_its_own_nodes_and_is_waited_for_again_once_it_is_quick(world):
    @in_virtual_time
    async def run():
        async with world(*BESIDE) as p:
            p.metal.machines = SlowMachines(p.api)
            await p.lead()
            await asyncio.sleep(60.0)
            p.metal.machines.delay = 20.0
            p.add_new("b", p.metal)
            p.add_new("a", p.fake)
            await until(lambda: not p.api.is_tainted("b") and not p.api.is_tainted("a"), 3000)
            p.metal.machines.delay = 0.0
            p.add_new("a-1", p.fake)
            await until(lambda: not p.api.is_tainted("a-1"), 60)
            # A machine that the other cloud has got since its last listing must be noticed again.
            p.metal.machines.delay = 3.0
            p.metal.machines.put("twin", "192.0.2.5", provider_id="metal://twin")
            p.add_new("twin", p.fake)
            await until(lambda: p.api.told("SeveralOwners", "twin"), 60)
            assert p.api.is_tainted("twin") and not p.provider_id("twin")

    run()
