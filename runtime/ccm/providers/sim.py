# SPDX-License-Identifier: Apache-2.0
"""The provider of the simulated cloud (docs/providers/sim.md), and the example to copy for a provider of one's own.

It shows all there is to do: read the configuration with all its problems (`Settings`), speak HTTP and turn every way
of failing into the contract's errors (`Api`), and one small class for each capability. What it leaves out is the
framework's job: batching, caching, retries, rate limits.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
import yaml
from msgspec import Struct

from ccm import cloud
from ccm.cloud import (
    Backend,
    Backends,
    CloudError,
    ConfigError,
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
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
    VolumeRef,
)

T = TypeVar("T")
Query = Sequence[tuple[str, str]]

PROVIDER_ID = re.compile(r"sim://(?P<region>[a-z0-9][a-z0-9-]*)/(?P<id>i-[0-9a-f]{12})")
VOLUME_ID = re.compile(r"v-[0-9a-f]{12}")
CSI_DRIVER = "sim.ccm.outoftree.dev"
GONE = "load_balancer_not_found"
#: When to ask again about a load balancer that the cloud works on, in seconds.
POLL = 1.0
#: What a project bears when cloud.conf does not say.
BEARS = Limits()


class SimCloud(cloud.Cloud):
    name: ClassVar[str] = "sim"
    instances: SimInstances
    load_balancers: SimLoadBalancers
    routes: SimRoutes
    volumes: SimVolumes

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = Settings.parse(config)
        self.limits = Limits(
            settings.calls_per_second, settings.burst, settings.concurrency, listing_lag=settings.listing_lag
        )
        self._api = Api(settings)
        self.instances = SimInstances(self._api)
        self.load_balancers = SimLoadBalancers(self._api)
        self.routes = SimRoutes(self._api)
        self.volumes = SimVolumes(self._api)

    async def start(self) -> None:
        await self._api.open()

    async def close(self) -> None:
        await self._api.close()


class Settings(Struct, frozen=True):
    """cloud.conf. `token`: the project's own, inline or in a file that is read again whenever it is needed.

    `calls_per_second`, `burst`, `concurrency`, `listing_lag`: what the project bears (`cloud.Limits`).
    """

    source: str
    endpoint: str
    project: str
    token: str = ""
    token_file: str = ""
    page_size: int = 1000
    timeout: float = 10.0
    ca_file: str = ""
    calls_per_second: float = BEARS.calls_per_second
    burst: int = BEARS.burst
    concurrency: int = BEARS.concurrency
    listing_lag: float = BEARS.listing_lag

    def __repr__(self) -> str:
        return f"Settings({self.source}: {self.endpoint}, project {self.project!r})"  # the token stays out of logs

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Raises ConfigError with every problem, each naming the file and the key, never a value that may be secret."""
        try:
            given = yaml.safe_load(config.text) or {}
        except (yaml.YAMLError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            raise ConfigError([f"{config.source}: not YAML{f', line {mark.line + 1}' if mark else ''}"]) from None
        if not isinstance(given, dict):
            raise ConfigError([f"{config.source}: expected keys and values (endpoint, project, token)"])
        fields = {field.name: field for field in msgspec.structs.fields(cls) if field.name != "source"}
        problems = [f"{key}: unknown key; known are {', '.join(fields)}" for key in given if key not in fields]
        for name, field in fields.items():
            if name not in given:
                problems += [f"{name}: is missing"] if field.required else []
            elif not isinstance(given[name], float | int if field.type is float else field.type) or given[name] is True:
                problems.append(f"{name}: expected {'text' if field.type is str else 'a number'}")
            elif field.type is str and not given[name]:
                problems.append(f"{name}: is empty")
            elif field.type is not str and given[name] <= 0:
                problems.append(f"{name}: must be greater than 0")
        endpoint = given.get("endpoint")
        if isinstance(endpoint, str) and endpoint and not _is_http_url(endpoint):
            problems.append("endpoint: expected http://HOST:PORT or https://HOST:PORT, without credentials")
        if ("token" in given) == ("token_file" in given):
            problems.append("token, token_file: exactly one of them is needed")
        if problems:
            raise ConfigError([f"{config.source}: {problem}" for problem in problems])
        return cls(config.source, **given)


class Api:
    """The cloud's HTTP API: one `call` is one request, and whatever goes wrong is a CloudError."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.region = ""
        self._session: aiohttp.ClientSession | None = None
        self._access_token = ""
        self._renewing = asyncio.Lock()

    async def open(self) -> None:
        """Prove the credentials with the cheapest call, and learn which region this is."""
        tls: ssl.SSLContext | bool = True
        if self.settings.ca_file:
            try:
                tls = ssl.create_default_context(cafile=self.settings.ca_file)
            except OSError as error:
                raise ConfigError([f"{self.settings.source}: ca_file: {self.settings.ca_file}: {error}"]) from None
        timeout = aiohttp.ClientTimeout(total=self.settings.timeout)
        await self.close()  # of an earlier attempt
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=tls, limit=0))
        self.region = (await self.call("GET", "", Project)).region

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, path: str, answer: type[T], *, query: Query = (), body: Any = None, missing: str = ""
    ) -> T:
        """One call in the project. Only the error code `missing` means NotFound: a 404 of a proxy proves nothing.

        An access token that the cloud no longer takes is renewed, once.
        """
        path = f"/v1/projects/{quote(self.settings.project, safe='')}{path}"
        token = self._access_token or await self._renew("")
        reply = await self._send(method, path, token, query, body)
        if reply.status == 401:
            token = await self._renew(token)
            reply = await self._send(method, path, token, query, body)
        return self._read(reply, answer, missing)

    async def list(self, path: str, item: type[T], query: Query = ()) -> list[T]:
        """All pages. Raises Transient when they do not add up to the total that the cloud names."""
        found: dict[str, T] = {}
        listing, asked = await self.page(path, item, query, None), None
        while True:
            found.update((row.id, row) for row in listing.items)  # type: ignore[attr-defined]
            if listing.next_page_token in (None, asked):
                break
            asked = listing.next_page_token
            listing = await self.page(path, item, query, asked)
        if len(found) < listing.total:
            raise Transient(f"{path}: {len(found)} of {listing.total} came: the listing is incomplete")
        return list(found.values())

    async def page(self, path: str, item: type[T], query: Query, token: str | None) -> Listing[T]:
        paging = [("page_size", str(self.settings.page_size)), *([("page_token", token)] if token else [])]
        return await self.call("GET", path, Listing[item], query=[*query, *paging])  # type: ignore[valid-type]

    async def _renew(self, refused: str) -> str:
        """A new access token for the project's token, unless another call got one since `refused` was in use."""
        async with self._renewing:
            if self._access_token == refused:
                self._access_token = ""
                body = {"project": self.settings.project, "token": self._project_token()}
                reply = await self._send("POST", "/v1/tokens", "", (), body)
                self._access_token = self._read(reply, Access).access_token
            return self._access_token

    def _project_token(self) -> str:
        path = self.settings.token_file
        if not path:
            return self.settings.token
        try:
            return Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise Unauthorized(f"{self.settings.source}: token_file {path}: {reason}") from None

    async def _send(self, method: str, path: str, token: str, query: Query, body: Any) -> Reply:
        """Raises Transient when there is no answer at all."""
        if self._session is None:
            raise Transient("the provider was not started")
        endpoint, what = self.settings.endpoint.rstrip("/"), f"{method} {path}"
        options: dict[str, Any] = {"params": query, "allow_redirects": False}
        if token:
            options["headers"] = {"Authorization": f"Bearer {token}"}
        if body is not None:
            options["data"] = msgspec.json.encode(body)
        try:
            async with self._session.request(method, endpoint + path, **options) as response:
                return Reply(what, response.status, response.headers, await response.read())
        except TimeoutError:
            raise Transient(f"{what}: no answer from {endpoint} within {self.settings.timeout:g} s") from None
        except aiohttp.ClientError as error:
            raise Transient(f"{what}: {endpoint}: {type(error).__name__}: {error}") from None

    def _read(self, reply: Reply, answer: type[T], missing: str = "") -> T:
        if not 200 <= reply.status < 300:
            raise self._error(reply, missing)
        try:
            return msgspec.json.decode(reply.body or b"null", type=answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            size = len(reply.body)
            raise Transient(f"{reply.what}: the answer ({size} bytes) cannot be read: {error}") from None

    def _error(self, reply: Reply, missing: str) -> CloudError:
        """The contract's error for an answer that is none."""
        try:
            error = msgspec.json.decode(reply.body, type=Failure).error
        except (msgspec.MsgspecError, UnicodeDecodeError):
            error = FailureDetail("no error of this cloud", "is a proxy in between?")
        text = f"{reply.what}: {reply.status} {error.code}: {error.message}"
        match reply.status, error.code:
            case 404, code if missing and code == missing:
                return NotFound(text)
            case 403, "quota_exceeded":
                return QuotaExceeded(text)
            case 401 | 403, _:
                key = "token_file" if self.settings.token_file else "token"
                return Unauthorized(f"{text}. Check project and {key} in {self.settings.source}, and what they may do")
            case 409, "busy" | "already_exists":  # the second: ours, but not in the listing yet
                return RetryAfter(text, POLL)
            case 409, _:
                return Conflict(text)
            case 400 | 422, "invalid":
                return Invalid(text)
            case 429, _:
                wait = reply.headers.get("Retry-After", "")
                return RateLimited(text, retry_after=float(wait) if re.fullmatch(r"\d+(\.\d+)?", wait) else None)
        return Transient(text)


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
            raise Conflict(f"{len(named)} instances are named {ref.node_name!r} ({ids})")
        return _instance(named[0])

    def owns(self, provider_id: str) -> bool:
        match = PROVIDER_ID.fullmatch(provider_id)
        return match is not None and self._api.region in ("", match["region"])


class SimLoadBalancers:
    """A load balancer is found by its ownership tags alone; a name that somebody else took is a Conflict."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        rows = await self._api.list("/load-balancers", LoadBalancer, [("tag", f"cluster:{cluster}")])
        return [_load_balancer(row) for row in rows if "service_uid" in row.tags]

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Two halves, so that `update_backends` cannot claim to have written what else changed in the spec."""
        return f"{_digest(_wanted(spec))}-{_digest_of(backends)}"

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        found = await self._find(spec)
        if found.state == "error":
            raise Conflict(f"load balancer {found.id} failed in the cloud: {found.reason or 'no reason given'}")
        return _load_balancer(found)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        """Raises RetryAfter when the cloud is busy with an earlier change: an answer means that this one is written."""
        _check_supported(spec)
        wanted = _wanted(spec) | {"targets": _targets(backends)}
        fingerprint = self.fingerprint(spec, backends)
        try:
            found = await self._find(spec)
            if found.state == "error":
                await self.delete(spec)  # all that this cloud lets do with it
                raise NotFound(f"load balancer {found.id} failed in the cloud and is deleted")
        except NotFound:
            tags = {"cluster": spec.cluster, "service_uid": spec.uid, "fingerprint": fingerprint}
            body = wanted | {"name": spec.default_name, "ip": spec.load_balancer_ip, "tags": tags}
            return _load_balancer(await self._api.call("POST", "/load-balancers", LoadBalancer, body=body))
        if spec.load_balancer_ip not in ("", found.ip):
            raise Conflict(
                f"load balancer {found.id} has the address {found.ip}, and this cloud cannot change it to "
                f"{spec.load_balancer_ip}: delete the Service and create it again"
            )
        if found.state == "deleting":
            raise RetryAfter(f"load balancer {found.id} is being deleted", POLL)
        if found.tags.get("fingerprint") == fingerprint:
            return _load_balancer(found)
        body = wanted | {"tags": {"fingerprint": fingerprint}}
        path = f"/load-balancers/{found.id}"
        return _load_balancer(await self._api.call("PATCH", path, LoadBalancer, body=body, missing=GONE))

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        found = await self._find(spec)
        written = found.tags.get("fingerprint", "").partition("-")[0]
        body = {
            "targets": _targets(backends),
            "tags": {"fingerprint": f"{written}-{_digest_of(backends)}"},
        }
        path = f"/load-balancers/{found.id}/targets"
        return _load_balancer(await self._api.call("PUT", path, LoadBalancer, body=body, missing=GONE))

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
                f"{len(found)} load balancers ({ids}) carry the tags of Service {spec.namespace}/{spec.name}"
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
            raise Invalid(f"route to {route.destination}: {route.provider_id!r} is no instance of this cloud")
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
                f"volumes of {ref.driver!r} are not of this cloud (its driver is {CSI_DRIVER!r})"
            )
        if not VOLUME_ID.fullmatch(ref.handle):
            raise Invalid(f"volume handle {ref.handle!r} is not of the form v-…")
        row = await self._api.call("GET", f"/volumes/{ref.handle}", Volume, missing="volume_not_found")
        return {"topology.kubernetes.io/zone": row.zone, "topology.kubernetes.io/region": row.region}


# What the cloud sends; fields that nobody needs are left out.


class Reply(NamedTuple):
    """An answer as it came; `what` was asked, for messages."""

    what: str
    status: int
    headers: Mapping[str, str]
    body: bytes


class Access(Struct, frozen=True):
    access_token: str


class FailureDetail(Struct, frozen=True):
    code: str
    message: str


class Failure(Struct, frozen=True):
    error: FailureDetail


class Project(Struct, frozen=True):
    region: str


class Listing(Struct, Generic[T], frozen=True):
    items: list[T]
    total: int
    next_page_token: str | None


class Address(Struct, frozen=True):
    type: cloud.AddressType
    address: str


class Instance(Struct, frozen=True):
    id: str
    name: str
    type: str
    region: str
    zone: str
    addresses: tuple[Address, ...]
    labels: dict[str, str]
    state: str


class LoadBalancer(Struct, frozen=True):
    id: str
    name: str
    ip: str
    state: str
    tags: dict[str, str]
    reason: str = ""


class Route(Struct, frozen=True):
    id: str
    region: str
    destination: str
    instance_id: str
    state: str
    owner: str = ""


class Volume(Struct, frozen=True):
    id: str
    region: str
    zone: str


# From the cloud's things to the contract's and back. Pure.


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
    )


def _route(row: Route) -> cloud.Route:
    blackhole = row.state == "blackhole"
    provider_id = "" if blackhole else f"sim://{row.region}/{row.instance_id}"
    return cloud.Route(row.destination, provider_id, row.id, blackhole, row.owner)


def _load_balancer(row: LoadBalancer) -> cloud.LoadBalancer:
    """The address counts only once something answers there. `Proxy`: nodes see the node port as the destination."""
    ready = row.state == "active"
    return cloud.LoadBalancer(
        service_uid=row.tags.get("service_uid", ""),
        name=row.name,
        ingress=(Ingress(ip=row.ip, ip_mode="Proxy"),) if row.state in ("active", "updating") else (),
        fingerprint=row.tags.get("fingerprint", ""),
        ready=ready,
    )


def _check_supported(spec: LoadBalancerSpec) -> None:
    """Raises NotImplementedByCloud."""
    for port in spec.ports:
        if port.protocol not in ("TCP", "UDP"):
            raise NotImplementedByCloud(
                f"port {port.port}: load balancers of this cloud forward TCP and UDP, not {port.protocol}"
            )
    if "IPv4" not in spec.ip_families:
        raise NotImplementedByCloud("load balancers of this cloud have IPv4 addresses only")


def _wanted(spec: LoadBalancerSpec) -> dict[str, Any]:
    """All that is written of a Service except its targets."""
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


def _digest_of(backends: Sequence[Backend]) -> str:
    return Backends.of(backends).once("sim targets", lambda each: _digest(_targets(each)))


def _targets(backends: Sequence[Backend]) -> list[dict[str, str]]:
    """Sorted: the order of backends means nothing. Nodes of other clouds and those without an address are left out."""
    matches = [(PROVIDER_ID.fullmatch(backend.provider_id), backend.internal_ip) for backend in backends]
    return [
        {"instance_id": id_, "address": address}
        for id_, address in sorted((match["id"], address) for match, address in matches if match and address)
    ]


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and "@" not in url.netloc and url.port != 0
    except ValueError:
        return False
