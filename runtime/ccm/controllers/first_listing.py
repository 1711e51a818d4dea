# SPDX-License-Identifier: Apache-2.0
"""The first listing of instances in a process decides about backends and routes that a former process left.

So it must be believable: one that lacks most Nodes is about other machines, for example with credentials of another
project or a wrong filter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from ccm.cloud import CloudError
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory
from ccm.gateway.instance_snapshot import Snapshot

from . import node_rules, vouching_rules
from .context import Context

log = logging.getLogger(__name__)

#: How long to wait at start for another controller's listing, in seconds.
GRACE = 0.1
#: Seconds between listings that are not believed.
BELIEF_FIRST, BELIEF_MAX = 5.0, 60.0


#: What to do about a listing that is not believed: with all Nodes of the cloud, those that it lacks, and a sentence.
Disbelieve = Callable[[Sequence[Node], Sequence[Node], str], None]


async def missing_from_first_listing(
    context: Context, directory: InstanceDirectory, disbelieve: Disbelieve
) -> Sequence[tuple[Node, CloudError]]:
    """Wait for a listing that has enough of the Nodes to decide about all; return those that it lacks, and how."""
    not_before, delay = context.monotonic(), BELIEF_FIRST
    await asyncio.sleep(GRACE)
    while nodes := [each for each in context.nodes.items() if directory.owns(each.spec.provider_id)]:
        wait = delay
        try:
            snapshot = await directory.list(not_before=not_before)
        except CloudError as error:
            wait = max(delay, error.retry_after or 0.0)
            log.warning("load balancers and routes wait: instances cannot be listed, again in %.0f s: %s", wait, error)
        else:
            missing = _missing(nodes, snapshot)
            ready = sum(1 for node in nodes if node_rules.is_ready(node))
            found = ready - sum(1 for node, _ in missing if node_rules.is_ready(node))
            if vouching_rules.is_believable(found, ready):
                return missing
            disbelieve(nodes, [node for node, _ in missing], _disbelief(found, ready))
        delay = min(BELIEF_MAX, delay * 2)
        await asyncio.sleep(wait)
        not_before = context.monotonic()
    return []


def _missing(nodes: Iterable[Node], snapshot: Snapshot) -> list[tuple[Node, CloudError]]:
    found: list[tuple[Node, CloudError]] = []
    for node in nodes:
        try:
            snapshot.find(node_rules.instance_ref(node))
        except CloudError as error:
            found.append((node, error))
    return found


def _disbelief(found: int, ready: int) -> str:
    return (
        f"the cloud lists the instances of {found} of {ready} Ready Nodes: no load balancer and no route is "
        "written before it lists at least half. Check the project, the region and the filter in --cloud-config"
    )
