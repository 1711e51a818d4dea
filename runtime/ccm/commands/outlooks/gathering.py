# SPDX-License-Identifier: Apache-2.0
"""Reads what the controllers would read at start, and works out what they would do with it.

Each cloud has its own part, with its own Nodes and controllers, as in a process; one cloud is one part.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import msgspec

from ccm.cloud import CloudError, Instance, Quota
from ccm.controllers.built_in_controllers import VOLUMES
from ccm.controllers.controller_registry import Unusable, look_up
from ccm.controllers.controller_spec import ControllerSpec
from ccm.controllers.nodes import node_fencing, node_rules
from ccm.controllers.nodes.node import NodeController
from ccm.controllers.nodes.node_lifecycle import NOTE, NodeLifecycleController
from ccm.controllers.nodes.node_lifecycle_rules import Window
from ccm.controllers.nodes.ownership_rules import Declarations, Owned
from ccm.controllers.routes import route_rules
from ccm.controllers.routes.route import RouteController
from ccm.controllers.routes.route_removal import RouteRemoval
from ccm.controllers.services import backend_rules, class_rules, handed_over, service_rules
from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.services.service import ServiceController
from ccm.controllers.shared.context import Context
from ccm.controllers.shared.watched_kinds import NODES, SERVICES
from ccm.controllers.volumes import volume_rules
from ccm.controllers.volumes.volume import VolumeController
from ccm.engine.objects import Lease, Node, PersistentVolume, Service
from ccm.gateway.gateway import Gateway
from ccm.gateway.instance_directory import InstanceDirectory
from ccm.gateway.instance_snapshot import Snapshot
from ccm.manager import room_settings
from ccm.manager.leadership import ANNOTATION
from ccm.manager.running_controllers import ConfiguredController, not_offered, usable_controllers
from ccm.options.command_line import Options
from ccm.options.controller_names import CONTROLLERS
from ccm.options.leader_migration import split

from ..asking.answers import Action, Outlook, Unasked
from ..asking.reading import CloudToAsk, Cluster, answer_of
from .balancer_reads import BalancerReads
from .fencing_outlook import fencing_outlooks
from .judging import Judging
from .lifecycle_outlook import lifecycle_outlooks
from .node_outlook import initialised, merged, node_outlook, shutdown_outlook, unknown
from .ownership_outlook import owners, ownership_outlook
from .route_outlook import route_outlooks
from .service_outlook import kept_outlooks, orphan_outlooks, service_outlook
from .volume_outlook import volume_outlook

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"


@dataclass
class Gathered:
    """One look at a cluster and one cloud. What was not read, or got no answer (`cluster.unasked`), is None.

    `options`: the options of this cloud's controllers. `nodes`: with several clouds, only the Nodes of this cloud.
    `name`: the name of the cloud, "" if it is the only one.
    """

    options: Options
    cluster: Cluster
    gateway: Gateway
    usable: Mapping[str, ConfiguredController]
    name: str = ""
    nodes: list[Node] | None = None
    services: list[Service] | None = None
    volumes: list[PersistentVolume] | None = None
    lease: Lease | None = None
    #: What the cloud said about the machines of Nodes, or the error instead.
    judging: Judging | CloudError | None = None
    #: The error that rejected the credentials, or that kept the cloud from answering at all.
    refused: CloudError | None = None
    #: Question to the cloud -> its error, None if the cloud answered.
    answers: dict[str, CloudError | None] = field(default_factory=dict)
    now: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    _context: Context | None = None

    def flags_of(self, name: str) -> Any:
        """Return the options of a controller, as the process passes them to it; None if it would not run."""
        controller = self.usable.get(name)
        return controller.options if controller is not None else None

    @property
    def subject(self) -> str:
        """How a sentence names the cloud."""
        return f"cloud {self.name}" if self.name else "the cloud"

    @property
    def specs(self) -> list[ControllerSpec[Any]]:
        return [controller.spec for controller in self.usable.values()]

    @property
    def context(self) -> Context:
        """A context for the parts of controllers that read. Its caches are empty, and it sends no Events."""
        if self._context is None:
            client = self.cluster.client
            nodes, services = (kind.informer(client, _no_check) for kind in (NODES, SERVICES))
            self._context = Context(client, self.gateway, nodes, services, _no_events, self.options.cluster_name)  # type: ignore[arg-type]
        return self._context

    @property
    def classes(self) -> ServedClasses:
        """The classes of the Services that the service controller serves."""
        return self.options.served_classes()

    @property
    def former_classes(self) -> frozenset[str]:
        """The classes that leaders served, as they noted on the Lease."""
        return class_rules.recalled(self.note(handed_over.NOTE))

    def note(self, key: str) -> str | None:
        """Return what leaders noted on the Lease for this cloud (`NotesOfCloud`), otherwise what they noted while this
        cloud was the only one; None if there is neither."""
        notes = self.lease.metadata.annotations if self.lease is not None else {}
        alone = notes.get(ANNOTATION + key)
        return notes.get(f"{ANNOTATION}{key}.{self.name}", alone) if self.name else alone

    @functools.cached_property
    def later(self) -> Judging | None:
        """What the listing says about the Nodes as they will be after their initialisation, which comes before load
        balancers and routes. If no node controller runs, the Nodes are as they are now. None if there is no listing."""
        if not isinstance(self.judging, Judging):
            return None
        flags = self.flags_of(NodeController.name)
        if flags is None:
            return self.judging
        return replace(self.judging, nodes=[initialised(node, self.judging, flags) for node in self.nodes or ()])

    def backends(self) -> backend_rules.BackendSets:
        """Return the Nodes that serve load balancers after their initialisation; none without listing or controller."""
        flags = self.flags_of(ServiceController.name)
        if self.later is None or flags is None:
            return backend_rules.BackendSets()
        return backend_rules.backend_sets(
            self.later.nodes, self.later.judge, ready_only=flags.ready_only, drains=flags.drains
        )


@dataclass
class Survey:
    """One look at a cluster and its clouds. `options`: the options of the process. `parts`: one for each cloud.
    `nobodys`: the Nodes that belong to none of several clouds, by name."""

    options: Options
    cluster: Cluster
    parts: Sequence[Gathered]
    nobodys: Mapping[str, Outlook] = field(default_factory=dict)
    nodes: list[Node] | None = None

    @property
    def first(self) -> Gathered:
        """The first part, for the API server's answers, which are the same in all parts."""
        return self.parts[0]

    @property
    def classes(self) -> ServedClasses:
        """The classes of the Services that any of the clouds serves."""
        return room_settings.served_classes([each.options for each in self.parts])

    @property
    def usable(self) -> list[str]:
        """The controllers that run for any cloud."""
        return list(dict.fromkeys(name for each in self.parts for name in each.usable))

    @property
    def specs(self) -> list[ControllerSpec[Any]]:
        every = {spec.name: spec for each in self.parts for spec in each.specs}
        return list(every.values())

    @property
    def not_run(self) -> dict[str, str]:
        """The controllers that do not run -> the reason. With several clouds, the cloud follows each name."""
        return {
            f"{name} ({part.name})" if part.name else name: why
            for part in self.parts
            for name, why in not_run(part.options, part.gateway).items()
        }

    def node_outlooks(self) -> list[Outlook]:
        """Return the outlooks of the Nodes of all parts, and of `nobodys`, sorted by name."""
        outlooks = [outlook for each in self.parts for outlook in _of(each, node_outlooks(each))]
        return sorted([*outlooks, *self.nobodys.values()], key=lambda outlook: outlook.name)

    async def outlooks(self, ask: Callable[[Gathered], Awaitable[list[Outlook]]]) -> list[Outlook]:
        """Return what `ask` finds for each of the clouds."""
        answers = await asyncio.gather(*map(ask, self.parts))
        return [outlook for each, own in zip(self.parts, answers, strict=True) for outlook in _of(each, own)]


def _of(part: Gathered, outlooks: Sequence[Outlook]) -> Sequence[Outlook]:
    if not part.name:
        return outlooks
    return [msgspec.structs.replace(each, cloud=part.name) for each in outlooks]


async def gather(options: Options, cluster: Cluster, clouds: Sequence[CloudToAsk]) -> Survey:
    """Read what controllers read at their start. Raises StartError for options that no process starts with."""
    parts = [_part(cloud, cluster, is_alone=len(clouds) == 1) for cloud in clouds]
    path = LEASES.format(options.leader_elect_resource_namespace, options.leader_elect_resource_name)
    listing = [asyncio.create_task(_listing(each.gateway)) for each in parts]
    nodes = await cluster.all(NODES)
    services = await cluster.all(SERVICES)
    lease = await cluster.get(f"read the Lease {options.leader_elect_resource_name}", path, Lease)
    volumes = await cluster.all(VOLUMES) if any(VolumeController.name in each.usable for each in parts) else None
    for part, task in zip(parts, listing, strict=True):
        part.nodes, part.services, part.lease, part.volumes = nodes, services, lease, volumes
        part.refused, snapshot = await task
        if part.refused is not None:
            part.judging = part.answers["sign in"] = part.refused
        elif snapshot is not None and part.gateway.instances is not None:
            owns = part.gateway.instances.owns
            part.judging = snapshot if isinstance(snapshot, CloudError) else Judging(nodes or [], snapshot, owns)
            part.answers["list instances"] = error_of(snapshot)
    nobodys = _divide(nodes or [], parts, options) if len(parts) > 1 else {}
    for part in parts:
        if isinstance(part.judging, Judging) and part.gateway.instances is not None:
            part.judging = await with_singles(part.judging, part.gateway.instances)
    return Survey(options, cluster, parts, nobodys, nodes)


def _part(cloud: CloudToAsk, cluster: Cluster, *, is_alone: bool) -> Gathered:
    options, gateway = cloud.options, cloud.gateway
    usable = usable_controllers(options, gateway.cloud)
    if options.enable_leader_migration:
        elsewhere = split(usable, options.migration()).elsewhere
        usable = {name: each for name, each in usable.items() if name not in elsewhere}
    return Gathered(options, cluster, gateway, usable, name="" if is_alone else options.cloud_provider)


async def _listing(gateway: Gateway) -> tuple[CloudError | None, Snapshot | CloudError | None]:
    """Start the cloud and list its instances. Returns the error of the start, None if the cloud started, and the
    listing or its error; None if the cloud has no instances, or did not start."""
    refused = error_of(await answer_of(lambda: gateway.call("cloud.start", gateway.cloud.start)))
    directory = gateway.instances
    if refused is not None or directory is None:
        return refused, None
    return None, await answer_of(lambda: directory.list(not_before=0.0))


def _divide(nodes: Sequence[Node], parts: Sequence[Gathered], options: Options) -> dict[str, Outlook]:
    """Give each Node to the cloud that owns it. Return the outlooks of the Nodes that no cloud owns."""
    clouds = {each.name: each.judging for each in parts if each.judging is not None}
    declarations = Declarations(tuple(clouds), room_settings.declarations(options))
    directories = {each.name: each.gateway.instances for each in parts if each.gateway.instances is not None}

    def owning(provider_id: str) -> list[str]:
        return [name for name, directory in directories.items() if directory.owns(provider_id)]

    whose = owners(nodes, clouds, owning, declarations) if clouds else {}
    for part in parts:
        own = [node for node in nodes if whose.get(node.metadata.name) == Owned(part.name)]
        part.nodes = own
        if isinstance(part.judging, Judging):
            mine = {node.metadata.name for node in own}
            others = [node for node in nodes if node.metadata.name not in mine]
            part.judging = Judging(own, part.judging.snapshot, part.judging.owns, others=others)
    return {
        node.metadata.name: ownership_outlook(node, owner)
        for node in nodes
        if not isinstance(owner := whose.get(node.metadata.name), Owned | None)
    }


async def with_singles(judging: Judging, directory: InstanceDirectory) -> Judging:
    """Return `judging` with single reads of the instances that the listing does not have, as the controllers do."""
    missing = [node for node in judging.not_listed() if node.spec.provider_id]

    async def single(node: Node) -> Instance | CloudError:
        return await answer_of(lambda: directory.get(node_rules.instance_ref(node)))

    answers = await asyncio.gather(*(single(node) for node in missing))
    return replace(judging, singles={node.metadata.name: answer for node, answer in zip(missing, answers, strict=True)})


def not_run(options: Options, gateway: Gateway) -> dict[str, str]:
    """Return the controllers that would not run -> the reason."""
    reasons = {name: "--controllers does not name it" for name in CONTROLLERS if name not in options.controllers}
    missing = not_offered(options.controllers, gateway.cloud)
    for name in options.controllers:
        spec = look_up(name)
        if isinstance(spec, Unusable):
            reasons[name] = spec.why
        elif name in missing:
            reasons[name] = f"provider {options.cloud_provider} has no {missing[name]}"
        elif (why := spec.off(options)) is not None:
            reasons[name] = why
    rest = [controller for controller in options.controllers if controller not in reasons]
    for name in split(rest, options.migration()).elsewhere:
        reasons[name] = "the leader migration leaves it to another component"
    return reasons


def node_outlooks(survey: Gathered) -> list[Outlook]:
    """Return the outlook of every Node; [] without a controller for Nodes, or if the cloud has no instances."""
    nodes, judging = survey.nodes or [], survey.judging
    flags = survey.flags_of(NodeController.name)
    lifecycle = survey.flags_of(NodeLifecycleController.name)
    if (flags is None and lifecycle is None) or judging is None:
        return []
    if isinstance(judging, CloudError):
        return [unknown(node, judging) for node in nodes]
    held: Mapping[str, Outlook] = {}
    fenced: Mapping[str, Outlook] = {}
    if lifecycle is not None:
        windows = recalled(survey, NOTE), recalled(survey, node_fencing.NOTE)
        held = lifecycle_outlooks(judging, lifecycle.safety, windows[0], survey.now)
        fenced = fencing_outlooks(judging, lifecycle, windows, survey.now)
    outlooks = []
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        if node.metadata.name in held:
            outlooks.append(merged(held[node.metadata.name], fenced.get(node.metadata.name)))
            continue
        outlook = Outlook(kind="Node", name=node.metadata.name, action=Action.NOTHING)
        if flags is not None:
            outlook = node_outlook(node, judging, flags, survey.options.cloud_provider)
        if lifecycle is not None and not node.metadata.deletion_timestamp:
            outlook = merged(outlook, shutdown_outlook(node, judging.listed(node), lifecycle))
        outlook = merged(outlook, fenced.get(node.metadata.name))
        outlooks.append(outlook)
    return outlooks


def recalled(survey: Gathered, note: str) -> Window:
    """Return the deletions, or fences, within the window, as leaders (the present one, too) recorded them on the
    Lease. An unreadable record becomes an entry of `unasked`."""
    window = Window(survey.options.node_deletion_window)
    text = survey.note(note)
    try:
        window.recall(text or "{}", 0.0, survey.now)
    except ValueError as error:
        survey.cluster.unasked.append(Unasked(f"read the Lease's record {note}", str(error)))
    return window


async def balancer_outlooks(survey: Gathered) -> list[Outlook]:
    """Return the outlook of every Service that concerns the service controller, and of load balancers without Service.
    [] without this controller, or if Services could not be read."""
    options = survey.flags_of(ServiceController.name)
    if options is None or survey.services is None:
        return []
    classes = survey.classes
    concerned = [service for service in survey.services if service_rules.concerns_us(service, classes)]
    blind = survey.refused or (survey.judging if isinstance(survey.judging, CloudError) else None)
    if blind is not None:
        return [service_outlook(each, blind, classes) for each in concerned]
    reads = BalancerReads(survey.context, survey.services, survey.backends(), classes)
    await reads.list()
    survey.answers["list load balancers"] = error_of(reads.listed)
    if isinstance(reads.listed, CloudError):
        error = reads.listed
        if not concerned:
            survey.cluster.unasked.append(Unasked(f"list the load balancers of {survey.subject}", str(error)))
        return [service_outlook(each, error, classes) for each in concerned]
    listed = reads.listed
    implausible_because = survey.judging.implausible_because if isinstance(survey.judging, Judging) else ""
    concerned = [
        each for each in survey.services if service_rules.concerns_us(each, classes) or each.metadata.uid in listed
    ]
    evidence = await asyncio.gather(*(reads.about(each) for each in concerned))
    former = survey.former_classes
    outlooks = [
        service_outlook(each, own, classes, implausible_because, former=former)
        for each, own in zip(concerned, evidence, strict=True)
    ]
    if not survey.gateway.cloud.has_cluster_id:
        return outlooks
    kept = await reads.kept()
    survey.answers["list what is kept of load balancers"] = error_of(kept)
    outlooks += kept_outlooks(() if isinstance(kept, CloudError) else kept)
    uids = {service.metadata.uid for service in survey.services}
    return outlooks + orphan_outlooks(listed, uids, options, survey.options.cluster_name)


async def all_routes(survey: Gathered) -> list[Outlook]:
    """Return the outlook of every missing or wrong route (one for all if they cannot be judged), and of every Node with
    a wrong NetworkUnavailable. [] without a route controller, or if Nodes could not be read."""
    options = survey.flags_of(RouteController.name)
    cloud, nodes = survey.gateway.cloud.routes, survey.nodes
    if options is None or nodes is None or cloud is None:
        return []
    cluster = survey.options.cluster_name
    routes: Any = survey.refused or await answer_of(
        lambda: survey.gateway.call("routes.list", lambda: cloud.list(cluster))
    )
    if survey.refused is None:
        survey.answers["list routes"] = error_of(routes)
    later = survey.later
    if isinstance(routes, CloudError) or later is None:
        why = str(routes) if isinstance(routes, CloudError) else str(survey.judging)
        return [Outlook(kind="Route", name=f"all of cluster {cluster}", action=Action.UNKNOWN, because=why)]
    if why := later.implausible_because:
        return [Outlook(kind="Route", name=f"all of cluster {cluster}", action=Action.BLOCKED, because=why)]
    plan = route_rules.plan(later.nodes, routes, options.network, later.judge, cluster)
    unclaimed = list(plan.unclaimed)
    going, errors = await RouteRemoval(survey.context, options.safety).choose(plan)
    for error in errors:
        survey.cluster.unasked.append(Unasked("ask about a route that no Node claims", str(error)))
    return route_outlooks(plan, unclaimed, going, options, survey.now.strftime("%Y-%m-%dT%H:%M:%SZ"))


async def all_quotas(survey: Gathered) -> Sequence[Quota] | CloudError | None:
    """Return the quotas of the project, which no controller reads; None if the provider cannot read them."""
    cloud = survey.gateway.cloud.quotas
    if cloud is None:
        return None
    return await answer_of(lambda: survey.gateway.call("quotas.list", cloud.list))


async def all_volumes(survey: Gathered) -> list[Outlook]:
    """Return the outlook of every PersistentVolume that needs labels."""
    waiting = [each for each in survey.volumes or () if volume_rules.needs_labels(each)]
    return list(await asyncio.gather(*(outlook_of_volume(each, survey) for each in waiting)))


async def outlook_of_volume(volume: PersistentVolume, survey: Gathered) -> Outlook:
    """Return the outlook of one volume. The cloud is asked only if the controller would ask it."""
    return volume_outlook(volume, await volume_answer(volume, survey))


async def volume_answer(volume: PersistentVolume, survey: Gathered) -> Mapping[str, str] | CloudError | None:
    """Return what the cloud says about one volume; None if the controller would not ask."""
    cloud, ref = survey.gateway.cloud.volumes, volume_rules.reference(volume)
    if not volume_rules.needs_labels(volume) or ref is None or cloud is None:
        return None
    return survey.refused or await answer_of(lambda: survey.gateway.call("volumes.labels", lambda: cloud.labels(ref)))


def error_of(answer: object) -> CloudError | None:
    """Return the answer if it is an error, otherwise None."""
    return answer if isinstance(answer, CloudError) else None


async def _no_check() -> None:
    """Do nothing: there is nothing to check after a list."""


def _no_events(component: str) -> NoReturn:
    raise AssertionError(f"{component}: commands send no Events")
