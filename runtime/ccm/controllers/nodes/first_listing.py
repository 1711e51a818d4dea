# SPDX-License-Identifier: Apache-2.0
"""Check the first listing of instances, which decides about backends and routes that an earlier process left.

The listing must be plausible. A listing that misses most Nodes describes other machines, for example because the
credentials belong to another project or a filter is wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from ccm.cloud import CloudError
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory
from ccm.gateway.instance_snapshot import Snapshot

from ..shared.context import Context
from . import node_rules, vouching_rules

log = logging.getLogger(__name__)

#: Seconds to wait at start, so that a listing that another controller requests meanwhile serves both.
GRACE = 0.1
#: First and longest delay in seconds after a listing that failed or is not plausible.
BELIEF_FIRST, BELIEF_MAX = 5.0, 60.0


#: Reports an implausible listing: receives all Nodes of the cloud, the Nodes missing from it, and a message.
ReportImplausible = Callable[[Sequence[Node], Sequence[Node], str], None]


async def missing_from_first_listing(
    context: Context, directory: InstanceDirectory, report: ReportImplausible
) -> Sequence[tuple[Node, CloudError]]:
    """Wait for a plausible listing; `report` each implausible one. Return the Nodes that are missing from the plausible
    one, with the error for each; [] if the cluster has no Node of this cloud."""
    not_before, delay = context.monotonic(), BELIEF_FIRST
    await asyncio.sleep(GRACE)
    while nodes := [each for each in context.nodes.items() if directory.owns(each.spec.provider_id)]:
        wait = delay
        try:
            snapshot = await directory.list(not_before=not_before)
        except CloudError as error:
            wait = max(delay, error.retry_after or 0.0)
            log.warning("cannot list instances; load balancers and routes wait, next try in %.0f s: %s", wait, error)
        else:
            missing = missing_from(nodes, snapshot)
            problem = implausible_because(nodes, [node for node, _ in missing])
            if not problem:
                return missing
            report(nodes, [node for node, _ in missing], problem)
        delay = min(BELIEF_MAX, delay * 2)
        await asyncio.sleep(wait)
        not_before = context.monotonic()
    return []


def missing_from(nodes: Iterable[Node], snapshot: Snapshot) -> list[tuple[Node, CloudError]]:
    """Return the Nodes whose instance a listing does not have, with the error for each. No I/O."""
    missing: list[tuple[Node, CloudError]] = []
    for node in nodes:
        try:
            snapshot.find(node_rules.instance_ref(node))
        except CloudError as error:
            missing.append((node, error))
    return missing


def implausible_because(nodes: Iterable[Node], missing: Iterable[Node]) -> str:
    """Return why a first listing decides nothing, "" if it may decide. `nodes`: all Nodes of the cloud. `missing`:
    those whose instances are missing from the listing. No I/O."""
    doubt = doubted(nodes, missing)
    return doubt and (
        f"{doubt}. Load balancers and routes are not written until it lists at least half. Check the project, the "
        "region and the filter in --cloud-config"
    )


def doubted(nodes: Iterable[Node], missing: Iterable[Node]) -> str:
    """Return how the Ready Nodes contradict a listing, "" if it may be one of this cluster's machines. Without a Ready
    Node, nothing contradicts it. The parameters are those of `implausible_because`. No I/O."""
    ready = sum(1 for node in nodes if node_rules.is_ready(node))
    listed = ready - sum(1 for node in missing if node_rules.is_ready(node))
    if vouching_rules.is_plausible(listed, ready):
        return ""
    return f"the cloud lists the instances of only {listed} of {ready} Ready Nodes"
