# SPDX-License-Identifier: Apache-2.0
"""HTTP calls to the cloud's services, and the mapping of their failures.

openstacksdk (with keystoneauth) reads clouds.yaml, logs in, renews the token once if the cloud refuses it, and finds
the services' addresses and versions. The calls themselves are plain REST: this provider needs only two listings for all
Nodes, and the SDK's objects would need more calls. The SDK blocks, so its functions run in threads (`BlockingCalls`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ccm.cloud import BlockingCalls, CloudError, ConfigError, NotImplementedByCloud, Transient
from ccm.cloud.toolkit.retry_after import unix_time

from .credentials import cloud_region, secrets_of
from .errors import TIMEOUT, error_of, plain, translated
from .settings import Settings

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter
    from keystoneauth1.session import Session
    from openstack.config.cloud_region import CloudRegion

Params = Mapping[str, Any] | Sequence[tuple[str, str]]

COMPUTE, NETWORK, LOAD_BALANCER, BLOCK_STORAGE = "compute", "network", "load-balancer", "block-storage"
#: Service -> the supported major versions.
VERSIONS = {
    COMPUTE: ("2.1", "2.latest"),
    NETWORK: ("2", "2.latest"),
    LOAD_BALANCER: ("2", "2.latest"),
    BLOCK_STORAGE: ("3", "3.latest"),
}
#: Microversions. Since 2.47, a server includes its flavor, which saves a call for each server. Since 2.69, nova lists
#: the servers of a cell that is down, with few of their fields; older ones omit these servers as if they were deleted.
COMPUTE_VERSIONS = ("2.69", "2.47")
#: Number of services to which connections are kept open.
CONNECTED = 10
#: The extension with which neutron refuses a change if the object no longer has the revision that the change names.
IF_MATCH = "revision-if-match"
#: The maximum number of subnets that are remembered, which is many more than one cluster has.
REMEMBERED_SUBNETS = 1000


class Api:
    """The cloud's services in one project and region. `call` is one request, and every failure is a CloudError."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.region = settings.auth.region
        self.project_id = ""
        #: Seconds by which the cloud's clock is ahead of ours, according to its latest response.
        self.clock_ahead = 0.0
        self.deadline = settings.metadata.request_timeout + 2
        self._calls = BlockingCalls(
            "openstack",
            threads=2 * settings.runtime.concurrency,
            deadline=self.deadline,
            set_by=TIMEOUT,
            translate=self._translate,
        )
        self._region: CloudRegion | None = None
        self._secrets: tuple[str, ...] = ()
        self._session: Session | None = None
        self._adapters: dict[str, Adapter] = {}
        self._finding = {service: threading.Lock() for service in VERSIONS}
        self._extensions: dict[str, frozenset[str]] = {}

    def __repr__(self) -> str:
        return f"Api({self.settings.source})"

    async def open(self) -> None:
        """Log in, and check that the catalogue has the required services. Raises ConfigError and Unauthorized."""
        await self._calls.run(self._open)

    async def close(self) -> None:
        self._calls.close()
        if self._session is not None:
            self._session.session.close()

    async def call(
        self,
        method: str,
        service: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        missing: str = "",
    ) -> Any:
        """Send one request. Return the JSON of its response, None if empty. `path`: the URL after the version.

        `missing`: the ID in the path, "" if no 404 may mean NotFound. A 404 means NotFound only if it is the service's
        own and names that ID. A 404 of a proxy, or about anything else, proves nothing.
        """
        return await self._calls.run(self._request, method, service, path, params, body, headers, missing)

    async def pages(
        self, service: str, path: str, name: str, params: Params = (), *, missing: str = ""
    ) -> list[dict[str, Any]]:
        """Return all pages of a listing. Raises CloudError if one of them fails. `missing`: as for `call`."""
        every: list[dict[str, Any]] = []
        marker: str | None = None
        while True:
            rows, marker = await self.page(service, path, name, params, marker, missing=missing)
            every += rows
            if marker is None:
                return every

    async def page(
        self, service: str, path: str, name: str, params: Params, marker: str | None, *, missing: str = ""
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page, and the marker of the next one, None after the last one. `name`: the key of the list in the
        response. Raises CloudError; Transient for an answer without the list."""
        pairs = list(params.items()) if isinstance(params, Mapping) else list(params)
        pairs.append(("limit", str(self.settings.runtime.page_size)))
        if marker is not None:
            pairs.append(("marker", marker))
        answer = await self.call("GET", service, path, params=pairs, missing=missing)
        rows = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) and row.get("id") for row in rows):
            raise Transient(f"GET {service} {path}: the response has no list of {name}")
        links = answer.get(f"{name}_links") or []
        more = bool(rows) and any(isinstance(link, dict) and link.get("rel") == "next" for link in links)
        following = str(rows[-1]["id"]) if more else None
        if following is not None and following == marker:
            raise Transient(f"GET {service} {path}: the next page starts again at marker {marker}")
        return rows, following

    async def version(self, service: str) -> tuple[int, int]:
        """Return a service's newest API version. Raises Transient if the SDK found no version; the next call looks
        again."""
        version = await self._calls.run(lambda: self._adapter(service).get_api_major_version())
        if not version:
            raise Transient(f"{service} does not report its API version")
        return int(version[0]), int(version[1]) if len(version) > 1 else 0

    async def extensions(self) -> frozenset[str]:
        """Return the aliases of neutron's extensions. They are read once. Raises CloudError."""
        if (known := self._extensions.get(NETWORK)) is None:
            answer = await self.call("GET", NETWORK, "/extensions")
            try:
                known = frozenset(str(row["alias"]) for row in answer["extensions"])
            except (TypeError, KeyError):
                raise Transient("GET network /extensions: the response has no list of extensions") from None
            self._extensions[NETWORK] = known
        return known

    # Run in threads.

    def _open(self) -> None:
        import keystoneauth1.exceptions as failures
        from requests.adapters import HTTPAdapter

        region = self._region = cloud_region(self.settings)
        self._secrets = secrets_of(region)
        logging.getLogger("keystoneauth.session").addFilter(_is_no_body)
        session = self._session = region.get_session()
        session.user_agent = f"outoftree-ccm {session.user_agent or ''}".strip()
        for transport in session.session.adapters.values():
            assert isinstance(transport, HTTPAdapter)
            transport.init_poolmanager(CONNECTED, 2 * self.settings.runtime.concurrency)  # a connection for each thread
        self.project_id = session.get_project_id() or ""
        self.region = self.settings.auth.region or region.get_region_name() or ""
        required = [COMPUTE, NETWORK, *([LOAD_BALANCER] if self.settings.load_balancer.enabled else [])]
        if self.settings.runtime.regional and not self.region:
            raise ConfigError([f"{self.settings.source}: [Runtime] regional needs [Global] region"])
        absent = []
        for service in required:
            try:
                if not self._adapter_for(service).get_endpoint(skip_discovery=True):
                    absent.append(service)
            except failures.EndpointNotFound:
                absent.append(service)
        if absent:
            where = f"region {self.region!r}" if self.region else "any region"
            hint = " ([LoadBalancer] enabled=false turns load balancers off)" if LOAD_BALANCER in absent else ""
            what = f"{region.get_interface() or 'public'} endpoint of {', '.join(absent)}"
            raise ConfigError([f"{self.settings.source}: the catalogue has no {what} in {where}{hint}"])

    def _adapter(self, service: str) -> Adapter:
        """Return the service's adapter. Its address and versions are discovered on first use. Raises
        NotImplementedByCloud if the catalogue does not have the service."""
        from keystoneauth1.exceptions import EndpointNotFound

        with self._finding[service]:
            if service not in self._adapters:
                adapter = self._adapter_for(service)
                try:
                    adapter.get_endpoint()
                except EndpointNotFound as error:
                    raise NotImplementedByCloud(plain(error)) from None
                if service == COMPUTE:
                    adapter.default_microversion = _microversion(adapter)
                self._adapters[service] = adapter
            return self._adapters[service]

    def _adapter_for(self, service: str) -> Adapter:
        from keystoneauth1.adapter import Adapter

        if self._region is None:
            raise Transient("the provider has not been started")
        lowest, highest = VERSIONS[service]
        return Adapter(
            self._region.get_session(),
            service_type=self._region.get_service_type(service),
            interface=self._region.get_interface(service),
            region_name=self._region.get_region_name(service),
            endpoint_override=self._region.get_endpoint(service),
            min_version=lowest,
            max_version=highest,
            allow_version_hack=True,
            raise_exc=False,
        )

    def _request(
        self,
        method: str,
        service: str,
        path: str,
        params: Params | None,
        body: Any,
        headers: Mapping[str, str] | None,
        missing: str,
    ) -> Any:
        what = f"{method} {service} {path}"
        content = {} if body is None else {"Content-Type": "application/json"}
        response = self._adapter(service).request(
            path,
            method,
            raise_exc=False,
            params=params,
            headers={"Accept": "application/json", **content, **(headers or {})},
            redirect=False,
            connect_retries=0,
            status_code_retries=0,
            data=None if body is None else msgspec.json.encode(body),  # keystoneauth's encoder is ten times slower
        )
        if (date := unix_time(response.headers.get("Date", ""))) is not None:
            self.clock_ahead = date - time.time()
        if not 200 <= response.status_code < 300:
            secrets = self._secrets_of(response)
            raise error_of(what, service, response.status_code, response.headers, response.content, missing, secrets)
        if not response.content:
            return None
        try:
            return json.loads(response.content)
        except ValueError:
            raise Transient(f"{what}: the response ({len(response.content)} bytes) is not JSON") from None

    def _translate(self, error: Exception) -> CloudError:
        secrets = self._secrets_of(getattr(error, "response", None))
        return translated(error, self.settings.source, self.settings.metadata.request_timeout, secrets)

    def _secrets_of(self, response: Any) -> tuple[str, ...]:
        """Return the secrets that the request may have contained."""
        headers = getattr(getattr(response, "request", None), "headers", {})
        return (*self._secrets, str(headers.get("X-Auth-Token") or ""))


def _is_no_body(record: logging.LogRecord) -> bool:
    """Return whether a log record does not contain the body of a response. Records with a body are dropped, because a
    service or a proxy may quote the request, with its token, in the body."""
    return not record.getMessage().startswith("RESP BODY")


def _microversion(adapter: Adapter) -> str:
    from openstack.utils import maximum_supported_microversion

    for version in COMPUTE_VERSIONS:
        if maximum_supported_microversion(adapter, version) == version:
            return version
    raise ConfigError([f"nova of this cloud is too old: it must support microversion {COMPUTE_VERSIONS[-1]} (2017)"])


def of_project(api: Api) -> list[tuple[str, str]]:
    """Return parameters that limit a listing to our project, because an administrator would otherwise get the rows of
    all projects. [] if our project is not known."""
    return [("project_id", api.project_id)] if api.project_id else []


async def unless_changed(api: Api, read: Mapping[str, Any]) -> dict[str, str]:
    """Return headers that make neutron refuse a change if the object changed since `read`; {} if it cannot check."""
    revision = read.get("revision_number")
    if revision is None or IF_MATCH not in await api.extensions():
        return {}
    return {"If-Match": f"revision_number={revision}"}
