# SPDX-License-Identifier: Apache-2.0
"""Security groups of Services (`manage-security-groups`), which let load balancers reach the nodes.

Each Service has one group, with cloud-provider-openstack's name and our tag. The group is added to the nodes' ports and
removed again. Where neutron can compare revisions, a port is changed only in the revision that was read, so that groups
that others add meanwhile are not lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ccm.cloud import Conflict, LoadBalancerSpec, NotFound, Port, RetryAfter
from ccm.cloud.toolkit.recent import Recent
from ccm.cloud.toolkit.rule_changes import rule_changes as changes
from ccm.cloud.toolkit.shared_reads import ObjectLocks, Shared

from ..api import NETWORK, REMEMBERED_SUBNETS, Api, of_project, unless_changed
from ..instance_rules import trunk_subports

Row = Mapping[str, Any]
Rule = Mapping[str, Any]
#: Pairs of a server's ID and the address at which the server is a member.
Members = Collection[tuple[str, str]]

#: How many ports one call of the provider changes, and how many of them concurrently. If each change takes two seconds,
#: the call takes at most 50 s, less than its default deadline. The next call changes the rest.
PORTS_AT_ONCE, SIDE_BY_SIDE = 100, 4
#: Seconds until the next call changes the remaining ports.
SOON = 1.0
#: How many changed ports are remembered: more than this process changes during one listing.
REMEMBERED_PORTS = 5000
#: The owner of a trunk's subport.
SUBPORT = "trunk:subport"

#: The attributes by which rules are compared.
SAME = (
    *("direction", "ethertype", "protocol", "port_range_min", "port_range_max"),
    *("remote_ip_prefix", "remote_group_id", "remote_address_group_id"),
)


def group_name(spec: LoadBalancerSpec) -> str:
    return f"lb-sg-{spec.uid}-{spec.namespace}-{spec.name}"[:255]


def group_tag(uid: str) -> str:
    """Return the tag by which a group is found even if only the Service's UID is known."""
    return f"ccm:v1:{uid}"


def is_of(group: Row, spec: LoadBalancerSpec) -> bool:
    """Return whether the group is the Service's: by our tag, or by its whole name, as in cloud-provider-openstack."""
    named = bool(spec.name) and group.get("name") == group_name(spec)
    return named or group_tag(spec.uid) in (group.get("tags") or ())


def desired_rules(
    ports: Sequence[Port], health_check_node_port: int, subnet_cidr: str, sources: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rules of a group. `sources`: CIDRs that may connect to node ports. With amphorae, these are the
    members' subnet, because the amphorae connect from it."""
    family = f"IPv{ipaddress.ip_network(subnet_cidr).version}"

    def rule(protocol: str, port: int, source: str) -> dict[str, Any]:
        return {
            "direction": "ingress",
            "ethertype": family,
            "protocol": protocol,
            "port_range_min": port,
            "port_range_max": port,
            "remote_ip_prefix": source,
        }

    rules = [rule("tcp", health_check_node_port, subnet_cidr)] if health_check_node_port else []
    rules += [rule(each.protocol.lower(), each.node_port, cidr) for each in ports if each.node_port for cidr in sources]
    return [each for index, each in enumerate(rules) if each not in rules[:index]]


def rule_changes(desired: Sequence[Rule], present: Sequence[Row]) -> tuple[list[Rule], list[str]]:
    """Return the rules to create, and the IDs of the rules to delete, such as the egress rules that neutron creates.

    With these egress rules, nodes could connect to everybody, whatever their own groups allow.
    """
    missing, superfluous = changes(desired, present, _key)
    return missing, [str(row["id"]) for row in superfluous]


def _key(rule: Rule) -> tuple[Any, ...]:
    """Return the key by which rules are compared. A range of all addresses counts as no range, because neutron may
    return it as none."""
    key = {name: rule.get(name) or None for name in SAME}
    if source := key["remote_ip_prefix"]:
        network = ipaddress.ip_network(source, strict=False)
        key["remote_ip_prefix"] = str(network) if network.prefixlen else None
    return tuple(key.values())


def port_changes(
    ports: Iterable[Row], group: str, members: Members, subnet_id: str, parents: Mapping[str, str]
) -> tuple[list[Row], list[Row]]:
    """Return ports to add the group to, and ports to remove it from.

    A port gets the group only if its server and its address in the subnet are those of one member, because kubelets
    report addresses, and a kubelet might report the address of another machine. `parents`: subport of a trunk -> the
    server that has the trunk. Ports without port security cannot have a group.
    """
    on, off = [], []
    for port in ports:
        server = parents.get(str(port.get("id"))) or str(port.get("device_id"))
        serves = any(
            (server, fixed["ip_address"]) in members and subnet_id in ("", fixed["subnet_id"])
            for fixed in port.get("fixed_ips") or ()
        )
        has = group in (port.get("security_groups") or ())
        if serves and not has and port.get("port_security_enabled", True):
            on.append(port)
        elif has and not serves:
            off.append(port)
    return on, off


def subports_in_doubt(ports: Iterable[Row], members: Members) -> set[str]:
    """Return the servers that may have a subport of a trunk among these ports. A subport names the trunk as its device,
    not the server, so only addresses are compared."""
    addresses = {
        fixed["ip_address"]
        for port in ports
        if port.get("device_owner") == SUBPORT
        for fixed in port.get("fixed_ips") or ()
    }
    return {server for server, address in members if address in addresses}


class SecurityGroups:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._ports: Recent[str, Shared[list[dict[str, Any]]]] = Recent(REMEMBERED_SUBNETS)
        #: Ports after their last changes, because a listing may be older. Each has only the fields that a change needs.
        self._known: Recent[str, dict[str, Any]] = Recent(REMEMBERED_PORTS)
        self._locks = ObjectLocks()
        self._cidrs: Recent[str, str] = Recent(REMEMBERED_SUBNETS)

    async def cidr(self, subnet_id: str) -> str:
        """Return a subnet's CIDR. It is read once, because it never changes."""
        cidr = self._cidrs.get(subnet_id)
        if cidr is None:
            answer = await self._api.call("GET", NETWORK, f"/subnets/{subnet_id}", missing=subnet_id)
            cidr = str(answer["subnet"]["cidr"])
            self._cidrs.put(subnet_id, cidr)
        return cidr

    async def ensure(self, spec: LoadBalancerSpec, desired: Sequence[Rule]) -> str:
        """Create or update the Service's group with these rules. Return its ID.

        A group that cloud-provider-openstack created, or whose creation was interrupted, has no tag of ours yet.
        """
        name = group_name(spec)
        rows = await self._find(name)
        if not rows:
            about = f"Security Group for {spec.namespace}/{spec.name} Service LoadBalancer in cluster {spec.cluster}"
            body = {"security_group": {"name": name, "description": about[:255]}}
            row = (await self._api.call("POST", NETWORK, "/security-groups", body=body))["security_group"]
        else:
            row = rows[0]
        tags, tag = list(row.get("tags") or ()), group_tag(spec.uid)
        if tag not in tags:
            await self._api.call("PUT", NETWORK, f"/security-groups/{row['id']}/tags", body={"tags": [*tags, tag]})
        group = str(row["id"])
        missing, superfluous = rule_changes(desired, row.get("security_group_rules") or ())
        if missing:
            rules = [{**rule, "security_group_id": group} for rule in missing]
            await self._api.call("POST", NETWORK, "/security-group-rules", body={"security_group_rules": rules})
        for rule_id in superfluous:
            with contextlib.suppress(NotFound):
                await self._api.call("DELETE", NETWORK, f"/security-group-rules/{rule_id}", missing=rule_id)
        return group

    async def known(self, spec: LoadBalancerSpec) -> str:
        """Return the ID of the existing group, "" if there is none: a person may have deleted it."""
        rows = await self._find(group_name(spec))
        return str(rows[0]["id"]) if rows else ""

    async def deviations(
        self, spec: LoadBalancerSpec, desired: Sequence[Rule], members: Members, subnet_id: str
    ) -> list[str]:
        """Return how the group, its rules and its ports differ from their desired state, in words. Reads only."""
        rows = await self._find(group_name(spec))
        if not rows:
            return ["its security group is gone"]
        missing, superfluous = rule_changes(desired, rows[0].get("security_group_rules") or ())
        on, off = await self._port_changes(str(rows[0]["id"]), members, subnet_id)
        counts = {"rules": len(missing) + len(superfluous), "ports": len(on) + len(off)}
        return [f"{count} {what} of its security group" for what, count in counts.items() if count]

    async def spread(self, group: str, members: Members, subnet_id: str) -> None:
        """Put the group on the members' ports only. Raises RetryAfter while some ports are left."""
        on, off = await self._port_changes(group, members, subnet_id)
        await self._change_all([(port, group, "") for port in on] + [(port, "", group) for port in off])

    async def _port_changes(self, group: str, members: Members, subnet_id: str) -> tuple[list[Row], list[Row]]:
        """Return `port_changes` of the current ports; concurrent Services share one listing."""
        params = {"fixed_ips": f"subnet_id={subnet_id}"} if subnet_id else {}
        listing = self._ports.obtain(
            subnet_id, lambda: Shared(lambda: self._api.pages(NETWORK, "/ports", "ports", params))
        )
        ports = await listing.get()
        parents: dict[str, str] = {}
        for server in sorted(subports_in_doubt(ports, members)):
            own = await self._api.pages(NETWORK, "/ports", "ports", {"device_id": server})
            for subports in trunk_subports(each for each in own if each.get("device_id") == server).values():
                parents |= dict.fromkeys(subports, server)
        return port_changes(ports, group, members, subnet_id, parents)

    async def _change_all(self, changes: Sequence[tuple[Row, str, str]]) -> None:
        """Change ports; `changes` holds each port with the group to add and the group to remove.

        A failure does not prevent the other changes. Raises RetryAfter while some are left, or the first failure.
        """
        slots = asyncio.Semaphore(SIDE_BY_SIDE)

        async def change(port: Row, add: str, remove: str) -> None:
            async with slots:
                await self._change(port, add=add, remove=remove)

        now, later = changes[:PORTS_AT_ONCE], changes[PORTS_AT_ONCE:]
        for failure in await asyncio.gather(*(change(*each) for each in now), return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure
        if later:
            raise RetryAfter(f"the security groups of {len(later)} more ports must be changed", SOON)

    async def delete(self, spec: LoadBalancerSpec) -> None:
        """Remove the Service's group from all ports and delete it. Does nothing if there is none."""
        fields = [*(("fields", name) for name in ("id", "name", "tags")), *of_project(self._api)]
        rows = await self._api.pages(NETWORK, "/security-groups", "security_groups", fields)
        for group in [str(row["id"]) for row in rows if is_of(row, spec)]:
            ports = await self._api.pages(NETWORK, "/ports", "ports", {"security_groups": group})
            await self._change_all([(port, "", group) for port in ports])
            with contextlib.suppress(NotFound):
                await self._api.call("DELETE", NETWORK, f"/security-groups/{group}", missing=group)

    async def _find(self, name: str) -> list[dict[str, Any]]:
        rows = await self._api.pages(
            NETWORK, "/security-groups", "security_groups", [("name", name), *of_project(self._api)]
        )
        if len(rows) > 1:
            raise Conflict(f"{len(rows)} security groups are named {name}: delete all but one")
        return rows

    async def _change(self, port: Row, *, add: str = "", remove: str = "") -> None:
        """Change one port. Services that change the same port take turns, and each starts from the result of the
        previous change."""
        port_id = str(port["id"])
        async with self._locks.of(port_id):
            known = self._known.get(port_id)
            if known is not None and known.get("revision_number", 0) > port.get("revision_number", 0):
                port = known
            before = list(port.get("security_groups") or ())
            after = [each for each in before if each != remove] + ([add] if add and add not in before else [])
            if after == before:
                return
            answer = await self._api.call(
                "PUT",
                NETWORK,
                f"/ports/{port_id}",
                body={"port": {"security_groups": after}},
                headers=await unless_changed(self._api, port),
                missing=port_id,
            )
            row = answer["port"]
            self._known.put(port_id, {key: row[key] for key in ("security_groups", "revision_number") if key in row})
