# SPDX-License-Identifier: Apache-2.0
"""Services, Nodes and load balancers for tests of rules."""

from __future__ import annotations

import copy
from typing import Any

from ccm.cloud import Address, AddressType, Backend, LoadBalancerSpec, Port
from ccm.providers.hetzner import load_balancer_rules as rules
from ccm.providers.hetzner.settings import Variables

PREFIX = "load-balancer.hetzner.cloud/"
ROW: dict[str, Any] = {
    "id": 7,
    "name": "a1234",
    "labels": {},
    "protection": {"delete": False},
    "load_balancer_type": {"name": "lb11", "max_targets": 4},
    "algorithm": {"type": "round_robin"},
    "public_net": {
        "enabled": True,
        "ipv4": {"ip": "203.0.113.7", "dns_ptr": "old.example.org"},
        "ipv6": {"ip": "2001:db8::7", "dns_ptr": None},
    },
    "private_net": [{"network": 5, "ip": "10.0.1.2"}],
    "services": [
        {
            "protocol": "tcp",
            "listen_port": 80,
            "destination_port": 30080,
            "proxyprotocol": False,
            "health_check": {"protocol": "tcp", "port": 30080, "interval": 15, "timeout": 10, "retries": 3},
        }
    ],
    "targets": [{"type": "server", "server": {"id": each}, "use_private_ip": False} for each in (1, 2)],
}


def row(**changed: Any) -> dict[str, Any]:
    return copy.deepcopy(ROW) | changed


def spec(**annotations: str) -> LoadBalancerSpec:
    given = {PREFIX + name.replace("_", "-"): text for name, text in annotations.items()}
    return LoadBalancerSpec("prod", "1-2-3-4", "default", "web", (Port("p", "TCP", 80, 30080),), given)


def want(variables: Variables | None = None, **annotations: str) -> rules.DesiredState:
    return rules.desired_state(spec(**annotations), variables or Variables(hcloud_network="kube"))


def backend(number: int, provider_id: str = "", **labels: str) -> Backend:
    address = Address(AddressType.EXTERNAL_IP, f"198.51.100.{number}")
    return Backend(f"worker-{number}", provider_id or f"hcloud://{number}", (address,), labels)
