# SPDX-License-Identifier: Apache-2.0
"""The example as it was in release 0.1, to the letter: providers that were written for it keep working.

Change nothing here. What follows is its own description.

The Acme cloud as a provider of `ccm`: the whole of it.

Its client library blocks (here: urllib), as most do; `BlockingCalls` keeps it off the event loop. The provider `sim`
shows the same with an asynchronous one.
"""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from ccm import cloud
from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    Backends,
    BlockingCalls,
    CloudError,
    ConfigError,
    Conflict,
    Ingress,
    Instance,
    InstanceRef,
    InstanceState,
    Invalid,
    LoadBalancer,
    LoadBalancerSpec,
    NotFound,
    Page,
    ProviderConfig,
    RateLimited,
    Transient,
    Unauthorized,
)

PROVIDER_ID = re.compile(r"acme://(?P<id>srv-[0-9]+)")


class AcmeCloud(cloud.Cloud):
    name: ClassVar[str] = "acme"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        api = self._api = Api(*read(config))
        self.instances = AcmeInstances(api)
        self.load_balancers = AcmeLoadBalancers(api)

    async def start(self) -> None:
        await self._api.call("GET", "/account")

    async def close(self) -> None:
        self._api.close()


def read(config: ProviderConfig) -> tuple[str, str, float]:
    """URL, key, and time-out in seconds. Raises ConfigError with all problems, and without the key."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(config.text)
    except configparser.Error as error:
        raise ConfigError([f"{config.source}: not an INI file ({type(error).__name__})"]) from None
    given = dict(parser["acme"]) if parser.has_section("acme") else {}
    problems = [f"{key}: unknown key; known are url, key, timeout" for key in given.keys() - {"url", "key", "timeout"}]
    problems += [f"{key}: is missing in the section [acme]" for key in ("url", "key") if not given.get(key)]
    if not given.get("url", "http://").startswith(("http://", "https://")):
        problems.append("url: expected http://... or https://...")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", given.get("timeout", "10")):
        problems.append("timeout: expected a number of seconds")
    if problems:
        raise ConfigError([f"{config.source}: {problem}" for problem in sorted(problems)])
    return given["url"].rstrip("/"), given["key"], float(given.get("timeout", 10))


class Api:
    """One `call` is one request. Whatever goes wrong is an error of the contract."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        self._url, self._key, self._timeout = url, key, timeout
        self._calls = BlockingCalls("acme", threads=10, deadline=25)

    async def call(self, method: str, path: str, body: Any = None, *, missing: str = "") -> Any:
        """The decoded answer. Only the error code `missing` means NotFound: a 404 of a proxy proves nothing."""
        return await self._calls.run(self._send, method, path, body, missing)

    def close(self) -> None:
        self._calls.close()

    def _send(self, method: str, path: str, body: Any, missing: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-Acme-Key": self._key, "Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        what = f"{method} {path}"
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise _error(what, error, missing) from None
        except (OSError, http.client.HTTPException) as error:
            raise Transient(f"{what}: {self._url}: {error!r}") from None
        except ValueError:
            raise Transient(f"{what}: the answer is not JSON") from None


def _error(what: str, answer: urllib.error.HTTPError, missing: str) -> CloudError:
    try:
        code = str(json.loads(answer.read())["error"])
    except (ValueError, LookupError, TypeError, OSError, http.client.HTTPException):
        code = "not an answer of this cloud; is a proxy in between?"
    text = f"{what}: {answer.code} {code}"
    match answer.code:
        case 404 if missing and code == missing:
            return NotFound(text)
        case 401 | 403:
            return Unauthorized(f"{text}: check the key")
        case 409:
            return Conflict(text)
        case 422:
            return Invalid(text)
        case 429:
            wait = answer.headers.get("Retry-After", "")
            return RateLimited(text, retry_after=float(wait) if wait.isdigit() else None)
    return Transient(text)


class AcmeInstances:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list_page(self, token: str | None) -> Page:
        answer = await self._api.call("GET", f"/servers?{urlencode({'after': token or ''})}")
        return Page([_instance(row) for row in answer["servers"]], answer["next"], answer["count"])

    async def get(self, ref: InstanceRef) -> Instance:
        if ref.provider_id:
            if (match := PROVIDER_ID.fullmatch(ref.provider_id)) is None:
                raise Conflict(f"providerID {ref.provider_id!r} is not of the form acme://srv-...")
            return _instance(await self._api.call("GET", f"/servers/{match['id']}", missing="no_such_server"))
        named = [each for each in await self._beginning_with(ref.node_name) if each.name == ref.node_name]
        if len(named) > 1:
            raise Conflict(f"{len(named)} servers are named {ref.node_name!r}")
        if not named:
            raise NotFound(f"no server is named {ref.node_name!r}")
        return named[0]

    async def _beginning_with(self, name: str) -> list[Instance]:
        """All pages: this cloud's filter finds every server whose name begins so."""
        found: list[Instance] = []
        token: str | None = ""
        while token is not None:
            answer = await self._api.call("GET", f"/servers?{urlencode({'hostname': name, 'after': token})}")
            found += [_instance(row) for row in answer["servers"]]
            token = answer["next"]
        return found

    def owns(self, provider_id: str) -> bool:
        return PROVIDER_ID.fullmatch(provider_id) is not None


def _instance(row: dict[str, Any]) -> Instance:
    private = Address(AddressType.INTERNAL_IP, row["private_ip"])
    public = [Address(AddressType.EXTERNAL_IP, row["public_ip"])] if row.get("public_ip") else []
    return Instance(
        provider_id=f"acme://{row['id']}",
        name=row["hostname"],
        type=row["plan"],
        zone=row["site"],
        region=row["site"].partition("-")[0],
        addresses=(private, *public, Address(AddressType.HOSTNAME, row["hostname"])),
        state=InstanceState.RUNNING if row["power"] == "on" else InstanceState.SHUTDOWN,
    )


class AcmeLoadBalancers:
    """A balancer is made or replaced by one PUT to a name of our choice, so that doing it twice does no harm."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, cluster: str) -> Sequence[LoadBalancer]:
        rows = (await self._api.call("GET", "/balancers"))["balancers"]
        return [_load_balancer(row) for row in rows if row["labels"].get("cluster") == cluster]

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        wish = [_ports(spec), Backends.of(backends).digest]
        return hashlib.sha256(json.dumps(wish).encode()).hexdigest()

    async def get(self, spec: LoadBalancerSpec) -> LoadBalancer:
        row = await self._api.call("GET", _path(spec), missing="no_such_balancer")
        if (row["labels"].get("cluster"), row["labels"].get("service")) != (spec.cluster, spec.uid):
            raise Conflict(f"the balancer {row['name']} is not this Service's")
        return _load_balancer(row)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        with contextlib.suppress(NotFound):
            await self.get(spec)  # raises Conflict when it is somebody else's
        labels = {"cluster": spec.cluster, "service": spec.uid, "fingerprint": self.fingerprint(spec, backends)}
        body = _wanted(spec, backends) | {"labels": labels}
        return _load_balancer(await self._api.call("PUT", _path(spec), body))

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        await self.get(spec)
        return await self.ensure(spec, backends)

    async def delete(self, spec: LoadBalancerSpec) -> None:
        await self.get(spec)
        await self._api.call("DELETE", _path(spec), missing="no_such_balancer")


def _path(spec: LoadBalancerSpec) -> str:
    name = hashlib.sha256(f"{spec.cluster}/{spec.uid}".encode()).hexdigest()[:24]
    return f"/balancers/{quote(f'k8s-{name}')}"


def _ports(spec: LoadBalancerSpec) -> list[tuple[int, int]]:
    if unknown := {port.protocol for port in spec.ports} - {"TCP"}:
        raise Invalid(f"balancers of this cloud forward TCP, not {', '.join(sorted(unknown))}")
    return [(port.port, port.node_port) for port in spec.ports]


def _wanted(spec: LoadBalancerSpec, backends: Sequence[Backend]) -> dict[str, Any]:
    return {
        "ports": _ports(spec),
        "targets": sorted(backend.internal_ip for backend in backends if backend.internal_ip),
    }


def _load_balancer(row: dict[str, Any]) -> LoadBalancer:
    return LoadBalancer(
        service_uid=row["labels"].get("service", ""),
        name=row["name"],
        ingress=(Ingress(ip=row["ip"], ip_mode="Proxy"),),
        fingerprint=row["labels"].get("fingerprint", ""),
    )
