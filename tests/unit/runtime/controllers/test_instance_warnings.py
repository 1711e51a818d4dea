# SPDX-License-Identifier: Apache-2.0
"""Each warning of a provider becomes one Event on the Node and one log line."""

import asyncio
import dataclasses
import logging

import pytest

from ccm.controllers.nodes.instance_warnings import LONGEST, MOST

from ..gateway.virtual import in_virtual_time
from .nodes_harness import NODE_IP, Cluster, machine, until

TOOLS = "the guest tools do not answer, so its addresses are not known"


def warned(c, name="n1"):
    return c.api.told("InstanceWarning", name)


@in_virtual_time
async def test_a_warning_is_told_once_however_often_the_node_is_refreshed(caplog):
    caplog.set_level(logging.WARNING, "ccm")
    async with Cluster(machine("n1", warnings=(TOOLS,)), machine("n2")) as c:
        c.api.add("n1")
        c.api.add("n2", tainted=False, providerID="fake://n2", addresses=(("InternalIP", "10.0.0.1"),))
        c.initialise_nodes(refresh=60.0)
        await asyncio.sleep(3600.0)
        assert warned(c) == [f"the cloud reports a warning for instance fake://n1: {TOOLS}"]
        assert warned(c, "n2") == []
        assert sum(TOOLS in message for message in caplog.messages) == 1


@in_virtual_time
async def test_an_initialised_node_is_warned_of_at_the_next_refresh():
    async with Cluster(machine("n1")) as c:
        c.api.add("n1", tainted=False, providerID="fake://n1", addresses=(("InternalIP", "10.0.0.1"),))
        c.initialise_nodes(refresh=60.0)
        await asyncio.sleep(100.0)
        assert warned(c) == []
        c.cloud.put(machine("n1", warnings=(TOOLS,)))
        await until(lambda: warned(c), 120.0)
        assert c.api.count("PATCH") == 0, "a warning is no reason to write to the Node"


@in_virtual_time
async def test_one_that_was_gone_is_told_again_and_a_new_one_beside_it():
    async with Cluster(machine("n1", warnings=(TOOLS,))) as c:
        c.api.add("n1", tainted=False, providerID="fake://n1", addresses=(("InternalIP", "10.0.0.1"),))
        c.initialise_nodes(refresh=400.0)
        for warnings, count in (((), 1), ((TOOLS,), 2), ((TOOLS, "its name is also another's"), 3)):
            await asyncio.sleep(1000.0)
            c.cloud.put(machine("n1", warnings=warnings))
            await asyncio.sleep(1000.0)
            assert len(warned(c)) == count
        assert warned(c)[-1].endswith("its name is also another's")


@in_virtual_time
async def test_a_node_that_stays_tainted_is_warned_of_too():
    """Such a Node needs the warning most: it stays tainted because the guest tools do not report the address of its
    --node-ip.
    """
    async with Cluster(machine("n1", ip="", warnings=(TOOLS,))) as c:
        c.api.add("n1", annotations={NODE_IP: "10.0.0.9"})
        c.initialise_nodes()
        await until(lambda: warned(c))
        await asyncio.sleep(600.0)
        assert c.api.tainted("n1") and len(warned(c)) == 1


@in_virtual_time
async def test_another_node_of_the_name_is_warned_of_for_itself():
    async with Cluster(machine("n1", warnings=(TOOLS,))) as c:
        c.api.add("n1")
        c.initialise_nodes()
        await until(lambda: warned(c))
        c.api.remove("n1")
        await asyncio.sleep(1.0)
        c.api.add("n1")
        await until(lambda: len(warned(c)) == 2)


@in_virtual_time
async def test_what_is_told_is_short_and_on_one_line():
    texts = ("x" * 10_000, "a\nb\x1b[31m", *(f"warning {number}" for number in range(100)))
    async with Cluster(machine("n1", warnings=texts)) as c:
        c.api.add("n1")
        c.initialise_nodes()
        await until(lambda: len(warned(c)) >= MOST)
        await asyncio.sleep(10.0)
        assert len(warned(c)) == MOST
        assert all(each.isprintable() and len(each) < LONGEST + 100 for each in warned(c))


@in_virtual_time
async def test_what_there_was_no_room_for_comes_later():
    """Of 120 Nodes' warnings, the Event budget first lets 50 through, and the rest with later refreshes."""
    names = [f"n{number}" for number in range(120)]
    async with Cluster(*(machine(name, warnings=(TOOLS,)) for name in names)) as c:
        for name in names:
            c.api.add(name, tainted=False, providerID=f"fake://{name}", addresses=(("InternalIP", "10.0.0.1"),))
        c.initialise_nodes(refresh=60.0)
        await asyncio.sleep(30.0)
        assert len(c.api.told("InstanceWarning")) < 120
        await asyncio.sleep(600.0)
        assert sorted(c.api.told("InstanceWarning")) == sorted({*c.api.told("InstanceWarning")})
        assert len(c.api.told("InstanceWarning")) == 120


def test_warnings_are_part_of_what_an_instance_is():
    """The conformance kit compares whole instances, so `get` and the listing must agree about warnings, too."""
    one = machine("n1")
    assert dataclasses.replace(one, warnings=("w",)) != one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.warnings = ()
