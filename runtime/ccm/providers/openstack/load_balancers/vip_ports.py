# SPDX-License-Identifier: Apache-2.0
"""Finds the place of a new load balancer's VIP: the port that a Service names (`port-id`), or the nodes' subnet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ccm.cloud import Backend, Conflict, Invalid, NotFound
from ccm.cloud.toolkit.backend_addresses import node_address

from .. import instance_rules
from ..annotations import PREFIX
from .floating_ips import NETWORK, FloatingIps, made_for
from .permissions import Row, port_problem

if TYPE_CHECKING:
    from ..api import Api

#: How many nodes are tried. Kubelets report the addresses of nodes, and an address may be wrong.
TRIES = 5

_FIELDS = [("fields", name) for name in ("id", "allowed_address_pairs")]


async def check_port(api: Api, floating: FloatingIps, port_id: str, description: str, balancers: Iterable[Row]) -> None:
    """Raises Invalid if the port does not exist, or cannot become the VIP (`permissions.port_problem`).

    `description`: of the Service's own floating IPs; one of them may already be on the port.
    """
    where = f"annotation {PREFIX}port-id: port {port_id}"
    try:
        port = (await api.call("GET", NETWORK, f"/ports/{port_id}", missing=port_id))["port"]
    except NotFound:
        raise Invalid(f"{where} does not exist in this project") from None
    network = [("network_id", str(port.get("network_id") or ""))]
    neighbours = await api.pages(NETWORK, "/ports", "ports", [*_FIELDS, *network])
    on_port = await floating.on(port_id)
    if on_port is not None and made_for(on_port, description):
        on_port = None
    if problem := port_problem(port, balancers, neighbours, on_port, api.project_id):
        raise Invalid(f"{where} cannot become the VIP of this Service: {problem}")


async def second_subnet(api: Api, subnet_id: str, network_id: str, family: str) -> str:
    """Return the subnet of this family in the network of the VIP, "" if there is none. Octavia takes additional VIPs
    from no other network. If there are several subnets, return the one with the lowest ID."""
    if not network_id and subnet_id:
        answer = await api.call("GET", NETWORK, f"/subnets/{subnet_id}", missing=subnet_id)
        network_id = str(answer["subnet"].get("network_id") or "")
    if not network_id:
        return ""
    rows = await api.pages(NETWORK, "/subnets", "subnets", {"network_id": network_id})
    fit = (str(row["id"]) for row in rows if f"IPv{row.get('ip_version', 4)}" == family and row["id"] != subnet_id)
    return min(fit, default="")


async def nodes_subnet(api: Api, backends: Sequence[Backend], family: str) -> str:
    """Return the default subnet for load balancers: that of the first node whose server has the node's address, among
    the first TRIES nodes. Raises Conflict if there is none."""
    wrong = ""
    tried = 0
    for backend in sorted(backends, key=lambda each: each.node_name):
        address = node_address(backend, family)
        server = instance_rules.server_id(backend.provider_id, api.region)
        if not address or server is None or tried >= TRIES:
            continue
        tried += 1
        for port in await api.pages(NETWORK, "/ports", "ports", {"device_id": server}):
            for fixed in port.get("fixed_ips") or ():
                if port.get("device_id") == server and fixed["ip_address"] == address:
                    return str(fixed["subnet_id"])
        wrong = wrong or f"no port of server {server} has {backend.node_name}'s address {address}, so the subnet "
    if wrong:
        raise Conflict(f"{wrong}for the load balancer is unknown: set subnet-id in [LoadBalancer] of cloud.conf")
    raise Conflict(
        "no node has a subnet in which the load balancer could be created: set subnet-id in [LoadBalancer] of "
        "cloud.conf, or wait for a node"
    )
