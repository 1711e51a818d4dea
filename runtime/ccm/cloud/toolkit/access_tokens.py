# SPDX-License-Identifier: Apache-2.0
"""OAuth 2.0 access tokens: requests for them, and one token for all calls until shortly before it expires."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from ccm.base.connection_problem import connection_problem
from ccm.cloud import CloudError, RateLimited, Transient, Unauthorized

from .json_api import QUOTED, decoded
from .retry_after import retry_after
from .untrusted_text import concealed, printable, shorten

#: A token is replaced this many seconds before it expires, or after half of its lifetime if that is later.
EARLY = 300.0
#: A refused token is replaced only if it is at least this many seconds old, because the refused calls may have used the
#: previous token.
PAUSE = 5.0
#: How long to wait after a failed renewal while the present token is valid, in seconds.
AGAIN = 30.0
#: The maximum size of an answer with a token, in bytes.
LARGEST = 1 << 20
#: Statuses that mean refused credentials, if the service itself answers.
REFUSALS = (400, 401, 403, 404)


@dataclass(frozen=True)
class AccessToken:
    """A token that is valid for `lifetime` seconds from now."""

    text: str = field(repr=False)
    lifetime: float


class AccessTokens:
    """The present token, replaced before it expires. `fetch` gets another token, or raises CloudError."""

    def __init__(
        self, fetch: Callable[[], Awaitable[AccessToken]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch, self._monotonic = fetch, monotonic
        self._lock = asyncio.Lock()
        self._token = ""
        self._fetched = self._due = self._ends = 0.0

    async def get(self, renew: bool = False) -> str:
        """Return a valid token. Fetch another one if the present one expires soon.

        `renew`: the cloud refused the present token, so fetch another one unless the present one is younger than
        `PAUSE` seconds.
        Raises CloudError if that fails. Without `renew`, a failure matters only if the present token has expired.
        """
        async with self._lock:
            now = self._monotonic()
            if self._token and (now < self._fetched + PAUSE if renew else now < self._due):
                return self._token
            try:
                token = await self._fetch()
            except CloudError:
                if renew or not self._token or now >= self._ends:
                    raise
                self._due = min(now + AGAIN, self._ends)
                return self._token
            self._token, self._fetched = token.text, now
            self._ends = now + token.lifetime
            self._due = self._ends - min(EARLY, token.lifetime / 2)
            return self._token


class TokenRequests:
    """Requests to services that hand out tokens. `source`: where the credentials are configured, and `set_by`: the
    key that sets the timeout, for messages."""

    def __init__(self, source: str, timeout: float, set_by: str = "") -> None:
        self._source, self._timeout, self._set_by = source, timeout, set_by
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        await self.close()
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Return the answer, a JSON object. Raises Unauthorized if the service refuses the credentials, RateLimited for
        status 429, and otherwise Transient."""
        status, answered, content = await self.send(
            method, url, form=form, body=body, query=query, headers=headers or {}
        )
        answer = decoded(content)
        if status == 200 and isinstance(answer, dict):
            return answer
        secrets = [
            *(form or {}).values(),
            *(body.values() if isinstance(body, dict) else ()),
            *(headers or {}).values(),
        ]
        texts = [secret for secret in secrets if isinstance(secret, str)]
        text = f"{method} {url}: {status} {_reason(answer, texts)}".strip()
        wait = retry_after(answered, content, time.time())
        if status == 429:
            raise RateLimited(text, retry_after=wait)
        if status in REFUSALS and isinstance(answer, dict) and "error" in answer:
            raise Unauthorized(f"{text}. Check the credentials in {self._source}")
        raise Transient(text if status != 200 else f"{method} {url}: the answer is not a JSON object", retry_after=wait)

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], **more: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and content of the answer, whatever the status is. `more`: `form`, `body` and `query`
        of `ask`. Raises Transient if there is no answer, or one that is too long."""
        if self._session is None:
            raise Transient("the provider was not started")
        try:
            async with self._session.request(
                method,
                url,
                data=more.get("form"),
                json=more.get("body"),
                params=more.get("query"),
                headers=headers,
                allow_redirects=False,
            ) as response:
                content = await response.content.read(LARGEST)
                while piece := await response.content.read(LARGEST):
                    content += piece
                    if len(content) > LARGEST:
                        raise Transient(f"{method} {url}: the answer has more than {LARGEST} bytes")
                return response.status, response.headers, content
        except TimeoutError:
            raise Transient.late(f"{method} {url}", self._timeout, self._set_by) from None
        except aiohttp.ClientConnectorError as error:
            raise Transient(f"{method} {url}: {connection_problem(error)}") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise Transient(f"{method} {url}: {type(error).__name__}") from None


def token_in(answer: Mapping[str, Any], what: str) -> AccessToken:
    """Return the token in an OAuth 2.0 answer. Raises Transient if the token or its lifetime is not valid."""
    text, lifetime = answer.get("access_token"), answer.get("expires_in")
    try:
        seconds = float(lifetime)  # type: ignore[arg-type]  # Azure writes a string
    except (TypeError, ValueError):
        seconds = 0.0
    if not is_token(text) or not 0 < seconds < float("inf"):
        raise Transient(f"{what}: the answer has no access token")
    return AccessToken(str(text), seconds)


def is_token(text: Any) -> bool:
    """Return whether this can be a token in an HTTP header."""
    return isinstance(text, str) and text.isascii() and text.isprintable() and text != "" and " " not in text


def _reason(answer: Any, secrets: Sequence[str]) -> str:
    """Return what the service says, without the secrets that were sent: a service may quote the request."""
    if not isinstance(answer, dict):
        return "not an answer of this service; is a proxy in between?"
    error = answer.get("error")
    if isinstance(error, dict):
        parts = [error.get("status") or error.get("code"), error.get("message")]
    else:
        parts = [error, answer.get("error_description")]
    reason = " ".join(str(each) for each in parts if each)
    reason = concealed(reason, {part for secret in secrets for part in (secret, secret.rpartition(" ")[2])})
    return shorten(printable(reason), QUOTED)
