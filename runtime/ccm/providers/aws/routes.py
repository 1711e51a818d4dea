# SPDX-License-Identifier: Apache-2.0
"""Routes of the VPC, in the table that cloud.conf names, or in every table with the cluster's tag."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from ccm import cloud
from ccm.cloud import Conflict, NotFound
from ccm.cloud.toolkit.shared_reads import Shared

from . import instance_rules, route_rules
from .api import CLUSTER_TAG, LEGACY_TAG, Api, filters, is_of_cluster, tags_of
from .instance_rules import Row
from .instances import Ec2Instances

Tables = list[Row]


class VpcRoutes:
    concurrency = 5

    def __init__(self, api: Api, instances: Ec2Instances) -> None:
        self._api, self._instances = api, instances
        self._tables: Shared[Tables] = Shared(self._read)

    async def list(self, cluster: str) -> Sequence[cloud.Route]:
        """Return the routes to instances; routes to anything else, such as gateways, are left out. A table records no
        owner of a route. So each route to an instance counts as this cluster's if its destination is inside the
        cluster's CIDR."""
        tables = await self._own(cluster)
        entries = route_rules.entries(tables)
        interfaces = sorted({each.interface for each in entries if not each.instance and each.interface})
        attached = await self._attached(interfaces) if interfaces else {}
        ids = {each.instance or attached.get(each.interface, "") for each in entries} - {""}
        rows = await self._instances.rows(sorted(ids))
        zones = {id: str(row["Placement"]["AvailabilityZone"]) for id, row in rows.items()}
        return route_rules.routes(entries, len(tables), zones, attached)

    async def create(self, cluster: str, route: cloud.Route) -> None:
        """Create the route in every table that does not have it. Also switch off EC2's check of source and destination
        addresses, because Pods send from addresses that are not the instance's. Raises NotFound if the instance does
        not exist, and Conflict if no interface fits, or if another route has the same destination."""
        id = instance_rules.instance_id(route.provider_id)
        if id is None:
            raise Conflict(f"providerID {route.provider_id!r} is not of the form aws:///ZONE/i-...")
        row = (await self._instances.fresh([id])).get(id)
        if row is None or not instance_rules.exists(row):
            raise NotFound(f"instance {id} does not exist")
        interface = route_rules.interface_of(row, route.target_addresses)
        if interface is None:
            raise Conflict(f"no interface of instance {id} has an address of its Node, so no route can lead to it")
        tables = await self._own(cluster)
        target = {**interface, "InstanceId": id}
        names = [str(each["RouteTableId"]) for each in tables]
        missing, others = route_rules.missing_from(names, route_rules.entries(tables), route.destination, target)
        if alive := [other for other in others if not other.blackhole]:
            where = ", ".join(f"{each.table} to {each.instance or each.interface}" for each in alive)
            raise Conflict(f"there is another route to {route.destination}: {where}")
        single = len(row.get("NetworkInterfaces") or ()) == 1
        to = {"InstanceId": id} if single else {"NetworkInterfaceId": str(interface["NetworkInterfaceId"])}
        if (row if single else interface).get("SourceDestCheck", True):
            # EC2 refuses the attribute of an instance that has several interfaces.
            what = "modify_instance_attribute" if single else "modify_network_interface_attribute"
            await self._api.ec2(what, SourceDestCheck={"Value": False}, **to)
        for other in others:
            await self._delete(other.table, route.destination)
        for table in missing:
            await self._api.ec2("create_route", RouteTableId=table, **_destination(route.destination), **to)

    async def delete(self, cluster: str, route: cloud.Route) -> None:
        """Delete the route from the tables in which it was listed, unless it leads to another instance now. DeleteRoute
        cannot check that, so the tables are read just before it."""
        entries = route_rules.listed_as(route, route_rules.entries(await self._own(cluster)))
        interfaces = sorted({each.interface for each in entries if not each.instance and not each.blackhole} - {""})
        attached = await self._attached(interfaces) if interfaces else {}
        targets = route_rules.targets(entries, attached) if route.blackhole else []
        rows = await self._instances.fresh(targets) if targets else {}
        alive = {id for id, row in rows.items() if instance_rules.exists(row)}
        for entry in route_rules.to_delete(route, entries, attached, alive):
            await self._delete(entry.table, route.destination)

    async def _delete(self, table: str, destination: str) -> None:
        try:
            await self._api.ec2(
                "delete_route",
                missing=("InvalidRoute.NotFound",),
                RouteTableId=table,
                **_destination(destination),
            )
        except NotFound:
            return  # somebody else deleted it

    async def _own(self, cluster: str) -> Tables:
        """Return the cluster's tables. Raises Conflict if there is none, because nothing then shows which routes are
        missing."""
        name = self._api.cluster or cluster
        tables = await self._tables.get()
        if only := self._api.settings.common.routetableid:
            own_tables = [table for table in tables if table["RouteTableId"] == only]
            expected = f"the route table {only}"
        else:
            own_tables = [table for table in tables if is_of_cluster(tags_of(table), name)]
            expected = f"a route table with the tag {CLUSTER_TAG}{name} (or {LEGACY_TAG})"
        if not own_tables:
            raise Conflict(f"VPC {self._api.vpc} does not have {expected}: set RouteTableID, or give a table the tag")
        return own_tables

    async def _read(self) -> Tables:
        return await self._api.ec2_rows("describe_route_tables", "RouteTables", Filters=filters(vpc_id=self._api.vpc))

    async def _attached(self, interfaces: Sequence[str]) -> dict[str, str]:
        rows = await self._api.ec2_rows(
            "describe_network_interfaces", "NetworkInterfaces", Filters=filters(network_interface_id=interfaces)
        )
        return {
            str(row["NetworkInterfaceId"]): str((row.get("Attachment") or {}).get("InstanceId") or "") for row in rows
        }


def _destination(cidr: str) -> dict[str, Any]:
    version = ipaddress.ip_network(cidr).version
    return {"DestinationCidrBlock" if version == 4 else "DestinationIpv6CidrBlock": cidr}
