# SPDX-License-Identifier: Apache-2.0
"""Gives Services addresses from a pool, and writes nothing anywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from ccm.cloud import (
    Allocations,
    Backend,
    Backends,
    Conflict,
    Ingress,
    Invalid,
    LoadBalancer,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    QuotaExceeded,
    Transient,
)

from .settings import Settings

#: A Service: its cluster and its UID.
_Owner = tuple[str, str]


class StaticLoadBalancers:
    """Allocates an address of the pool for each Service. Something else must route it to the nodes.

    No cloud records which Service has which address: the Services' status does (`AllocatesAddresses`). In addition,
    this object knows the addresses that it allocated, until a changed configuration replaces it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._allocations: Allocations | None = None
        self._allocated: dict[_Owner, LoadBalancer] = {}
        self._owners: dict[str, _Owner] = {}

    def use_allocations(self, allocations: Allocations) -> None:
        self._allocations = allocations

    async def list(self, cluster: str) -> Sequence[LoadBalancer]:
        """Return what this object allocated: nothing after a restart, so that `ensure` runs once for each Service."""
        return [balancer for (owner, _), balancer in self._allocated.items() if owner == cluster]

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Return a hash that covers ports and nodes, too, so that their changes count as written. kube-proxy handles
        both."""
        ports = [(port.protocol, port.port, port.node_port) for port in spec.ports]
        desired = [spec.load_balancer_ip, spec.ip_families, ports, Backends.of(backends).digest]
        return hashlib.sha256(json.dumps(desired).encode()).hexdigest()

    async def get(self, spec: LoadBalancerSpec) -> LoadBalancer:
        balancer = self._allocated.get((spec.cluster, spec.uid))
        if balancer is None:
            raise NotFound(f"Service {spec.namespace}/{spec.name} has no address")
        return balancer

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        """Allocate addresses. Never awaits between choosing one and returning it, so that no other Service gets it.

        Raises Transient while it is not known which addresses Services have. Raises NotImplementedByCloud if the pool
        has no address of the Service's families, or if loadBalancerIP is of another family; QuotaExceeded if all
        addresses of a family are in use; Invalid and Conflict if loadBalancerIP is not in the pool, or in use.
        """
        addresses = [free for family in spec.ip_families if (free := self._address(spec, family)) is not None]
        if not addresses:
            families = " or ".join(spec.ip_families)
            raise NotImplementedByCloud(f"load_balancer_addresses of {self._settings.source} has no {families} address")
        balancer = LoadBalancer(
            service_uid=spec.uid,
            name=f"{spec.namespace}/{spec.name}",
            ingress=tuple(Ingress(ip=address, ip_mode="VIP") for address in addresses),
            fingerprint=self.fingerprint(spec, backends),
            warnings=tuple(
                f"the address {ingress.ip} in the status of this Service is in use by an older Service: "
                f"this one gets {', '.join(addresses)} instead"
                for ingress in spec.ingress
                if ingress.ip and self._is_taken(ingress.ip, spec)
            ),
        )
        self._release(spec)
        self._allocated[spec.cluster, spec.uid] = balancer
        self._owners |= dict.fromkeys(addresses, (spec.cluster, spec.uid))
        return balancer

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        balancer = replace(await self.get(spec), fingerprint=self.fingerprint(spec, backends))
        self._allocated[spec.cluster, spec.uid] = balancer
        return balancer

    async def delete(self, spec: LoadBalancerSpec) -> None:
        self._release(spec)

    def _release(self, spec: LoadBalancerSpec) -> None:
        if (balancer := self._allocated.pop((spec.cluster, spec.uid), None)) is not None:
            for ingress in balancer.ingress:
                del self._owners[ingress.ip]

    def _address(self, spec: LoadBalancerSpec, family: str) -> str | None:
        """Return the address for one family, None if the pool has none or loadBalancerIP is of the other family. Raises
        QuotaExceeded if all addresses are in use."""
        pool = [str(address) for address in self._settings.pool if f"IPv{address.version}" == family]
        if not pool:
            return None
        if requested := spec.load_balancer_ip:
            return self._requested(requested, pool, spec) if _family(requested) == family else None
        balancer = self._allocated.get((spec.cluster, spec.uid))
        for ingress in (*(balancer.ingress if balancer else ()), *spec.ingress):
            if ingress.ip in pool and not self._is_taken(ingress.ip, spec):
                return ingress.ip
        # The search starts at a hash of the name, so that a Service that is created again usually gets its former
        # address.
        start = int(hashlib.sha256(f"{spec.namespace}/{spec.name}".encode()).hexdigest(), 16) % len(pool)
        for address in pool[start:] + pool[:start]:
            if not self._is_taken(address, spec):
                return address
        raise QuotaExceeded(f"all {len(pool)} {family} addresses of load_balancer_addresses are in use")

    def _requested(self, requested: str, pool: Sequence[str], spec: LoadBalancerSpec) -> str:
        """Check `spec.loadBalancerIP`. The message names no Service, because the other one may belong to another
        tenant. Raises Invalid for an address outside of the pool, and Conflict for one in use."""
        if requested not in pool:
            raise Invalid(f"the address {requested} is not in load_balancer_addresses of {self._settings.source}")
        if self._is_taken(requested, spec):
            raise Conflict(f"the address {requested} is in use")
        return requested

    def _is_taken(self, address: str, spec: LoadBalancerSpec) -> bool:
        """Return whether another Service has the address. Raises Transient while that is not known."""
        if self._allocations is None:
            raise Transient("cannot allocate an address until it is known which addresses Services have")
        owner = (spec.cluster, spec.uid)
        return self._owners.get(address, owner) != owner or self._allocations.holder(address) not in (None, spec.uid)


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"
