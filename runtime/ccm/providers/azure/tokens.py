# SPDX-License-Identifier: Apache-2.0
"""Gets access tokens of Microsoft Entra ID: for a secret, a certificate or a federated token of an application, or for
a managed identity of the machine."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path

from ccm.cloud import ConfigError, Unauthorized
from ccm.cloud.toolkit.access_tokens import AccessToken, TokenRequests, is_token, token_in

from . import credentials
from .credentials import BY_ASSERTION, Certificate
from .settings import TIMEOUT, Settings

#: The version of the instance metadata service's API for tokens.
METADATA_VERSION = "2018-02-01"
#: The maximum size of a file with credentials, in bytes.
LARGEST = 1 << 20


class EntraTokens:
    """Gets tokens: `open` reads the certificate, and `fetch` gets a token for the configured credentials."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.source = settings.federated_file or ("the managed identity" if settings.uses_identity else settings.source)
        self._requests = TokenRequests(self.source, settings.runtime.request_timeout, TIMEOUT)
        self._certificate: Certificate | None = None

    async def open(self) -> None:
        """Read the certificate, if its file is configured. Send nothing. Raises ConfigError."""
        settings = self._settings
        if path := settings.certificate_file:
            content = await _content(path)
            self._certificate = credentials.parse(content, settings.common.aad_client_cert_password, path)
        await self._requests.open()

    async def close(self) -> None:
        await self._requests.close()

    async def fetch(self) -> AccessToken:
        """Request a token. Raises Unauthorized if the credentials are rejected, RateLimited, and Transient for any
        other failure."""
        settings = self._settings
        if settings.uses_identity:
            return await self._of_machine()
        url = f"{settings.endpoints.authority}/{settings.tenant}/oauth2/v2.0/token"
        form = {
            "grant_type": "client_credentials",
            "client_id": settings.client,
            "scope": f"{settings.endpoints.audience}/.default",
            **await self._proof(url),
        }
        return token_in(await self._requests.ask("POST", url, form=form), f"POST {url}")

    async def _proof(self, url: str) -> dict[str, str]:
        """Return the form fields that authenticate: a federated token, else a secret, else a certificate. The order is
        that of cloud-provider-azure. Raises Unauthorized if the federated token's file cannot be read or has no token,
        or if `open` has not read the certificate that is needed."""
        settings = self._settings
        if path := settings.federated_file:
            try:
                assertion = (await _content(path)).decode("ascii", errors="replace").strip()
            except ConfigError as error:  # the file may be created late, so only now its absence is an error
                raise Unauthorized(str(error)) from None
            if not is_token(assertion):
                raise Unauthorized(f"{path}: it contains no token")
        elif settings.secret:
            return {"client_secret": settings.secret}
        elif self._certificate is not None:
            assertion = self._certificate.assertion(url, settings.client, str(uuid.uuid4()), time.time())
        else:
            raise Unauthorized("the provider was not started")
        return {"client_assertion_type": BY_ASSERTION, "client_assertion": assertion}

    async def _of_machine(self) -> AccessToken:
        identity = self._settings.common.user_assigned_identity_i_d
        query = {"api-version": METADATA_VERSION, "resource": self._settings.endpoints.audience}
        if identity:
            query["msi_res_id" if "/" in identity else "client_id"] = identity
        url = f"{self._settings.metadata}/metadata/identity/oauth2/token"
        answer = await self._requests.ask("GET", url, query=query, headers={"Metadata": "true"})
        return token_in(answer, f"GET {url}")


async def _content(path: str) -> bytes:
    return await asyncio.to_thread(_read, path)


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a path"
        raise ConfigError([f"cannot read {path}: {reason}"]) from None
