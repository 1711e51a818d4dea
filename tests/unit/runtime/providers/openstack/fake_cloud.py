# SPDX-License-Identifier: Apache-2.0
"""A small OpenStack over HTTP with realistic answers, for tests of decisions, mappings and counts of calls.

tests/clouds/openstack uses the real services.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import web

from ccm.cloud import ProviderConfig
from ccm.providers.openstack import OpenStackCloud
from tests.listening import listening

PROJECT, ROUTER, NETWORK = "5b3c0f2a9d7e4c1b8a6f0e1d2c3b4a59", str(uuid.uuid5(uuid.NAMESPACE_DNS, "router")), "net-1"
CONFIG = """[Global]
auth-url = {url}/identity/v3
username = ccm
password = very-secret
user-domain-name = Default
tenant-id = {project}
region = north
{more}
"""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeCloud:
    """An OpenStack cloud.

    `calls`: requests after login and discovery, as "METHOD service path". `queries`: the query of each call. `answer`:
    handlers of the test, by a pattern for the text of a call.
    """

    def __init__(self) -> None:
        self.servers: list[dict[str, Any]] = []
        self.ports: list[dict[str, Any]] = []
        self.networks: list[dict[str, Any]] = []
        self.subnets: list[dict[str, Any]] = [{"id": "s", "cidr": "10.0.0.0/24"}]
        self.volumes: dict[str, dict[str, Any]] = {}
        self.flavors: list[dict[str, Any]] = []
        self.routes: list[dict[str, str]] = []
        self.extensions = ["extraroute", "extraroute-atomic", "allowed-address-pairs", "revision-if-match"]
        self.router_revision = 1
        self.services = ["compute", "network", "load-balancer", "block-storage"]
        self.page = 1000
        self.tokens = 0
        self.logins = 0
        self.microversion = "2.96"
        self.calls: list[str] = []
        self.queries: list[list[tuple[str, str]]] = []
        self.bodies: list[Any] = []
        self.answer: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse] | web.StreamResponse]] = {}
        self.url = ""

    # What exists.

    def add_server(self, name: str, *addresses: str, **more: Any) -> dict[str, Any]:
        id = str(uuid.uuid4())
        server = {
            "id": id,
            "name": name,
            "status": "ACTIVE",
            "created": "2026-01-01T00:00:00Z",
            "accessIPv4": "",
            "accessIPv6": "",
            "metadata": {},
            "flavor": {"original_name": "m1.small", "vcpus": 1},
            "OS-EXT-AZ:availability_zone": "zone-a",
            "addresses": {"private": [{"addr": each, "version": 4, "OS-EXT-IPS:type": "fixed"} for each in addresses]},
            **more,
        }
        self.servers.append(server)
        for address in addresses:
            self.add_port(id, address)
        return server

    def add_port(self, device: str, *addresses: str, owner: str = "compute:zone-a", **more: Any) -> dict[str, Any]:
        port = {
            "id": str(uuid.uuid4()),
            "device_id": device,
            "device_owner": owner,
            "network_id": NETWORK,
            "status": "ACTIVE",
            "fixed_ips": [{"subnet_id": "s", "ip_address": each} for each in addresses],
            "allowed_address_pairs": [],
            "port_security_enabled": True,
            "revision_number": 3,
            "project_id": PROJECT,
            **more,
        }
        self.ports.append(port)
        return port

    # The services.

    @property
    def handlers(self) -> tuple[web.RouteDef, ...]:
        return (
            web.route("*", "/identity/v3{rest:.*}", self._identity),
            web.route("*", "/{service}/{version:v[0-9.]+}{rest:.*}", self._service),
            web.get("/{service}/", self._versions),
            web.get("/{service}", self._versions),
        )

    async def _identity(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            version = {
                "id": "v3.14",
                "status": "stable",
                "links": [{"rel": "self", "href": f"{self.url}/identity/v3/"}],
            }
            return web.json_response({"version": version})
        self.logins += 1
        if own := self.answer.get("login"):
            given = own(request)
            return await given if isinstance(given, Awaitable) else given
        self.tokens += 1
        catalog = [
            {
                "type": kind,
                "name": kind,
                "id": kind,
                "endpoints": [
                    {"id": kind, "interface": "public", "region": "north", "region_id": "north", "url": self._at(kind)}
                ],
            }
            for kind in self.services
        ]
        token = {
            "methods": ["password"],
            "user": {"id": "u", "name": "ccm", "domain": {"id": "default", "name": "Default"}},
            "project": {"id": PROJECT, "name": "p", "domain": {"id": "default", "name": "Default"}},
            "roles": [{"id": "m", "name": "member"}],
            "catalog": catalog,
            "issued_at": "2026-11-21T00:00:00.000000Z",
            "expires_at": "2099-11-21T00:00:00.000000Z",
        }
        headers = {"X-Subject-Token": f"token-{self.tokens}"}
        return web.json_response({"token": token}, status=201, headers=headers)

    def _at(self, kind: str) -> str:
        return f"{self.url}/{kind}/v2.1" if kind == "compute" else f"{self.url}/{kind}"

    async def _versions(self, request: web.Request) -> web.StreamResponse:
        kind = request.match_info["service"]
        id = {"network": "v2.0", "load-balancer": "v2.27", "block-storage": "v3.0"}[kind]
        path = {"load-balancer": "v2", "block-storage": "v3"}.get(kind, id)
        link = {"rel": "self", "href": f"{self.url}/{kind}/{path}"}
        return web.json_response({"versions": [{"id": id, "status": "CURRENT", "links": [link]}]})

    async def _service(self, request: web.Request) -> web.StreamResponse:
        service, rest = request.match_info["service"], request.match_info["rest"]
        if rest in ("", "/"):
            link = {"rel": "self", "href": f"{self.url}/compute/v2.1/"}
            version = {
                "id": "v2.1",
                "status": "CURRENT",
                "version": self.microversion,
                "min_version": "2.1",
                "links": [link],
            }
            return web.json_response({"version": version})
        what = f"{request.method} {service} {rest}"
        self.calls.append(what)
        self.queries.append(list(request.query.items()))
        self.bodies.append(await request.json() if request.can_read_body else None)
        for pattern, own in self.answer.items():
            if re.fullmatch(pattern, what):
                given = own(request)
                return await given if isinstance(given, Awaitable) else given
        if request.headers.get("X-Auth-Token") != f"token-{self.tokens}":
            return web.json_response({"error": {"code": 401, "message": "token is not valid"}}, status=401)
        match request.method, service, rest.strip("/").split("/"):
            case "GET", "compute", ["servers", "detail"]:
                return self._page(request, "servers", self._named(request))
            case "GET", "compute", ["servers", id]:
                return self._one("server", next((each for each in self.servers if each["id"] == id), None), id)
            case "GET", "compute", ["flavors"]:
                return self._page(request, "flavors", self.flavors)
            case "GET", "network", ["extensions"]:
                return web.json_response({"extensions": [{"alias": each} for each in self.extensions]})
            case "GET", "network", ["ports"]:
                wanted = request.query.getall("device_id", [])
                ports = [each for each in self.ports if not wanted or each["device_id"] in wanted]
                return self._page(request, "ports", ports)
            case "GET", "network", ["subnets"]:
                wanted = request.query.getall("id", [])
                return self._page(request, "subnets", [each for each in self.subnets if each["id"] in wanted])
            case "GET", "network", ["networks"]:
                wanted = request.query.getall("id", [])
                return self._page(request, "networks", [each for each in self.networks if each["id"] in wanted])
            case "PUT", "network", ["ports", id]:
                port = next(each for each in self.ports if each["id"] == id)
                port |= self.bodies[-1]["port"]
                return web.json_response({"port": port})
            case "GET", "network", ["routers", id] if id == ROUTER:
                return web.json_response({"router": self._router()})
            case "PUT", "network", ["routers", id, verb] if id == ROUTER:
                told = self.bodies[-1]["router"]["routes"]
                self.routes = [each for each in self.routes if each not in told]
                self.routes += told if verb == "add_extraroutes" else []
                return web.json_response({"router": self._router()})
            case "PUT", "network", ["routers", id] if id == ROUTER:
                if request.headers.get("If-Match", "") != f"revision_number={self.router_revision}":
                    error = {"type": "RevisionNumberConstraintFailed", "message": "constraint"}
                    return web.json_response({"NeutronError": error}, status=412)
                self.router_revision += 1
                self.routes = self.bodies[-1]["router"]["routes"]
                return web.json_response({"router": self._router()})
            case "GET", "block-storage", ["volumes", id]:
                return self._one("volume", self.volumes.get(id), id)
        return web.json_response(
            {"itemNotFound": {"code": 404, "message": "The resource could not be found."}}, status=404
        )

    def _router(self) -> dict[str, Any]:
        return {"id": ROUTER, "routes": self.routes, "revision_number": self.router_revision}

    def _named(self, request: web.Request) -> list[dict[str, Any]]:
        """Return the servers whose name matches the query's pattern: as with MySQL's REGEXP, case does not matter."""
        pattern = request.query.get("name", "")
        return [each for each in self.servers if re.search(pattern, str(each.get("name")), re.IGNORECASE)]

    def _one(self, kind: str, row: dict[str, Any] | None, id: str) -> web.Response:
        if row is None:
            message = f"{kind.capitalize()} {id} could not be found."
            return web.json_response({"itemNotFound": {"code": 404, "message": message}}, status=404)
        return web.json_response({kind: row})

    def _page(self, request: web.Request, kind: str, rows: list[dict[str, Any]]) -> web.Response:
        size = min(self.page, int(request.query["limit"]))
        marker = request.query.get("marker")
        start = next((index + 1 for index, each in enumerate(rows) if each["id"] == marker), 0)
        answer: dict[str, Any] = {kind: rows[start : start + size]}
        if len(answer[kind]) == size:  # as nova does, even if no page follows
            answer[f"{kind}_links"] = [{"rel": "next", "href": "http://elsewhere/"}]
        return web.json_response(answer)


@contextlib.asynccontextmanager
async def serving(cloud: FakeCloud) -> AsyncIterator[FakeCloud]:
    async with listening(*cloud.handlers) as cloud.url:
        yield cloud


@contextlib.asynccontextmanager
async def running(cloud: FakeCloud | None = None, more: str = "") -> AsyncIterator[tuple[FakeCloud, OpenStackCloud]]:
    """Serve the cloud and start a provider for it. `more`: lines of cloud.conf, those of [Global] first."""
    async with serving(cloud or FakeCloud()) as served:
        text = CONFIG.format(url=served.url, project=PROJECT, more=more)
        provider = OpenStackCloud(ProviderConfig(text, "cloud.conf"))
        try:
            await provider.start()
            yield served, provider
        finally:
            await provider.close()
            await asyncio.sleep(0)
