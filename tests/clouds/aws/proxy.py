# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of moto that stands for AWS's front end: it names calls by their operation, and refuses them in the
form of their API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from aiohttp import web

from tests import breaking_proxy

#: Versions of APIs -> services, as policies name them.
CLASSIC = "2012-06-01"
SERVICES = {
    "2016-11-15": "ec2",
    "2015-12-01": "elasticloadbalancing",
    CLASSIC: "elasticloadbalancing",
    "2011-06-15": "sts",
}
_EC2 = "<Response><Errors><Error><Code>{code}</Code><Message>on request</Message></Error></Errors></Response>"
_ELB = (
    "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>on request</Message></Error></ErrorResponse>"
)


@dataclass
class Fault(breaking_proxy.Fault):
    """A failure on request. `code`: the error code, for the kind `status` without a `body`. `later`: only calls for a
    later page fail."""

    code: str = ""
    later: bool = False


class Proxy(breaking_proxy.BreakingProxy):
    """The proxy. `behind`: the port of the account on the loopback interface."""

    def __init__(self, behind: int) -> None:
        self._actions: set[str] = set()
        self._headers: dict[str, dict[str, str]] = {}
        #: Name of a load balancer -> the fields of the last call that created it; moto forgets some of them.
        self.created: dict[str, dict[str, str]] = {}
        super().__init__(f"http://127.0.0.1:{behind}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def actions(self) -> set[str]:
        """Return the calls as actions of an IAM policy."""
        return set(self._actions)

    def headers(self, call: str) -> dict[str, str]:
        """Return the headers of the last call of this operation, in lower case."""
        return self._headers[call]

    def name_of(self, request: web.Request, body: bytes) -> str:
        """Return the operation, such as DescribeInstances, with `classic` before those of Classic Load Balancers.

        Also remember the call's headers and its action, and the parameters of a call that creates a Network Load
        Balancer.
        """
        form = _form(body)
        version = form.get("Version", [""])[0]
        name = form.get("Action", [f"{request.method} {request.path}"])[0]
        self._headers[name] = {key.lower(): value for key, value in request.headers.items()}
        self._actions.add(f"{SERVICES.get(version, '?')}:{name}")
        if name == "CreateLoadBalancer" and version != CLASSIC:
            self.created[form["Name"][0]] = {key: each for key, (each,) in form.items()}
        return f"classic {name}" if version == CLASSIC else name

    def fault_of(self, name: str, body: bytes) -> Fault | None:
        is_later = bool(_form(body).keys() & {"NextToken", "Marker"})
        return next((each for each in self._faults if (is_later or not each.later) and each.takes(name)), None)

    def refusal(self, request: web.Request, body: bytes, fault: Fault) -> web.Response:
        template = _EC2 if b"2016-11-15" in body else _ELB
        text = fault.body or template.format(code=fault.code)
        return web.Response(status=fault.status, headers=fault.headers, text=text, content_type="text/xml")


def _form(body: bytes) -> dict[str, list[str]]:
    return parse_qs(body.decode("latin-1"))
