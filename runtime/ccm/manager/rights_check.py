# SPDX-License-Identifier: Apache-2.0
"""Checks at start whether this identity has all permissions that the enabled controllers need.

Without this check, a missing permission becomes visible only hours later, for example as a log line about a Node that
cannot be deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ccm.controllers.controller_spec import ControllerSpec, Right
from ccm.controllers.shared.watched_kinds import NODES, SERVICES, Watched
from ccm.engine.client import KubeClient
from ccm.serving.authorization import LOOKUP

#: Controllers read a single Node or Service before they delete something for it.
_READ = [Right(kind.resource, "get") for kind in (NODES, SERVICES)]
#: The right to identify the cluster (`ccm.engine.identity`). Without it the process warns and continues.
IDENTITY = Right("namespaces", "get", name="kube-system")
#: The rights to replace Nodes while they are initialised (`ccm.controllers.nodes.node_writes`). Without them, Nodes are
#: patched.
CHEAPER = (Right("nodes", "update"), Right("nodes/status", "update"))
_EVENTS = [Right("events", "create"), Right("events", "patch")]
#: How many rights are reviewed at the same time. Each needs a connection of its own, and its TLS handshake costs this
#: process and the API server more than a review.
AT_ONCE = 5


def watching(kind: Watched[Any]) -> list[Right]:
    """Return the permissions that a cache of this kind needs."""
    return [Right(kind.resource, verb, kind.group) for verb in ("list", "watch")]


def needed(
    controllers: Iterable[ControllerSpec[Any]], leases: Iterable[tuple[str, str]] = (), *, client_ca: bool = False
) -> list[Right]:
    """Return the permissions without which the process does not start, sorted. `leases`: (namespace, name) of each.
    `client_ca`: whether the client CA is read."""
    rights = {*_READ, *watching(NODES), *watching(SERVICES), *_EVENTS}
    for spec in controllers:
        rights |= {*spec.rights, *(right for kind in spec.watches for right in watching(kind))}
    for namespace, name in leases:
        group = "coordination.k8s.io"
        rights |= {Right("leases", verb, group, namespace, name) for verb in ("get", "patch", "list", "watch")}
        rights.add(Right("leases", "create", group, namespace))
    if client_ca:
        namespace, name = LOOKUP
        rights.add(Right("configmaps", "get", "", namespace, name))
    return sorted(rights)


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


def subject(namespace: str, name: str) -> dict[str, Any]:
    """Return a ServiceAccount in the form of the argument `who` of `missing`."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}


async def missing(client: KubeClient, rights: list[Right], who: Mapping[str, Any] | None = None) -> list[Right]:
    """Return those of `rights` that the API server would deny to this identity, or to `who`. Raises ApiError."""
    kind = "SelfSubjectAccessReview" if who is None else "SubjectAccessReview"
    slots = asyncio.Semaphore(AT_ONCE)

    async def allowed(right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "resource": resource,
            "subresource": subresource,
            "verb": right.verb,
            "group": right.group,
            "namespace": right.namespace,
            "name": right.name,
        }
        async with slots:
            review = await client.ask(
                f"/apis/authorization.k8s.io/v1/{kind.lower()}s",
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": kind,
                    "spec": {
                        "resourceAttributes": {key: value for key, value in attributes.items() if value},
                        **(who or {}),
                    },
                },
                _Review,
            )
        return review.status.allowed

    reviews = [asyncio.create_task(allowed(right)) for right in rights]
    try:
        answers = await asyncio.gather(*reviews)
    finally:
        for task in reviews:
            task.cancel()  # after an error, no review is needed any more
    return [right for right, yes in zip(rights, answers, strict=True) if not yes]
