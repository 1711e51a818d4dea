# SPDX-License-Identifier: Apache-2.0
"""A client for a cloud's JSON API over HTTP, on aiohttp: one `call` is one request, and every failure is a CloudError.

A provider defines how the API pages and formats errors (`Dialect`), and how to authorise a request. Apart from that, it
needs only a configuration, mappings between the cloud's rows and the contract's types, and calls.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp

from ccm.base.connection_problem import connection_problem
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
from .untrusted_text import concealed, printable, shorten

Query = Sequence[tuple[str, str]]

#: The maximum number of characters of a cloud's message that errors quote.
QUOTED = 300
#: The maximum size of an answer, in bytes. A page of 1,000 instances has a few MB.
LARGEST = 64 * 2**20
#: How many times a listing is read if it shrinks while its pages are read.
READINGS = 3
#: The delay before the next query about work in progress, in seconds, if the cloud does not set one.
BUSY = 3.0
#: A 4xx status that means a problem with the cloud and not with the request.
TIMED_OUT = 408


class Failure(NamedTuple):
    """An error in the cloud's own format."""

    code: str
    message: str


def _next_by_token(answer: Any) -> str | None:
    return answer.get("next") or None


@dataclass(frozen=True)
class Dialect:
    """The conventions of one cloud's API. The functions take decoded JSON. They may raise LookupError, TypeError,
    AttributeError or ValueError if the JSON has another shape.

    `failure`: the cloud's own error in an answer, None if the answer comes from elsewhere, such as a proxy.
    `next_page`: the token of the next page, None on the last. `total`: the number of rows in the whole listing, None if
    the cloud does not report it. `page_query`: the query of a page; its argument is None for the first page.
    `codes`: error codes whose meaning differs from their status: "quota_exceeded" -> QuotaExceeded.
    `rate_limit_group`: set if the cloud counts calls separately for each kind of resource (`RateLimited.scope`).
    `pause`: how many seconds to wait after a 429 without `Retry-After`, from its headers and the present Unix time;
    None if the headers do not say it.
    `secret_fields`: names of fields of a query or a form whose values are credentials, such as a signature.
    """

    failure: Callable[[Any], Failure | None]
    next_page: Callable[[Any], str | None] = _next_by_token
    total: Callable[[Any], int | None] = lambda answer: None
    page_query: Callable[[str | None], Query] = lambda token: [] if token is None else [("page", token)]
    codes: Mapping[str, type[CloudError]] = field(default_factory=dict)
    rate_limit_group: bool = False
    pause: Callable[[Mapping[str, str], float], float | None] = lambda headers, now: None
    secret_fields: frozenset[str] = frozenset()


class JsonPage(NamedTuple):
    """Rows of one page, with the fields from which a mapping builds `ccm.cloud.Page`."""

    rows: list[Any]
    next: str | None
    total: int | None


async def every_row(read: Callable[[str | None], Awaitable[JsonPage]], what: str) -> list[Any]:
    """Return the rows of all pages of a listing. `read`: returns the page for a token, None for the first page. `what`:
    the request, for messages.

    Numbered pages shift when a row is deleted: the first row of the next page moves to a page that was read already,
    and is missed. So a listing that shrinks while it is read is read again. Raises Transient if it shrinks every time,
    has fewer rows than the cloud reports, or repeats a page.
    """
    for _ in range(READINGS):
        rows, totals = await _every_page(read, what)
        if totals == sorted(totals):
            return rows
    raise Transient(f"{what}: incomplete listing: rows disappeared each time while its pages were read")


async def _every_page(read: Callable[[str | None], Awaitable[JsonPage]], what: str) -> tuple[list[Any], list[int]]:
    """Return the rows of all pages, and the total of the whole listing as each page stated it. Raises Transient for an
    incomplete listing, and if a page repeats."""
    rows: list[Any] = []
    totals: list[int] = []
    token, tokens = None, set[str | None]()
    while token not in tokens:
        tokens.add(token)
        page = await read(token)
        rows += page.rows
        totals += [] if page.total is None else [page.total]
        token = page.next
        if token is None:
            if totals and len(rows) < totals[-1]:
                raise Transient(f"{what}: incomplete listing: got {len(rows)} of {totals[-1]}")
            return rows, totals
    raise Transient(f"{what}: the cloud returned the same next page twice")


class JsonApi:
    """The API of one cloud. Create it in the constructor of a provider, `open` it in `start`, `close` it in `close`.

    `authorise(renew)` returns the authentication headers for each call; after a 401 it is called once more with True.
    `source`: where the credentials are configured, for messages. `timeout`: seconds for one request, less than
    `Limits.deadline`. `set_by`: the key that sets `timeout`, for messages. `ca_file`: CA certificates that verify the
    cloud's certificate, instead of the system's. `verify`: whether to verify it at all.
    """

    def __init__(
        self,
        url: str,
        dialect: Dialect,
        authorise: Callable[[bool], Awaitable[Mapping[str, str]]],
        *,
        source: str,
        timeout: float = 10.0,
        set_by: str = "",
        ca_file: str = "",
        verify: bool = True,
    ) -> None:
        self._url = url.rstrip("/")
        self._dialect, self._authorise = dialect, authorise
        self._source, self._timeout, self._ca_file, self._verify = source, timeout, ca_file, verify
        self._set_by = set_by
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"JsonApi({self._url})"

    async def open(self) -> None:
        """Prepare the connections, without a call. Raises ConfigError if `ca_file` cannot be used."""
        tls: ssl.SSLContext | bool = self._verify
        if self._verify and self._ca_file:
            try:
                tls = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca_file)
            except OSError as error:
                problem = f"{self._source}: certificates {self._ca_file}: {error.strerror or type(error).__name__}"
                raise ConfigError([problem]) from None
        await self.close()  # from an earlier attempt
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=tls, limit=0))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Any = None,
        form: Query = (),
        missing: str | Set[str] = "",
        name: str = "",
    ) -> Any:
        """Send one request and return the decoded answer, None if it is empty.

        `form`: fields that are sent instead of a JSON body. `name`: what messages call the request, by default its
        method and path. `missing`: the cloud's error code, or codes, of a 404 that means NotFound. Any other 404, such
        as a proxy's, proves nothing. Raises CloudError.
        """
        what = name or f"{method} {path}"
        content = {"data": list(form)} if form else {"json": body}
        secrets = {value for key, value in (*query, *form) if key in self._dialect.secret_fields}
        reply = await self._send(method, path, query, content, secrets, what, renew=False)
        if reply.status == 401:
            reply = await self._send(method, path, query, content, secrets, what, renew=True)
        answer = decoded(reply.body)
        if not 200 <= reply.status < 300:
            raise self._error(what, method, reply, answer, missing)
        if reply.body and answer is None and reply.body.strip() != b"null":
            raise Transient(f"{what}: the answer ({len(reply.body)} bytes) is not JSON")
        return answer

    async def page(self, path: str, name: str, token: str | None, *, query: Query = ()) -> JsonPage:
        """Return one page of a listing; `name` is the key of the rows in the answer. Raises CloudError."""
        answer = await self.call("GET", path, query=[*query, *self._dialect.page_query(token)])
        try:
            rows, following, total = answer[name], self._dialect.next_page(answer), self._dialect.total(answer)
        except (LookupError, TypeError, AttributeError, ValueError):
            rows, following, total = None, None, None
        if not isinstance(rows, list):
            raise Transient(f"GET {path}: the answer has no list of {name}")
        if following is not None and following == token:
            raise Transient(f"GET {path}: a page refers to itself as the next: {shorten(printable(following), QUOTED)}")
        return JsonPage(rows, following, total)

    async def rows(self, path: str, name: str, *, query: Query = ()) -> list[Any]:
        """Return the rows of all pages of a listing. Raises CloudError: see `every_row`."""
        return await every_row(lambda token: self.page(path, name, token, query=query), f"GET {path}")

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        sent: Mapping[str, Any],
        secrets: Collection[str],
        what: str,
        *,
        renew: bool,
    ) -> _Reply:
        """Send one request and return the answer, whatever its status is. Raises Transient if there is no answer, or
        one that is too long, and the errors of `authorise`."""
        if self._session is None:
            raise Transient("the provider was not started")
        credentials = await self._authorise(renew)
        hidden = {value.rpartition(" ")[2] for value in credentials.values()} | set(secrets)
        headers = {"Accept": "application/json", **credentials}
        try:
            async with self._session.request(
                method, self._url + path, params=list(query), headers=headers, allow_redirects=False, **sent
            ) as response:
                content = bytearray()
                async for piece in response.content.iter_any():
                    content += piece
                    if len(content) > LARGEST:
                        raise Transient(f"{what}: the answer has more than {LARGEST} bytes")
                return _Reply(response.status, response.headers, bytes(content), hidden)
        except TimeoutError:
            raise Transient.late(f"{what}: {self._url}", self._timeout, self._set_by) from None
        except aiohttp.ClientConnectorError as error:
            raise Transient(f"{what}: {connection_problem(error)}") from None
        except aiohttp.ClientError as error:
            raise Transient(f"{what}: {self._url}: {type(error).__name__}") from None

    def _error(self, what: str, method: str, reply: _Reply, answer: Any, missing: str | Set[str]) -> CloudError:
        try:
            own = self._dialect.failure(answer) if answer is not None else None
        except (LookupError, TypeError, AttributeError, ValueError):
            own = None
        absent = {missing} - {""} if isinstance(missing, str) else missing
        code, message = own or Failure("", "not an answer of this cloud; is a proxy in between?")
        reason = " ".join(filter(None, (code, shorten(printable(concealed(str(message), reply.secrets)), QUOTED))))
        text = f"{what}: {reply.status} {reason}"
        wait = retry_after(reply.headers, reply.body, time.time())
        if wait is None and reply.status == 429:
            wait = self._dialect.pause(reply.headers, time.time())
        if own is not None and (kind := self._dialect.codes.get(code)) is not None:
            if issubclass(kind, RetryAfter):
                return kind(text, BUSY if wait is None else wait)
            if kind is Transient and reply.status < 500:
                return Transient(text, retry_after=wait, scope="object")
            if not issubclass(kind, NotFound) or code in absent:
                return kind(text, retry_after=wait)
        match reply.status:
            case 404 if own is not None and code in absent:
                return NotFound(text)
            case 401:
                return Unauthorized(f"{text}. Check the credentials in {self._source}")
            case 403 if own is not None and "quota" in reason.lower():
                return QuotaExceeded(text)
            case 403 if own is not None:
                # Reads need the same permission for all objects, so a refused read is about the credentials. A refused
                # write may be about its object alone.
                text = f"{text}. The credentials in {self._source} lack a permission, or the cloud forbids this call"
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
            case status if own is not None and 400 <= status < 500 and status != TIMED_OUT:
                return Transient(text, retry_after=wait, scope="object")  # calls for other objects may succeed
        return Transient(text, retry_after=wait)


class _Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes
    #: Credentials of the request, because a cloud may quote the request in its errors.
    secrets: Collection[str]


def decoded(body: bytes) -> Any:
    """Return the JSON of an answer, None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
