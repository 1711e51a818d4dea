# SPDX-License-Identifier: Apache-2.0
"""The instances of the VPC, listed for all Nodes together, in pages of 1,000 by default."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccm.cloud import Conflict, Instance, InstanceRef, NotFound, Page, Transient

from . import instance_rules
from .api import Api, filters
from .instance_rules import Row

MISSING = ("InvalidInstanceID.NotFound",)
#: States in which the instance of a Node can be.
LIVE = ("pending", "running", "shutting-down", "stopping", "stopped")

#: The maximum number of listings in progress that are remembered.
LISTINGS = 8


class Ec2Instances:
    def __init__(self, api: Api) -> None:
        self._api = api
        #: ID -> the part of the instance's row, as last read, that load balancers and routes need. A listing that ends
        #: removes the instances that are gone.
        self._known: dict[str, Row] = {}
        #: Token of the next page of a listing in progress -> the instances on its pages so far.
        self._listed: OrderedDict[str, set[str]] = OrderedDict()
        #: Instances that were read since the last listing ended.
        self._recent: set[str] = set()
        #: The number of reads so far. A caller that keeps an answer compares this number, to notice later reads.
        self.reads = 0

    async def list_page(self, token: str | None) -> Page:
        """Return one page of the VPC's instances. Terminated instances, which never come back, are left out here. The
        only filter is the VPC, which never changes for an instance, so the filter hides no instance that exists. Raises
        Transient if a page repeats.
        """
        more = {"NextToken": token} if token else {}
        answer = await self._api.ec2(
            "describe_instances",
            Filters=filters(vpc_id=self._api.vpc),
            MaxResults=self._api.settings.runtime.page_size,
            **more,
        )
        following = answer.get("NextToken") or None
        if following is not None and following == token:
            raise Transient("DescribeInstances: the listing repeats a page")
        rows = _rows(answer)
        instances = await self._instances(rows)
        self._replace(token, following, {str(row["InstanceId"]) for row in rows if instance_rules.exists(row)})
        return Page(instances, following)

    async def get(self, ref: InstanceRef) -> Instance:
        """Find the instance by ID, by the private DNS name, or by the address in the Node's name. Each ID has a request
        of its own, so an ID that EC2 does not know makes no other call fail. Raises NotFound if there is no such
        instance. Raises Conflict for a providerID of another form or with another zone, or if several instances have
        the name."""
        if ref.provider_id:
            id = instance_rules.instance_id(ref.provider_id)
            if id is None:
                raise Conflict(f"providerID {ref.provider_id!r} is not of the form aws:///ZONE/i-...")
            instances = await self._by_id(id)
            listed = [each for each in instances if ref.provider_id in (each.provider_id, f"aws:////{id}")]
            if instances and not listed:
                # The instance exists, so this answer must not make the framework delete its Node.
                raise Conflict(f"instance {id} is in zone {instances[0].zone}, not as {ref.provider_id} says")
        elif id := instance_rules.named_id(ref.node_name):
            listed = [each for each in await self._by_id(id) if each.is_named(ref.node_name)]
        else:
            answer = await self._api.ec2_rows(
                "describe_instances",
                "Reservations",
                Filters=filters(
                    vpc_id=self._api.vpc, private_dns_name=_literal(ref.node_name), instance_state_name=LIVE
                ),
            )
            # The filter may match other names, too, because EC2 ignores case for some values.
            instances = await self._instances(_rows({"Reservations": answer}))
            listed = [each for each in instances if each.is_named(ref.node_name)]
            if not listed:
                listed = await self._by_address(ref.node_name)
        if len(listed) > 1:
            ids = ", ".join(sorted(each.provider_id for each in listed))
            raise Conflict(f"{len(listed)} instances are named {ref.node_name!r} ({ids})")
        if not listed:
            raise NotFound(f"VPC {self._api.vpc} has no instance for {ref.provider_id or ref.node_name!r}")
        return listed[0]

    def owns(self, provider_id: str) -> bool:
        return instance_rules.instance_id(provider_id) is not None

    def canonical(self, provider_id: str) -> str | None:
        id = instance_rules.instance_id(provider_id)
        if id is None:
            return None
        if id in self._known:
            return instance_rules.provider_id(_zone(self._known[id]), id)
        return instance_rules.canonical(provider_id)

    async def rows(self, ids: Iterable[str]) -> Mapping[str, Row]:
        """Return ID -> the remembered part of the row (`_slim`), without instances that EC2 does not know. Only
        instances that are not remembered are read now, so security groups may be those of an earlier read."""
        distinct = list(dict.fromkeys(ids))
        if unknown := [each for each in distinct if each not in self._known]:
            await self.fresh(unknown)
        return {each: self._known[each] for each in distinct if each in self._known}

    async def fresh(self, ids: Sequence[str]) -> Mapping[str, Row]:
        """Return ID -> row of these instances, read now; terminated ones are among them as long as EC2 shows them. The
        request has a filter instead of a list of IDs, so an ID that EC2 does not know causes no error."""
        by_id: dict[str, Row] = {}
        for start in range(0, len(ids), 200):
            answer = await self._api.ec2_rows(
                "describe_instances", "Reservations", Filters=filters(instance_id=ids[start : start + 200])
            )
            by_id |= {str(row["InstanceId"]): row for row in _rows({"Reservations": answer})}
        self._remember(by_id.values())
        return by_id

    async def running(self, ids: Sequence[str]) -> frozenset[str]:
        """Return those of `ids` whose instances run now."""
        rows = await self.fresh(ids)
        return frozenset(id for id, row in rows.items() if (row.get("State") or {}).get("Name") == "running")

    async def _by_id(self, id: str) -> list[Instance]:
        answer = await self._api.ec2("describe_instances", missing=MISSING, what=f"instance {id}", InstanceIds=[id])
        return await self._instances(_rows(answer))

    async def _by_address(self, name: str) -> list[Instance]:
        """Return the instance whose private address is in the name of a Node (IP-based naming), although EC2 names the
        instance by its ID (resource-based naming). Return [] if there is no such instance, or if the name contains no
        address."""
        address = instance_rules.named_address(name)
        if not address:
            return []
        rows = await self._api.ec2_rows(
            "describe_instances", "Reservations", Filters=filters(vpc_id=self._api.vpc, private_ip_address=address)
        )
        instances = await self._instances(_rows({"Reservations": rows}))
        return [each for each in instances if each.is_named(name)]

    async def _instances(self, rows: Sequence[Row]) -> list[Instance]:
        live = [row for row in rows if instance_rules.exists(row)]
        try:
            zones = {_zone(row) for row in live}
            self._remember(live)
        except (LookupError, TypeError):
            raise Transient("an instance in the answer does not have the form that EC2's API describes") from None
        if zones - self._api.zone_ids.keys():
            await self._api.read_zones()
        common = self._api.settings
        return [instance_rules.instance(row, self._api.region, common.families, self._api.zone_ids) for row in live]

    def _remember(self, rows: Iterable[Row]) -> None:
        kept = {str(row["InstanceId"]): _slim(row) for row in rows}
        self._known |= kept
        self._recent |= kept.keys()
        self.reads += 1

    def _replace(self, token: str | None, following: str | None, ids: set[str]) -> None:
        """At the last page of a listing, forget the instances that the listing did not have, unless they were read
        since the previous listing ended. Otherwise memory would keep every instance that ever existed."""
        listed_ids = set[str]() if token is None else self._listed.pop(token, None)
        if listed_ids is None:  # its first pages were forgotten, or another process read them
            return
        listed_ids |= ids
        if following is not None:
            self._listed[following] = listed_ids
            if len(self._listed) > LISTINGS:
                self._listed.popitem(last=False)
            return
        self._known = {id: row for id, row in self._known.items() if id in listed_ids or id in self._recent}
        self._recent = set()


def _slim(row: Row) -> Row:
    """Return the part of a row that is kept in memory, because the row of an instance with many addresses has tens of
    KB."""
    groups = [{"GroupId": str(group["GroupId"])} for group in row.get("SecurityGroups") or ()]
    return {
        "InstanceId": str(row["InstanceId"]),
        "Placement": {"AvailabilityZone": _zone(row)},
        "SecurityGroups": groups,
    }


def _zone(row: Row) -> str:
    return str(row["Placement"]["AvailabilityZone"])


def _rows(answer: Mapping[str, Any]) -> list[Row]:
    groups = answer.get("Reservations")
    if not isinstance(groups, list):
        raise Transient("DescribeInstances: the answer has no reservations")
    return [row for group in groups for row in group.get("Instances") or ()]


def _literal(name: str) -> str:
    """Return the name with wildcards escaped, so that a filter of EC2 takes them literally."""
    return "".join(f"\\{each}" if each in "*?\\" else each for each in name)
