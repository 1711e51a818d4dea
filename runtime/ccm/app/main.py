# SPDX-License-Identifier: Apache-2.0
"""The life of a process: options, cloud, API server, health, leadership, controllers, and an orderly end.

Exit status: 0 after SIGTERM or SIGINT, 1 when the Lease is lost or something cannot be used (one line says what).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import time
import uuid

import prometheus_client
from prometheus_client import Gauge

from ccm import __version__
from ccm.cloud import Cloud
from ccm.cloud.gateway import Gateway
from ccm.controllers.context import RUNNING, Context, Controller
from ccm.controllers.node import NodeController, NodeOptions
from ccm.controllers.node_lifecycle import LifecycleOptions, NodeLifecycleController
from ccm.controllers.route import RouteController, RouteOptions
from ccm.controllers.service import ServiceController, ServiceOptions
from ccm.engine.client import ApiError, KubeClient, KubeConfigError, UnavailableError
from ccm.engine.election import LeaderElector, LeadershipLost
from ccm.engine.events import EventRecorder
from ccm.engine.informer import Informer
from ccm.engine.objects import Node, ObjectRef, PartialObject, Service

from . import permissions
from .auth import Authorizer
from .clouds import Keeper
from .errors import StartError
from .health import Check
from .options import CONTROLLERS, Options
from .server import CertificateError, application, serve

log = logging.getLogger(__name__)

BUILD_INFO = Gauge("ccm_build_info", "1, with the version of this program.", ["version"])

#: Our view of the cluster is stale when no informer heard from the API server for this long, in seconds; bookmarks come
#: about once a minute.
STALE_AFTER = 180.0
#: A leader whose renewal is this much later than the lease duration is stuck (upstream's grace), in seconds.
LEASE_GRACE = 20.0
#: How long Events that are still queued may take to be sent at the end, in seconds.
FLUSH = 1.0

ANNOTATION = "ccm.outoftree.dev/"


async def run(options: Options) -> int:
    """Run until SIGTERM or SIGINT; the exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    main = asyncio.create_task(_Process(options).run(), name="main")
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({main, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not main.done():
            log.info("asked to stop: ending the controllers, then releasing the Lease")
            main.cancel()
        await main
    except asyncio.CancelledError:
        return 0
    except StartError as error:
        log.critical("%s", error)
        return 1
    except LeadershipLost as error:
        log.critical("leadership is lost, so this process ends and another one may lead: %s", error)
        return 1
    finally:
        stopped.cancel()
    return 0


class _Process:
    """Everything that lives as long as the process."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.controllers: list[str] = []

    async def run(self) -> None:
        options = self.options
        BUILD_INFO.labels(__version__).set(1)
        log.info("outoftree-ccm %s, provider %s, cluster %s", __version__, options.cloud_provider, options.cluster_name)
        keeper = Keeper(options)
        gateway = keeper.gateway
        enabled = self.controllers = usable_controllers(options, gateway.cloud)
        client = create_client(options)
        async with contextlib.AsyncExitStack() as cleanup:
            cleanup.push_async_callback(client.close)
            cleanup.push_async_callback(gateway.close)
            await wait_for_api_server(client, options.kube_api_wait)
            await check_permissions(client, options, enabled)
            nodes: Informer[Node] = Informer(client, "/api/v1/nodes", Node, name="nodes")
            services: Informer[Service] = Informer(client, "/api/v1/services", Service, name="services")
            elector = LeaderElector(
                client,
                namespace=options.leader_elect_resource_namespace,
                name=options.leader_elect_resource_name,
                identity=f"{socket.gethostname()}_{uuid.uuid4()}",
                lease_duration=options.leader_elect_lease_duration,
                renew_deadline=options.leader_elect_renew_deadline,
                retry_period=options.leader_elect_retry_period,
                annotations=lambda: self.annotations(gateway),
            )
            if options.secure_port:
                await self.serve(cleanup, client, nodes, elector, keeper)
            await keeper.start()
            # Caches are kept warm on standbys too: a new leader starts from them at once.
            lost: LeadershipLost | None = None
            async with asyncio.TaskGroup() as background:
                recorders = Recorders(client, background)
                followed = [keeper.watch(), nodes.run(), services.run()]
                following = [background.create_task(coroutine) for coroutine in followed]
                if options.leader_elect:
                    keeper.notice = functools.partial(recorders.of("cloud-controller-manager").event, lease_of(options))
                context = Context(client, gateway, nodes, services, recorders.of, options.cluster_name)

                async def lead() -> None:
                    log.info("leading; controllers: %s", ", ".join(enabled) or "none")
                    await self.run_controllers([make(name, context, options) for name in enabled])

                try:
                    await (elector.run(lead) if options.leader_elect else lead())
                except LeadershipLost as error:
                    lost = error
                finally:
                    await recorders.close()
                    for task in following:
                        task.cancel()
            if lost is not None:
                raise lost

    async def serve(
        self,
        cleanup: contextlib.AsyncExitStack,
        client: KubeClient,
        nodes: Informer[Node],
        elector: LeaderElector,
        keeper: Keeper,
    ) -> None:
        options = self.options

        def elected() -> str | None:
            if elector.healthy(LEASE_GRACE):
                return None
            return "this process leads but has not renewed its Lease in time"

        def fresh() -> str | None:
            if not nodes.synced:
                return "the Nodes have not been listed yet"
            silence = time.monotonic() - nodes.last_contact
            return None if silence < STALE_AFTER else f"nothing heard from the API server for {silence:.0f} s"

        live: dict[str, Check] = {"ping": lambda: None}
        if options.leader_elect:
            live["leaderElection"] = elected
        ready = {**live, "informers": fresh, "cloud": keeper.not_ready}
        app = application(live, ready, Authorizer(client), options.authorization_always_allow_paths)
        try:
            runner = await serve(app, options)
        except CertificateError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(
                f"--secure-port {options.secure_port} on {options.bind_address} cannot be served: "
                f"{error.strerror or error}. Free the port or choose another one"
            ) from None
        cleanup.push_async_callback(runner.cleanup)

    async def run_controllers(self, controllers: list[Controller]) -> None:
        """Run them together; when one fails all end, since a half-working leader would keep others from leading."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for controller in controllers:
                    RUNNING.labels(CONTROLLERS[controller.name], "cloud-controller-manager").set(1)
                    tasks.create_task(controller.run(), name=controller.name)
                if not controllers:
                    await asyncio.Event().wait()
        finally:
            for controller in controllers:
                RUNNING.labels(CONTROLLERS[controller.name], "cloud-controller-manager").set(0)

    def annotations(self, gateway: Gateway) -> dict[str, str]:
        """What the leader tells on its Lease about itself."""
        told = {
            f"{ANNOTATION}cloud-provider": self.options.cloud_provider,
            f"{ANNOTATION}controllers": ",".join(self.controllers),
        }
        if gateway.last_success is not None:
            told[f"{ANNOTATION}last-cloud-success"] = gateway.last_success.strftime("%Y-%m-%dT%H:%M:%SZ")
        return told


class Recorders:
    """One event recorder for each event source, made when it is first asked for."""

    def __init__(self, client: KubeClient, tasks: asyncio.TaskGroup) -> None:
        self._client, self._group = client, tasks
        self._running: dict[str, tuple[EventRecorder, asyncio.Task[None]]] = {}

    def of(self, component: str) -> EventRecorder:
        if component not in self._running:
            recorder = EventRecorder(self._client, component)
            self._running[component] = (
                recorder,
                self._group.create_task(recorder.run(), name=f"events of {component}"),
            )
        return self._running[component][0]

    async def close(self) -> None:
        """Send what is queued, within FLUSH seconds, and end."""
        await asyncio.gather(*(recorder.flush(FLUSH) for recorder, _ in self._running.values()), return_exceptions=True)
        for _, task in self._running.values():
            task.cancel()


def lease_of(options: Options) -> ObjectRef:
    """What Events about the process as a whole are about."""
    name, namespace = options.leader_elect_resource_name, options.leader_elect_resource_namespace
    return ObjectRef("coordination.k8s.io/v1", "Lease", name, namespace)


def create_client(options: Options) -> KubeClient:
    """The connection to the API server. Raises StartError."""
    try:
        client = KubeClient.from_config(
            kubeconfig=options.kubeconfig, master=options.master, user_agent=f"outoftree-ccm/{__version__}"
        )
    except KubeConfigError as error:
        raise StartError(str(error)) from None
    client.set_rate_limit(options.kube_api_qps, options.kube_api_burst)
    return client


def usable_controllers(options: Options, cloud: Cloud) -> list[str]:
    """Those of `--controllers` that this provider and these options allow. Raises StartError."""
    lacking = {
        "cloud-node-controller": None if cloud.instances else "instances",
        "cloud-node-lifecycle-controller": None if cloud.instances else "instances",
        "service-lb-controller": None if cloud.load_balancers and cloud.instances else "load balancers",
        "node-route-controller": None if cloud.routes and cloud.instances else "routes",
    }
    usable = []
    for name in options.controllers:
        if lacking[name]:
            log.warning("%s is not started: provider %s has no %s", name, options.cloud_provider, lacking[name])
        elif name == "node-route-controller" and not options.configure_cloud_routes:
            log.info("%s is not started: --configure-cloud-routes=false", name)
        else:
            usable.append(name)
    if "node-route-controller" in usable:
        try:
            options.cluster_networks()
        except ValueError as error:
            raise StartError(str(error)) from None
    return usable


def make(name: str, context: Context, options: Options) -> Controller:
    """Construct one controller from the options."""
    if name == "cloud-node-controller":
        return NodeController(context, NodeOptions(options.concurrent_node_syncs, options.node_status_update_frequency))
    if name == "cloud-node-lifecycle-controller":
        return NodeLifecycleController(context, LifecycleOptions(options.node_monitor_period, options.safety()))
    if name == "service-lb-controller":
        return ServiceController(context, ServiceOptions(workers=options.concurrent_service_syncs))
    return RouteController(context, RouteOptions(options.cluster_networks(), options.route_reconciliation_period))


async def wait_for_api_server(client: KubeClient, patience: float) -> None:
    """Wait until it answers anything that is not an error of its own. Raises StartError after `patience` seconds."""
    deadline = time.monotonic() + patience
    told = False
    while True:
        try:
            await client.get("/version", PartialObject, timeout=5.0)
            return
        except UnavailableError as error:
            if time.monotonic() > deadline:
                raise StartError(
                    f"the API server {client.server} did not answer within {patience:g} s: {error}. "
                    "Check --kubeconfig or --master, the network, and that kube-apiserver runs"
                ) from None
            if not told:
                log.warning(
                    "the API server %s does not answer, waiting up to %.0f s: %s", client.server, patience, error
                )
                told = True
            await asyncio.sleep(1.0)
        except ApiError as error:
            if error.status == 401:
                raise StartError(f"the API server {client.server} refuses our credentials: {error}") from None
            return


async def check_permissions(client: KubeClient, options: Options, enabled: list[str]) -> None:
    """Raises StartError naming every right that is missing."""
    lease = (
        (options.leader_elect_resource_namespace, options.leader_elect_resource_name) if options.leader_elect else None
    )
    try:
        lacking = await permissions.missing(client, permissions.needed(enabled, lease))
    except ApiError as error:
        log.warning("the API server does not tell our rights, going on without checking them: %s", error)
        return
    if lacking:
        raise StartError(
            "the API server does not allow this identity to: "
            + "; ".join(str(right) for right in lacking)
            + ". Grant it in the ClusterRole (or the Role in the Lease's namespace) that is bound to the ServiceAccount"
        )


def start(options: Options) -> int:
    """Run in a new event loop, uvloop's where it is installed."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        import uvloop
    except ImportError:
        runner = asyncio.run
    else:
        runner = uvloop.run
    return runner(run(options))
