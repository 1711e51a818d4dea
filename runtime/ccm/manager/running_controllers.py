# SPDX-License-Identifier: Apache-2.0
"""Which controllers run, made from the options, and their life together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ccm.base.start_error import StartError
from ccm.cloud import Cloud
from ccm.controllers.context import RUNNING, Context, Controller
from ccm.controllers.node import NodeController, NodeOptions
from ccm.controllers.node_lifecycle import LifecycleOptions, NodeLifecycleController
from ccm.controllers.route import RouteController, RouteOptions
from ccm.controllers.service import ServiceController, ServiceOptions
from ccm.controllers.volume import VolumeController
from ccm.controllers.vouching import Vouching
from ccm.engine.informer import Informer
from ccm.engine.objects import PersistentVolume
from ccm.options.command_line import Options
from ccm.options.controller_names import CONTROLLERS

log = logging.getLogger(__name__)

#: Those that write to the cloud what Nodes say of themselves.
WRITERS = (ServiceController, RouteController)


def not_offered(options: Options, cloud: Cloud) -> dict[str, str]:
    """Those of `--controllers` that have nothing to work with here -> what the provider would have to have."""
    lacking = {
        "cloud-node-controller": None if cloud.instances else "instances",
        "cloud-node-lifecycle-controller": None if cloud.instances else "instances",
        "service-lb-controller": None if cloud.load_balancers and cloud.instances else "load balancers",
        "persistentvolume-label-controller": None if cloud.volumes else "volumes",
        "node-route-controller": None if cloud.routes and cloud.instances else "routes",
    }
    return {name: what for name in options.controllers if (what := lacking[name]) is not None}


def usable_controllers(options: Options, cloud: Cloud) -> list[str]:
    """Those of `--controllers` that this provider and these options allow. Raises StartError."""
    lacking = not_offered(options, cloud)
    usable = []
    for name in options.controllers:
        if name in lacking:
            log.warning("%s is not started: provider %s has no %s", name, options.cloud_provider, lacking[name])
        elif name == "node-route-controller" and not options.configure_cloud_routes:
            log.info("%s is not started: --configure-cloud-routes=false", name)
        else:
            usable.append(name)
    if "node-route-controller" in usable:
        try:
            options.pod_network()
        except ValueError as error:
            raise StartError(str(error)) from None
    return usable


def make(
    name: str,
    context: Context,
    options: Options,
    vouching: Vouching | None,
    volumes: Informer[PersistentVolume] | None = None,
) -> Controller:
    """Construct one controller from the options; `vouching` and `volumes` for those that need them."""
    if name == "cloud-node-controller":
        assert vouching is not None
        return NodeController(
            context,
            NodeOptions(
                options.concurrent_node_syncs,
                options.node_status_update_frequency,
                options.legacy_node_labels,
                options.refresh_node_labels,
            ),
            vouching,
        )
    if name == "cloud-node-lifecycle-controller":
        return NodeLifecycleController(context, LifecycleOptions(options.node_monitor_period, options.safety()))
    if name == "service-lb-controller":
        assert vouching is not None
        return ServiceController(
            context,
            ServiceOptions(
                workers=options.concurrent_service_syncs,
                ready_only=options.load_balancer_ready_nodes_only,
                audit_period=options.orphan_audit_period,
                delete_orphans=options.delete_orphaned_load_balancers,
            ),
            vouching,
        )
    if name == "persistentvolume-label-controller":
        assert volumes is not None
        return VolumeController(context, volumes)
    assert vouching is not None
    route_options = RouteOptions(options.pod_network(), options.route_reconciliation_period, safety=options.safety())
    return RouteController(context, route_options, vouching)


async def run(controllers: Iterable[Controller], vouching: Vouching | None = None) -> None:
    """Run them together; when one fails all end, since a half-working leader would keep others from leading."""
    running = list(controllers)
    try:
        async with asyncio.TaskGroup() as tasks:
            if vouching is not None and any(isinstance(each, WRITERS) for each in running):
                tasks.create_task(vouching.run(), name="vouching")
            for controller in running:
                RUNNING.labels(CONTROLLERS[controller.name], "cloud-controller-manager").set(1)
                tasks.create_task(controller.run(), name=controller.name)
            if not running:
                await asyncio.Event().wait()
    finally:
        for controller in running:
            RUNNING.labels(CONTROLLERS[controller.name], "cloud-controller-manager").set(0)
        if running:
            log.info("ended: %s", ", ".join(controller.name for controller in running))
