# SPDX-License-Identifier: Apache-2.0
"""`ccm explain node|service|pv NAME`: what was looked up about an object, what the runtime would do, and what to do."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import msgspec

from ccm.controllers.built_in_controllers import VOLUMES
from ccm.controllers.shared.watched_kinds import NODES, SERVICES, Watched
from ccm.engine.client import NotFoundError
from ccm.engine.objects import KubeObject, Lease, Node, PartialObject, PersistentVolume, Service, object_key
from ccm.options.command_line import Parser

from ..asking.asking import answer
from ..asking.explanation import Event, Explanation, render, told_by
from ..asking.leading import ago, leader_lines
from ..asking.question_flags import Questions, parser
from ..asking.reading import Cluster, open_clouds, open_cluster
from ..outlooks.gathering import LEASES, Survey, gather
from ..outlooks.judging import NEAREST, nearest
from . import explain_node, explain_service, explain_volume

DESCRIPTION = """Explain the state of one Node, Service or PersistentVolume: what was looked up, what the cloud said,
which rule applies, what happens next, and what to do.

It reads only. Without --cloud-provider it asks no cloud, and knows only the controllers' Events and their Lease. With
the flags of the controller it asks the cloud, and decides as the controller does."""
KINDS = {"node": NODES, "service": SERVICES, "pv": VOLUMES}
#: Other spellings of the kinds.
SPELLINGS = {"nodes": "node", "no": "node", "services": "service", "svc": "service", "persistentvolume": "pv"}

K = TypeVar("K", bound=KubeObject)


@dataclass(frozen=True)
class ExplainFlags(Questions):
    #: A key of KINDS or of SPELLINGS. `name` is the name of the object.
    kind: str = ""
    name: str = ""


def main(argv: Sequence[str]) -> int:
    """Run `ccm explain`. Return the exit status: 0 if nothing is left to do, 1 if something is, 2 if a question got no
    answer or the object does not exist."""
    return answer(ExplainFlags, argv, arguments(), _ask, render)


def arguments() -> Parser:
    p = parser(ExplainFlags, "ccm explain", DESCRIPTION)
    p.usage = "ccm explain node|service|pv NAME [FLAG ...]"
    p.add_argument("kind", choices=[*KINDS, *SPELLINGS], metavar="KIND", help="node, service or pv")
    p.add_argument("name", metavar="NAME", type=_name, help="the object's name; of a Service, NAMESPACE/NAME")
    return p


def _name(text: str) -> str:
    """Return the text. Raises ArgumentTypeError if it has no name, because its path would be that of the list."""
    if not text.rpartition("/")[2].strip():
        raise argparse.ArgumentTypeError(f"{text!r} names no object")
    return text


async def _ask(options: ExplainFlags) -> Explanation:
    kind = SPELLINGS.get(options.kind, options.kind)
    async with open_cluster(options) as cluster:
        if kind == "node":
            return await _node(await _read(NODES, options.name, cluster), options, cluster)
        if kind == "service":
            name = options.name if "/" in options.name else f"default/{options.name}"
            return await _service(await _read(SERVICES, name, cluster), options, cluster)
        return await _volume(await _read(VOLUMES, options.name, cluster), options, cluster)


async def _node(node: Node, options: ExplainFlags, cluster: Cluster) -> Explanation:
    # Events about Nodes are in this namespace. In others, users may write anything about any Node.
    events = await _events(cluster, "default", "Node", node)
    lease, lease_name = await _lease(options, cluster)
    now = datetime.datetime.now(datetime.UTC)
    shown = explain_node.from_api_server(node, lease, events, lease_name, now)
    shown = msgspec.structs.replace(shown, unasked=list(cluster.unasked))
    return await _with_cloud(shown, options, cluster, lambda gathered: explain_node.with_cloud(shown, node, gathered))


async def _service(service: Service, options: ExplainFlags, cluster: Cluster) -> Explanation:
    events = await _events(cluster, service.metadata.namespace, "Service", service)
    lease, lease_name = await _lease(options, cluster)
    now = datetime.datetime.now(datetime.UTC)
    reported = told_by(events, explain_service.COMPONENTS, service.metadata.uid)
    shown = Explanation(
        kind="Service",
        name=object_key(service),
        state=explain_service.state_of(service, reported, now, options.served_classes()),
        leader=leader_lines(lease, lease_name, now),
        events=reported,
        unasked=list(cluster.unasked),
        waits=explain_service.waits(service, options.served_classes()),
    )
    return await _with_cloud(
        shown, options, cluster, lambda gathered: _joined(shown, explain_service.ask_clouds(service, gathered), cluster)
    )


async def _volume(volume: PersistentVolume, options: ExplainFlags, cluster: Cluster) -> Explanation:
    events = await _events(cluster, "default", "PersistentVolume", volume)
    lease, lease_name = await _lease(options, cluster)
    now = datetime.datetime.now(datetime.UTC)
    shown = Explanation(
        kind="PersistentVolume",
        name=volume.metadata.name,
        state=explain_volume.state_of(volume, ago(volume.metadata.creation_timestamp, now)),
        leader=leader_lines(lease, lease_name, now),
        events=told_by(events, explain_volume.COMPONENTS, volume.metadata.uid),
        unasked=list(cluster.unasked),
    )
    return await _with_cloud(
        shown, options, cluster, lambda gathered: _joined(shown, explain_volume.ask_clouds(volume, gathered), cluster)
    )


async def _with_cloud(
    shown: Explanation,
    options: ExplainFlags,
    cluster: Cluster,
    ask: Callable[[Survey], Awaitable[Explanation]],
) -> Explanation:
    """Return what `ask` makes of the clouds that the flags name; `shown` if they name none."""
    if not options.cloud_provider:
        return shown
    async with open_clouds(options) as clouds:
        return await ask(await gather(options, cluster, clouds))


async def _joined(shown: Explanation, asked: Awaitable[Explanation], cluster: Cluster) -> Explanation:
    answer = await asked
    return msgspec.structs.replace(
        shown,
        looked_up=answer.looked_up,
        nearest=answer.nearest,
        outlooks=answer.outlooks,
        unasked=list(cluster.unasked),
        waits=False,
    )


async def _read(kind: Watched[K], name: str, cluster: Cluster) -> K:
    """Return the object. Raises ApiError; for a name that does not exist, its message has similar names."""
    namespace, _, own = name.rpartition("/")
    base, _, resource = kind.path.rpartition("/")
    place = f"{base}/namespaces/{quote(namespace, safe='')}/{resource}" if namespace else kind.path
    try:
        return kind.keep(await cluster.client.get(f"{place}/{quote(own, safe='')}", kind.type))
    except NotFoundError as error:
        there = await cluster.list(f"list {resource}", kind.path, PartialObject)
        near = _like(own, namespace, map(object_key, there))
        hint = f"similar names: {', '.join(near)}" if near else f"see kubectl get {resource}"
        what = {"nodes": "Node", "services": "Service"}.get(resource, "PersistentVolume")
        raise NotFoundError(error.status, error.reason, f"{what} {name!r} does not exist: {hint}") from None


def _like(own: str, namespace: str, keys: Iterable[str]) -> list[str]:
    """Return at most NEAREST keys whose names are similar to `own`, in any namespace, the most similar names first. Of
    keys with the same name, the one in `namespace` comes first."""
    by_name: dict[str, list[str]] = {}
    for key in sorted(keys, key=lambda key: key.rpartition("/")[0] != namespace):
        by_name.setdefault(key.rpartition("/")[2], []).append(key)
    return [key for name in nearest(own, by_name) for key in by_name[name]][:NEAREST]


async def _events(cluster: Cluster, namespace: str, kind: str, about: KubeObject) -> list[Event]:
    selector = f"involvedObject.kind={kind},involvedObject.name={about.metadata.name}"
    path = f"/api/v1/namespaces/{namespace}/events"
    what = f"list the Events in namespace {namespace}"
    return await cluster.list(what, path, Event, {"fieldSelector": selector})


async def _lease(options: ExplainFlags, cluster: Cluster) -> tuple[Lease | None, str]:
    namespace, name = options.leader_elect_resource_namespace, options.leader_elect_resource_name
    lease = await cluster.get(f"read the Lease {namespace}/{name}", LEASES.format(namespace, name), Lease)
    return lease, f"{namespace}/{name}"
