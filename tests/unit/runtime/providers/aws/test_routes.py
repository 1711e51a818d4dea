# SPDX-License-Identifier: Apache-2.0
"""What the provider deletes if somebody changed the table after it was listed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ccm.cloud import Route
from ccm.providers.aws.instances import Ec2Instances
from ccm.providers.aws.routes import VpcRoutes

POD = "10.244.1.0/24"


class Ec2:
    """An account with one table, one instance, and one interface of that instance."""

    def __init__(self, **target: str) -> None:
        self.vpc, self.region, self.zone_ids, self.cluster = "vpc-1", "eu-central-1", {}, ""
        self.settings = SimpleNamespace(common=SimpleNamespace(routetableid="rtb-1"), families=("ipv4",))
        self.route = {"DestinationCidrBlock": POD, "State": "active", **target}
        self.deleted: list[str] = []

    async def ec2_rows(self, operation: str, name: str, Filters: Any) -> list[dict[str, Any]]:
        if name == "RouteTables":
            return [{"RouteTableId": "rtb-1", "Routes": [self.route]}]
        if name == "NetworkInterfaces":
            return [{"NetworkInterfaceId": "eni-1", "Attachment": {"InstanceId": "i-0a1"}}]
        ids = next(each["Values"] for each in Filters if each["Name"] == "instance-id")
        row = {"InstanceId": "i-0a1", "State": {"Name": "running"}, "Placement": {"AvailabilityZone": "eu-central-1a"}}
        return [{"Instances": [row]}] if "i-0a1" in ids else []

    async def ec2(self, operation: str, **arguments: Any) -> dict[str, Any]:
        assert operation == "delete_route"
        self.deleted.append(arguments["RouteTableId"])
        return {}


@pytest.mark.parametrize("listed", [{"blackhole": True}, {"provider_id": "aws:///eu-central-1a/i-0b2"}])
@pytest.mark.parametrize("target", [{"InstanceId": "i-0a1"}, {"NetworkInterfaceId": "eni-1"}])
async def test_a_route_that_leads_to_another_live_instance_by_now_stays(
    listed: dict[str, Any], target: dict[str, str]
) -> None:
    ec2 = Ec2(**target)
    route = Route(POD, listed.get("provider_id", ""), id="rtb-1", blackhole=listed.get("blackhole", False))
    await VpcRoutes(ec2, Ec2Instances(ec2)).delete("kubernetes", route)  # type: ignore[arg-type]
    assert ec2.deleted == []


@pytest.mark.parametrize(
    ("target", "provider_id"),
    [
        ({"InstanceId": "i-0dead"}, ""),
        ({"State": "blackhole"}, ""),
        ({"InstanceId": "i-0a1"}, "aws:///eu-central-1a/i-0a1"),
        ({"NetworkInterfaceId": "eni-1"}, "aws:///eu-central-1a/i-0a1"),
    ],
)
async def test_a_route_that_is_as_it_was_listed_is_deleted(target: dict[str, str], provider_id: str) -> None:
    ec2 = Ec2(**target)
    route = Route(POD, provider_id, id="rtb-1", blackhole=not provider_id)
    await VpcRoutes(ec2, Ec2Instances(ec2)).delete("kubernetes", route)  # type: ignore[arg-type]
    assert ec2.deleted == ["rtb-1"]
