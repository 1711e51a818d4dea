# SPDX-License-Identifier: Apache-2.0
"""Machines without a cloud: what there is stands in a file (docs/providers/static.md).

A machine that is taken out of the file is gone. A file that cannot be read, is wrong, or names no machine at all says
nothing: unknown, never gone.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from ccm import cloud
from ccm.cloud import (
    Backend,
    BlockingCalls,
    ConfigError,
    Conflict,
    Ingress,
    Instance,
    InstanceRef,
    Invalid,
    Limits,
    LoadBalancer,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    Page,
    ProviderConfig,
    QuotaExceeded,
    RetryAfter,
    Transient,
)

from .static_config import IP, Settings

#: Seconds for reading the file; one on a server that is away may take for ever.
PATIENCE = 5.0


class StaticCloud(cloud.Cloud):
    name: ClassVar[str] = "static"
    instances: StaticInstances
    load_balancers: StaticLoadBalancers | None
    limits = Limits(calls_per_second=100.0, burst=200, deadline=PATIENCE * 2)

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self._settings = Settings.parse(config.text, config.source)
        self._inventory = Inventory(self._settings)
        self.instances = StaticInstances(self._inventory)
        self.load_balancers = StaticLoadBalancers(self._settings) if self._settings.pool else None

    async def start(self) -> None:
        """Raises ConfigError with all problems of the file; later on they are Transient."""
        await self._inventory.read()

    async def close(self) -> None:
        self._inventory.close()


class Inventory:
    """The machines, read again whenever the file has changed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._calls = BlockingCalls("static", threads=2, deadline=PATIENCE, hung_limit=4)
        self._text: str | None = None
        self._machines: tuple[Instance, ...] = settings.machines or ()

    async def machines(self) -> tuple[Instance, ...]:
        """Raises Transient when that cannot be told."""
        try:
            return await self.read()
        except ConfigError as error:
            raise Transient(f"which machines there are cannot be told: {error}") from None

    async def read(self) -> tuple[Instance, ...]:
        """Raises ConfigError, or Transient when the file system does not answer."""
        if not self.settings.file:
            return self._machines
        try:
            text = await self._calls.run(Path(self.settings.file).read_text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ConfigError([f"{self.settings.source}: {self.settings.file} cannot be read: {reason}"]) from None
        if text != self._text:
            self._machines, self._text = self.settings.read_file(text), text
        return self._machines

    def close(self) -> None:
        self._calls.close()


class StaticInstances:
    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._id = re.compile(rf"static://{re.escape(inventory.settings.cluster)}/[A-Za-z0-9._-]+")

    async def list_page(self, token: str | None) -> Page:
        machines = await self._inventory.machines()
        return Page(machines, total=len(machines))

    async def get(self, ref: InstanceRef) -> Instance:
        machines = await self._inventory.machines()
        wanted, attribute = (ref.provider_id, "provider_id") if ref.provider_id else (ref.node_name, "name")
        for machine in machines:
            if getattr(machine, attribute) == wanted:
                return machine
        settings = self._inventory.settings
        raise NotFound(f"{settings.file or settings.source} names no machine {wanted}")

    def owns(self, provider_id: str) -> bool:
        return self._id.fullmatch(provider_id) is not None


@dataclass
class Given:
    """Which addresses are given to whom, in this process. The Services' status is what remembers it."""

    #: (cluster, Service UID) -> what it has.
    balancers: dict[tuple[str, str], LoadBalancer] = field(default_factory=dict)
    #: When the first Service was asked for, monotonic seconds.
    since: float | None = None

    def taken(self, key: tuple[str, str]) -> dict[str, str]:
        """Addresses of others, and whose they are."""
        return {
            ingress.ip: balancer.name
            for other, balancer in self.balancers.items()
            if other != key
            for ingress in balancer.ingress
        }


#: Outlives a change of the configuration, which makes a new StaticCloud.
GIVEN = Given()


class StaticLoadBalancers:
    """An address of the pool for each Service; that it leads to the nodes is somebody else's work.

    There is no cloud that would remember, so that is left to the Services themselves: after a restart each tells which
    address it has (`LoadBalancerSpec.ingress`). Until they had time for it, nobody gets a new one.
    """

    def __init__(self, settings: Settings, given: Given = GIVEN, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._given, self._clock = settings, given, clock

    async def list(self, cluster: str) -> Sequence[LoadBalancer]:
        """Those of this process; after a restart none, so that each Service is asked for once."""
        return [balancer for (owner, _), balancer in self._given.balancers.items() if owner == cluster]

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Ports and nodes are kube-proxy's matter, but a change of them shall be seen to have come through."""
        ports = [(port.protocol, port.port, port.node_port) for port in spec.ports]
        wish = [spec.load_balancer_ip, spec.ip_families, ports, sorted(backend.provider_id for backend in backends)]
        return hashlib.sha256(json.dumps(wish).encode()).hexdigest()

    async def get(self, spec: LoadBalancerSpec) -> LoadBalancer:
        found = self._given.balancers.get((spec.cluster, spec.uid))
        if found is None:
            raise NotFound(f"Service {spec.namespace}/{spec.name} was given no address")
        return found

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        """Raises RetryAfter while others may still tell which addresses they have."""
        now = self._clock()
        if self._given.since is None:
            self._given.since = now
        key = (spec.cluster, spec.uid)
        taken = self._given.taken(key)
        addresses = [
            found for family in spec.ip_families if (found := self._address(spec, family, taken, now)) is not None
        ]
        if not addresses:
            families = " or ".join(spec.ip_families)
            raise NotImplementedByCloud(f"load_balancer_addresses of {self._settings.source} has no {families} address")
        balancer = LoadBalancer(
            service_uid=spec.uid,
            name=f"{spec.namespace}/{spec.name}",
            ingress=tuple(Ingress(ip=str(address), ip_mode="VIP") for address in addresses),
            fingerprint=self.fingerprint(spec, backends),
        )
        self._given.balancers[key] = balancer
        return balancer

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        found = replace(await self.get(spec), fingerprint=self.fingerprint(spec, backends))
        self._given.balancers[spec.cluster, spec.uid] = found
        return found

    async def delete(self, spec: LoadBalancerSpec) -> None:
        self._given.balancers.pop((spec.cluster, spec.uid), None)

    def _address(self, spec: LoadBalancerSpec, family: str, taken: dict[str, str], now: float) -> IP | None:
        """The address for one family, None when the pool has none of it."""
        pool = [address for address in self._settings.pool if f"IPv{address.version}" == family]
        if not pool:
            return None
        if wanted := spec.load_balancer_ip:
            return _wished(pool, wanted, taken, self._settings.source) if _family(wanted) == family else None
        mine = self._given.balancers.get((spec.cluster, spec.uid))
        for ingress in (*(mine.ingress if mine else ()), *spec.ingress):
            for address in pool:
                if str(address) == ingress.ip and ingress.ip not in taken:
                    return address
        assert self._given.since is not None
        if (wait := self._given.since + self._settings.settle - now) > 0:
            raise RetryAfter("just started: first the Services that have an address tell which", wait)
        # The same name begins its search at the same place, so that a Service made anew mostly gets what it had.
        start = int(hashlib.sha256(f"{spec.namespace}/{spec.name}".encode()).hexdigest(), 16) % len(pool)
        for address in pool[start:] + pool[:start]:
            if str(address) not in taken:
                return address
        raise QuotaExceeded(f"all {len(pool)} {family} addresses of load_balancer_addresses are given away")


def _wished(pool: Sequence[IP], wanted: str, taken: dict[str, str], source: str) -> IP:
    for address in pool:
        if str(address) == wanted:
            if wanted in taken:
                raise Conflict(f"the address {wanted} is Service {taken[wanted]}'s")
            return address
    raise Invalid(f"the address {wanted} is not one of load_balancer_addresses of {source}")


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"
