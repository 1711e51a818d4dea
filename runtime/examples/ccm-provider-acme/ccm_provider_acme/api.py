# SPDX-License-Identifier: Apache-2.0
"""Calls of the Acme cloud: one call is one request."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from ccm.cloud import BlockingCalls, Transient

from .errors import error_of
from .settings import Settings


class Api:
    """A client for the API: one `call` is one request. Every failure is an error of the contract."""

    def __init__(self, settings: Settings) -> None:
        self._url, self._key, self._timeout = settings.url, settings.key, settings.timeout
        self._calls = BlockingCalls("acme", threads=10, deadline=25)

    async def call(self, method: str, path: str, body: Any = None, *, missing: str = "") -> Any:
        """Return the decoded answer. Only the error code `missing` means NotFound: a proxy's 404 proves nothing."""
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
            raise error_of(what, error, missing) from None
        except (OSError, http.client.HTTPException) as error:
            raise Transient(f"{what}: {self._url}: {error!r}") from None
        except ValueError:
            raise Transient(f"{what}: the answer is not JSON") from None
