# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud's HTTP API: requests, and the objects in its responses."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Struct

from ccm import cloud
from ccm.cloud import (
    CloudError,
    ConfigError,
    Conflict,
    Invalid,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)

from .settings import Settings

T = TypeVar("T")
Query = Sequence[tuple[str, str]]

#: Seconds until the next request about a load balancer that the cloud is working on.
POLL = 1.0
#: The mode of load balancers that are not proxies.
PASS_THROUGH = "pass-through"
#: Stands for the code of an answer that is not an error of this cloud.
FOREIGN = "not an error of this cloud"


class Api:
    """The cloud's HTTP API: one `call` is one request, and every failure is a CloudError."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.region = ""
        #: Whether load balancers forward the clients' packets unchanged to nodes, and need no node ports.
        self.passes_through = False
        self._session: aiohttp.ClientSession | None = None
        self._access_token = ""
        self._renewing = asyncio.Lock()

    async def open(self) -> None:
        """Check the credentials with the cheapest call, which also returns the region and the load balancers' mode.
        Raises ConfigError if `ca_file` cannot be used, and CloudError."""
        tls: ssl.SSLContext | bool = True
        if self.settings.ca_file:
            try:
                tls = ssl.create_default_context(cafile=self.settings.ca_file)
            except OSError as error:
                raise ConfigError([f"{self.settings.source}: ca_file: {self.settings.ca_file}: {error}"]) from None
        timeout = aiohttp.ClientTimeout(total=self.settings.request_timeout)
        await self.close()  # the session of an earlier attempt
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=tls, limit=0))
        project = await self.call("GET", "", Project)
        self.region, self.passes_through = project.region, project.load_balancer_mode == PASS_THROUGH

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, path: str, answer: type[T], *, query: Query = (), body: Any = None, missing: str = ""
    ) -> T:
        """Make one call in the project. Only the error code `missing` means NotFound; a proxy's 404 proves nothing.

        An access token that the cloud no longer accepts is renewed once.
        """
        path = f"/v1/projects/{quote(self.settings.project, safe='')}{path}"
        token = self._access_token or await self._renew("")
        reply = await self._send(method, path, token, query, body)
        if reply.status == 401:
            token = await self._renew(token)
            reply = await self._send(method, path, token, query, body)
        return self._read(reply, answer, missing)

    async def list(self, path: str, item: type[T], query: Query = ()) -> list[T]:
        """Return all pages. Raises Transient if they contain fewer items than the cloud's total."""
        by_id: dict[str, T] = {}
        listing, requested = await self.page(path, item, query, None), None
        while True:
            by_id.update((row.id, row) for row in listing.items)  # type: ignore[attr-defined]
            if listing.next_page_token in (None, requested):
                break
            requested = listing.next_page_token
            listing = await self.page(path, item, query, requested)
        if len(by_id) < listing.total:
            raise Transient(f"{path}: the listing is incomplete: {len(by_id)} of {listing.total} items arrived")
        return list(by_id.values())

    async def page(self, path: str, item: type[T], query: Query, token: str | None) -> Listing[T]:
        paging = [("page_size", str(self.settings.page_size)), *([("page_token", token)] if token else [])]
        return await self.call("GET", path, Listing[item], query=[*query, *paging])  # type: ignore[valid-type]

    async def _renew(self, refused: str) -> str:
        """Get a new access token for the project's token, unless another call did so since `refused` was in use."""
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
            token, reason = Path(path).read_text().strip(), "it is empty"
        except (OSError, UnicodeDecodeError) as error:
            token, reason = "", getattr(error, "strerror", None) or type(error).__name__
        if not token:
            raise Unauthorized(f"{self.settings.source}: token_file {path}: {reason}")
        return token

    async def _send(self, method: str, path: str, token: str, query: Query, body: Any) -> Reply:
        """Send one request. Raises Transient if there is no response."""
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
            raise Transient.late(f"{what}: {endpoint}", self.settings.request_timeout, "request_timeout") from None
        except aiohttp.ClientError as error:
            raise Transient(f"{what}: {endpoint}: {type(error).__name__}: {error}") from None

    def _read(self, reply: Reply, answer: type[T], missing: str = "") -> T:
        if not 200 <= reply.status < 300:
            raise self._error(reply, missing)
        try:
            return msgspec.json.decode(reply.body or b"null", type=answer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            size = len(reply.body)
            raise Transient(f"{reply.what}: cannot parse the response ({size} bytes): {error}") from None

    def _error(self, reply: Reply, missing: str) -> CloudError:
        """Return the contract's error for a response that reports a failure."""
        try:
            error = msgspec.json.decode(reply.body, type=Failure).error
        except (msgspec.MsgspecError, UnicodeDecodeError):
            error = FailureDetail(FOREIGN, "is a proxy in between?")
        message = error.message  # a cloud may quote the request, with its credentials
        for secret in filter(None, (self._access_token, self.settings.token)):
            message = message.replace(secret, "***")
        text = f"{reply.what}: {reply.status} {error.code}: {message}"
        match reply.status, error.code:
            case 404, code if missing and code == missing:
                return NotFound(text)
            case 403, "quota_exceeded":
                return QuotaExceeded(text)
            case 401 | 403, _:
                key = "token_file" if self.settings.token_file else "token"
                return Unauthorized(
                    f"{text}. Check project and {key} in {self.settings.source}, and their permissions in the cloud"
                )
            case 409, "busy" | "already_exists":  # already_exists: our own, but not in the listing yet
                return RetryAfter(text, POLL)
            case 409, _:
                return Conflict(text)
            case 400 | 422, "invalid":
                return Invalid(text)
            case 429, _:
                wait = reply.headers.get("Retry-After", "")
                return RateLimited(text, retry_after=float(wait) if re.fullmatch(r"\d+(\.\d+)?", wait) else None)
            case status, code if 400 <= status < 500 and code != FOREIGN:
                return Transient(text, scope="object")  # calls for other objects may succeed
        return Transient(text)


# The cloud's responses, without fields that this provider does not use.


class Reply(NamedTuple):
    """A response as received. `what`: the request, for messages."""

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
    load_balancer_mode: str = ""


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
    pod_cidrs: tuple[str, ...] = ()


class LoadBalancer(Struct, frozen=True):
    id: str
    name: str
    ip: str
    state: str
    tags: dict[str, str]
    reason: str = ""
    mode: str = ""


class Route(Struct, frozen=True):
    id: str
    region: str
    destination: str
    instance_id: str
    state: str
    owner: str = ""


class Quota(Struct, frozen=True):
    kind: str
    used: int
    limit: int


class Quotas(Struct, frozen=True):
    items: list[Quota]


class Volume(Struct, frozen=True):
    id: str
    region: str
    zone: str
