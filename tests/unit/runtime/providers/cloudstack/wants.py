# SPDX-License-Identifier: Apache-2.0
"""Services and rows of the API for tests of load balancers."""

from __future__ import annotations

from typing import Any

from ccm.cloud import LoadBalancerSpec, Port
from ccm.providers.cloudstack.annotations import PREFIX

UID = "0f1e2d3c-1111-4222-8333-444455556666"
BASE = "a0f1e2d3c11114222833344445555666"
ADDRESS, NETWORK = "address-1", "network-1"


def service(*ports: Port, annotations: dict[str, str] | None = None, **more: Any) -> LoadBalancerSpec:
    """Return a Service with these ports, by default port 80. `annotations`: without their prefix."""
    return LoadBalancerSpec(
        cluster="kubernetes",
        uid=UID,
        namespace="default",
        name="web",
        ports=ports or (Port("http", "TCP", 80, 30080),),
        annotations={PREFIX + name: text for name, text in (annotations or {}).items()},
        **more,
    )


def rule(port: int = 80, **changed: Any) -> dict[str, Any]:
    """Return a row of `listLoadBalancerRules` as `service()` needs it, with `changed` set or replaced."""
    return {
        "id": f"rule-{port}",
        "name": f"{BASE}-tcp-{port}",
        "description": "",
        "state": "Active",
        "algorithm": "roundrobin",
        "protocol": "tcp",
        "publicport": str(port),
        "privateport": str(30000 + port),
        "publicip": "203.0.113.7",
        "publicipid": ADDRESS,
        "networkid": NETWORK,
        "cidrlist": "",
        **changed,
    }


def opened(port: int = 80, cidrs: str = "0.0.0.0/0", **changed: Any) -> dict[str, Any]:
    """Return a row of `listFirewallRules`."""
    row = {"id": f"open-{port}", "protocol": "tcp", "startport": port, "endport": port, "cidrlist": cidrs}
    return row | changed
