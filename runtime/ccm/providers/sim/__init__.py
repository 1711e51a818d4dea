# SPDX-License-Identifier: Apache-2.0
"""The provider of the simulated cloud (docs/providers/sim.md), and the example to copy for your own provider.

It shows everything a provider does: read the configuration and report all its problems (`Settings`), speak HTTP and
map every failure to the contract's errors (`Api`; both are in `api`), and one small class for each capability. The
framework does everything else: batching, caching, retries, rate limits.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from ccm import cloud
from ccm.cloud import (
    Backend,
    Backends,
    Conflict,
    Ingress,
    InstanceRef,
    Invalid,
    Limits,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    Page,
    ProviderConfig,
    RetryAfter,
    VolumeRef,
)
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud
from ccm.cloud.toolkit.service_checks import ipv4_only, ipv4_ranges, nobody_serves, require_node_ports

from .api import POLL, Api, Instance, LoadBalancer, Quotas, Route, Settings, Volume

PROVIDER_ID = re.compile(r"sim://(?P<region>[a-z0-9][a-z0-9-]*)/(?P<id>i-[0-9a-f]{12})")
VOLUME_ID = re.compile(r"v-[0-9a-f]{12}")
CSI_DRIVER = "sim.ccm.outoftree.dev"
GONE = "load_balancer_not_found"
#: How many load balancers to convert before other tasks can run.
STRETCH = 500


class SimCloud(ConnectedCloud):
    name: ClassVar[str] = "sim"
    instances: SimInstances
    load_balancers: SimLoadBalancers
    routes: SimRoutes
    volumes: SimVolumes
    instance_tags: SimInstanceTags
    quotas: SimQuotas

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = Settings.parse(config)
        self.limits = Limits(
            settings.calls_per_second, settings.burst, settings.concurrency, listing_lag=settings.listing_lag
        )
        self._api = Api(settings)
        self._connect(self._api, settings.warnings)
        self.instances = SimInstances(self._api)
        self.load_balancers = SimLoadBalancers(self._api)
        self.routes = SimRoutes(self._api)
        self.volumes = SimVolumes(self._api)
        self.instance_tags = SimInstanceTags(self._api)
        self.quotas = SimQuotas(self._api)


class SimInstances:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list_page(self, token: str | None) -> Page:
        listing = await self._api.page("/instances", Instance, (), token)
        return Page([_instance(row) for row in listing.items], listing.next_page_token, listing.total)

    async def get(self, ref: InstanceRef) -> cloud.Instance:
        if ref.provider_id:
            match = PROVIDER_ID.fullmatch(ref.provider_id)
            if match is None:
                raise Conflict(f"providerID {ref.provider_id!r} is not of the form sim://REGION/i-…")
            path = f"/instances/{match['id']}"
            return _instance(await self._api.call("GET", path, Instance, missing="instance_not_found"))
        named = await self._api.list("/instances", Instance, [("name", ref.node_name)])
        if not named:
            raise NotFound(f"project {self._api.settings.project} has no instance named {ref.node_name!r}")
        if len(named) > 1:
            ids = ", ".join(row.id for row in named)
            raise Conflict(f"{len(named)} instances are named {ref.node_name!r} ({ids}): rename all but one")
        return _instance(named[0])

    def owns(self, provider_id: str) -> bool:
        match = PROVIDER_ID.fullmatch(provider_id)
        return match is not None and self._api.region in ("", match["region"])


class SimLoadBalancers:
    """A load balancer is found only by its ownership tags. A name that is already taken is a Conflict."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        rows = await self._api.list("/load-balancers", LoadBalancer, [("tag", f"cluster:{cluster}")])
        found = []
        for number, row in enumerate(rows, 1):
            if "service_uid" in row.tags:
                found.append(_load_balancer(row))
            if number % STRETCH == 0:
                await asyncio.sleep(0)
        return found

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Return two halves, so that `update_backends` cannot claim to have written other changes of the spec."""
        return f"{_digest(_wanted(spec) | {'ip': spec.load_balancer_ip})}-{_digest_of(backends)}"

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        found = await self._find(spec)
        if found.state == "error":
            raise Conflict(f"load balancer {found.id} failed in the cloud: {found.reason or 'no reason given'}")
        return _load_balancer(found)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        """Raises RetryAfter while the cloud is busy with an earlier change. Returns once this change is written."""
        _check_supported(spec)
        wanted = _wanted(spec) | {"targets": _targets(backends)}
        fingerprint = self.fingerprint(spec, backends)
        try:
            found = await self._find(spec)
            if found.state == "error":
                await self.delete(spec)  # the only change that this cloud allows
                raise NotFound(f"load balancer {found.id} failed in the cloud and is being deleted")
        except NotFound:
            tags = {"cluster": spec.cluster, "service_uid": spec.uid, "fingerprint": fingerprint}
            body = wanted | {"name": spec.default_name, "ip": spec.load_balancer_ip, "tags": tags}
            row = await self._api.call("POST", "/load-balancers", LoadBalancer, body=body)
            return _load_balancer(row, (*ipv4_only(spec), *_nobody(backends)))
        if spec.load_balancer_ip not in ("", found.ip):
            raise Conflict(
                f"load balancer {found.id} has the address {found.ip}, and this cloud cannot change it to "
                f"{spec.load_balancer_ip}: delete the Service and create it again"
            )
        if found.state == "deleting":
            raise RetryAfter(f"load balancer {found.id} is being deleted", POLL)
        if found.tags.get("fingerprint") == fingerprint:
            return _load_balancer(found, (*ipv4_only(spec), *_nobody(backends)))
        body = wanted | {"tags": {"fingerprint": fingerprint}}
        path = f"/load-balancers/{found.id}"
        row = await self._api.call("PATCH", path, LoadBalancer, body=body, missing=GONE)
        return _load_balancer(row, (*ipv4_only(spec), *_nobody(backends)))

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        found = await self._find(spec)
        written = found.tags.get("fingerprint", "").partition("-")[0]
        body = {
            "targets": _targets(backends),
            "tags": {"fingerprint": f"{written}-{_digest_of(backends)}"},
        }
        path = f"/load-balancers/{found.id}/targets"
        row = await self._api.call("PUT", path, LoadBalancer, body=body, missing=GONE)
        return _load_balancer(row, _nobody(backends))

    async def delete(self, spec: LoadBalancerSpec) -> None:
        found = await self._find(spec)
        path = f"/load-balancers/{found.id}"
        if await self._api.call("DELETE", path, LoadBalancer | None, missing=GONE) is None:  # type: ignore[arg-type]
            return
        raise RetryAfter(f"load balancer {found.id} is being deleted", POLL)

    async def _find(self, spec: LoadBalancerSpec) -> LoadBalancer:
        tags = [("tag", f"cluster:{spec.cluster}"), ("tag", f"service_uid:{spec.uid}")]
        found = await self._api.list("/load-balancers", LoadBalancer, tags)
        if not found:
            raise NotFound(f"cluster {spec.cluster!r} has no load balancer for Service {spec.namespace}/{spec.name}")
        if len(found) > 1:
            ids = ", ".join(row.id for row in found)
            raise Conflict(
                f"{len(found)} load balancers ({ids}) have the tags of Service {spec.namespace}/{spec.name}: "
                "delete all but one"
            )
        return found[0]


class SimRoutes:
    concurrency = 10

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, cluster: str) -> Sequence[cloud.Route]:
        rows = await self._api.list("/routes", Route)
        return [_route(row) for row in rows]

    async def create(self, cluster: str, route: cloud.Route) -> None:
        match = PROVIDER_ID.fullmatch(route.provider_id)
        if match is None:
            raise Invalid(f"route to {route.destination}: {route.provider_id!r} is not an instance of this cloud")
        body = {"destination": route.destination, "instance_id": match["id"], "owner": cluster}
        await self._api.call("POST", "/routes", Route, body=body)

    async def delete(self, cluster: str, route: cloud.Route) -> None:
        try:
            await self._api.call("DELETE", f"/routes/{route.id}", type(None), missing="route_not_found")
        except NotFound:
            return


class SimVolumes:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def labels(self, ref: VolumeRef) -> Mapping[str, str]:
        if ref.driver != CSI_DRIVER:
            raise NotImplementedByCloud(
                f"volumes of driver {ref.driver!r} do not belong to this cloud (its driver is {CSI_DRIVER!r})"
            )
        if not VOLUME_ID.fullmatch(ref.handle):
            raise Invalid(f"volume handle {ref.handle!r} is not of the form v-…")
        row = await self._api.call("GET", f"/volumes/{ref.handle}", Volume, missing="volume_not_found")
        return {"topology.kubernetes.io/zone": row.zone, "topology.kubernetes.io/region": row.region}


class SimInstanceTags:
    """This cloud has labels, which are also labels of the Node outside of the domains of Kubernetes."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self) -> Mapping[str, Mapping[str, str]]:
        rows = await self._api.list("/instances", Instance)
        return {f"sim://{row.region}/{row.id}": row.labels for row in rows}

    async def add(self, provider_id: str, tags: Mapping[str, str]) -> None:
        match = PROVIDER_ID.fullmatch(provider_id)
        if match is None:
            raise Conflict(f"providerID {provider_id!r} is not of the form sim://REGION/i-…")
        path, body = f"/instances/{match['id']}/labels", {"labels": dict(tags)}
        await self._api.call("POST", path, Instance, body=body, missing="instance_not_found")


class SimQuotas:
    """This cloud says of each limited kind how many there are."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self) -> list[cloud.Quota]:
        found = await self._api.call("GET", "/quotas", Quotas)
        return [cloud.Quota(each.kind, each.used, each.limit) for each in found.items]


# Conversions between the cloud's objects and the contract's. No I/O.


def _instance(row: Instance) -> cloud.Instance:
    return cloud.Instance(
        provider_id=f"sim://{row.region}/{row.id}",
        name=row.name,
        type=row.type,
        zone=row.zone,
        region=row.region,
        addresses=tuple(cloud.Address(each.type, each.address) for each in row.addresses),
        state=cloud.InstanceState.RUNNING if row.state == "running" else cloud.InstanceState.SHUTDOWN,
        labels=row.labels,
        pod_cidrs=row.pod_cidrs,
    )


def _route(row: Route) -> cloud.Route:
    blackhole = row.state == "blackhole"
    provider_id = "" if blackhole else f"sim://{row.region}/{row.instance_id}"
    return cloud.Route(row.destination, provider_id, row.id, blackhole, row.owner)


def _load_balancer(row: LoadBalancer, warnings: tuple[str, ...] = ()) -> cloud.LoadBalancer:
    """The address is published once it answers. `Proxy`: nodes see the node port as the destination."""
    ready = row.state == "active"
    return cloud.LoadBalancer(
        service_uid=row.tags.get("service_uid", ""),
        name=row.name,
        ingress=(Ingress(ip=row.ip, ip_mode="Proxy"),) if row.state in ("active", "updating") else (),
        fingerprint=row.tags.get("fingerprint", ""),
        ready=ready,
        warnings=warnings,
    )


def _check_supported(spec: LoadBalancerSpec) -> None:
    """Raises NotImplementedByCloud, Invalid."""
    for port in spec.ports:
        if port.protocol not in ("TCP", "UDP"):
            raise NotImplementedByCloud(
                f"port {port.port}: load balancers of this cloud forward only TCP and UDP, not {port.protocol}"
            )
    require_node_ports(spec)
    ipv4_ranges(spec)
    if "IPv4" not in spec.ip_families:
        raise NotImplementedByCloud("load balancers of this cloud have only IPv4 addresses")


def _wanted(spec: LoadBalancerSpec) -> dict[str, Any]:
    """Return everything that is written for a Service, except its targets."""
    health = {"node_port": spec.health_check_node_port} if spec.health_check_node_port else None
    return {
        "ports": [
            {"name": port.name, "protocol": port.protocol, "port": port.port, "node_port": port.node_port}
            for port in spec.ports
        ],
        "source_ranges": sorted(spec.source_ranges),
        "session_affinity": spec.session_affinity,
        "health_check": health,
    }


def _nobody(backends: Sequence[Backend]) -> tuple[str, ...]:
    return nobody_serves(backends, _targets(backends))


def _digest_of(backends: Sequence[Backend]) -> str:
    return Backends.of(backends).once("sim digest of targets", lambda each: _digest(_targets(each)))


def _targets(backends: Sequence[Backend]) -> tuple[Mapping[str, str], ...]:
    """Return sorted targets, because order has no meaning, without Nodes of other clouds or without address."""
    return Backends.of(backends).recent("sim targets", _all_targets)


def _all_targets(backends: Sequence[Backend]) -> tuple[Mapping[str, str], ...]:
    matches = [(PROVIDER_ID.fullmatch(backend.provider_id), backend.internal_ip) for backend in backends]
    return tuple(
        {"instance_id": id_, "address": address}
        for id_, address in sorted((match["id"], address) for match, address in matches if match and address)
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
