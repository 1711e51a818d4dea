# SPDX-License-Identifier: Apache-2.0
"""What Services have in the project and in the API server, field by field, so that two controllers can be compared.

Fields of the services' answers are kept, except those of `_IDENTITIES`. Addresses, UIDs and IDs that nobody requested
are replaced by a description of their object: ``floating IP of web``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ccm.providers.openstack.annotations import PREFIX
from ccm.providers.openstack.load_balancers.load_balancer_owners import load_balancer_name
from tests.comparison.belongings import Belongings, Replacements, Row

from .customer import Site

#: Fields that are not compared. Most differ between any two objects, or say which parts an object has, and the parts
#: themselves are compared.
_IDENTITIES = re.compile(
    r"id|.*_at|project_id|tenant_id|revision_number|loadbalancers|listeners|pools|members|healthmonitor(_id)?|"
    r"default_pool(_id)?|vip_port_id|port_id|port_details|fixed_ip_address|security_group_rules|stateful|shared"
)
_OUR_TAG = "ccm:"
_THEIR_ANNOTATIONS = (f"{PREFIX}load-balancer-id", f"{PREFIX}load-balancer-address")
_UID_AT_END = re.compile(r" \(UID of [^)]+\)$")


def belongings(site: Site, services: Iterable[Row]) -> dict[str, Belongings]:
    """Return the belongings by the Services' names. The listeners of a Service that shares a load balancer are listed
    with the owner of that load balancer."""
    cloud = _Listings(site)
    bodies = {str(body["metadata"]["name"]): body for body in services}
    found = {name: Belongings(_IDENTITIES) for name in bodies}
    says = Replacements(cloud.nodes)
    for name, body in bodies.items():
        says.add(body["metadata"]["uid"], f"UID of {name}")
        balancer = cloud.balancers.get(load_balancer_name(site.name, "default", name))
        if balancer is not None:
            says.add(balancer["id"], f"ID of {name}")
            asked_for = {body["spec"].get("loadBalancerIP")}
            for address, what in ((balancer["vip_address"], "VIP"), (cloud.floating_address(balancer), "floating IP")):
                if address and address not in asked_for:
                    says.add(address, f"{what} of {name}")
            _of_balancer(found[name], balancer, cloud)
        _of_group(found[name], cloud, f"lb-sg-{body['metadata']['uid']}-default-{name}")
        _of_service(found[name], body)
    for each in found.values():
        each.fields = {part: says.replaced(fields) for part, fields in each.fields.items()}
        _split_uid(each.fields.get(("floating IP", "")))
    return found


def leftovers(site: Site) -> frozenset[str]:
    """Return the project's load balancers, floating IPs, security groups and ports, and which group is on which
    port."""
    ports = list(site.cloud.network.ports(network_id=site.network))
    groups = {f"group {group} of port {port.id}" for port in ports for group in port.security_group_ids}
    return site.balancer_parts() | groups | {f"port {port.id}" for port in ports}


def _of_balancer(belongings: Belongings, balancer: Row, cloud: _Listings) -> None:
    belongings.add("load balancer", "", balancer, **_tags(balancer))
    for listener in (cloud.listeners[each["id"]] for each in balancer["listeners"]):
        which = f"{listener['protocol']} {listener['protocol_port']}"
        belongings.add("listener", which, listener)
        pool = cloud.pools.get(listener["default_pool_id"])
        if pool is None:
            continue
        belongings.add("pool", which, pool)
        for member in cloud.listed(f"pools/{pool['id']}/members", "members"):
            belongings.add("member", f"{cloud.nodes.get(member['address'])} of {which}", member)
        if pool.get("healthmonitor_id"):
            belongings.add("monitor", which, cloud.monitors[pool["healthmonitor_id"]])
    if (floating := cloud.floating.get(balancer["vip_port_id"])) is not None:
        belongings.add("floating IP", "", floating)


def _of_group(belongings: Belongings, cloud: _Listings, name: str) -> None:
    group = cloud.groups.get(name)
    if group is None:
        return
    keys = ("direction", "ethertype", "protocol", "port_range_min", "port_range_max", "remote_ip_prefix")
    rules = sorted(" ".join(str(rule[key]) for key in keys) for rule in group["security_group_rules"])
    on = [port["fixed_ips"][0]["ip_address"] for port in cloud.ports if group["id"] in port["security_groups"]]
    belongings.add("security group", "", group, **{"rules": rules, "is on the ports of": sorted(on)}, **_tags(group))


def _of_service(belongings: Belongings, body: Row) -> None:
    given = body["metadata"].get("annotations") or {}
    belongings.fields["Service", ""] = {
        "status": body["status"],
        "finalizers": body["metadata"].get("finalizers"),
        "annotations": {key: value for key, value in given.items() if key not in _THEIR_ANNOTATIONS},
        "annotations load-balancer-id, load-balancer-address": [given.get(key) for key in _THEIR_ANNOTATIONS],
    }


def _tags(row: Row) -> dict[str, Any]:
    ours = [tag for tag in row["tags"] if tag.startswith(_OUR_TAG)]
    return {"tags": sorted(set(row["tags"]) - set(ours)), "tags ccm:...": len(ours)}


def _split_uid(floating: dict[str, Any] | None) -> None:
    if floating is not None:
        whole = floating["description"]
        floating["description"] = _UID_AT_END.sub("", whole)
        floating["UID in the description"] = floating["description"] != whole


class _Listings:
    """The objects of the project, as its services list them."""

    def __init__(self, site: Site) -> None:
        self._octavia, network = site.cloud.load_balancer, site.cloud.network
        self.balancers = {row["name"]: row for row in self.listed("loadbalancers", "loadbalancers")}
        self.listeners = {row["id"]: row for row in self.listed("listeners", "listeners")}
        self.pools = {row["id"]: row for row in self.listed("pools", "pools")}
        self.monitors = {row["id"]: row for row in self.listed("healthmonitors", "healthmonitors")}
        of_project = {"project_id": site.project}
        self.floating = {
            row["port_id"]: row for row in _answer(network.get("/floatingips", params=of_project))["floatingips"]
        }
        groups = _answer(network.get("/security-groups", params=of_project))["security_groups"]
        self.groups = {row["name"]: row for row in groups}
        self.ports = _answer(network.get("/ports", params={"network_id": site.network}))["ports"]
        names = {server: f"node-{number}" for number, server in enumerate(site.servers)}
        #: Address -> name of the node.
        self.nodes = {
            port["fixed_ips"][0]["ip_address"]: names[port["device_id"]]
            for port in self.ports
            if port["device_id"] in names
        }

    def listed(self, path: str, kind: str) -> list[dict[str, Any]]:
        return list(_answer(self._octavia.get(f"/lbaas/{path}"))[kind])

    def floating_address(self, balancer: Row) -> str:
        return str(self.floating.get(balancer["vip_port_id"], {}).get("floating_ip_address", ""))


def _answer(answer: Any) -> dict[str, Any]:
    answer.raise_for_status()
    return dict(answer.json())
