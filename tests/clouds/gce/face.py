# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Compute Engine over HTTP: its tokens, its metadata server, pages, and failures on request.

It is our own code; `test_form.py` compares it with Google's published description of the API and with Google's clients
for Python. It keeps the calls of the API, but not those for tokens.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.clouds import stand_in
from tests.clouds.stand_in import Exchange, StandIn, answered
from tests.listening import listening

from .project import NUMBER, PROJECT, ZONES, Project

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
#: Google's client for Python has this URL in each claim, even if the key has another one.
TOKEN_URL = "https://oauth2.googleapis.com/token"
ACCOUNT = f"ccm@{PROJECT}.iam.gserviceaccount.com"
SUBJECT = "eyJhbGciOiJSUzI1NiJ9.projected-token-of-a-pod.c2lnbmF0dXJl"


@dataclass
class Fault(stand_in.Fault):
    """A failure on request. `path`: a regular expression that must match the whole path; "" matches any."""

    status: int = 503
    reason: str = "backendError"
    headers: dict[str, str] = field(default_factory=dict)
    path: str = ""

    def concerns(self, request: web.Request, path: str) -> bool:
        return self.due(self.path, path, first_page="pageToken" not in request.query)


class Face(StandIn[Fault, Exchange]):
    """The stand-in. `lifetime`: how many seconds a token is valid. `granted`: how many times each kind of token was
    issued.
    """

    def __init__(self, project: Project) -> None:
        super().__init__()
        self.project = project
        self.lifetime = 3600.0
        self.granted: dict[str, int] = {}
        self.page_limit = 500
        self.machine_zone = ZONES[0]
        self.tokens: set[str] = set()
        self._numbers = itertools.count(1)

    @property
    def host(self) -> str:
        return self.url.rpartition("/")[2]

    def key_file(self, **more: Any) -> str:
        """Return the JSON key of a service account, as Google issues it."""
        found = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "9ba2f3c1",
            "private_key": PEM,
            "client_email": ACCOUNT,
            "client_id": "104356789012345678901",
            "token_uri": f"{self.url}/token",
        }
        return json.dumps({**found, **more})

    # Tokens

    async def token(self, request: web.Request) -> web.Response:
        """Answer in place of oauth2.googleapis.com and sts.googleapis.com."""
        form = await request.post()
        match form.get("grant_type"):
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                if problem := self._wrong_assertion(str(form["assertion"])):
                    return _refused_token("invalid_grant", problem)
                return web.json_response(self._grant("key", token_type="Bearer"))
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                if form["subject_token"] != SUBJECT or not form["audience"] or not form["subject_token_type"]:
                    return _refused_token("invalid_grant", f"{form['subject_token']} is no token of the pool")
                return web.json_response(self._grant("federation", token_type="Bearer"))
        return _refused_token("unsupported_grant_type", "")

    async def impersonate(self, request: web.Request) -> web.Response:
        """Answer in place of iamcredentials.googleapis.com."""
        body = await request.json()
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens or not body["scope"]:
            return web.json_response({"error": {"code": 403, "status": "PERMISSION_DENIED"}}, status=403)
        granted = self._grant("impersonation")
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + int(body["lifetime"][:-1])))
        return web.json_response({"accessToken": granted["access_token"], "expireTime": ends})

    async def metadata(self, request: web.Request) -> web.Response:
        """Answer in place of metadata.google.internal."""
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403, text="Missing Metadata-Flavor:Google header.")
        flavor = {"Metadata-Flavor": "Google"}
        match request.match_info["path"]:
            case "project/project-id":
                return web.Response(text=PROJECT, headers=flavor)
            case "instance/zone":
                return web.Response(text=f"projects/{NUMBER}/zones/{self.machine_zone}", headers=flavor)
            case "instance/service-accounts/default/token":
                return web.json_response(self._grant("metadata", token_type="Bearer"), headers=flavor)
            case "instance/service-accounts/default/":
                account = {"email": ACCOUNT, "aliases": ["default"], "scopes": []}
                return web.json_response(account, headers=flavor)
        return web.Response(status=404, text="not found", headers=flavor)

    def _grant(self, kind: str, **more: str) -> dict[str, Any]:
        self.granted[kind] = self.granted.get(kind, 0) + 1
        token = f"ya29.{kind}-{next(self._numbers)}-c2VjcmV0"
        self.tokens.add(token)
        return {"access_token": token, "expires_in": int(self.lifetime), **more}

    def _wrong_assertion(self, assertion: str) -> str:
        head, claims, signature = assertion.split(".")
        try:
            KEY.public_key().verify(_bytes(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return "Invalid JWT Signature."
        found, now = json.loads(_bytes(claims)), time.time()
        if found["iss"] != ACCOUNT or found["aud"] not in (f"{self.url}/token", TOKEN_URL) or not found["scope"]:
            return f"Invalid JWT: {assertion}"
        if not now - 300 < found["iat"] <= now + 60 or not 0 < found["exp"] - found["iat"] <= 3600:
            return "Invalid JWT: Token must be a short-lived token"
        return "" if json.loads(_bytes(head))["alg"] == "RS256" else "Invalid JWT"

    # The API

    async def compute(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        fault = self.fault_for(lambda each: each.concerns(request, path))
        if fault is not None and (answer := await _early(fault, request)) is not None:
            self.exchanges.append(Exchange(request.method, path, dict(request.query), answer.status, None))
            return answer
        status, content = self._answer(request, path)
        copied = json.loads(json.dumps(content))
        self.exchanges.append(Exchange(request.method, path, dict(request.query), status, copied))
        return answered(content, fault, status=status)

    def _answer(self, request: web.Request, path: str) -> tuple[int, Any]:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return 401, _error(401, "authError", "Request had invalid authentication credentials.", "UNAUTHENTICATED")
        parts = path.strip("/").split("/")
        if request.method != "GET" or parts[0] != "projects":
            return 404, _error(404, "notFound", "Not Found")
        if parts[1] not in (PROJECT, NUMBER):
            return 404, _error(404, "notFound", f"The resource 'projects/{parts[1]}' was not found")
        match parts[2:]:
            case []:
                return 200, {"kind": "compute#project", "id": NUMBER, "name": PROJECT}
            case ["aggregated", "instances"]:
                return self._listing(request)
            case ["zones", zone, "instances", name]:
                if zone not in ZONES:
                    named = f"projects/{PROJECT}/zones/{zone}"
                    return 404, _error(404, "notFound", f"The resource '{named}' was not found")
                row = self.project.rows.get((zone, name))
                named = f"projects/{PROJECT}/zones/{zone}/instances/{name}"
                return (200, row) if row else (404, _error(404, "notFound", f"The resource '{named}' was not found"))
        return 404, _error(404, "notFound", "Not Found")

    def _listing(self, request: web.Request) -> tuple[int, Any]:
        query = request.query
        size = int(query.get("maxResults", 500))
        if not 0 <= size <= 500:
            message = f"Invalid value for field 'maxResults': '{size}'. Must be less than or equal to 500"
            return 400, _error(400, "invalid", message)
        if (self.project.doubts or self.project.unreachables) and query.get("returnPartialSuccess") != "true":
            return 503, _error(503, "backendError", "A zone does not answer.")
        rows = [self.project.rows[place] for place in sorted(self.project.rows)]
        if text := query.get("filter"):
            if (match := re.fullmatch(r'name = "([^"]*)"', text)) is None:
                return 400, _error(400, "invalid", f"Invalid value for field 'filter': '{text}'.")
            rows = [row for row in rows if row["name"] == match[1]]
        start = int(query.get("pageToken", "page-0").partition("-")[2])
        size = min(size, self.page_limit)
        shown, more = rows[start : start + size], start + size < len(rows)
        items: dict[str, Any] = {}
        for zone in ZONES:
            here = [row for row in shown if row["zone"].endswith(f"/{zone}")]
            items[f"zones/{zone}"] = {"instances": here} if here else {"warning": _empty(zone)}
            if zone in self.project.doubts:
                items[f"zones/{zone}"] = {"warning": {"code": self.project.doubts[zone], "message": "no answer"}}
        answer: dict[str, Any] = {
            "kind": "compute#instanceAggregatedList",
            "id": f"projects/{PROJECT}/aggregated/instances",
            "items": items,
            "selfLink": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/aggregated/instances",
        }
        if more:
            answer["nextPageToken"] = f"page-{start + size}"
        if self.project.unreachables:
            answer["unreachables"] = self.project.unreachables
        return 200, answer


async def _early(fault: Fault, request: web.Request) -> web.Response | None:
    if fault.kind == "status":
        content = _error(fault.status, fault.reason, f"on request, with {request.headers.get('Authorization')}")
        return web.json_response(content, status=fault.status, headers=fault.headers)
    return await stand_in.instead(fault, fault.status, request)


def _empty(zone: str) -> dict[str, Any]:
    message = f"There are no results for scope 'zones/{zone}' on this page."
    return {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": [{"key": "scope", "value": f"zones/{zone}"}]}


def _error(code: int, reason: str, message: str, status: str = "") -> dict[str, Any]:
    error = {"code": code, "message": message}
    error["errors"] = [{"message": message, "domain": "global", "reason": reason}]  # type: ignore[assignment]
    return {"error": {**error, **({"status": status} if status else {})}}


def _refused_token(error: str, description: str) -> web.Response:
    return web.json_response({"error": error, "error_description": description}, status=400)


def _bytes(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


@contextlib.asynccontextmanager
async def running(project: Project) -> AsyncIterator[Face]:
    face = Face(project)
    routes = (
        web.post("/token", face.token),
        web.post("/impersonate", face.impersonate),
        web.get("/computeMetadata/v1/{path:.*}", face.metadata),
        web.route("*", "/compute/v1/{path:.*}", face.compute),
    )
    async with listening(*routes) as face.url:
        yield face
