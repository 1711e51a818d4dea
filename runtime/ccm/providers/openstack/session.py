# SPDX-License-Identifier: Apache-2.0
"""One HTTP call to one of the cloud's services, and what its failure means.

openstacksdk (keystoneauth below it) reads clouds.yaml, logs in, renews the token once when the cloud refuses it, and
finds the services' addresses and versions. The calls themselves are plain REST: the SDK's objects would cost more calls
than the two listings that answer for all Nodes. Its functions block, so that they run in threads (`BlockingCalls`).
"""

from __future__ import annotations

import email.utils
import importlib.util
import json
import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccm.cloud import (
    BlockingCalls,
    CloudError,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotImplementedByCloud,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)

from .config import Global, Settings
from .name_patterns import engine_problem

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter
    from keystoneauth1.session import Session
    from openstack.config.cloud_region import CloudRegion

Params = Mapping[str, Any] | Sequence[tuple[str, str]]

COMPUTE, NETWORK, LOAD_BALANCER, BLOCK_STORAGE = "compute", "network", "load-balancer", "block-storage"
#: Service -> the major versions that are understood.
VERSIONS = {
    COMPUTE: ("2.1", "2.latest"),
    NETWORK: ("2", "2.latest"),
    LOAD_BALANCER: ("2", "2.latest"),
    BLOCK_STORAGE: ("3", "3.latest"),
}
#: With 2.47 servers carry their flavour, which saves a call for each; with 2.69 those of a cell that is down are listed
#: in outline, and not left out as if they were deleted.
COMPUTE_VERSIONS = ("2.69", "2.47")
#: Service -> the role that is missing when it refuses a call, in a cloud with the usual policies.
ROLES = {
    LOAD_BALANCER: "member, with the older ones of Octavia's policies load-balancer_member",
}
#: To how many services connections are kept.
CONNECTED = 10
#: When to ask again about what the cloud is at work on, in seconds.
BUSY = 3.0
#: Extension of neutron's: a change may say which revision it was decided upon.
IF_MATCH = "revision-if-match"
#: Keys of [Global] that name a file.
FILES = ("clouds-file", "ca-file", "cert-file", "key-file")
#: How much of an error that is not the service's own is quoted.
QUOTED = 200


class Api:
    """The cloud's services in one project and region. `call` is one request; whatever goes wrong is a CloudError."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.region = settings.auth.region
        self.project_id = ""
        #: Seconds by which the cloud's clock is ahead of ours, as its latest answer says.
        self.clock_ahead = 0.0
        self.deadline = settings.metadata.request_timeout + 2
        self._calls = BlockingCalls(
            "openstack", threads=2 * settings.runtime.concurrency, deadline=self.deadline, translate=self._translate
        )
        self._region: CloudRegion | None = None
        self._session: Session | None = None
        self._adapters: dict[str, Adapter] = {}
        self._finding = {service: threading.Lock() for service in VERSIONS}
        self._extensions: dict[str, frozenset[str]] = {}

    def __repr__(self) -> str:
        return f"Api({self.settings.source})"

    async def open(self) -> None:
        """Log in, and see that the catalogue has the services that are asked for. Raises ConfigError, Unauthorized."""
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
        """One request; the JSON of its answer, None where it has none. `path` is below the service's version.

        `missing`: the ID that the path ends in. A 404 means NotFound only if it is the service's own and names that ID;
        a 404 of a proxy, or about anything else, proves nothing.
        """
        return await self._calls.run(self._request, method, service, path, params, body, headers, missing)

    async def pages(
        self, service: str, path: str, name: str, params: Params = (), *, missing: str = ""
    ) -> list[dict[str, Any]]:
        """All pages of a listing. Raises when one of them does not come. `missing`: as for `call`, of whose it is."""
        found: list[dict[str, Any]] = []
        marker: str | None = None
        while True:
            rows, marker = await self.page(service, path, name, params, marker, missing=missing)
            found += rows
            if marker is None:
                return found

    async def page(
        self, service: str, path: str, name: str, params: Params, marker: str | None, *, missing: str = ""
    ) -> tuple[list[dict[str, Any]], str | None]:
        """One page, and the marker of the one after it. `name` is what the answer calls the list."""
        pairs = list(params.items()) if isinstance(params, Mapping) else list(params)
        pairs.append(("limit", str(self.settings.runtime.page_size)))
        if marker is not None:
            pairs.append(("marker", marker))
        answer = await self.call("GET", service, path, params=pairs, missing=missing)
        rows = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) and row.get("id") for row in rows):
            raise Transient(f"GET {service} {path}: the answer has no list of {name}")
        links = answer.get(f"{name}_links") or []
        more = bool(rows) and any(isinstance(link, dict) and link.get("rel") == "next" for link in links)
        following = str(rows[-1]["id"]) if more else None
        if following is not None and following == marker:
            raise Transient(f"GET {service} {path}: a page ends where it began, at {marker}")
        return rows, following

    async def version(self, service: str) -> tuple[int, int]:
        """The newest API version of a service; the SDK asks until it is told, and takes every failure for silence."""
        found = await self._calls.run(lambda: self._adapter(service).get_api_major_version())
        if not found:
            raise Transient(f"{service} does not tell its API's version")
        return int(found[0]), int(found[1]) if len(found) > 1 else 0

    async def extensions(self) -> frozenset[str]:
        """The aliases of neutron's extensions; asked for once."""
        if (known := self._extensions.get(NETWORK)) is None:
            answer = await self.call("GET", NETWORK, "/extensions")
            try:
                known = frozenset(str(row["alias"]) for row in answer["extensions"])
            except (TypeError, KeyError):
                raise Transient("GET network /extensions: the answer has no list of extensions") from None
            self._extensions[NETWORK] = known
        return known

    # In threads.

    def _open(self) -> None:
        import keystoneauth1.exceptions as failures
        from requests.adapters import HTTPAdapter

        region = self._region = cloud_region(self.settings)
        session = self._session = region.get_session()
        session.user_agent = f"outoftree-ccm {session.user_agent or ''}".strip()
        for transport in session.session.adapters.values():
            assert isinstance(transport, HTTPAdapter)
            transport.init_poolmanager(CONNECTED, 2 * self.settings.runtime.concurrency)  # a connection for each thread
        self.project_id = session.get_project_id() or ""
        self.region = self.settings.auth.region or region.get_region_name() or ""
        wanted = [COMPUTE, NETWORK, *([LOAD_BALANCER] if self.settings.load_balancer.enabled else [])]
        if self.settings.runtime.regional and not self.region:
            raise ConfigError([f"{self.settings.source}: [Runtime] regional needs [Global] region"])
        lacking = []
        for service in wanted:
            try:
                if not self._adapter_for(service).get_endpoint(skip_discovery=True):
                    lacking.append(service)
            except failures.EndpointNotFound:
                lacking.append(service)
        if lacking:
            where = f"region {self.region!r}" if self.region else "any region"
            hint = " ([LoadBalancer] enabled=false goes without load balancers)" if LOAD_BALANCER in lacking else ""
            what = f"{region.get_interface() or 'public'} endpoint of {', '.join(lacking)}"
            raise ConfigError([f"{self.settings.source}: the catalogue has no {what} in {where}{hint}"])

    def _adapter(self, service: str) -> Adapter:
        """The service's address and versions are found when it is first needed."""
        from keystoneauth1.exceptions import EndpointNotFound

        with self._finding[service]:
            if service not in self._adapters:
                adapter = self._adapter_for(service)
                try:
                    adapter.get_endpoint()
                except EndpointNotFound as error:
                    raise NotImplementedByCloud(_plain(error)) from None
                if service == COMPUTE:
                    adapter.default_microversion = _microversion(adapter)
                self._adapters[service] = adapter
            return self._adapters[service]

    def _adapter_for(self, service: str) -> Adapter:
        from keystoneauth1.adapter import Adapter

        if self._region is None:
            raise Transient("the provider was not started")
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
        response = self._adapter(service).request(
            path,
            method,
            raise_exc=False,
            params=params,
            headers={"Accept": "application/json", **(headers or {})},
            redirect=False,
            connect_retries=0,
            status_code_retries=0,
            **({"json": body} if body is not None else {}),
        )
        if (date := _unix_time(response.headers.get("Date", ""))) is not None:
            self.clock_ahead = date - time.time()
        if not 200 <= response.status_code < 300:
            raise error_of(what, service, response.status_code, response.headers, response.content, missing)
        if not response.content:
            return None
        try:
            return json.loads(response.content)
        except ValueError:
            raise Transient(f"{what}: the answer ({len(response.content)} bytes) is not JSON") from None

    def _translate(self, error: Exception) -> CloudError:
        return translated(error, self.settings.source)


def _microversion(adapter: Adapter) -> str:
    from openstack.utils import maximum_supported_microversion

    for version in COMPUTE_VERSIONS:
        if maximum_supported_microversion(adapter, version) == version:
            return version
    raise ConfigError([f"nova of this cloud is too old: it must know the microversion {COMPUTE_VERSIONS[-1]} (2017)"])


def sdk_problem() -> str:
    """What to report where a package is not installed, "" when all are."""
    if importlib.util.find_spec("openstack") is not None:
        return engine_problem()
    return "the provider openstack needs the package openstacksdk: pip install 'outoftree-ccm[openstack]'"


def cloud_region(settings: Settings) -> CloudRegion:
    """The SDK's configuration. Nothing is taken from the environment. Raises ConfigError."""
    from openstack.config import OpenStackConfig
    from openstack.exceptions import ConfigException

    auth = settings.auth
    if problems := missing_files(settings):
        raise ConfigError(problems)
    given = {**sdk_options(auth), "api_timeout": settings.metadata.request_timeout}
    try:
        if not auth.use_clouds:
            return OpenStackConfig(load_yaml_config=False, load_envvars=False).get_one(**given)
        files = [os.path.expanduser(auth.clouds_file)] if auth.clouds_file else None
        return OpenStackConfig(config_files=files, load_envvars=False).get_one(cloud=auth.cloud, **given)
    except ConfigException as error:
        where = auth.clouds_file or "clouds.yaml"
        raise ConfigError([f"{settings.source}: [Global] cloud {auth.cloud!r} of {where}: {_plain(error)}"]) from None
    except CloudError:
        raise
    except Exception as error:  # of YAML, of file access, of keystoneauth's options: the text may quote the file
        raise ConfigError([f"{settings.source}: [Global] cannot be used: {type(error).__name__}"]) from None


def of_project(api: Api) -> list[tuple[str, str]]:
    """Parameters of a listing that is of our project alone: an administrator would be told the rows of all projects."""
    return [("project_id", api.project_id)] if api.project_id else []


async def unless_changed(api: Api, read: Mapping[str, Any]) -> dict[str, str]:
    """Headers of a change of neutron's that undoes nothing done since `read` by somebody else, where it can check."""
    revision = read.get("revision_number")
    if revision is None or IF_MATCH not in await api.extensions():
        return {}
    return {"If-Match": f"revision_number={revision}"}


def missing_files(settings: Settings) -> list[str]:
    """A problem for each file that [Global] names and that cannot be read: requests would not say whose it is."""
    problems = []
    for spelt in FILES:
        path = os.path.expanduser(getattr(settings.auth, spelt.replace("-", "_")))
        if path and not (os.path.isfile(path) and os.access(path, os.R_OK)):
            where = f"{settings.source}: line {settings.lines[spelt]}: [Global] {spelt}"
            problems.append(f"{where}: there is no file {path} that may be read")
    return problems


def sdk_options(auth: Global) -> dict[str, Any]:
    """[Global] as the SDK's options; what is not given is left out, so that clouds.yaml may say it. Pure."""
    user_domain = {
        "user_domain_id": auth.user_domain_id or ("" if auth.user_domain_name else auth.domain_id),
        "user_domain_name": auth.user_domain_name or ("" if auth.user_domain_id else auth.domain_name),
    }
    if auth.user_id:
        user_domain = {}
    project = {"project_id": auth.tenant_id, "project_name": auth.tenant_name}
    if auth.tenant_name:
        project |= {
            "project_domain_id": auth.tenant_domain_id or ("" if auth.tenant_domain_name else auth.domain_id),
            "project_domain_name": auth.tenant_domain_name or ("" if auth.tenant_domain_id else auth.domain_name),
        }
    user = {"user_id": auth.user_id, "username": auth.username, **user_domain}
    kind = ""
    credentials: dict[str, str] = {}
    if auth.application_credential_id or auth.application_credential_name:
        kind = "v3applicationcredential"
        credentials = {
            "application_credential_id": auth.application_credential_id,
            "application_credential_name": auth.application_credential_name,
            "application_credential_secret": auth.application_credential_secret,
            **(user if auth.application_credential_name else {}),
        }
    elif auth.trust_id:
        kind = "v3password"
        credentials = {"trust_id": auth.trust_id, "user_id": auth.trustee_id, "password": auth.trustee_password}
    elif auth.token:
        kind = "v3token"
        credentials = {"token": auth.token, **project}
    elif auth.password:
        kind = "v3password"
        credentials = {**user, "password": auth.password, **project}
    elif auth.use_clouds:
        credentials = {**user, **project}
    options: dict[str, Any] = {
        "auth": {name: value for name, value in {"auth_url": auth.auth_url, **credentials}.items() if value}
    }
    if kind:
        options["auth_type"] = kind
    if auth.region:
        options["region_name"] = auth.region
    if auth.os_endpoint_type or not auth.use_clouds:
        options["interface"] = auth.os_endpoint_type or "public"
    if auth.ca_file:
        options["cacert"] = auth.ca_file
    if auth.cert_file:
        options |= {"cert": auth.cert_file, "key": auth.key_file}
    if auth.tls_insecure is not None or auth.ca_file:  # to name certificates is to want the cloud's checked
        options |= {"verify": not auth.tls_insecure, "insecure": bool(auth.tls_insecure)}
    return options


# What an answer means. Pure.


def error_of(
    what: str, service: str, status: int, headers: Mapping[str, str], content: bytes, missing: str = ""
) -> CloudError:
    """The contract's error for an answer that is none. Only the service's own 404 that names `missing` is NotFound."""
    own = service_error(content)
    kind, message = own or ("", content[:QUOTED].decode("utf-8", "replace").strip())
    message = " ".join(message.split()) or "no reason given"
    text = f"{what}: {status} {message if own else f'that is not {service} itself: {message!r}'}"
    match status:
        case 404 if own and missing and missing in message:
            return NotFound(text)
        case 401:
            return Unauthorized(f"{text}: the credentials are not accepted, nor was a new token of theirs")
        case 403 if own and "quota" in message.lower():
            return QuotaExceeded(text)
        case 403 if own:
            text = f"{text}: the user lacks a role for this call: {ROLES.get(service, 'member')}"
            # What is read is the same for all Services. What is written, one of them chose: it alone is refused.
            return Unauthorized(text) if what.startswith("GET ") else Forbidden(text)
        case 409 if (
            kind == "OverQuota" or kind.endswith("IpAddressGenerationFailure") or kind == "ExternalIpAddressExhausted"
        ):
            return QuotaExceeded(text)
        case 409 if "immutable" in message or "Invalid state PENDING_" in message:  # octavia: to change, to delete
            return RetryAfter(text, BUSY)
        case 409 if own:
            return Conflict(text)
        case 412 if own:
            return RetryAfter(f"{text}: somebody else changed it at the same moment", BUSY)
        case 413 | 429:
            return RateLimited(text, retry_after=retry_after(headers, content, time.time()))
        case 400 | 422 | 501 if own:  # 501 of octavia: its provider has no such option; no outage
            return Invalid(text)
    return Transient(text, retry_after=retry_after(headers, b"", time.time()))


def service_error(content: bytes) -> tuple[str, str] | None:
    """Type and message of an error as one of the services writes it, None when it is nobody's of them.

    keystone {"error": {"message"}}, nova and cinder {"itemNotFound": {"message", "code"}}, neutron {"NeutronError":
    {"type", "message"}}, octavia {"faultcode", "faultstring"}.
    """
    try:
        answer = json.loads(content)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    if isinstance(answer.get("faultstring"), str):
        return str(answer.get("faultcode") or ""), answer["faultstring"]
    for kind, inner in answer.items():
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            return str(inner.get("type") or kind), inner["message"]
        if kind == "NeutronError" and isinstance(inner, str):
            return kind, inner
    return None


def retry_after(headers: Mapping[str, str], content: bytes, now: float) -> float | None:
    """Seconds that the cloud asks to wait: the header, a number or a date, or nova's `retryAfter`; else None."""
    told = headers.get("Retry-After", "").strip()
    if not told and (found := re.search(rb'"retryAfter"\s*:\s*"?(\d+)', content)):
        told = found[1].decode()
    if re.fullmatch(r"\d+(\.\d+)?", told):
        return float(told)
    date = _unix_time(told)
    return None if date is None else max(0.0, date - now)


def _unix_time(date: str) -> float | None:
    """Of a date as HTTP writes it."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None


def translated(error: Exception, source: str) -> CloudError:
    """The contract's error for what the SDK and keystoneauth raise: about logging in, services, and connections."""
    from keystoneauth1 import exceptions as failures
    from openstack.exceptions import ConfigException

    text = f"{source}: {_plain(error)}"
    if isinstance(error, failures.Unauthorized):
        return Unauthorized(f"{text}: keystone does not accept the credentials of [Global]")
    if isinstance(error, failures.Forbidden):
        return Unauthorized(f"{text}: keystone refuses to log us in; is the user enabled, with a role in the project?")
    if isinstance(error, failures.HttpError):
        headers = getattr(error.response, "headers", {})
        content = getattr(error.response, "content", b"")
        what = f"{error.method or ''} {error.url or 'keystone'}".strip()
        told = error_of(what, "identity", error.http_status, headers, content)
        if isinstance(told, (RateLimited, Transient)):
            return told
        return (
            ConfigError([f"{told}; check [Global] of {source}"]) if isinstance(told, Invalid) else Transient(str(told))
        )
    if isinstance(error, (failures.EndpointNotFound, failures.CatalogException)):
        return ConfigError([f"{text}; check region and os-endpoint-type in [Global] of {source}"])
    if isinstance(error, (failures.SSLError, failures.ConnectFailure, failures.DiscoveryFailure)):
        return Transient(text)
    if isinstance(error, (ConfigException, failures.MissingRequiredOptions, failures.NoMatchingPlugin)):
        return ConfigError([text])
    if isinstance(error, (failures.ClientException, OSError)):
        return Transient(text)
    return Transient(f"{source}: the client library failed with {type(error).__name__}")


def _plain(error: Exception) -> str:
    """The text of a library's error in one line, not without end."""
    return " ".join(str(error).split())[:400] or type(error).__name__
