# SPDX-License-Identifier: Apache-2.0
"""Gets access tokens of Google: for a service account's key, through workload identity federation, or from the metadata
server of the machine. The metadata server also reports the machine's project and zone."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccm.cloud import ConfigError, Transient, Unauthorized
from ccm.cloud.toolkit.access_tokens import AccessToken, TokenRequests, is_token, token_in

from . import credentials
from .credentials import PLATFORM_SCOPE, SCOPE, Federation, ServiceAccountKey
from .settings import TIMEOUT, Settings

FLAVOR = {"Metadata-Flavor": "Google"}
#: The requested lifetime of a service account's token, in seconds.
IMPERSONATED = 3600
#: The maximum size of a file with credentials, in bytes.
LARGEST = 1 << 20


class GoogleTokens:
    """Gets tokens: `open` reads the credentials, and `fetch` gets a token for them."""

    def __init__(self, settings: Settings) -> None:
        self._path, self._metadata = settings.credentials_file, settings.metadata
        self.source = self._path or "the metadata server"
        self._requests = TokenRequests(self.source, settings.runtime.request_timeout, TIMEOUT)
        self._credentials: ServiceAccountKey | Federation | None = None

    @property
    def project(self) -> str:
        """The project of the service account's key, "" without a key, or if the key names no project."""
        return self._credentials.project if isinstance(self._credentials, ServiceAccountKey) else ""

    async def open(self) -> None:
        """Read the file with credentials, if one is set. Send nothing. Raises ConfigError."""
        if self._path:
            self._credentials = credentials.parse(await _content(self._path), self._path)
        await self._requests.open()

    async def close(self) -> None:
        await self._requests.close()

    async def fetch(self) -> AccessToken:
        """Request a token. Raises Unauthorized if the credentials are rejected, RateLimited, and Transient for any
        other failure."""
        match self._credentials:
            case ServiceAccountKey() as key:
                form = {
                    "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                    "assertion": key.assertion(time.time()),
                }
                return token_in(await self._requests.ask("POST", key.token_url, form=form), f"POST {key.token_url}")
            case Federation() as federation:
                return await self._federated(federation)
        url = f"http://{self._metadata}/computeMetadata/v1/instance/service-accounts/default/token"
        answer = await self._requests.ask("GET", url, query={"scopes": SCOPE}, headers=FLAVOR)
        return token_in(answer, f"GET {url}")

    async def metadata(self, path: str) -> str:
        """Return a value about this machine, such as `project/project-id`. Raises Transient if there is none."""
        url = f"http://{self._metadata}/computeMetadata/v1/{path}"
        status, headers, content = await self._requests.send("GET", url, headers=FLAVOR)
        if status != 200 or headers.get("Metadata-Flavor") != "Google" or not content.isascii():
            raise Transient(f"GET {url}: {status}, not an answer of the metadata server")
        return content.decode().strip()

    async def _federated(self, federation: Federation) -> AccessToken:
        try:
            subject = federation.subject(await _content(federation.file))
        except ConfigError as error:  # the file may be created late, so only now its absence is an error
            raise Unauthorized(str(error)) from None
        url = federation.impersonation_url
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "audience": federation.audience,
            "scope": PLATFORM_SCOPE if url else SCOPE,
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "subject_token": subject,
            "subject_token_type": federation.token_type,
        }
        answer = await self._requests.ask("POST", federation.token_url, form=form)
        token = token_in(answer, f"POST {federation.token_url}")
        if not url:
            return token
        body = {"scope": [SCOPE], "lifetime": f"{IMPERSONATED}s"}
        headers = {"Authorization": f"Bearer {token.text}"}
        return impersonated(await self._requests.ask("POST", url, body=body, headers=headers), url, time.time())


def impersonated(answer: Mapping[str, Any], url: str, now: float) -> AccessToken:
    """Return the token of a service account. `now`: Unix time in seconds. Raises Transient without a valid token."""
    try:
        ends = datetime.datetime.fromisoformat(answer["expireTime"]).timestamp()
    except (LookupError, TypeError, ValueError):
        ends = 0.0
    if not is_token(answer.get("accessToken")) or ends <= now:
        raise Transient(f"POST {url}: the answer has no access token")
    return AccessToken(str(answer["accessToken"]), ends - now)


async def _content(path: str) -> str:
    return await asyncio.to_thread(_read, path)


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(LARGEST).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError([f"cannot read {path}: {reason}"]) from None
