# SPDX-License-Identifier: Apache-2.0
"""moto as a server, with what it lacks: `python serve_moto.py PORT`, with moto on PYTHONPATH.

moto derives names from addresses, has no slow and no failed load balancers, and keeps routes to instances that are
gone. A POST to /ccm-control changes what AWS would change by itself.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance
from moto.ec2.models.route_tables import Route
from moto.elbv2.models import FakeLoadBalancer, elbv2_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

REGION = "eu-central-1"
#: Seconds that a load balancer takes.
settings = {"seconds": 0.0}

_derived_name = Instance.private_dns_name.fget
_activate = FakeLoadBalancer.activate
_state = Route.state.fget


def _name(self: Any) -> Any:
    return getattr(self, "ccm_name", None) or _derived_name(self)


def _become_active(self: Any) -> None:
    self.ccm_since = getattr(self, "ccm_since", time.monotonic())
    if self.state != "failed" and time.monotonic() - self.ccm_since >= settings["seconds"]:
        _activate(self)


def _route_state(self: Any) -> str:
    gone = self.instance is not None and self.instance.state in ("terminated", "shutting-down")
    return "blackhole" if gone else str(_state(self))


Instance.private_dns_name = property(_name)
FakeLoadBalancer.activate = _become_active
Route.state = property(_route_state)


def control(given: dict[str, Any]) -> dict[str, Any]:
    ec2, elb = ec2_backends[DEFAULT_ACCOUNT_ID][REGION], elbv2_backends[DEFAULT_ACCOUNT_ID][REGION]
    match given["do"]:
        case "name":
            ec2.get_instance(given["instance"]).ccm_name = given["name"]
        case "addresses":
            _set_interfaces(ec2.get_instance(given["instance"]), given["interfaces"])
        case "slow":
            settings["seconds"] = given["seconds"]
        case "fail":
            for balancer in elb.load_balancers.values():
                if balancer.name == given["name"]:
                    balancer.state = "failed"
    return {}


def _set_interfaces(instance: Any, interfaces: list[dict[str, Any]]) -> None:
    """IPv6 addresses and further private addresses of the interfaces, by their index."""
    for each in interfaces:
        nic = instance.nics[each["index"]]
        nic.ipv6_addresses = list(each.get("ipv6", ()))
        for address in each.get("more", ()):
            nic.private_ip_addresses.append({"Primary": False, "PrivateIpAddress": address})


class QuietHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *args: Any) -> None:
        """moto's own tests look at requests; these ask the proxy."""


if __name__ == "__main__":
    moto = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] != "/ccm-control":
            return moto(environ, start_response)
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        answer = json.dumps(control(json.loads(body))).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
        return [answer]

    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=QuietHandler)
