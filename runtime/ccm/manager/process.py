# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a process: options, cloud, API server, health, leadership, controllers, and an orderly shutdown.

Exit status: 0 after SIGTERM or SIGINT; 1 if a Lease is lost, if the API server serves another cluster, or if the
process cannot start (one line says why).
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import gc
import logging
import platform
import signal
from collections.abc import Coroutine
from typing import Any

import prometheus_client
from prometheus_client import Gauge

from ccm import __version__
from ccm.base.cancellation import is_requested
from ccm.base.lasting_imports import lasting_imports
from ccm.base.start_error import StartError
from ccm.controllers.shared.holds import Holds
from ccm.engine.election import LeadershipLost
from ccm.engine.identity import ClusterChanged
from ccm.options import feature_gates
from ccm.options.command_line import Options
from ccm.options.leader_migration import split
from ccm.serving.certificates import self_signed
from ccm.serving.serving_settings import ServingSettings

from . import cloud_sets, loop_lag, room_settings, traces
from .cloud_sets import CloudSet
from .connect import connect, create_client
from .lead import contexts_of, lead, work_of
from .leadership import COMPONENT, Leadership
from .observe import observe
from .running_controllers import usable_controllers
from .status_history import Sampler

log = logging.getLogger(__name__)

BUILD_INFO = Gauge("ccm_build_info", "1, with the version of this program.", ["version"])
KUBERNETES_BUILD_INFO = Gauge(
    "kubernetes_build_info",
    "1, with the version of this program in five of the labels that Kubernetes components give this metric.",
    ["major", "minor", "git_version", "compiler", "platform"],
)


def _on_loop_error(event_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no code awaits, as asyncio does. It is not an error if uvloop writes to a connection that was
    closed meanwhile (https://github.com/MagicStack/uvloop/issues/506), because the code that uses the connection
    handles that."""
    error = context.get("exception")
    if isinstance(error, RuntimeError) and str(error).endswith("the handler is closed"):
        log.debug("%s: %s", context.get("message"), error)
    else:
        event_loop.default_exception_handler(context)


async def run(options: Options) -> int:
    """Run until SIGTERM or SIGINT. Return the exit status: 0 after one of these signals, 1 if the start failed, the
    Lease was lost, or the API server serves another cluster."""
    stop = asyncio.Event()
    event_loop = asyncio.get_running_loop()
    event_loop.set_exception_handler(_on_loop_error)
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
        if stop.is_set() or is_requested():
            return 0
        log.critical("something that the process waited for was cancelled, which is a bug; exiting", exc_info=True)
        return 1
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
    """Do everything between the options and shutdown, in four stages: connect, observe, serve, lead.

    Raises StartError, LeadershipLost and ClusterChanged.
    """
    _log_version(options)
    clouds = cloud_sets.create(room_settings.clouds(options))
    gateways = [each.gateway for each in clouds]
    own = room_settings.for_each(options, [each.cloud for each in gateways])
    sets = [
        CloudSet(each, usable_controllers(flags, each.gateway.cloud)) for each, flags in zip(clouds, own, strict=True)
    ]
    if gap := cloud_sets.unconnected(sets):
        log.warning("%s", gap)
    specs = {spec.name: spec for spec in cloud_sets.specs_of(sets, options.controllers)}
    parts = split(specs, options.migration())
    if parts.elsewhere:
        log.info("not run here because of the leader migration: %s", ", ".join(parts.elsewhere))
    here = [specs[name] for name in (*parts.own, *parts.migrated)]
    api_server = room_settings.api_server(options)
    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.callback(traces.start())  # sends the last traces, after the Lease is released
        for gateway in gateways:
            cleanup.push_async_callback(gateway.close)
        client = await connect(api_server, room_settings.rights(options, here), cleanup)
        view = observe(client, here, cleanup)
        leadership = Leadership(room_settings.election(options), parts, client, gateways, view.recorders)
        if leadership.lease is not None:
            for cloud in clouds:
                cloud.notice = functools.partial(view.recorders.of(COMPONENT).event, leadership.lease)
        starting = asyncio.create_task(cloud_sets.start(sets, cleanup), name="start of the clouds")
        cleanup.push_async_callback(_end, starting)
        serving = room_settings.serving(options)
        await _prepare(serving)
        from .serve import Shown, serve

        holds = Holds()
        sampler = Sampler(holds)
        classes = room_settings.served_classes(own)
        shown = Shown(options.cloud_provider, options.cluster_name, clouds, view, leadership, holds, sampler, classes)
        servers = await serve(
            serving,
            lambda kubeconfig: create_client(api_server, kubeconfig=kubeconfig),
            shown,
            cleanup,
        )
        following = await starting
        gc.freeze()  # the objects of the servers live as long as the process
        patterns = room_settings.declarations(options)
        contexts = contexts_of(client, sets, view, options.cluster_name, leadership.notes, holds, patterns)
        # Standbys keep their caches warm, too: a new leader only has to let them catch up.
        lasting = (
            *(informer.run() for informer in view.informers),
            *following,
            servers.follow(),
            loop_lag.watch(lambda: [call for gateway in gateways for call in gateway.under_way]),
            sampler.run(),
        )
        await lead(leadership, work_of(sets, contexts, view.identity), lasting)


async def _prepare(settings: ServingSettings) -> None:
    """Import the servers' modules, and create their certificate if it is self-signed. Each takes 0.1 s, in a thread, so
    that the start of the clouds goes on meanwhile."""
    parts = [asyncio.to_thread(_import_servers)]
    if settings.secure.is_self_signed:
        parts.append(asyncio.to_thread(_create_certificate))
    await asyncio.gather(*parts)


def _import_servers() -> None:
    with lasting_imports():
        from . import serve  # noqa: F401


def _create_certificate() -> None:
    self_signed()  # and remember it


async def _end(starting: asyncio.Task[list[Coroutine[Any, Any, None]]]) -> None:
    """Cancel the start of the clouds if it is not finished. Close what it returned, which may not have been run."""
    starting.cancel()
    await asyncio.wait({starting})
    if not starting.cancelled() and starting.exception() is None:
        for following in starting.result():
            following.close()


def _log_version(options: Options) -> None:
    BUILD_INFO.labels(__version__).set(1)
    major, minor, *_ = __version__.split(".")
    machine = f"{platform.system().lower()}/{platform.machine()}"
    KUBERNETES_BUILD_INFO.labels(major, minor, f"v{__version__}", platform.python_implementation(), machine).set(1)
    feature_gates.export(options.feature_gates)
    log.info("outoftree-ccm %s, provider %s, cluster %s", __version__, options.cloud_provider, options.cluster_name)


def start(options: Options) -> int:
    """Run in a new event loop; uses uvloop if it is installed."""
    faulthandler.enable(2)  # a crash in compiled code, such as uvloop, leaves a traceback on stderr
    gc.collect()  # the parser of the command line is garbage in cycles
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        import uvloop
    except ImportError:
        runner = asyncio.run
    else:
        runner = uvloop.run
    return runner(run(options))
