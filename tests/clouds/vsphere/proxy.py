# SPDX-License-Identifier: Apache-2.0
"""A TLS proxy in front of a vCenter. It names a call by its SOAP method, or by method and path for REST."""

from __future__ import annotations

import re
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.breaking_proxy import BreakingProxy, Fault
from tests.integration.cluster import Authority

__all__ = ["Fault", "Hidden", "Proxy"]

_METHOD = re.compile(rb"Body[^>]*>\s*<(?:\w+:)?(\w+)")
_ID = re.compile(r"id:[^/?]+")
_OBJECTS = re.compile(rb"<objects>.*?</objects>", re.DOTALL)
_MACHINE = re.compile(rb'<obj [^>]*type="VirtualMachine"')
_REFERENCE = re.compile(rb'<(\w+)(?: [^>]*)? type="VirtualMachine"[^>]*>([^<]+)</\1>')
_FAULT = """<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"
 xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>
<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>on request</faultstring><detail>
<{name}Fault xmlns="urn:vim25" xsi:type="{name}">{what}</{name}Fault></detail></soapenv:Fault></soapenv:Body>
</soapenv:Envelope>"""
_DENIED = '<object type="Folder">group-d1</object><privilegeId>System.View</privilegeId>'


@dataclass
class Hidden(Fault):
    """Answers omit these machines (managed object references), as if the vCenter did not have them."""

    kind: str = "hidden"
    machines: Collection[str] = ()


class Proxy(BreakingProxy):
    """The proxy. `behind`: the vCenter's port on loopback. `ca_file`: the CA of the proxy's certificate.

    Further kinds of faults: half (of the machines in an answer), hidden (`Hidden`), denied (a right is missing), ended
    and refused. The last two are the same: neither the session nor user and password are accepted.
    """

    def __init__(self, behind: int, folder: Path) -> None:
        authority = Authority(folder)
        self.ca_file = authority.file
        cert, key = authority.issue("vcenter", hosts=["127.0.0.1"])
        (folder / "vcenter.pem").write_bytes(cert + key)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "vcenter.pem")
        super().__init__(f"https://127.0.0.1:{behind}", tls)

    def name_of(self, request: web.Request, body: bytes) -> str:
        """Return SOAP's method, or for REST the HTTP method and the path without identifiers."""
        if request.path == "/sdk" and (found := _METHOD.search(body)):
            return found[1].decode()
        return f"{request.method} {_ID.sub('id', request.path)}"

    async def break_otherwise(self, request: web.Request, body: bytes, fault: Any) -> web.Response | None:
        is_soap = request.path == "/sdk"
        match fault.kind:
            case "half":
                answer = await self.carry_out(request, body)
                return _with_half_of_the_machines(answer) if b"ContainerView" in body else answer
            case "hidden":
                answer = await self.carry_out(request, body)
                return _without(answer, {each.encode() for each in fault.machines}) if is_soap else answer
            case "ended" | "refused" | "denied" if not is_soap:
                return web.Response(status=403 if fault.kind == "denied" else 401, text="{}")
            case "denied":
                return _fault("NoPermission", _DENIED)
            case "ended" | "refused":
                return _fault("InvalidLogin" if self.name_of(request, body) == "Login" else "NotAuthenticated")
        return None


def _fault(name: str, what: str = "") -> web.Response:
    return web.Response(status=500, text=_FAULT.format(name=name, what=what), content_type="text/xml")


def _with_half_of_the_machines(answer: web.Response) -> web.Response:
    content = answer.body if isinstance(answer.body, bytes) else b""
    machines = [each for each in _OBJECTS.findall(content) if _MACHINE.search(each)]
    for each in machines[len(machines) // 2 :]:
        content = content.replace(each, b"", 1)
    return web.Response(status=answer.status, headers=answer.headers, body=content)


def _without(answer: web.Response, machines: Collection[bytes]) -> web.Response:
    """Remove these machines from an answer: their objects, and references to them."""
    content = answer.body if isinstance(answer.body, bytes) else b""

    def kept(match: re.Match[bytes]) -> bytes:
        is_one = (about := _REFERENCE.search(match[0])) and about[1] == b"obj" and about[2] in machines
        return b"" if is_one else match[0]

    content = _OBJECTS.sub(kept, content)
    content = _REFERENCE.sub(lambda found: b"" if found[2] in machines else found[0], content)
    return web.Response(status=answer.status, headers=answer.headers, body=content)
