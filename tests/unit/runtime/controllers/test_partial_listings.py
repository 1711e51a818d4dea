# SPDX-License-Identifier: Apache-2.0
"""While a part of the cloud is unreachable, no Node whose instance is missing is deleted or reported as gone, because
the instance may be in that part. Nodes whose instances are listed work as usual.
"""

import asyncio
import dataclasses

from prometheus_client import REGISTRY

from ccm.cloud import NotFound, Transient

from ..gateway.virtual import in_virtual_time
from .nodes_harness import Cluster, machine, until

PART = "vCenter b does not answer"


def with_a_part(c, *, unreachable):
    """Create Nodes n0 to n5; only n0's instance is missing. Listings name `unreachable` as the unreachable part."""
    for number in range(6):
        c.api.add(f"n{number}", tainted=False, ready="True" if number else "Unknown", providerID=f"fake://n{number}")
        if number:
            c.cloud.put(machine(f"n{number}"))
    c.cloud.answer = lambda found: dataclasses.replace(found, unreachable=unreachable)


@in_virtual_time
async def test_nothing_is_deleted_on_account_of_a_partial_listing():
    async with Cluster() as c:
        with_a_part(c, unreachable=PART)
        c.watch_over_nodes()
        await until(lambda: c.api.told("DeletionHeld", "n0"))
        await asyncio.sleep(1800.0)
        assert "n0" in c.api.nodes and c.api.count("DELETE") == 0
        assert any(PART in message for message in c.api.told("DeletionHeld", "n0"))
        c.cloud.answer = lambda found: found
        await until(lambda: "n0" not in c.api.nodes, 300.0)


@in_virtual_time
async def test_a_ready_node_of_the_other_part_is_not_taken_for_vanished():
    async with Cluster() as c:
        with_a_part(c, unreachable=PART)
        c.api.set_ready("n0", "True")
        c.initialise_nodes(refresh=60.0)
        await asyncio.sleep(300.0)
        assert c.api.told("InstanceNotListed") == []
        assert any(PART in message for message in c.api.told("CloudNotAvailable", "n0"))
        assert REGISTRY.get_sample_value("ccm_nodes_ready_without_instance") == 0.0


@in_virtual_time
async def test_nodes_of_the_part_that_answers_are_initialised():
    async with Cluster() as c:
        with_a_part(c, unreachable=PART)
        whole = c.cloud.get

        async def get(ref):
            try:
                return await whole(ref)
            except NotFound as error:
                raise Transient(f"{error} in the parts that answer; {PART}") from None

        c.cloud.get = get
        c.cloud.put(machine("new"))
        c.cloud.put(machine("newer"))
        for name in ("new", "newer", "elsewhere"):
            c.api.add(name)
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("new") and not c.api.tainted("newer"))
        await asyncio.sleep(60.0)
        assert c.api.tainted("elsewhere") and c.api.told("InstanceNotFound", "elsewhere") == []
