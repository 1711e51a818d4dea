# SPDX-License-Identifier: Apache-2.0
"""A cloud's JSON API over HTTP, on aiohttp: one `call` is one request, and whatever goes wrong is a CloudError.

A provider says how the API pages and how it writes errors (`Dialect`), and how a request is authorised; then it is left
with a configuration, mappings between the cloud's rows and the contract's, and calls.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp

from ccm.base.text import printable, shorten
from ccm.cloud import (
    CloudError,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)

from .retry_after import retry_after

Query = Sequence[tuple[str, str]]

#: How much of what the cloud says is quoted, in characters.
QUOTED = 300
#: The largest answer that is read, in bytes. A page of 1,000 instances has a few MB.
LARGEST = 64 * 2**20
#: When to ask again about what the cloud is at work on, in seconds, where it does not say.
BUSY = 3.0


class Failure(NamedTuple):
    """An error as the cloud itself writes it."""

    code: str
    message: str


def _next_by_token(answer: Any) -> str | None:
    return answer.get("next") or None


@dataclass(frozen=True)
class Dialect:
    """How one cloud's API speaks. The functions get decoded JSON; they may raise LookupError, TypeError, AttributeError
    or ValueError for one of another shape.

    `failure`: the cloud's own error in an answer, None when it is not the cloud's own, such as a proxy's.
    `next_page`: what asks for the page after this one, None after the last. `total`: how many rows the whole listing
    has, None where the cloud does not say. `page_query`: the query of a page; it gets None for the first.
    `codes`: error codes that mean something else than their status: "quota_exceeded" -> QuotaExceeded.
    `rate_limit_group`: the cloud counts calls of each kind of thing by themselves (`RateLimited.scope`).
    """

    failure: Callable[[Any], Failure | None]
    next_page: Callable[[Any], str | None] = _next_by_token
    total: Callable[[Any], int | None] = lambda answer: None
    page_query: Callable[[str | None], Query] = lambda token: [] if token is None else [("page", token)]
    codes: Mapping[str, type[CloudError]] = field(default_factory=dict)
    rate_limit_group: bool = False


class JsonPage(NamedTuple):
    """Rows of one page; the fields of `ccm.cloud.Page`, for a mapping to make one."""

    rows: list[Any]
    next: str | None
    total: int | None


class JsonApi:
    """One cloud's API. Make it in the constructor of a provider; `open` it in `start`, `close` it in `close`.

    `authorise(renew)` gives the headers that prove who we are, each time a call is made; after a 401 it is asked once
    more with True. `source`: where credentials are configured, for messages. `timeout`: seconds for one request, below
    `Limits.deadline`. `ca_file`: certificates that the cloud's is checked with, instead of the system's.
    """

    def __init__(
        self,
        url: str,
        dialect: Dialect,
        authorise: Callable[[bool], Awaitable[Mapping[str, str]]],
        *,
        source: str,
        timeout: float = 10.0,
        ca_file: str = "",
    ) -> None:
        self._url = url.rstrip("/")
        self._dialect, self._authorise = dialect, authorise
        self._source, self._timeout, self._ca_file = source, timeout, ca_file
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"JsonApi({self._url})"

    async def open(self) -> None:
        """Makes no call. Raises ConfigError."""
        tls: ssl.SSLContext | bool = True
        if self._ca_file:
            try:
                tls = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
            except OSError as error:
                problem = f"{self._source}: certificates {self._ca_file}: {error.strerror or type(error).__name__}"
                raise ConfigError([problem]) from None
        await self.close()  # of an earlier attempt
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=tls, limit=0))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, method: str, path: str, *, query: Query = (), body: Any = None, missing: str = "") -> Any:
        """One request; the decoded answer, None where it has none.

        `missing`: the code of the cloud's own 404 that means NotFound. Any other 404, as a proxy's, proves nothing.
        Raises CloudError.
        """
        what = f"{method} {path}"
        reply = await self._send(method, path, query, body, renew=False)
        if reply.status == 401:
            reply = await self._send(method, path, query, body, renew=True)
        answer = decoded(reply.body)
        if not 200 <= reply.status < 300:
            raise self._error(what, method, reply, answer, missing)
        if reply.body and answer is None and reply.body.strip() != b"null":
            raise Transient(f"{what}: the answer ({len(reply.body)} bytes) is not JSON")
        return answer

    async def page(self, path: str, name: str, token: str | None, *, query: Query = ()) -> JsonPage:
        """One page of a listing; `name` is what the answer calls its rows. Raises CloudError."""
        answer = await self.call("GET", path, query=[*query, *self._dialect.page_query(token)])
        try:
            rows, following, total = answer[name], self._dialect.next_page(answer), self._dialect.total(answer)
        except (LookupError, TypeError, AttributeError, ValueError):
            rows, following, total = None, None, None
        if not isinstance(rows, list):
            raise Transient(f"GET {path}: the answer has no list of {name}")
        if following is not None and following == token:
            raise Transient(f"GET {path}: a page ends where it began, at {shorten(printable(following), QUOTED)}")
        return JsonPage(rows, following, total)

    async def rows(self, path: str, name: str, *, query: Query = ()) -> list[Any]:
        """All pages of a listing. Raises Transient where they do not add up to the total that the cloud names."""
        found: list[Any] = []
        token, asked = None, set[str | None]()
        while token not in asked:
            asked.add(token)
            page = await self.page(path, name, token, query=query)
            found += page.rows
            token = page.next
            if token is None:
                if page.total is not None and len(found) < page.total:
                    raise Transient(f"GET {path}: {len(found)} of {page.total} came: the listing is incomplete")
                return found
        raise Transient(f"GET {path}: the cloud names a page as the next one a second time")

    async def _send(self, method: str, path: str, query: Query, body: Any, *, renew: bool) -> _Reply:
        """Raises Transient when there is no answer at all."""
        if self._session is None:
            raise Transient("the provider was not started")
        what = f"{method} {path}"
        headers = {"Accept": "application/json", **await self._authorise(renew)}
        try:
            async with self._session.request(
                method, self._url + path, params=list(query), json=body, headers=headers, allow_redirects=False
            ) as response:
                content = await response.content.read(LARGEST + 1)
                while len(content) <= LARGEST and (more := await response.content.read(LARGEST + 1 - len(content))):
                    content += more
                if len(content) > LARGEST:
                    raise Transient(f"{what}: the answer has more than {LARGEST} bytes")
                return _Reply(response.status, response.headers, content)
        except TimeoutError:
            raise Transient(f"{what}: no answer from {self._url} within {self._timeout:g} s") from None
        except aiohttp.ClientError as error:
            raise Transient(f"{what}: {self._url}: {type(error).__name__}") from None

    def _error(self, what: str, method: str, reply: _Reply, answer: Any, missing: str) -> CloudError:
        try:
            own = self._dialect.failure(answer) if answer is not None else None
        except (LookupError, TypeError, AttributeError, ValueError):
            own = None
        code, message = own or Failure("", "not an answer of this cloud; is a proxy in between?")
        said = " ".join(filter(None, (code, shorten(printable(str(message)), QUOTED))))
        text = f"{what}: {reply.status} {said}"
        wait = retry_after(reply.headers, reply.body, time.time())
        if own is not None and (kind := self._dialect.codes.get(code)) is not None:
            if issubclass(kind, RetryAfter):
                return kind(text, BUSY if wait is None else wait)
            if not issubclass(kind, NotFound) or (missing and code == missing):
                return kind(text, retry_after=wait)
        match reply.status:
            case 404 if own is not None and missing and code == missing:
                return NotFound(text)
            case 401:
                return Unauthorized(f"{text}. Check the credentials in {self._source}")
            case 403 if own is not None and "quota" in said.lower():
                return QuotaExceeded(text)
            case 403 if own is not None:
                # What is read is the same for all objects. What is written, one of them chose: it alone is refused.
                text = f"{text}. The credentials in {self._source} lack a right, or the cloud refuses this one call"
                return Unauthorized(text) if method == "GET" else Forbidden(text)
            case 409 if own is not None:
                return Conflict(text)
            case 423 if own is not None:
                return RetryAfter(text, BUSY if wait is None else wait)
            case 429:
                scope = "group" if self._dialect.rate_limit_group else "all"
                return RateLimited(text, retry_after=wait, scope=scope)  # type: ignore[arg-type]
            case 400 | 422 if own is not None:
                return Invalid(text)
        return Transient(text, retry_after=wait)


class _Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def decoded(body: bytes) -> Any:
    """The JSON of an answer, None for anything else."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
