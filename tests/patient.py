# SPDX-License-Identifier: Apache-2.0
"""A client of the API server for tests' own requests: it waits as long as a busy machine needs.

The product's time-outs are for clusters. A test that starves for five seconds beside other tests has found nothing.
"""

from __future__ import annotations

from typing import Any

import aiohttp

from ccm.engine.client import KubeClient

#: Seconds for a connection and for a request: far more than any takes. No test depends on this number.
PATIENCE = 300.0


class PatientClient(KubeClient):
    async def _request(self, method: str, path: str, **how: Any) -> bytes:
        how["timeout"] = PATIENCE if how.get("timeout") is None else how["timeout"]
        return await super()._request(method, path, **how)

    async def _send(
        self, session: Any, method: Any, path: Any, params: Any, data: Any, accept: str, limits: aiohttp.ClientTimeout,
        **how: Any,
    ) -> aiohttp.ClientResponse:  # fmt: skip
        limits = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=limits.sock_read)
        return await super()._send(session, method, path, params, data, accept, limits, **how)
