# SPDX-License-Identifier: Apache-2.0
"""Write the finalizer, the load balancer's addresses and our condition to a Service.

All are written through the status subresource, so the controller needs write permission for `services/status` only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ccm.cloud import Ingress
from ccm.engine.api_errors import is_other_object
from ccm.engine.client import ConflictError, InvalidError, KubeClient, NotFoundError
from ccm.engine.objects import Service

from . import service_rules as rules
from .class_rules import ServedClasses


class ServiceWrites:
    """Writes to Services. All methods raise ApiError. `classes`: which Services are ours."""

    def __init__(self, client: KubeClient, classes: ServedClasses) -> None:
        self._client, self._classes = client, classes

    async def add_finalizer(self, service: Service) -> None:
        if rules.FINALIZER in service.metadata.finalizers:
            return
        finalizers = [*service.metadata.finalizers, rules.FINALIZER]
        version = service.metadata.resource_version
        await self._patch(service, {"metadata": {"finalizers": finalizers, "resourceVersion": version}})

    async def publish(self, service: Service, ingress: Sequence[Ingress]) -> None:
        """Write the ingress addresses if they differ."""
        wire = rules.ingress_wire(ingress)
        if not rules.same_ingress(service.status.load_balancer.ingress, wire):
            await self._patch(service, {"status": {"loadBalancer": {"ingress": wire}}})

    async def restore(self, service: Service, ingress: Sequence[Ingress]) -> None:
        """Restore a lost finalizer or lost addresses. Do nothing without `ingress`: others serve the Service then."""
        if ingress:
            await self.add_finalizer(service)
            if not service.status.load_balancer.ingress:
                await self.publish(service, ingress)

    async def release(self, service: Service, ingress: Sequence[Ingress]) -> None:
        """Remove the addresses and the finalizer, so that the API server can delete the Service. `release_patch` says
        which of them stay for another controller. `ingress`: the addresses of our load balancer."""
        patch = rules.release_patch(service, ingress, self._classes)
        if patch:
            with contextlib.suppress(NotFoundError):
                await self._patch(service, patch)

    async def patch_conditions(self, service: Service, patch: dict[str, Any]) -> None:
        """Send a strategic merge patch (`service_condition_rules`): it leaves the conditions of others alone."""
        await self._patch(service, patch, strategic=True)

    async def _patch(self, service: Service, patch: dict[str, Any], *, strategic: bool = False) -> None:
        """Patch the Service with this UID. Raises ConflictError if another Service has its name by now."""
        meta = service.metadata
        guarded = patch | {"metadata": {"uid": meta.uid, **patch.get("metadata", {})}}
        path = f"/api/v1/namespaces/{meta.namespace}/services/{meta.name}/status"
        try:
            await self._client.patch(path, guarded, strategic=strategic)
        except InvalidError as error:
            if not is_other_object(error):
                raise
            raise ConflictError(409, "Conflict", error.message) from None
