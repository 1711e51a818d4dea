# SPDX-License-Identifier: Apache-2.0
"""Load balancers, each written as a whole with a single PUT."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ccm.cloud import Backend, Backends, Conflict, Invalid, LoadBalancer, LoadBalancerSpec, NotFound

from . import load_balancer_rules as rules
from .api import Api


class AcmeLoadBalancers:
    """One PUT to a name of our choice creates or replaces a balancer, so repeating it is harmless."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, cluster: str) -> Sequence[LoadBalancer]:
        rows = (await self._api.call("GET", "/balancers"))["balancers"]
        return [rules.load_balancer_of(row) for row in rows if row["labels"].get("cluster") == cluster]

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        state = [rules.ports(spec), rules.refusals(spec), rules.warnings(spec, backends), Backends.of(backends).digest]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()

    async def get(self, spec: LoadBalancerSpec) -> LoadBalancer:
        row = await self._own(spec)
        if row["state"] == "failed":
            raise Conflict(f"the balancer {row['name']} failed in the cloud")
        return rules.load_balancer_of(row)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        if refusals := rules.refusals(spec):
            raise Invalid("; ".join(refusals))
        with contextlib.suppress(NotFound):
            await self._own(spec)
        labels = {"cluster": spec.cluster, "service": spec.uid, "fingerprint": self.fingerprint(spec, backends)}
        body = rules.desired(spec, backends) | {"labels": labels}
        return rules.load_balancer_of(
            await self._api.call("PUT", rules.path_of(spec), body), rules.warnings(spec, backends)
        )

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        await self._own(spec)
        return await self.ensure(spec, backends)

    async def delete(self, spec: LoadBalancerSpec) -> None:
        await self._own(spec)
        await self._api.call("DELETE", rules.path_of(spec), missing="no_such_balancer")

    async def _own(self, spec: LoadBalancerSpec) -> dict[str, Any]:
        """Return the balancer of this Service in any state. Raises NotFound, and Conflict if it belongs to someone
        else."""
        row: dict[str, Any] = await self._api.call("GET", rules.path_of(spec), missing="no_such_balancer")
        if (row["labels"].get("cluster"), row["labels"].get("service")) != (spec.cluster, spec.uid):
            raise Conflict(f"the balancer {row['name']} does not belong to this Service")
        return row
