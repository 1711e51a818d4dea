# SPDX-License-Identifier: Apache-2.0
"""`ccm explain node NAME`: why a Node is still tainted, or still exists. Reads only, and only from the API server.

The controllers publish what they know there: in Events about the Node and in the annotations of their Lease.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ccm.base.text import printable, shorten
from ccm.controllers import node_rules
from ccm.engine.client import ApiError, KubeClient, KubeConfigError, NotFoundError
from ccm.engine.objects import Lease, Node, parse_time

#: The components whose Events are relevant.
COMPONENTS = ("cloud-node-controller", "cloud-node-lifecycle-controller")
#: Reasons of Events that explain why a Node is not initialised.
NOT_INITIALISED = (
    "InstanceNotFound",
    "CloudNotAvailable",
    "InitializationFailed",
    "ForeignProviderID",
)
#: Reasons of Events that explain why a Node that is not Ready still exists.
NOT_DELETED = ("DeletionHeld", "DeletionWaits", "DeletingNodeFailed")
#: How many of the latest Events are printed.
SHOWN = 8
#: The maximum length of a line, in characters: kubelets write reasons and taints of any length.
LONGEST_LINE = 2000


class Source(msgspec.Struct, frozen=True):
    component: str = ""


class About(msgspec.Struct, frozen=True):
    uid: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    source: Source = Source()
    involved_object: About = About()


class Events(msgspec.Struct, frozen=True):
    items: list[Event] | None = None


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 explained, 1 no such Node or no answer, 2 invalid command line."""
    args = _parser().parse_args(argv)
    namespace, _, name = args.lease.partition("/")
    if not namespace or not name:
        print(f"ccm: --lease {args.lease!r} is not NAMESPACE/NAME", file=sys.stderr)
        return 2
    try:
        client = KubeClient.from_config(kubeconfig=args.kubeconfig or default_kubeconfig())
        print("\n".join(asyncio.run(_explain(client, args.name, namespace, name))))
    except NotFoundError:
        print(f"ccm: Node {args.name!r} does not exist: see kubectl get nodes", file=sys.stderr)
        return 1
    except (ApiError, KubeConfigError) as error:
        print(f"ccm: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ccm explain", description="Explain why a Node is tainted or still exists.")
    parser.add_argument("kind", choices=["node"])
    parser.add_argument("name")
    parser.add_argument("--kubeconfig", default="", help="use this kubeconfig; default: as kubectl, or in-cluster")
    parser.add_argument(
        "--lease", default="kube-system/cloud-controller-manager", help="read this Lease, NAMESPACE/NAME"
    )
    return parser


def default_kubeconfig() -> str:
    """The kubeconfig that kubectl uses; "" if there is none, which means in-cluster."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    candidates = named or [str(Path.home() / ".kube" / "config")]
    return next((path for path in candidates if Path(path).is_file()), named[0] if named else "")


async def _explain(client: KubeClient, node_name: str, namespace: str, lease_name: str) -> list[str]:
    """Read and explain. Raises ApiError."""
    try:
        node = await client.get(f"/api/v1/nodes/{node_name}", Node)
        selector = {"fieldSelector": f"involvedObject.kind=Node,involvedObject.name={node_name}"}
        # Events about Nodes are in this namespace. In others, users may write anything about any Node.
        events = await client.get("/api/v1/namespaces/default/events", Events, params=selector)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease_name}"
        try:
            lease: Lease | None = await client.get(path, Lease)
        except NotFoundError:
            lease = None
    finally:
        await client.close()
    return explain(node, lease, events.items or [], f"{namespace}/{lease_name}", datetime.datetime.now(datetime.UTC))


def explain(
    node: Node, lease: Lease | None, events: Sequence[Event], lease_name: str, now: datetime.datetime
) -> list[str]:
    """Lines of text, safe for a terminal. Pure."""
    relevant = sorted(
        (e for e in events if e.source.component in COMPONENTS and e.involved_object.uid == node.metadata.uid),
        key=lambda event: event.last_timestamp or "",
    )
    ready = next((c for c in node.status.conditions if c.type == "Ready"), None)
    state = f"Ready={ready.status} ({ready.reason})" if ready else "it has never reported whether it is Ready"
    lines = [
        f"Node {node.metadata.name}: {state}, created {_ago(node.metadata.creation_timestamp, now)}",
        f"providerID: {node.spec.provider_id or 'none yet'}",
        "",
        *_state_of(node, relevant, now),
        "",
        *_controller(lease, lease_name, now),
    ]
    if relevant:
        lines += ["", "Events about it, the latest last:"]
        lines += [f"  {_line(event, now)}" for event in relevant[-SHOWN:]]
    return [printable(shorten(line, LONGEST_LINE)) for line in lines]


def _state_of(node: Node, relevant: Sequence[Event], now: datetime.datetime) -> list[str]:
    lines = []
    waits = node_rules.is_uninitialized(node)
    if waits:
        lines.append(
            f"It waits for its initialisation (taint {node_rules.UNINITIALIZED_TAINT}); no Pod is scheduled to it."
        )
        lines.append(_why(relevant, NOT_INITIALISED, now) or "  No Event gives the reason: see the controller below.")
    if any(taint.key == node_rules.SHUTDOWN_TAINT for taint in node.spec.taints):
        lines.append("Its instance is shut down. The taint is removed when the Node is Ready again.")
    if node.metadata.deletion_timestamp:
        lines.append(
            f"It is being deleted and waits for its finalizers: {', '.join(node.metadata.finalizers) or 'none'}."
        )
    elif not node_rules.is_ready(node) and not waits:
        lines.append(
            "It is not Ready. It is deleted if the cloud reports, for long enough, that its instance does not exist."
        )
        lines.append(
            _why(relevant, NOT_DELETED, now)
            or "  Nothing holds it: the instance exists, or the controller has not yet confirmed that it is gone, or "
            "the Node is younger than --node-deletion-min-age."
        )
    if node_rules.is_ready(node):
        lines.append("It is Ready, and a Ready Node is never deleted, whatever the cloud reports.")
        if reason := _why(relevant, ("InstanceNotListed", "OtherMachine", "AddressesNotUpdated", "UpdateFailed"), now):
            lines.append(reason)
    return lines


def _controller(lease: Lease | None, lease_name: str, now: datetime.datetime) -> list[str]:
    """Which controller is responsible, and whether it works."""
    if lease is None:
        return [f"No controller has ever led: the Lease {lease_name} is missing. Deploy the cloud-controller-manager."]
    spec = lease.spec
    if not spec.holder_identity:
        return [f"No controller leads: the Lease {lease_name} was released, {_ago(spec.renew_time, now)}."]
    renewed, good_for = _seconds_since(spec.renew_time, now), spec.lease_duration_seconds or 0
    if renewed is None or renewed > good_for:
        return [
            f"No controller leads: {spec.holder_identity} renewed the Lease {lease_name} {_ago(spec.renew_time, now)}, "
            f"which is valid for {good_for} s. See the logs of its Pod."
        ]
    facts = {key.rpartition("/")[2]: value for key, value in lease.metadata.annotations.items()}
    running = [name for name in facts.get("controllers", "").split(",") if name]
    answered = facts.get("last-cloud-success")
    lines = [
        f"Controller: {spec.holder_identity}, which renewed the Lease {lease_name} {_ago(spec.renew_time, now)}",
        f"  provider {facts.get('cloud-provider', 'unknown')}; the cloud last answered it "
        + (_ago(answered, now) if answered else "never, or it does not report it"),
    ]
    if running and (missing := [name for name in COMPONENTS if name not in running]):
        lines.append(f"  it does not run {' and '.join(missing)} (--controllers)")
    return lines


def _why(relevant: Sequence[Event], reasons: Sequence[str], now: datetime.datetime) -> str:
    latest = next((event for event in reversed(relevant) if event.reason in reasons), None)
    return f"  {_line(latest, now)}" if latest else ""


def _line(event: Event, now: datetime.datetime) -> str:
    times = f", {event.count} times" if event.count and event.count > 1 else ""
    return f"{event.reason} ({_ago(event.last_timestamp, now)}{times}): {event.message}"


def _seconds_since(text: str | None, now: datetime.datetime) -> float | None:
    """None for no time, and for text that is not an RFC 3339 time with a zone."""
    try:
        return (now - parse_time(text)).total_seconds() if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def _ago(text: str | None, now: datetime.datetime) -> str:
    seconds = _seconds_since(text, now)
    if seconds is None:
        return "at an unknown time"
    for length, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
