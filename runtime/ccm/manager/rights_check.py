# SPDX-License-Identifier: Apache-2.0
"""Which rights the enabled controllers need, and whether this identity has them: asked at start, all at once.

Without this, a missing right shows hours later as a log line: a Node that is never deleted (reference 6, CPO 3225).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from ccm.engine.client import KubeClient
from ccm.serving.authorization import LOOKUP


@dataclass(frozen=True, order=True)
class Right:
    """`resource` may have a subresource ("nodes/status"); `namespace` is empty for the whole cluster."""

    resource: str
    verb: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}{where}"


_INFORMERS = [Right(resource, verb) for resource in ("nodes", "services") for verb in ("get", "list", "watch")]
#: Which cluster this is (`ccm.engine.identity`). Without it the process warns and goes on.
IDENTITY = Right("namespaces", "get", name="kube-system")
_EVENTS = [Right("events", "create"), Right("events", "patch")]
_CONTROLLERS = {
    "cloud-node-controller": [Right("nodes", "patch"), Right("nodes/status", "patch")],
    "cloud-node-lifecycle-controller": [Right("nodes", "patch"), Right("nodes", "delete")],
    "service-lb-controller": [Right("services/status", "patch")],
    "persistentvolume-label-controller": [Right("persistentvolumes", verb) for verb in ("list", "watch", "patch")],
    "node-route-controller": [Right("nodes/status", "patch")],
}


def needed(
    controllers: Iterable[str], leases: Iterable[tuple[str, str]] = (), *, client_ca: bool = False
) -> list[Right]:
    """All rights; `leases` are (namespace, name), `client_ca`: the published CA of client certificates is looked up."""
    rights = {*_INFORMERS, *_EVENTS}
    for name in controllers:
        rights |= set(_CONTROLLERS[name])
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


async def missing(client: KubeClient, rights: list[Right]) -> list[Right]:
    """Those of `rights` that the API server would refuse. Raises ApiError."""

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
        review = await client.ask(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
            },
            _Review,
        )
        return review.status.allowed

    answers = await asyncio.gather(*(allowed(right) for right in rights))
    return [right for right, yes in zip(rights, answers, strict=True) if not yes]
