# SPDX-License-Identifier: Apache-2.0
"""`cloud.py CLOUDS_YAML` prints load balancers with all parts, addresses and routes of the customer's project.

The output is JSON, without what changes by itself, such as times and the health of members.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from openstack.config import OpenStackConfig
from openstack.connection import Connection

LISTENER = ("id", "name", "protocol", "protocol_port", "default_pool_id", "allowed_cidrs", "tags", "connection_limit")
POOL = ("id", "name", "protocol", "lb_algorithm", "session_persistence", "tags")
MEMBER = ("id", "name", "address", "protocol_port", "subnet_id", "monitor_port", "weight", "tags")
MONITOR = ("id", "name", "type", "delay", "timeout", "max_retries", "url_path")


def rows(found: Iterable[Any], keys: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows sorted by their content, because Octavia returns them in no order."""
    picked = [{key: getattr(each, key) for key in keys} for each in found]
    return sorted(picked, key=lambda row: json.dumps(row, sort_keys=True))


def main(clouds_yaml: str) -> None:
    region = OpenStackConfig(config_files=[clouds_yaml], load_envvars=False).get_one(cloud="rig")
    cloud = Connection(config=region)
    octavia, neutron = cloud.load_balancer, cloud.network
    balancers = []
    for found in octavia.load_balancers():
        row = rows([found], ("id", "name", "vip_address", "provisioning_status", "tags"))[0]
        row["listeners"] = rows(octavia.listeners(load_balancer_id=found.id), LISTENER)
        row["pools"] = [
            pool | {"members": rows(octavia.members(pool["id"]), MEMBER)}
            for pool in rows(octavia.pools(load_balancer_id=found.id), POOL)
        ]
        balancers.append(row)
    floating = {found.floating_ip_address: found.fixed_ip_address for found in neutron.ips()}
    routes = {route["destination"]: route["nexthop"] for router in neutron.routers() for route in router.routes}
    pairs = {
        port.fixed_ips[0]["ip_address"]: port.allowed_address_pairs
        for port in neutron.ports()
        if (port.device_owner or "").startswith("compute:")
    }
    print(
        json.dumps(
            {
                "load_balancers": balancers,
                "monitors": rows(octavia.health_monitors(), MONITOR),
                "floating_ips": floating,
                "routes": routes,
                "pairs": pairs,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
