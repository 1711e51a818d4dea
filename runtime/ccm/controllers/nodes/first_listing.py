# SPDX-License-Identifier: Apache-2.0
"""Check the first listing of instances, which decides about backends and routes that an earlier process left.

The listing must be plausible. A listing that misses most Nodes describes other machines, for example because the
credentials belong to another project or a filter is wrong. The first listing after a reload of `--cloud-config` is
checked as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

from ccm.cloud import CloudError
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory
from ccm.gateway.instance_snapshot import Snapshot

from ..shared.context import Context
from . import node_rules, vouching_rules

log = logging.getLogger(__name__)

#: Seconds to wait before the first listing. If another controller requests a listing meanwhile, that one is used.
GRACE = 0.1
#: First and longest delay in seconds after a listing that failed or is not plausible.
BELIEF_FIRST, BELIEF_MAX = 5.0, 60.0
#: Why calls are held back until the first listing of a cloud that replaces another one.
NOT_LISTED = "the cloud configuration changed, and the cloud has yet to list the instances of half of the Ready Nodes"

#: Reports an implausible listing: receives all Nodes of the cloud, those missing from the listing, and a message.
#: Receives [], [] and "" when nothing is implausible any more.
Report = Callable[[Sequence[Node], Sequence[Node], str], None]


class Replacements:
    """Holds back calls about load balancers, routes and tags to a cloud that replaces another one, until its first
    listing is plausible.

    `ready` is set while nothing is held back. `claimed` returns the names of the Nodes that belong to the current
    cloud: they count as missing if the next cloud does not own them, because a providerID may contain the project.
    """

    def __init__(
        self,
        context: Context,
        directory: InstanceDirectory,
        report: Report,
        ready: asyncio.Event,
        claimed: Callable[[], Collection[str]],
    ) -> None:
        self._context, self._directory, self._report = context, directory, report
        self._ready, self._claimed = ready, claimed
        self._names: set[str] = set()
        self._replaced = asyncio.Event()
        context.gateway.on_replace(self._hold)

    def _hold(self) -> None:
        self._names.update(self._claimed())
        self._ready.clear()
        self._context.gateway.doubt = NOT_LISTED
        self._replaced.set()

    def _settle(self) -> None:
        if not self._replaced.is_set():  # otherwise the next listing decides
            self._names.clear()
            self._context.gateway.doubt = ""
            self._ready.set()

    def run(self) -> Coroutine[Any, Any, None]:
        """Set `ready`, unless the cloud was replaced during the first listing. Return a coroutine that checks each
        cloud that replaces another one, until it is cancelled."""
        self._settle()
        return self._follow()

    async def _follow(self) -> None:
        while True:
            await self._replaced.wait()
            self._replaced.clear()
            await missing_from_first_listing(self._context, self._directory, self._doubt, self._names)
            self._settle()

    def _doubt(self, nodes: Sequence[Node], missing: Sequence[Node], problem: str) -> None:
        self._context.gateway.doubt = problem or self._context.gateway.doubt
        self._report(nodes, missing, problem)


async def missing_from_first_listing(
    context: Context, directory: InstanceDirectory, report: Report, former: Collection[str] = ()
) -> Sequence[tuple[Node, CloudError]]:
    """Wait for a plausible listing; `report` each implausible one. Return the Nodes that are missing from the plausible
    one, with the error for each; [] if the cluster has no Node of this cloud. `former`: names of Nodes that count even
    if the cloud does not own them."""
    not_before, delay = context.monotonic(), BELIEF_FIRST
    await asyncio.sleep(GRACE)

    def is_ours(node: Node) -> bool:
        return node.metadata.name in former or directory.owns(node.spec.provider_id)

    while nodes := list(filter(is_ours, context.nodes.items())):
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
                report([], [], "")
                return missing
            report(nodes, [node for node, _ in missing], problem)
        delay = min(BELIEF_MAX, delay * 2)
        await asyncio.sleep(wait)
        not_before = context.monotonic()
    report([], [], "")
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
    """Return why a first listing must not decide about load balancers and routes, "" if it may. `nodes`: all Nodes of
    the cloud. `missing`: those whose instances are missing from the listing. No I/O."""
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
