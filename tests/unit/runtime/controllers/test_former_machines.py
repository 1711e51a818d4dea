# SPDX-License-Identifier: Apache-2.0
"""A machine is replaced under its name, and a late answer of the cloud shows the former machine again.

A Node's providerID cannot change, so the new Node must not get the former machine's.
"""

import asyncio

import pytest

from ccm.cloud import InstanceState
from ccm.controllers.nodes.vouching_rules import GONE_FOR

from ..gateway.virtual import in_virtual_time
from .nodes_harness import Cluster, machine, until


async def replaced(c):
    """Delete n0's machine and Node, register a new Node n0, and let the cloud show the former machine again."""
    for number in range(3):
        c.api.add(f"n{number}", tainted=False, ready="True", providerID=f"fake://n{number}")
        c.cloud.put(machine(f"n{number}"))
    c.initialise_nodes()
    c.watch_over_nodes()
    await asyncio.sleep(10)
    c.cloud.remove("n0")
    c.api.set_ready("n0", "Unknown")
    await until(lambda: "n0" not in c.api.nodes)
    c.cloud.put(machine("n0"))
    c.api.add("n0", ready="True", age=0.0)


def provider_id(c):
    return c.api.nodes["n0"]["spec"].get("providerID")


@pytest.mark.parametrize("late", [5.0, 60.0])
def test_the_new_node_waits_for_the_new_machine(late):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await replaced(c)
            await asyncio.sleep(late)
            assert provider_id(c) is None
            assert any("which it reported gone" in event["message"] for event in c.api.events)
            c.cloud.put(machine("n0", "10.0.0.9", provider_id="fake://n0-new"))
            await until(lambda: provider_id(c) == "fake://n0-new", seconds=20)

    run()


@in_virtual_time
async def test_a_machine_that_was_missing_by_mistake_gets_its_node_in_the_end():
    async with Cluster() as c:
        await replaced(c)
        await asyncio.sleep(GONE_FOR - 10)
        assert provider_id(c) is None
        await until(lambda: provider_id(c) == "fake://n0", seconds=30)


@in_virtual_time
async def test_a_stopped_machine_of_the_same_name_gets_no_running_node():
    """An administrator keeps the former machine switched off, and the new one is in another project."""
    async with Cluster() as c:
        c.cloud.put(machine("n0", state=InstanceState.SHUTDOWN))
        c.initialise_nodes()
        c.api.add("n0", ready="False", age=0.0)
        await asyncio.sleep(600)
        assert provider_id(c) is None
        assert any("which has the Node's name, as shutdown" in event["message"] for event in c.api.events)
        assert len(c.cloud.calls) < 40
        c.cloud.put(machine("n0"))
        await until(lambda: provider_id(c) == "fake://n0", seconds=90)


@in_virtual_time
async def test_a_machine_that_was_switched_off_after_its_kubelet_registered_gets_its_node():
    async with Cluster() as c:
        c.cloud.put(machine("n0", state=InstanceState.SHUTDOWN))
        c.initialise_nodes()
        c.api.add("n0", ready="Unknown", age=0.0)
        await until(lambda: provider_id(c) == "fake://n0", seconds=30)
