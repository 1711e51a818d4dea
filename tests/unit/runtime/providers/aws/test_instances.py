# SPDX-License-Identifier: Apache-2.0
"""The provider remembers only instances that exist, and little about each."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from ccm.providers.aws.instances import Ec2Instances

SIZE, GENERATIONS, PAGE = 500, 40, 100


def row(number: int, heavy: int = 2) -> dict[str, Any]:
    """Return an instance with two interfaces, each with `heavy` addresses, as with the VPC CNI."""
    addresses = [{"PrivateIpAddress": f"10.0.{number % 250}.{each}", "Name": "x" * 60} for each in range(heavy)]
    return {
        "InstanceId": f"i-{number:017x}",
        "InstanceType": "m7g.large",
        "PrivateDnsName": f"ip-10-0-0-{number}.ec2.internal",
        "State": {"Name": "running"},
        "Placement": {"AvailabilityZone": "eu-central-1a"},
        "SecurityGroups": [{"GroupId": "sg-1", "GroupName": "nodes"}],
        "NetworkInterfaces": [{"Status": "in-use", "PrivateIpAddresses": addresses}] * 2,
    }


class Ec2:
    """An AWS account with SIZE instances from number `first` on, listed in pages."""

    def __init__(self) -> None:
        self.first = 0
        self.vpc, self.region, self.zone_ids = "vpc-1", "eu-central-1", {"eu-central-1a": "euc1-az1"}
        self.settings = SimpleNamespace(runtime=SimpleNamespace(page_size=PAGE), families=("ipv4",))

    async def ec2(self, operation: str, **more: Any) -> dict[str, Any]:
        start = int(more.get("NextToken") or self.first)
        rows = [row(number) for number in range(start, start + PAGE)]
        last = start + PAGE >= self.first + SIZE
        return {"Reservations": [{"Instances": rows}]} | ({} if last else {"NextToken": str(start + PAGE)})

    async def ec2_rows(self, operation: str, name: str, Filters: Any) -> list[dict[str, Any]]:
        ids = next(each["Values"] for each in Filters if each["Name"] == "instance-id")
        return [{"Instances": [row(int(each[2:], 16)) for each in ids]}]


async def listing(instances: Ec2Instances) -> int:
    token, found = None, 0
    while True:
        page = await instances.list_page(token)
        found, token = found + len(page.instances), page.next
        if token is None:
            return found


async def test_memory_stays_flat_while_20000_instances_are_replaced() -> None:
    ec2 = Ec2()
    instances = Ec2Instances(ec2)  # type: ignore[arg-type]
    for generation in range(GENERATIONS):
        ec2.first = generation * SIZE
        assert await listing(instances) == SIZE
        await instances.rows([row(ec2.first)["InstanceId"]])
    assert await listing(instances) == SIZE
    assert set(instances._known) == {row(ec2.first + number)["InstanceId"] for number in range(SIZE)}
    assert len(json.dumps(dict(instances._known))) / SIZE < 200 < len(json.dumps(row(1, heavy=15))) / 5
    assert len(instances._listed) == 0 and len(instances._recent) == 0


async def test_listings_that_are_given_up_are_forgotten_and_remove_nothing() -> None:
    ec2 = Ec2()
    instances = Ec2Instances(ec2)  # type: ignore[arg-type]
    await listing(instances)
    for number in range(100):
        ec2.first = SIZE * (number % 2)
        await instances.list_page(None)
    assert len(instances._listed) <= 8 and len(instances._known) >= SIZE


async def test_an_instance_that_came_during_a_listing_stays() -> None:
    ec2 = Ec2()
    instances = Ec2Instances(ec2)  # type: ignore[arg-type]
    page = await instances.list_page(None)
    new = row(9 * SIZE)["InstanceId"]
    assert set(await instances.rows([new])) == {new}
    while page.next is not None:
        page = await instances.list_page(page.next)
    assert new in instances._known
    assert instances.canonical(f"aws:///eu-central-1a/{new}") == f"aws:///eu-central-1a/{new}"
