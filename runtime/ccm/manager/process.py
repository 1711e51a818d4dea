# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a process: options, cloud, API server, health, leadership, controllers, and an orderly shutdown.

Exit status: 0 after SIGTERM or SIGINT; 1 if a Lease is lost, if the API server serves another cluster, or if the
process cannot start (one line says why).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import logging
import platform
import signal
from collections.abc import Coroutine, Iterable
from typing import Any

import prometheus_client
from aiohttp import web
from prometheus_client import Gauge

from ccm import __version__
from ccm.base.start_error import StartError
from ccm.controllers.built_in_webhooks import Webhooks
from ccm.controllers.controller_context import ControllerContext
from ccm.controllers.nodes.vouching import Vouching
from ccm.controllers.shared.holds import Holds
from ccm.controllers.shared.watched_kinds import NODES, SERVICES, Watched
from ccm.engine.election import LeadershipLost
from ccm.engine.identity import ClusterChanged, ClusterIdentity
from ccm.engine.informer import Informer
from ccm.options import feature_gates
from ccm.options.command_line import Options
from ccm.options.leader_migration import split
from ccm.serving import ports

from . import loop_lag, readiness, traces
from .cloud_reload import Keeper
from .connect import check_permissions, create_client, wait_for_api_server
from .event_recorders import Recorders
from .leadership import COMPONENT, Leadership, Work
from .running_controllers import RunningControllers, usable_controllers
from .status_history import Sampler

log = logging.getLogger(__name__)

BUILD_INFO = Gauge("ccm_build_info", "1, with the version of this program.", ["version"])
KUBERNETES_BUILD_INFO = Gauge(
    "kubernetes_build_info",
    "1, with the same labels as in Kubernetes components, for this program.",
    ["major", "minor", "git_version", "compiler", "platform"],
)


async def run(options: Options) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    stop = asyncio.Event()
    event_loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        event_loop.add_signal_handler(number, stop.set)
    main = asyncio.create_task(_live(options), name="main")
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({main, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not main.done():
            log.info("shutdown requested: stopping the controllers, then releasing the Lease")
            main.cancel()
        await main
    except asyncio.CancelledError:
        return 0
    except StartError as error:
        log.critical("%s", error)
        return 1
    except LeadershipLost as error:
        log.critical("leadership is lost, so this process exits and another one may lead: %s", error)
        return 1
    except ClusterChanged as error:
        log.critical("%s", error)
        return 1
    finally:
        stopped.cancel()
    return 0


async def _live(options: Options) -> None:
    """Everything between the options and shutdown. Raises StartError, LeadershipLost and ClusterChanged."""
    _log_version(options)
    keeper = Keeper(options)
    gateway = keeper.gateway
    usable = usable_controllers(options, gateway.cloud)
    parts = split(usable, options.migration())
    if parts.elsewhere:
        log.info("not run here because of the leader migration: %s", ", ".join(parts.elsewhere))
    enabled = [usable[name] for name in (*parts.own, *parts.migrated)]
    client = create_client(options)
    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.callback(traces.start())  # the last traces are sent last: the Lease is released then
        cleanup.push_async_callback(client.close)
        cleanup.push_async_callback(gateway.close)
        await wait_for_api_server(client, options.kube_api_wait)
        await check_permissions(client, options, enabled)
        identity = ClusterIdentity(client)
        kinds: list[Watched[Any]] = [NODES, SERVICES, *(kind for spec in enabled for kind in spec.watches)]
        caches = {kind: kind.informer(client, identity.check) for kind in kinds}
        informers: list[Informer[Any]] = list(caches.values())
        recorders = Recorders(client)
        cleanup.push_async_callback(recorders.close)
        leadership = Leadership(options, parts, client, gateway, recorders)
        if leadership.lease is not None:
            keeper.notice = functools.partial(recorders.of(COMPONENT).event, leadership.lease)
        holds, health = Holds(), readiness.checks(options, leadership, informers, keeper)
        sampler = Sampler(holds)

        async def show_status(request: web.Request) -> web.StreamResponse:
            from ccm.serving import statusz

            from . import status_collection  # only if somebody asks

            nodes, services = caches[NODES], caches[SERVICES]
            history = sampler.history
            sources = status_collection.Sources(
                options, leadership, gateway, nodes, services, holds, health, history, sampler.started
            )
            return statusz.response(request, status_collection.report(sources))

        servers = ports.Serving(
            options,
            lambda kubeconfig: create_client(options, kubeconfig=kubeconfig),
            Webhooks(gateway).offered,
            cleanup,
            show_status,
        )
        await servers.start(health)
        await keeper.start()
        context = ControllerContext(
            client,
            gateway,
            caches[NODES],
            caches[SERVICES],
            recorders.of,
            options.cluster_name,
            leadership.notes,
            holds,
            caches=caches,
        )
        if gateway.instances is not None:
            context = dataclasses.replace(context, vouching=Vouching(context))

        async def work(names: tuple[str, ...]) -> None:
            await identity.settled()  # it may have changed while another process led
            await RunningControllers((usable[name] for name in names), context, options).run()

        # Standbys keep their caches warm, too: a new leader starts from them at once.
        lasting = (
            *(informer.run() for informer in informers),
            keeper.watch(),
            servers.follow(),
            loop_lag.watch(lambda: gateway.under_way),
            sampler.run(),
        )
        await lead(leadership, work, lasting)


async def lead(leadership: Leadership, work: Work, lasting: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Work while this process leads. The `lasting` tasks run meanwhile, also on a standby, and stop with it.

    Raises LeadershipLost and ClusterChanged.
    """
    ended: LeadershipLost | ClusterChanged | None = None
    try:
        async with asyncio.TaskGroup() as background:
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
    """The first error in a group, at any depth."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ClusterChanged)
    return error


def _log_version(options: Options) -> None:
    BUILD_INFO.labels(__version__).set(1)
    major, minor, *_ = __version__.split(".")
    machine = f"{platform.system().lower()}/{platform.machine()}"
    KUBERNETES_BUILD_INFO.labels(major, minor, f"v{__version__}", platform.python_implementation(), machine).set(1)
    feature_gates.export(options.feature_gates)
    log.info("outoftree-ccm %s, provider %s, cluster %s", __version__, options.cloud_provider, options.cluster_name)


def start(options: Options) -> int:
    """Run in a new event loop; uses uvloop if it is installed."""
    # Code and options live as long as the process. Without them, a full garbage collection beside 15,000 Nodes takes a
    # third of the time, in which nothing else runs.
    gc.freeze()
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        import uvloop
    except ImportError:
        runner = asyncio.run
    else:
        runner = uvloop.run
    return runner(run(options))
