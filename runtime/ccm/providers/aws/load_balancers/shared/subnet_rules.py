# SPDX-License-Identifier: Apache-2.0
"""Chooses the subnets of a load balancer: one in each zone, in cloud-provider-aws's order of preference. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ccm.cloud import Invalid

from ...api import CLUSTER_TAG, is_of_cluster, tags_of
from ...instance_rules import Row

INTERNAL_ROLE, PUBLIC_ROLE = "kubernetes.io/role/internal-elb", "kubernetes.io/role/elb"
REGULAR = "availability-zone"


def chosen(
    subnets: Sequence[Row],
    tables: Sequence[Row],
    *,
    cluster: str,
    internal: bool,
    zone_types: Mapping[str, str],
    fallback: str,
) -> list[str]:
    """Return the IDs of the chosen subnets, sorted by zone. Subnets that have only tags of other clusters are not
    candidates. Without any candidate, the subnet `fallback` is the candidate. Candidates in local zones and the like
    are left out. So are private subnets, except for an `internal` load balancer. Raises Invalid if no candidate is
    left."""
    candidates = [subnet for subnet in subnets if _is_usable(subnet, cluster)]
    candidates = candidates or [subnet for subnet in subnets if subnet["SubnetId"] == fallback]
    role = INTERNAL_ROLE if internal else PUBLIC_ROLE
    best: dict[str, Row] = {}
    for row in candidates:
        zone = str(row["AvailabilityZone"])
        if not internal and not is_public(tables, str(row["SubnetId"])):
            continue
        if zone_types.get(zone, REGULAR) != REGULAR:
            continue  # not in local zones and the like
        if zone not in best or _rank(row, role, cluster) < _rank(best[zone], role, cluster):
            best[zone] = row
    if not best:
        kind = "subnet" if internal else "subnet with a route to an internet gateway"
        raise Invalid(f"no {kind} of the VPC fits the load balancer: tag subnets with {CLUSTER_TAG}{cluster}")
    return [str(best[zone]["SubnetId"]) for zone in sorted(best)]


def named(subnets: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return the IDs of the subnets that an annotation names by ID or by Name tag. Raises Invalid unless each text
    names exactly one."""
    ids = []
    for text in names:
        matching = [row for row in subnets if text in (row["SubnetId"], tags_of(row).get("Name"))]
        if len(matching) != 1:
            raise Invalid(f"annotation ...subnets: the VPC has {len(matching)} subnets {text!r}, expected one")
        ids.append(str(matching[0]["SubnetId"]))
    return ids


def is_public(tables: Sequence[Row], subnet: str) -> bool:
    """Return whether the subnet's route table has a route to an internet gateway. A subnet without a table of its own
    uses the VPC's main table."""
    own = next(
        (table for table in tables if any(_is_of(link, subnet) for link in table.get("Associations") or ())), None
    )
    main = next((table for table in tables if any(link.get("Main") for link in table.get("Associations") or ())), None)
    routes: Iterable[Row] = (own or main or {}).get("Routes") or ()
    return any(str(route.get("GatewayId") or "").startswith("igw") for route in routes)


def _is_of(link: Row, subnet: str) -> bool:
    return bool(link.get("SubnetId") == subnet)


def _is_usable(row: Row, cluster: str) -> bool:
    tags = tags_of(row)
    return is_of_cluster(tags, cluster) or not any(key.startswith(CLUSTER_TAG) for key in tags)


def _rank(row: Row, role: str, cluster: str) -> tuple[bool, bool, str]:
    tags = tags_of(row)
    return role not in tags, not is_of_cluster(tags, cluster), str(row["SubnetId"])
