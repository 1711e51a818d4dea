# SPDX-License-Identifier: Apache-2.0
"""A cloud that quotes a request in its answer: URL, headers and body, also decoded.

It issues a token if an API has tokens, and OpenStack's services list their versions. Each other path fails in turns in
the ways in which clouds fail, independently of other paths. So any part of an answer that a provider shows would
contain its credentials.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import datetime
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.listening import listening

from ..cluster import Authority

#: The answers of a path, in turns. A refusal of the credentials comes last, because it ends a starting process.
STATUSES = (500, 503, 429, 404, 403, 200, 401)
#: OpenStack's services by their paths, and the versions that each one reports.
SERVICES = {
    "compute": {"id": "v2.1", "version": "2.96", "min_version": "2.1"},
    "network": {"id": "v2.0"},
    "load-balancer": {"id": "v2.27"},
    "volumev3": {"id": "v3.0", "version": "3.70", "min_version": "3.0"},
}
#: Headers that every client sends. The quotation begins with the others, because some clients show only a part.
PLAIN = {"host", "accept", "accept-encoding", "connection", "content-length", "content-type", "user-agent"}
#: A token that this cloud issues: it is a secret, too.
ISSUED = "issued-0a1b2c3d4e5f"


class QuotingCloud:
    """The cloud. `asked`: the requests so far, with their content."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self._turns: collections.Counter[tuple[str, str]] = collections.Counter()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = (await request.read()).decode(errors="replace")
        pairs = sorted(request.headers.items(), key=lambda pair: pair[0].lower() in PLAIN)
        heads = [f"{name}: {text} ({_decoded(text)})" for name, text in pairs]
        quoted = f"{request.method} {request.raw_path} {' '.join(heads)} {body}"
        self.asked.append(quoted)
        if (granted := self._granted(request)) is not None:
            return granted
        turn = (request.method, request.path)
        status = STATUSES[self._turns[turn] % len(STATUSES)]
        self._turns[turn] += 1
        fault = {"code": "broken", "message": quoted, "errorcode": 530, "errortext": quoted}
        answer = {"error": fault, "message": quoted, "id": quoted, "errorresponse": fault, "faultstring": quoted}
        headers = {"Retry-After": "1"} if status == 429 else {}
        return web.json_response(answer, status=status, headers=headers, reason="Broken")

    def _granted(self, request: web.Request) -> web.Response | None:
        """Return the answer to a login (Keystone, the simulated cloud, OAuth 2.0), or to a question for the version of
        an OpenStack service. Return None for other requests."""
        if (service := request.path.strip("/")) in SERVICES and request.method == "GET":
            link = {"rel": "self", "href": f"{self.url}/{service}/{SERVICES[service]['id']}/"}
            return web.json_response({"versions": [{**SERVICES[service], "status": "CURRENT", "links": [link]}]})
        if request.path.endswith("/v1/tokens"):
            return web.json_response({"access_token": ISSUED, "expires_in": 3600})
        if request.path.endswith("/token"):
            return web.json_response({"access_token": ISSUED, "token_type": "Bearer", "expires_in": 3600})
        version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": f"{self.url}/v3/"}]}
        if request.path.rstrip("/") == "/v3" and request.method == "GET":
            return web.json_response({"version": version})
        if request.path == "/v3/auth/tokens":
            ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
            token = {
                "methods": ["password"],
                "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
                "project": {"id": "p", "name": "p", "domain": {"id": "default", "name": "Default"}},
                "user": {"id": "u", "name": "u", "domain": {"id": "default", "name": "Default"}},
                "roles": [{"id": "r", "name": "member"}],
                "catalog": [
                    {
                        "type": kind,
                        "name": kind,
                        "id": kind,
                        "endpoints": [
                            {
                                "interface": "public",
                                "region": "r1",
                                "region_id": "r1",
                                "id": "e",
                                "url": f"{self.url}/{kind}",
                            }
                        ],
                    }
                    for kind in SERVICES
                ],
            }
            return web.json_response({"token": token}, status=201, headers={"X-Subject-Token": ISSUED})
        return None


def _decoded(text: str) -> str:
    """Return what a header has in Base64, as in Basic authentication; "" if it is not Base64."""
    with contextlib.suppress(ValueError):
        return base64.b64decode(text.removeprefix("Basic "), validate=True).decode(errors="replace")
    return ""


@contextlib.asynccontextmanager
async def running(folder: Path, tls: bool) -> AsyncIterator[QuotingCloud]:
    cloud = QuotingCloud()
    route = web.route("*", "/{path:.*}", cloud.answer)
    async with listening(route, tls=_context(folder) if tls else None) as cloud.url:
        yield cloud


def _context(folder: Path) -> ssl.SSLContext:
    certificate, key = Authority(folder).issue("quoting cloud", hosts=["127.0.0.1"])
    path = folder / "cloud.pem"
    path.write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def as_json(value: Any) -> str:
    """Return a value as JSON, to search in it."""
    return json.dumps(value, default=str)
