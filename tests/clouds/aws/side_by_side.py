# SPDX-License-Identifier: Apache-2.0
"""Runs cloud-provider-aws and our runtime on a table of Services, one after the other, and records what each creates
and leaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ccm.engine.client import KubeClient
from tests.comparison import rounds
from tests.comparison.belongings import Belongings
from tests.comparison.rounds import Rounds, Seen
from tests.integration.runtime.support import (
    NODES,
    SERVICES,
    eventually,
    get_service,
    initialised,
    node_body,
    set_ready,
)

from .account import OWNED, Account, Row
from .peer import Two, conf, failures, writes
from .peer_belongings import belongings
from .peer_services import REFUSED, Table, bodies

SECONDS = 300.0


class Stage:
    """The API server and the account that both controllers share. `names`: name -> ID of an object in the account, for
    Services and the configuration."""

    def __init__(self, two: Two, kube: KubeClient) -> None:
        self.two, self.kube, self.account = two, kube, two.account
        self.names = _things(two.account)

    async def create(self, services: Mapping[str, Any], table: Table) -> Mapping[str, Belongings]:
        for each in services.values():
            await self.kube.create(SERVICES, each)
        waits = [name for name, case in table.cases.items() if not case.is_left]
        await rounds.served(self.kube, waits, SECONDS)
        await self.two.quiet(0)
        for each in await rounds.bodies(self.kube):
            said = await failures(self.kube, each["metadata"]["uid"])
            assert not said or each["metadata"]["name"] in waits, said
        return await self.look()

    async def look(self) -> Mapping[str, Belongings]:
        services = await rounds.bodies(self.kube)
        return await asyncio.to_thread(belongings, self.account, self.two.proxy, services)

    async def delete(self, names: Mapping[str, Any]) -> frozenset[str]:
        await rounds.delete(self.kube, names, SECONDS)
        await self.two.quiet(0)
        return await asyncio.to_thread(self.account.parts)


async def compare(stage: Stage, table: Table) -> Rounds:
    two, seen = stage.two, {}
    text = conf(two.account, two.proxy, table.conf.format(**stage.names), table.cluster)
    services = bodies(table.cases, stage.names, table.type_)
    for first, second in (("theirs", "ours"), ("ours", "theirs")):
        async with two.running(first, text):
            created = await stage.create(services, table)
        since = len(two.proxy.calls)
        async with two.running(second, text):
            calls = await two.quiet(since, some=True)
            taken = await stage.look()
            seen[first] = Seen(created, taken, writes(calls), Counter(await stage.delete(services)))
    return Rounds(**seen)


async def refuse(stage: Stage, which: str) -> tuple[Mapping[str, Counter[str]], frozenset[str]]:
    """Return what one controller reports about each Service that both refuse, and what it leaves in the account."""
    services = bodies(REFUSED, stage.names)
    async with stage.two.running(which, conf(stage.account, stage.two.proxy)):
        for each in services.values():
            await stage.kube.create(SERVICES, each)

        async def said() -> dict[str, Counter[str]] | None:
            uids = {name: (await get_service(stage.kube, name)).metadata.uid for name in services}
            found = {name: await failures(stage.kube, uid) for name, uid in uids.items()}
            return found if all(found.values()) else None

        messages = await eventually(said, SECONDS, "Events about all Services")
        parts = await asyncio.to_thread(stage.account.parts)
        assert not await stage.delete(services)
    return messages, parts


async def join(stage: Stage) -> list[Row]:
    """Create Nodes of three instances, initialised by our runtime. One is in another zone and another group. The label
    `side` is "left" for two Nodes and "right" for the third."""
    account, kube = stage.account, stage.kube
    other = account.ec2.create_security_group(GroupName="more", Description="more", VpcId=account.vpc)["GroupId"]
    account.ec2.create_tags(Resources=[other], Tags=OWNED)
    machines = [account.run(), account.run(), account.run(zone="b", groups=[other])]
    names = [str(each["PrivateDnsName"]) for each in machines]
    async with stage.two.running("ours", conf(account, stage.two.proxy)):
        for number, name in enumerate(names, 1):
            body = node_body(name, number=number)
            body["metadata"]["labels"] = {"side": "left" if number < 3 else "right"}
            await kube.create(NODES, body)
            await set_ready(kube, name, "True")
        await eventually(lambda: initialised(kube, *names), SECONDS)
    return machines


def _things(account: Account) -> dict[str, str]:
    found = dict(account.subnets)
    for zone in "ab":
        account.ec2.create_tags(
            Resources=[account.subnets[f"private-{zone}"]], Tags=[{"Key": "Name", "Value": f"inside-{zone}"}]
        )
        found[f"address-{zone}"] = account.ec2.allocate_address(Domain="vpc")["AllocationId"]
    for name in ("borrowed", "extra"):
        made = account.ec2.create_security_group(GroupName=name, Description=name, VpcId=account.vpc)
        found[name] = str(made["GroupId"])
    return found
