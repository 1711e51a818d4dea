# SPDX-License-Identifier: Apache-2.0
"""The clouds of a process, and the controllers of each.

If there is one cloud, it must accept its credentials before this process may lead, because a standby may reach a cloud
that this process cannot reach. Of several clouds, at least one must do so. The controllers of each other cloud start
when that cloud has started, however late that is.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ccm.base.cancellation import TaskGroup
from ccm.base.start_error import StartError
from ccm.controllers.controller_context import ControllerContext
from ccm.controllers.controller_spec import ControllerSpec
from ccm.controllers.nodes.owners import Owners, Share
from ccm.controllers.nodes.ownership_rules import Declarations, overlap
from ccm.controllers.routes.route import RouteController
from ccm.controllers.services.service import ServiceController
from ccm.controllers.services.service_holders import ServiceHolders
from ccm.controllers.shared.notes_of_cloud import NotesOfCloud
from ccm.gateway.gateway import Gateway
from ccm.gateway.instance_snapshot import Snapshot

from .cloud_reload import CloudReloader, CloudSettings
from .running_controllers import ConfiguredController, RunningControllers


class CloudSet(msgspec.Struct, frozen=True):
    """One cloud, and its controllers by name."""

    cloud: CloudReloader
    controllers: Mapping[str, ConfiguredController]

    @property
    def gateway(self) -> Gateway:
        return self.cloud.gateway

    @property
    def name(self) -> str:
        """The name of the cloud, "" if it is the only one."""
        return self.gateway.name


def create(settings: Iterable[CloudSettings]) -> list[CloudReloader]:
    """Create all clouds. Raises StartError with the problems of all."""
    made, problems = [], []
    for setting in settings:
        try:
            made.append(CloudReloader(setting))
        except StartError as error:
            problems.append(str(error))
    if problems:
        raise StartError("\n".join(problems))
    return made


def unconnected(sets: Sequence[CloudSet]) -> str:
    """Return a warning that cloud routes do not connect Pods of different clouds; "" if there is one cloud, or if none
    has a route controller."""
    routing = [each.name for each in sets if RouteController.name in each.controllers]
    if len(sets) < 2 or not routing:
        return ""
    return (
        f"routes of {' and '.join(routing)} lead to the cloud's own Nodes only: they do not connect Pods of "
        f"{' and '.join(each.name for each in sets)} with one another. If these Pods must reach each "
        "other, use an overlay network"
    )


def specs_of(sets: Sequence[CloudSet], names: Iterable[str]) -> list[ControllerSpec[Any]]:
    """Return the controllers that run for any cloud, in the order of `names`."""
    return [
        next(each.controllers[name].spec for each in sets if name in each.controllers)
        for name in names
        if any(name in each.controllers for each in sets)
    ]


async def start(sets: Sequence[CloudSet], cleanup: contextlib.AsyncExitStack) -> list[Coroutine[Any, Any, None]]:
    """Wait until this process may lead. Return coroutines that keep the clouds up to date, to be run from then on.
    Raises StartError if the only cloud is unusable."""
    if len(sets) == 1:
        await sets[0].cloud.start()
        return [sets[0].cloud.watch()]
    for set_ in sets:
        set_.cloud.beside = functools.partial(_overlap, set_, sets)
    tasks = [asyncio.create_task(each.cloud.start_beside_others(), name=f"start {each.name}") for each in sets]
    for task in tasks:
        cleanup.callback(task.cancel)
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return [_follow(each.cloud, task) for each, task in zip(sets, tasks, strict=True)]


def _overlap(own: CloudSet, sets: Sequence[CloudSet], listing: Snapshot) -> str:
    """Return why a cloud with these instances cannot be served beside those that have started, "" if it can: they must
    not share machines."""
    for other in sets:
        instances = other.gateway.instances
        if other is own or not other.cloud.started.is_set() or instances is None:
            continue
        # A cloud that has just been replaced has no listing yet.
        theirs = instances.latest or other.cloud.compared
        known = theirs.by_id.values() if theirs is not None else ()
        if problem := overlap(own.name, listing.by_id.values(), other.name, known):
            return problem
    return ""


async def _follow(cloud: CloudReloader, start: asyncio.Task[None]) -> None:
    await start
    await cloud.watch()


def divide(
    sets: Sequence[CloudSet], context: ControllerContext, patterns: Mapping[str, Sequence[str]]
) -> list[ControllerContext]:
    """Return the context of each of several clouds. `context`: what they share. `patterns`: `--cloud-nodes`, by
    cloud."""
    with_nodes = {each.name: each for each in sets if each.gateway.instances is not None}
    directories = {name: each.gateway.instances for name, each in with_nodes.items() if each.gateway.instances}
    owners = Owners(
        directories,
        Declarations(tuple(directories), patterns),
        has_started=lambda name: with_nodes[name].cloud.started.is_set(),
        is_failing=lambda name: with_nodes[name].gateway.is_held_back("instances"),
        monotonic=context.monotonic,
    )
    holders = ServiceHolders([each.name for each in sets if ServiceController.name in each.controllers])
    return [
        replace(
            context,
            holders=holders,
            gateway=each.gateway,
            notes=NotesOfCloud(context.notes, each.name),
            holds=context.holds.part(),
            share=Share(owners, each.name) if each.name in directories else None,
        )
        for each in sets
    ]


async def run_all(sets: Sequence[CloudSet], contexts: Sequence[ControllerContext], names: Sequence[str]) -> None:
    """Run the controllers with these names for all clouds. If one fails, all stop (`RunningControllers.run`)."""
    if len(sets) == 1:
        await RunningControllers((sets[0].controllers[name] for name in names), contexts[0]).run()
        return
    for cache in contexts[0].caches.values():
        cache.catch_up()
    first = sets[0].controllers
    once = [name for name in names if name in first and first[name].spec.runs_once]
    async with TaskGroup() as tasks:
        if once:  # they wait for no cloud
            # The context of a cloud without instances cannot say which cloud owns a Node.
            context = next((each for each in contexts if each.share is not None), contexts[0])
            shared = RunningControllers((first[name] for name in once), context, catches_up=False)
            tasks.create_task(shared.run(), name="controllers of all clouds")
        for set_, context in zip(sets, contexts, strict=True):
            own = [name for name in names if name not in once]
            tasks.create_task(_run(set_, context, own), name=f"controllers of {set_.name}")


async def _run(part: CloudSet, context: ControllerContext, names: Sequence[str]) -> None:
    await part.cloud.started.wait()
    own = (part.controllers[name] for name in names if name in part.controllers)
    await RunningControllers(own, context, catches_up=False).run()
