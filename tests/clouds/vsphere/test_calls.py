# SPDX-License-Identifier: Apache-2.0
"""Compares the calls of our runtime and of cloud-provider-vsphere; each takes over from the other without a write."""

from __future__ import annotations

import asyncio
import time

import pytest

from ccm.engine.client import KubeClient
from ccm.engine.objects import Node
from tests.comparison import confirm, confirm_calls
from tests.integration.runtime.support import NODES, Ccm, eventually, get_node, set_ready

from .controllers import PATIENCE, Controllers, Theirs, answered, conf, register, remove
from .proxy import Proxy
from .table import WORKERS, build
from .test_peer import ZONES
from .vcenter import VCenter, done, machines

# `make test-clouds` runs these tests, but CI does not, because another program must be compiled first.
pytestmark = pytest.mark.long

#: How many Nodes there are at first; one more joins, and one leaves.
COUNT = 9
#: Seconds without a call after which a pass counts as done, and the time between two passes.
QUIET, PERIOD = 1.5, "6s"


async def test_calls_and_taking_over(vcenter, proxy, controllers):
    uuids, kube = build(vcenter, WORKERS), controllers.kube
    theirs = await _life(vcenter, proxy, controllers, controllers.theirs, uuids, 0)
    assert len(await _versions(kube)) == COUNT
    ours, untouched = await _pass_over(proxy, controllers, controllers.ours)
    assert untouched == COUNT
    confirm("vsphere", "taken over by ours", f"{untouched} of {COUNT} Nodes, without a write")
    await remove(kube)

    calls = {"unchanged": {"ours": ours}}
    calls |= {name: {"theirs": count} for name, count in theirs.items()}
    for name, count in (await _life(vcenter, proxy, controllers, controllers.ours, uuids, 1)).items():
        calls[name]["ours"] = count
    calls["unchanged"]["theirs"], untouched = await _pass_over(proxy, controllers, controllers.theirs)
    confirm("vsphere", "taken over by theirs", f"{untouched} of {COUNT} Nodes, without a write")
    for name, counted in calls.items():
        confirm_calls("vsphere", name, **counted)


async def _life(vcenter: VCenter, proxy: Proxy, controllers: Controllers, start, uuids, first: int) -> dict[str, int]:
    """Count the calls while nine Nodes are initialised, one joins, and one leaves because its machine is deleted."""
    kube, found = controllers.kube, {}
    table, joins, leaves = WORKERS[first : first + COUNT], WORKERS[first + COUNT], WORKERS[first]
    await register(kube, table, uuids)
    since = len(proxy.calls)
    program = start(conf(proxy, ZONES))
    try:
        await answered(kube, program, table)
        found["nodes initialised"], since = await _counted(proxy, since)
        await register(kube, (joins,), uuids)
        await answered(kube, program, (joins,))
        found["node joins"], since = await _counted(proxy, since)
        with vcenter.admin() as live:
            machine = machines(live)[leaves.name]
            done(machine.PowerOffVM_Task())
            done(machine.Destroy_Task())
        await set_ready(kube, leaves.node, "Unknown")

        async def is_gone() -> bool:
            return await get_node(kube, leaves.node) is None

        await eventually(is_gone, PATIENCE, f"the deletion of {leaves.node}")
        found["node leaves"], since = await _counted(proxy, since)
    finally:
        await program.stop()
        print(program.text[-20000:])
    return found


async def _pass_over(proxy: Proxy, controllers: Controllers, start) -> tuple[int, int]:
    """Return how many calls one pass over all Nodes takes, and how many Nodes are unchanged afterwards."""
    before = await _versions(controllers.kube)
    program: Ccm | Theirs = start(conf(proxy, ZONES), **{"node-status-update-frequency": PERIOD})
    try:
        since = len(proxy.calls)
        for _ in range(2):  # the first pass includes the login

            async def has_begun(since: int = since) -> bool:
                return len(proxy.calls) > since

            await eventually(has_begun, PATIENCE, "a look at all Nodes")
            count, since = await _counted(proxy, since)
    finally:
        await program.stop()
        print(program.text[-20000:])
    after = await _versions(controllers.kube)
    assert after.keys() == before.keys()
    return count, sum(after[name] == version for name, version in before.items())


async def _counted(proxy: Proxy, since: int) -> tuple[int, int]:
    """Wait until no more calls come; return the number of calls since `since`, and of all calls so far."""
    seen, began = -1, time.monotonic()
    while seen != len(proxy.calls):
        assert time.monotonic() - began < PATIENCE, proxy.counted(since)
        seen = len(proxy.calls)
        await asyncio.sleep(QUIET)
    print(seen - since, proxy.counted(since))
    return seen - since, seen


async def _versions(kube: KubeClient) -> dict[str, str]:
    nodes, _ = await kube.list(NODES, Node)
    return {node.metadata.name: node.metadata.resource_version for node in nodes}
