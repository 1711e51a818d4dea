# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Azure over HTTP: Azure Resource Manager, Microsoft Entra ID, and the tokens of managed identities. It
has pages, fails on request, and keeps the calls of Azure Resource Manager.

It is our own code; `test_form.py` compares it with Azure's published API description and Microsoft's clients for
Python."""

from __future__ import annotations

import base64
import contextlib
import copy
import datetime
import itertools
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.clouds import stand_in
from tests.clouds.stand_in import Exchange, StandIn, answered
from tests.listening import listening

from .resources import BASE, GROUP, SETS, SUBSCRIPTION, Group

TENANT, CLIENT = "72f988bf-86f1-41af-91ab-2d7cd011db47", "04b07795-8ddb-461a-bbee-02f9e1bf7b46"
SECRET = "Qx8Q~hush.client-secret_1fJ7m"
FEDERATED = "eyJhbGciOiJSUzI1NiJ9.projected-token-of-a-pod.c2lnbmF0dXJl"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ccm")])
CERTIFICATE = (
    x509.CertificateBuilder(_NAME, _NAME, KEY.public_key(), 1)
    .not_valid_before(datetime.datetime(2026, 1, 1))
    .not_valid_after(datetime.datetime(2046, 1, 1))
    .sign(KEY, hashes.SHA256())
)
PEM = (
    KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    + CERTIFICATE.public_bytes(serialization.Encoding.PEM)
).decode()


@dataclass
class Fault(stand_in.Fault):
    """A failure on request. `path`: a regular expression that must match the whole path; "" matches any."""

    status: int = 503
    code: str = "ServiceUnavailable"
    headers: dict[str, str] = field(default_factory=dict)
    path: str = ""

    def concerns(self, request: web.Request) -> bool:
        return self.due(self.path, request.path, first_page="$skiptoken" not in request.query)


class Face(StandIn[Fault, Exchange]):
    """The stand-in. `lifetime`: how many seconds a token is valid. `granted`: how many times each kind of credentials
    got a token.
    """

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group
        self.lifetime = 3600.0
        self.may_read_statuses = True
        self.page_limit = 1000
        self.granted: dict[str, int] = {}
        self.tokens: set[str] = set()
        self._numbers = itertools.count(1)

    def calls(self, since: int = 0) -> list[str]:
        return [call.replace(BASE, "") for call in super().calls(since)]

    # Tokens

    async def token(self, request: web.Request) -> web.Response:
        """Answer in place of login.microsoftonline.com."""
        form = await request.post()
        if form["client_id"] != CLIENT or form["grant_type"] != "client_credentials":
            return _refused("unauthorized_client", f"AADSTS700016: Application {form['client_id']} was not found")
        if form["scope"] != f"{self.url}/.default":
            return _refused("invalid_scope", "AADSTS1002012: The provided value for scope is not valid")
        assertion = str(form.get("client_assertion", ""))
        if assertion == FEDERATED:
            return web.json_response(self._grant("federated"))
        if assertion:
            problem = self._wrong_assertion(assertion, str(request.url))
            return _refused("invalid_client", problem) if problem else web.json_response(self._grant("certificate"))
        if form.get("client_secret") != SECRET:
            return _refused("invalid_client", f"AADSTS7000215: Invalid client secret provided: {form['client_secret']}")
        return web.json_response(self._grant("secret"))

    async def identity(self, request: web.Request) -> web.Response:
        """Answer in place of the instance metadata service."""
        if request.headers.get("Metadata") != "true" or request.query["resource"] != self.url:
            return web.json_response({"error": "invalid_request", "error_description": "no"}, status=400)
        named = request.query.get("client_id") or request.query.get("msi_res_id") or ""
        if named and named != CLIENT and not named.startswith("/subscriptions/"):
            return web.json_response(
                {"error": "invalid_request", "error_description": "Identity not found"}, status=400
            )
        granted = self._grant(f"identity {named}".strip())
        return web.json_response({**granted, "expires_in": str(granted["expires_in"])})

    def _grant(self, kind: str) -> dict[str, Any]:
        self.granted[kind] = self.granted.get(kind, 0) + 1
        token = f"eyJ0eXAi.{kind.partition(' ')[0]}-{next(self._numbers)}.c2VjcmV0"
        self.tokens.add(token)
        return {"token_type": "Bearer", "expires_in": int(self.lifetime), "access_token": token}

    def _wrong_assertion(self, assertion: str, url: str) -> str:
        head, claims, signature = assertion.split(".")
        salted = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
        try:
            KEY.public_key().verify(_bytes(signature), f"{head}.{claims}".encode(), salted, hashes.SHA256())
        except InvalidSignature:
            return f"AADSTS700027: The certificate with identifier used to sign is not registered: {assertion}"
        named, found, now = json.loads(_bytes(head)), json.loads(_bytes(claims)), time.time()
        if named["alg"] != "PS256" or _bytes(named["x5t#S256"]) != CERTIFICATE.fingerprint(hashes.SHA256()):
            return "AADSTS5002730: Invalid JWT token"
        if (found["aud"], found["iss"], found["sub"]) != (url, CLIENT, CLIENT) or not found["jti"]:
            return "AADSTS700023: Client assertion audience claim does not match"
        return (
            "" if found["nbf"] <= now < found["exp"] else "AADSTS700024: Client assertion is not within its time range"
        )

    # Azure Resource Manager

    async def manage(self, request: web.Request) -> web.StreamResponse:
        fault = self.fault_for(lambda each: each.concerns(request))
        if fault is not None and (answer := await _early(fault, request)) is not None:
            self.exchanges.append(Exchange(request.method, request.path, dict(request.query), answer.status, None))
            return answer
        status, content = self._answer(request)
        copied = json.loads(json.dumps(content))
        self.exchanges.append(Exchange(request.method, request.path, dict(request.query), status, copied))
        return answered(content, fault, status=status)

    def _answer(self, request: web.Request) -> tuple[int, Any]:
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return 401, _error("InvalidAuthenticationToken", "The access token is invalid.")
        if "api-version" not in request.query:
            return 400, _error("MissingApiVersionParameter", "The api-version query parameter is required.")
        path = request.path
        if not path.lower().startswith(f"/subscriptions/{SUBSCRIPTION}/"):
            return 404, _error("SubscriptionNotFound", "The subscription could not be found.")
        if path == f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines":
            return self._statuses(request)
        if not path.lower().startswith(BASE.lower() + "/"):
            return 404, _error("ResourceGroupNotFound", "Resource group could not be found.")
        path = path[: len(BASE)] + SEGMENTS.sub(lambda found: SPELT[found[0].lower()], path[len(BASE) :])
        expanded = request.query.get("$expand") == "instanceView"
        if expanded and path.endswith("/Microsoft.Compute/virtualMachines"):
            return 400, _error("BadRequest", "The expand option needs a filter by a scale set.")
        rows = self._rows(path[len(BASE) :])
        if rows is None:
            what = path[len(BASE) + 1 :]
            message = f"The Resource '{what}' under resource group '{GROUP}' was not found."
            return 404, _error("ResourceNotFound", message)
        shown = [row if expanded else _without_view(row) for row in rows]
        if path.rstrip("/").rpartition("/")[2] not in LISTS:
            return 200, shown[0]
        return 200, self._page(request, shown)

    def _statuses(self, request: web.Request) -> tuple[int, Any]:
        """Return all machines of the subscription except those of uniform sets, with their states but without the
        numbers of their fault domains. A request without `statusOnly` gets no states, and a client that may not read
        states gets a 403."""
        if not self.may_read_statuses:
            return 403, _error(
                "AuthorizationFailed", "The client does not have authorization over scope '/subscriptions'"
            )
        rows = []
        for row in self.group.machines.values():
            same = {name: row[name] for name in ("name", "id", "type", "location")}
            view = {"instanceView": {"statuses": row["properties"]["instanceView"]["statuses"]}}
            rows.append({**same, "properties": view if request.query.get("statusOnly") == "true" else {}})
        return 200, self._page(request, rows)

    def _page(self, request: web.Request, shown: list[Any]) -> dict[str, Any]:
        start = int(request.query.get("$skiptoken", "0"))
        page: dict[str, Any] = {"value": shown[start : start + self.page_limit]}
        if start + self.page_limit < len(shown):
            query = {**request.query, "$skiptoken": str(start + self.page_limit)}
            page["nextLink"] = str(request.url.with_query(query))
        return page

    def _rows(self, path: str) -> list[Any] | None:
        """Return the rows of a listing, or one row in a list; None if there is no such resource."""
        group = self.group
        match path.strip("/").split("/"):
            case ["Microsoft.Compute", "virtualMachines"]:
                return list(group.machines.values())
            case ["Microsoft.Compute", "virtualMachines", _]:
                return _one(group.machines, BASE + path)
            case ["Microsoft.Compute", "virtualMachineScaleSets"]:
                return list(group.sets.values())
            case ["Microsoft.Compute", "virtualMachineScaleSets", name, *rest]:
                named = next((each for each in group.sets if each.lower() == name.lower()), None)
                return None if named is None else self._in_set(named, rest)
            case ["Microsoft.Network", "networkInterfaces"]:
                return list(group.interfaces.values())
            case ["Microsoft.Network", "networkInterfaces", _]:
                return _one(group.interfaces, BASE + path)
            case ["Microsoft.Network", "publicIPAddresses"]:
                return list(group.public.values())
            case ["Microsoft.Network", "publicIPAddresses", _]:
                return _one(group.public, BASE + path)
        return None

    def _in_set(self, name: str, rest: list[str]) -> list[Any] | None:
        group = self.group
        match rest:
            case ["virtualMachines"]:
                return list(group.set_machines[name].values())
            case ["virtualMachines", number]:
                found = group.set_machines[name].get(number)
                return None if found is None else [found]
            case ["virtualMachines", number, "networkInterfaces"] if number in group.set_machines[name]:
                start = f"{SETS}/{name}/virtualMachines/{number}/"
                return [row for id, row in group.set_interfaces[name].items() if id.startswith(start)]
            case ["networkInterfaces"]:  # Azure's network API returns 404 for a set without machines
                return list(group.set_interfaces[name].values()) or None
            case ["publicipaddresses"]:
                return list(group.set_public[name].values()) or None
        return None


#: Part of a path in lower case -> its spelling in the API's description. Azure ignores case in paths.
SPELT = {
    each.lower(): each
    for each in ("Microsoft.Compute", "Microsoft.Network", "virtualMachines", "virtualMachineScaleSets")
}
SEGMENTS = re.compile("|".join(rf"(?<=/){re.escape(each)}(?=/|$)" for each in SPELT), re.IGNORECASE)
#: Last parts of the paths of listings.
LISTS = {"virtualMachines", "virtualMachineScaleSets", "networkInterfaces", "publicIPAddresses", "publicipaddresses"}


async def _early(fault: Fault, request: web.Request) -> web.Response | None:
    if fault.kind == "status":
        content = _error(fault.code, f"on request, with {request.headers.get('Authorization')}")
        return web.json_response(content, status=fault.status, headers=fault.headers)
    return await stand_in.instead(fault, fault.status, request)


def _one(rows: dict[str, Any], id: str) -> list[Any] | None:
    return next(([row] for each, row in rows.items() if each.lower() == id.lower()), None)


def _without_view(row: Any) -> Any:
    found = copy.deepcopy(row)
    found["properties"].pop("instanceView", None)
    return found


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _refused(error: str, description: str) -> web.Response:
    return web.json_response({"error": error, "error_description": description}, status=401)


def _bytes(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


@contextlib.asynccontextmanager
async def running(group: Group) -> AsyncIterator[Face]:
    face = Face(group)
    routes = (
        web.post(f"/{TENANT}/oauth2/v2.0/token", face.token),
        web.get("/metadata/identity/oauth2/token", face.identity),
        web.route("*", "/subscriptions/{path:.*}", face.manage),
    )
    async with listening(*routes) as face.url:
        yield face
