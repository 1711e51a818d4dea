# SPDX-License-Identifier: Apache-2.0
"""The built-in controllers, in start order. A new one needs its own file, and an entry here or in `OPTIONAL`."""

from __future__ import annotations

from typing import Any

from ccm.cloud import Cloud
from ccm.engine.objects import PersistentVolume

from .controller_spec import ControllerSpec, Right
from .nodes.node import NodeController, NodeOptions
from .nodes.node_label_rules import Refresh
from .nodes.node_lifecycle import LifecycleOptions, NodeLifecycleController
from .optional_controllers import OPTIONAL
from .routes.route import RouteController, RouteOptions
from .services.drain_rules import Mode
from .services.service import ServiceController, ServiceOptions
from .shared.watched_kinds import Watched
from .volumes.volume import VolumeController

VOLUMES: Watched[PersistentVolume] = Watched("persistentvolumes", PersistentVolume)


def _instances(cloud: Cloud) -> str | None:
    return None if cloud.instances else "instances"


def _load_balancers(cloud: Cloud) -> str | None:
    return None if cloud.load_balancers and cloud.instances else "load balancers"


def _routes(cloud: Cloud) -> str | None:
    return None if cloud.routes and cloud.instances else "routes"


def _volumes(cloud: Cloud) -> str | None:
    return None if cloud.volumes else "volumes"


def _without_routes(flags: Any) -> str | None:
    return None if flags.configure_cloud_routes else "--configure-cloud-routes=false"


BUILT_IN: tuple[ControllerSpec[Any], ...] = (
    ControllerSpec(
        name=NodeController.name,
        alias="cloud-node",
        summary="Initialises Nodes: writes addresses, providerID, and zone, region and type labels; removes the taint.",
        on_by_default=True,
        needs=_instances,
        runs_beside_others=True,
        rights=(Right("nodes", "patch"), Right("nodes/status", "patch")),
        flags=lambda flags: NodeOptions(
            flags.concurrent_node_syncs,
            flags.node_status_update_frequency,
            flags.legacy_node_labels,
            Refresh(flags.refresh_node_labels),
        ),
        make=lambda context, options: NodeController(context, options, context.vouched(), context.share),
    ),
    ControllerSpec(
        name=NodeLifecycleController.name,
        alias="cloud-node-lifecycle",
        summary="Deletes Nodes whose instances are gone, and taints those whose instances are shut down.",
        on_by_default=True,
        migrated=True,
        needs=_instances,
        runs_beside_others=True,
        rights=(Right("nodes", "patch"), Right("nodes", "delete")),
        flags=lambda flags: LifecycleOptions(flags.node_monitor_period, flags.safety(), flags.fence_dead_nodes),
        make=lambda context, options: NodeLifecycleController(context, options, context.share),
    ),
    ControllerSpec(
        name=ServiceController.name,
        alias="service",
        former=("service-controller",),
        summary="Creates, updates and deletes load balancers for Services of type LoadBalancer.",
        on_by_default=True,
        migrated=True,
        needs=_load_balancers,
        runs_beside_others=True,
        vouching=True,
        rights=(Right("services/status", "patch"),),
        flags=lambda flags: ServiceOptions(
            workers=flags.concurrent_service_syncs,
            ready_only=flags.load_balancer_ready_nodes_only,
            drains=Mode(flags.load_balancer_drain_nodes),
            audit_period=flags.orphan_audit_period,
            delete_orphans=flags.delete_orphaned_load_balancers,
            classes=flags.served_classes(),
        ),
        make=lambda context, options: ServiceController(context, options, context.vouched(), context.holders),
    ),
    ControllerSpec(
        name=RouteController.name,
        alias="route",
        former=("route-controller",),
        summary="Creates the cloud's routes to the pod CIDRs of Nodes.",
        on_by_default=True,
        migrated=True,
        needs=_routes,
        runs_beside_others=True,
        vouching=True,
        rights=(Right("nodes/status", "patch"),),
        off=_without_routes,
        flags=lambda flags: RouteOptions(flags.pod_network(), flags.route_reconciliation_period, safety=flags.safety()),
        make=lambda context, options: RouteController(context, options, context.vouched()),
    ),
    # Off by default: upstream removed the controller of this name, so users who switch to this program expect none.
    ControllerSpec(
        name=VolumeController.name,
        alias="pvlabel",
        summary="Labels manually created PersistentVolumes with the zone and region of their volume.",
        needs=_volumes,
        runs_beside_others=True,
        rights=(Right("persistentvolumes", "patch"),),
        watches=(VOLUMES,),
        make=lambda context, _: VolumeController(context, context.cache(VOLUMES)),
    ),
    *OPTIONAL,
)
