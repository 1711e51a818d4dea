# SPDX-License-Identifier: Apache-2.0
"""The last stage of a process: it runs the controllers while it leads, beside the tasks that standbys run, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from ccm.base.cancellation import TaskGroup
from ccm.controllers.controller_context import ControllerContext
from ccm.controllers.nodes.vouching import Vouching
from ccm.controllers.shared.context import Notes
from ccm.controllers.shared.holds import Holds
from ccm.controllers.shared.watched_kinds import NODES, SERVICES
from ccm.engine.client import KubeClient
from ccm.engine.election import LeadershipLost
from ccm.engine.identity import ClusterChanged, ClusterIdentity

from .cloud_sets import CloudSet, divide, run_all
from .leadership import Leadership, Work
from .observe import View


def contexts_of(
    client: KubeClient,
    sets: Sequence[CloudSet],
    view: View,
    cluster_name: str,
    notes: Notes,
    holds: Holds,
    patterns: Mapping[str, Sequence[str]],
) -> list[ControllerContext]:
    """Return the context of each cloud's controllers. `notes`: the notes for the next leader. `patterns`:
    `--cloud-nodes`, by cloud."""
    caches, gateway = view.caches, sets[0].gateway
    shared = ControllerContext(
        client, gateway, caches[NODES], caches[SERVICES], view.recorders.of, cluster_name, notes, holds, caches=caches
    )
    contexts = [shared] if len(sets) == 1 else divide(sets, shared, patterns)
    return [
        context
        if context.gateway.instances is None
        else dataclasses.replace(context, vouching=Vouching(context, context.share))
        for context in contexts
    ]


def work_of(sets: Sequence[CloudSet], contexts: Sequence[ControllerContext], identity: ClusterIdentity) -> Work:
    """Return a function that runs the controllers whose names it gets."""

    async def work(names: tuple[str, ...]) -> None:
        await identity.settled()  # the cluster may have changed while another process led
        await run_all(sets, contexts, names)

    return work


async def lead(leadership: Leadership, work: Work, lasting: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for the Lease, and work while this process leads. The `lasting` tasks run from the start, also on a standby;
    they and the work stop together.

    Raises LeadershipLost if the Lease is lost, and ClusterChanged if the API server serves another cluster.
    """
    ended: LeadershipLost | ClusterChanged | None = None
    try:
        async with TaskGroup() as background:
            tasks = [background.create_task(coroutine) for coroutine in lasting]
            try:
                await leadership.run(work)
            except LeadershipLost as error:
                ended = error
            finally:
                for task in tasks:
                    task.cancel()
    except* ClusterChanged as group:
        ended = _first_of(group)
    if ended is not None:
        raise ended


def _first_of(error: BaseException) -> ClusterChanged:
    """Return the first error in a group, at any depth."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ClusterChanged)
    return error
