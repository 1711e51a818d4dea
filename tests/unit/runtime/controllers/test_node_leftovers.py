# SPDX-License-Identifier: Apache-2.0
"""The node controller forgets a deleted Node, whatever it was doing when the Node went."""

import asyncio

import pytest

from ccm.cloud import Transient
from ccm.controllers.nodes.node import NodeController, NodeOptions

from ..gateway.virtual import in_virtual_time
from .nodes_harness import Cluster, machine, until


@pytest.mark.parametrize("error", [None, Transient("503 from the cloud")], ids=["answered", "refused"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_nothing_is_kept_of_nodes_that_go_while_they_are_read(known, error):
    """A cluster that scales by 1,000 Nodes a day would otherwise leave 1,000 entries a day."""

    @in_virtual_time
    async def run():
        names = [f"n{number}" for number in range(3)]
        async with Cluster(*(machine(name) for name in names if known)) as c:
            c.cloud.latency, c.cloud.error = 5.0, error
            controller = NodeController(c.context, NodeOptions(), c.vouching)
            c.run(controller)
            for name in names:
                c.api.add(name)
            await until(lambda: c.cloud.calls)
            await asyncio.sleep(1)
            for name in names:
                c.api.remove(name)
            await asyncio.sleep(300)
            assert not controller._not_before and not controller._instances and not controller._repairs
            assert controller._queue.depth == 0 and not controller._queue._failures

    run()
