# SPDX-License-Identifier: Apache-2.0
"""One process of the runtime: what `ccm.manager.process` puts together, without sockets, signals and a serving port.

Only this file knows how a process is assembled: when `ccm.manager` is rearranged, this file must follow. A killed
process sends nothing more, as after SIGKILL, whatever its tasks do while they are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import functools
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import prometheus_client

from ccm.base.start_error import StartError
from ccm.cloud import Cloud, ProviderConfig
from ccm.controllers.controller_context import ControllerContext
from ccm.controllers.nodes.vouching import Vouching
from ccm.controllers.shared.watched_kinds import NODES, SERVICES
from ccm.engine import connection_pool, metrics
from ccm.engine.api_credentials import Access
from ccm.engine.client import KubeClient
from ccm.engine.election import LeadershipLost
from ccm.engine.identity import ClusterChanged
from ccm.engine.queue import QUEUES
from ccm.manager import cloud_reload, cloud_sets, leadership, room_settings
from ccm.manager.cloud_reload import CloudReloader, CloudSettings
from ccm.manager.cloud_sets import CloudSet
from ccm.manager.lead import lead
from ccm.manager.leadership import Leadership
from ccm.manager.observe import observe
from ccm.manager.running_controllers import RunningControllers, usable_controllers
from ccm.options.command_line import Options, parse
from ccm.options.leader_migration import split
from ccm.providers.sim import SimCloud
from ccm.providers.sim.api import Api, Project
from ccm.providers.sim.settings import Settings

from . import cloud, connections
from .api_server import ApiServer
from .virtual_time import OWNER, PART, wall_clock

if TYPE_CHECKING:
    from .simulation import Simulation

CLUSTER = "kubernetes"
CLUSTER_CIDR = "10.120.0.0/14"  # of up to 1,024 Nodes
ARGV = (
    "--cloud-provider=sim",
    "--cloud-config=cloud.conf",
    f"--cluster-cidr={CLUSTER_CIDR}",
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=4s",
)


def _current() -> Process:
    """Return the process whose task is running."""
    process = OWNER.get()
    assert isinstance(process, Process)
    return process


@functools.cache
def options(more: tuple[str, ...]) -> Options:
    return parse((*ARGV, *more))


async def _open(api: Api, session: cloud.Session) -> None:
    """Take the place of `Api.open`, with a session that has no socket."""
    api._session = session  # type: ignore[assignment]
    api.region = (await api.call("GET", "", Project)).region


def use(client: KubeClient, server: ApiServer, process: Process) -> None:
    """Let all connections of the client lead to `server`."""

    def open_() -> connection_pool._Generation:
        return connection_pool._Generation(connections.Session(server, process))  # type: ignore[arg-type]

    client._pool._open = open_  # type: ignore[method-assign]


class Process:
    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation, self.number = simulation, number
        self.name = f"p{number}"
        self.alive, self.ended = True, False
        self.leads = False
        #: Resource -> whether the process's first list of it was correct.
        self.first_list_right: dict[str, bool] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.elector: Any = None
        self.queues: list[Any] = []
        #: The sessions of its client, including replaced ones whose last requests go on.
        self.sessions: list[connections.Session] = []
        #: The alarms: the time at which the kernel interrupts the process, and the callback.
        self.alarms: dict[object, tuple[float, Callable[[], None]]] = {}
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        self.main = context.run(simulation.loop.create_task, self._run())

    def kill(self) -> None:
        """Kill the process as SIGKILL does: nothing that its tasks still do reaches a server."""
        if self.alive:
            self.alive = False
            self.simulation.note(f"{self.name} is killed")
            self.simulation.loop.continue_owner(self)
            self.simulation.loop.call_soon(self._reap)

    def _reap(self) -> None:
        left = [task for task in self.tasks if not task.done()]
        self.tasks = left
        for task in left:
            task.cancel()
        if left:
            self.simulation.loop.call_later(0.5, self._reap)
        else:
            self.ended = True

    def pause(self, seconds: float) -> None:
        """Stop the process as SIGSTOP does, and continue it after `seconds`."""
        if self.alive:
            self.simulation.note(f"{self.name} stands still for {seconds:g} s")
            self.simulation.loop.stop_owner(self, seconds)

    def wake(self) -> None:
        """Continue after `pause`: first run the alarms that were due meanwhile."""
        for key, (due, callback) in list(self.alarms.items()):
            if due <= self.simulation.loop.now and self.alive:
                del self.alarms[key]
                callback()

    @property
    def has_ended(self) -> bool:
        """Whether the process never acts again. One that stands still while an alarm is due ends when it wakes."""
        overdue = any(due <= self.simulation.loop.now for due, _ in self.alarms.values())
        return not self.alive or self.main.done() or overdue

    async def stop(self) -> list[str]:
        """Send SIGTERM. Return the tasks that are left afterwards; there should be none."""
        self.main.cancel()
        await asyncio.wait({self.main}, timeout=30.0)
        if not self.main.done():
            left = ["the main task"]
        else:
            left = sorted(task.get_name() for task in self.tasks if not task.done())
        self.alive = False
        self._reap()
        return left

    def queued(self, tolerated: set[str]) -> list[str]:
        """Return keys that wait, are delayed or are being processed, without `tolerated`, which are retried forever."""
        found = []
        for queue in self.queues:
            for what, keys in (
                ("waits", queue._added_at),
                ("is worked on", queue._running),
                ("back-off", queue._timers),
            ):
                found += [f"{queue.name}: {key} {what}" for key in keys if key not in tolerated]
        return sorted(found)

    async def _run(self) -> None:
        try:
            await self._live()
        except (LeadershipLost, ClusterChanged, StartError) as error:
            self.simulation.note(f"{self.name} ends: {error}")
            if isinstance(error, LeadershipLost):
                self.simulation.checks.loses_lease(self)
        except Exception as error:
            if self.alive:
                self.simulation.checks.violated("crashed", f"{self.name}: {_innermost(error)}")
            raise
        finally:
            self.leads = False
            self.simulation.on_end(self)

    async def _live(self) -> None:
        """Run the process, as `ccm.manager.process._live` does."""
        simulation, given = self.simulation, options(self.simulation.arguments)
        client = KubeClient(Access(server="http://api"))
        use(client, simulation.api, self)
        clock = simulation.loop.time
        keepers = [CloudReloader(each, clock=clock) for each in room_settings.clouds(given)]
        gateways = [each.gateway for each in keepers]
        own = room_settings.for_each(given, [each.cloud for each in gateways])
        sets = [
            CloudSet(each, usable_controllers(flags, each.gateway.cloud))
            for each, flags in zip(keepers, own, strict=True)
        ]
        specs = {spec.name: spec for spec in cloud_sets.specs_of(sets, given.controllers)}
        parts = split(specs, given.migration())
        here = [specs[name] for name in (*parts.own, *parts.migrated)]
        async with contextlib.AsyncExitStack() as cleanup:
            for gateway in gateways:
                cleanup.push_async_callback(gateway.close)
            view = observe(client, here, cleanup)
            leader = Leadership(room_settings.election(given), parts, client, gateways, view.recorders)
            self.elector = leader.main
            following = await cloud_sets.start(sets, cleanup)
            shared = ControllerContext(
                client,
                gateways[0],
                view.caches[NODES],
                view.caches[SERVICES],
                view.recorders.of,
                CLUSTER,
                leader.notes,
                monotonic=clock,
                now=lambda: wall_clock(clock()),
                caches=view.caches,
            )
            contexts = [shared]
            if len(sets) > 1:
                contexts = cloud_sets.divide(sets, shared, room_settings.declarations(given))
            contexts = [dataclasses.replace(each, vouching=Vouching(each, each.share)) for each in contexts]

            async def work(names: tuple[str, ...]) -> None:
                await view.identity.settled()
                self.leads = True
                simulation.note(f"{self.name} leads")
                if len(sets) == 1:
                    await self._control(sets[0], contexts[0], names)
                    return
                for cache in view.caches.values():
                    cache.catch_up()
                async with asyncio.TaskGroup() as tasks:
                    for each, context in zip(sets, contexts, strict=True):
                        tasks.create_task(self._control(each, context, names))

            await lead(leader, work, (*(informer.run() for informer in view.informers), *following))

    async def _control(self, part: CloudSet, context: ControllerContext, names: tuple[str, ...]) -> None:
        """Run the controllers of one cloud, as `ccm.manager.cloud_sets.run_all` does."""
        if part.name:
            PART.set(part.name)
            await part.cloud.started.wait()
        before = set(QUEUES)
        own = (part.controllers[name] for name in names if name in part.controllers)
        controllers = RunningControllers(own, context, catches_up=not part.name)
        self.queues += sorted(set(QUEUES) - before, key=lambda queue: queue.name)
        await controllers.run()


def _innermost(error: BaseException) -> str:
    """Describe an error, or the first one of a group, and where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{error!r} in {place.name} ({place.filename.rpartition('/')[2]}:{place.lineno})"


def _expired() -> None:
    """Replace `leadership._end_at_once`: end only the simulated process."""
    _current().simulation.checks.loses_lease(_current())
    _current().kill()


def _set_alarm(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
    """Replace `ccm.manager.alarm`. The alarm matters only after `pause`: while the process runs, its timers do the
    same."""
    process = _current()
    key = object()
    due = process.simulation.loop.now + seconds
    process.alarms[key] = (due, functools.partial(contextvars.copy_context().run, callback))

    def cancel() -> None:
        process.alarms.pop(key, None)

    return cancel


#: Methods of metrics that do nothing here: nobody reads metrics, and counting takes a twelfth of a run's time.
_METRICS: tuple[tuple[type, str], ...] = (
    (prometheus_client.metrics.MetricWrapperBase, "labels"),
    (prometheus_client.metrics.MetricWrapperBase, "remove"),
    (prometheus_client.Counter, "inc"),
    (prometheus_client.Gauge, "inc"),
    (prometheus_client.Gauge, "dec"),
    (prometheus_client.Gauge, "set"),
    (prometheus_client.Gauge, "set_function"),
    (prometheus_client.Gauge, "set_to_current_time"),
    (prometheus_client.Histogram, "observe"),
)

_settings = functools.cache(Settings.parse)


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Replace what a simulated process may not do: end this real one, set its alarm, read `--cloud-config` from a file,
    and count metrics. Configurations of the provider are parsed once."""
    places: list[tuple[Any, str, Any]] = [
        (leadership, "_end_at_once", _expired),
        (leadership, "set_alarm", _set_alarm),
        (Settings, "parse", _settings),
        (cloud_reload, "read", _read),
        (cloud_reload, "build", _build),
        *((owner, name, _itself) for owner, name in _METRICS),
    ]
    before = [vars(owner)[name] for owner, name, _ in places]
    for owner, name, replacement in places:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for (owner, name, _), original in zip(places, before, strict=True):
            setattr(owner, name, original)
        metrics.labelled.cache_clear()  # it remembers what `labels` returned meanwhile


def _read(settings: CloudSettings) -> str:
    """Return the current text of the file `--cloud-config`. Only that of the first cloud changes."""
    return cloud.CLOUD_CONF if settings.provider == cloud.SECOND else _current().simulation.cloud_conf


def _build(settings: CloudSettings, text: str) -> Cloud:
    process = _current()
    provider = SimCloud(ProviderConfig(text, settings.file))
    session = cloud.Session(process.simulation.clouds[settings.provider], process)
    provider._api.open = functools.partial(_open, provider._api, session)  # type: ignore[method-assign]
    return provider


def _itself(metric: Any, *_: object, **__: object) -> Any:
    return metric
