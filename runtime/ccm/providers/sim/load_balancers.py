# SPDX-License-Identifier: Apache-2.0
"""Load balancers: found by their tags, and written as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ccm import cloud
from ccm.cloud import Backend, Conflict, Kept, KeptLoadBalancer, LoadBalancerSpec, NotFound, RetryAfter
from ccm.cloud.toolkit import kept_load_balancers
from ccm.cloud.toolkit.service_checks import ipv4_only

from . import load_balancer_rules as rules
from .api import POLL, Api, LoadBalancer

GONE = "load_balancer_not_found"
#: How many load balancers to convert before other tasks can run.
STRETCH = 500


class SimLoadBalancers:
    """The load balancers of a project. Each is found only by its ownership tags. A name that is already taken is a
    Conflict."""

    keeps = frozenset({Kept.LOAD_BALANCER})

    def __init__(self, api: Api) -> None:
        self._api = api
        self._taking_back = asyncio.Lock()

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        rows = await self._api.list("/load-balancers", LoadBalancer, [("tag", f"cluster:{cluster}")])
        balancers = []
        for number, row in enumerate(rows, 1):
            if row.tags.get("service_uid"):
                balancers.append(rules.load_balancer(row))
            if number % STRETCH == 0:
                await asyncio.sleep(0)
        return balancers

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Return two halves, so that `update_backends` cannot claim to have written other changes of the spec."""
        desired = self._desired(spec) | {"ip": spec.load_balancer_ip} | rules.retention_tags(spec)
        return f"{rules.digest(desired)}-{rules.digest_of(backends)}"

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        row = await self._find(spec)
        if row.state == "error":
            raise Conflict(f"load balancer {row.id} failed in the cloud: {row.reason or 'no reason given'}")
        return rules.load_balancer(row)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        """Raises RetryAfter while the cloud is busy with an earlier change. Returns once this change is written. Raises
        Conflict if the load balancer has another address than the requested one. A load balancer that failed is
        deleted and, when it is gone, created again. Until then, raises RetryAfter."""
        rules.check_supported(spec, self._api.passes_through)
        desired = self._desired(spec) | {"targets": rules.targets(backends)}
        fingerprint = self.fingerprint(spec, backends)
        try:
            balancer = await self._find(spec)
            if balancer.state == "error":
                await self._remove(balancer)  # the only change that this cloud allows
                raise NotFound(f"load balancer {balancer.id} failed in the cloud and is being deleted")
        except NotFound:
            if not spec.take_back:
                tags = {"cluster": spec.cluster, "service_uid": spec.uid, "fingerprint": fingerprint}
                tags |= rules.retention_tags(spec)
                body = desired | {"name": spec.default_name, "ip": spec.load_balancer_ip, "tags": tags}
                row = await self._api.call("POST", "/load-balancers", LoadBalancer, body=body)
                return rules.load_balancer(row, (*ipv4_only(spec), *rules.nobody(backends)))
            balancer = await self._take_back(spec)
        kept_load_balancers.check_same(spec, balancer.name)
        if spec.load_balancer_ip not in ("", balancer.ip):
            raise Conflict(
                f"load balancer {balancer.id} has the address {balancer.ip}, and this cloud cannot change it to "
                f"{spec.load_balancer_ip}: delete the Service and create it again"
            )
        if balancer.state == "deleting":
            raise RetryAfter(f"load balancer {balancer.id} is being deleted", POLL)
        if balancer.tags.get("fingerprint") == fingerprint:
            return rules.load_balancer(balancer, (*ipv4_only(spec), *rules.nobody(backends)))
        body = desired | {"tags": {"fingerprint": fingerprint} | rules.changed_retention_tags(spec, balancer)}
        path = f"/load-balancers/{balancer.id}"
        row = await self._api.call("PATCH", path, LoadBalancer, body=body, missing=GONE)
        return rules.load_balancer(row, (*ipv4_only(spec), *rules.nobody(backends)))

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        before = await self._find(spec)
        written = before.tags.get("fingerprint", "").partition("-")[0]
        body = {
            "targets": rules.targets(backends),
            "tags": {"fingerprint": f"{written}-{rules.digest_of(backends)}"},
        }
        path = f"/load-balancers/{before.id}/targets"
        row = await self._api.call("PUT", path, LoadBalancer, body=body, missing=GONE)
        return rules.load_balancer(row, rules.nobody(backends))

    async def delete(self, spec: LoadBalancerSpec) -> None:
        row = await self._find(spec)
        if Kept.LOAD_BALANCER in (spec.keep, rules.keep_of(row)) and row.state not in ("error", "deleting"):
            path, body = f"/load-balancers/{row.id}/targets", {"targets": (), "tags": rules.kept_tags(spec, row)}
            await self._api.call("PUT", path, LoadBalancer, body=body, missing=GONE)
        else:
            await self._remove(row)

    def drains(self, spec: LoadBalancerSpec) -> bool:
        return True

    async def kept(self, cluster: str) -> Sequence[KeptLoadBalancer]:
        rows = await self._api.list("/load-balancers", LoadBalancer, [("tag", f"cluster:{cluster}")])
        kept = ((row, row.tags.get(rules.KEPT_FOR, "")) for row in rows)
        return [KeptLoadBalancer(row.name, namespace, row.ip) for row, namespace in kept if namespace]

    async def _take_back(self, spec: LoadBalancerSpec) -> LoadBalancer:
        """Give the Service a load balancer that is kept for its namespace. Raises Conflict if there is none."""
        tags = [("tag", f"cluster:{spec.cluster}"), ("tag", f"{rules.KEPT_FOR}:{spec.namespace}")]
        async with self._taking_back:  # two Services may name the same load balancer
            rows = await self._api.list("/load-balancers", LoadBalancer, tags)
            kept = next((row for row in rows if row.name == spec.take_back), None)
            if kept is None:
                raise kept_load_balancers.nothing_kept(spec)
            body = {"tags": {"service_uid": spec.uid, rules.KEPT_FOR: ""}}
            path = f"/load-balancers/{kept.id}"
            return await self._api.call("PATCH", path, LoadBalancer, body=body, missing=GONE)

    async def _remove(self, balancer: LoadBalancer) -> None:
        path = f"/load-balancers/{balancer.id}"
        if await self._api.call("DELETE", path, LoadBalancer | None, missing=GONE) is None:  # type: ignore[arg-type]
            return
        raise RetryAfter(f"load balancer {balancer.id} is being deleted", POLL)

    def _desired(self, spec: LoadBalancerSpec) -> dict[str, Any]:
        return rules.desired(spec, self._api.passes_through)

    async def _find(self, spec: LoadBalancerSpec) -> LoadBalancer:
        tags = [("tag", f"cluster:{spec.cluster}"), ("tag", f"service_uid:{spec.uid}")]
        balancers = await self._api.list("/load-balancers", LoadBalancer, tags)
        if not balancers:
            raise NotFound(f"cluster {spec.cluster!r} has no load balancer for Service {spec.namespace}/{spec.name}")
        if len(balancers) > 1:
            ids = ", ".join(row.id for row in balancers)
            raise Conflict(
                f"{len(balancers)} load balancers ({ids}) have the tags of Service {spec.namespace}/{spec.name}: "
                "delete all but one"
            )
        return balancers[0]
