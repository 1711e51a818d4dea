# SPDX-License-Identifier: Apache-2.0
"""Our runtime replaces cloud-provider-aws and takes over a Classic Load Balancer that it created."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm.providers.aws.annotations import PREFIX
from tests.integration.runtime.support import (
    NODES,
    SERVICES,
    eventually,
    get_service,
    initialised,
    node_body,
    set_ready,
)

from .peer import Two, conf, failures, writes

# `make test-clouds` runs these tests, but CI does not, because another program must be compiled first.
pytestmark = pytest.mark.long

#: A long time, because the runtime waits longer after each failure.
SECONDS = 300.0
TYPE = f"{PREFIX}type"
#: What an Event must say if another type of load balancer is requested.
ADVICE = ("the Classic Load Balancer {name}", "the type never changes", f"{TYPE} to classic", "create another Service")


async def test_the_vendors_own_is_taken_over_and_follows_the_nodes(two: Two, kube: KubeClient) -> None:
    """Our runtime takes over the load balancer with the cloud.conf of cloud-provider-aws. Neither `LoadBalancerType =
    nlb` nor the annotation with that type changes the load balancer. It is deleted with its Service."""
    account, text = two.account, conf(two.account, two.proxy)
    before_all = account.groups()
    machines = [account.run(zone=zone) for zone in "aba"]
    names = [str(each["PrivateDnsName"]) for each in machines]
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}]
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports},
    }

    async def join(number: int) -> None:
        await kube.create(NODES, node_body(names[number], number=number + 1))
        await set_ready(kube, names[number], "True")
        await eventually(lambda: initialised(kube, names[number]), SECONDS)

    async def is_served() -> bool:
        return bool((await get_service(kube, "web")).status.load_balancer.ingress)

    async with two.running("theirs", text):
        for number in (0, 1):
            await join(number)
        await kube.create(SERVICES, body)
        await eventually(is_served, SECONDS)
        await two.quiet(0)
    service = await get_service(kube, "web")
    balancer = f"a{service.metadata.uid.replace('-', '')}"[:32]
    theirs = account.classic_balancer(balancer)
    assert len(theirs["Instances"]) == 2

    def has(count: int) -> Any:
        async def check() -> bool:
            wanted = sorted(each["InstanceId"] for each in machines[:count])
            return bool(account.classic_balancer(balancer)["Instances"] == wanted)

        return check

    since = len(two.proxy.calls)
    async with two.running("ours", text):
        assert writes(await two.quiet(since, some=True)) == {"classic AddTags": 1}
        ours = account.classic_balancer(balancer)
        assert theirs["tags"].items() <= ours["tags"].items()
        assert {**ours, "tags": {}} == {**theirs, "tags": {}}
        since = len(two.proxy.calls)
        await join(2)
        await eventually(has(3), SECONDS)
        assert writes(await two.quiet(since)) == {"classic RegisterInstancesWithLoadBalancer": 1, "classic AddTags": 1}
        before = account.classic_balancer(balancer)

    async def check_refused(before_it: Counter[str]) -> None:
        """Check that one more Event says what to do, and that nothing has changed."""

        async def is_refused() -> bool:
            new = await failures(kube, service.metadata.uid) - before_it
            return any(all(each.format(name=balancer) in message for each in ADVICE) for message in new)

        await eventually(is_refused, SECONDS)
        await two.quiet(0)
        assert account.classic_balancer(balancer) == before
        assert account.balancers() == []
        assert (await get_service(kube, "web")).status == service.status

    async with two.running("ours", f"{text}LoadBalancerType = nlb\n"):
        await check_refused(Counter())
        said = await failures(kube, service.metadata.uid)
        await kube.patch(f"{SERVICES}/web", {"metadata": {"annotations": {TYPE: "nlb"}}})
        await check_refused(said)
        await kube.delete(f"{SERVICES}/web")

        async def is_gone() -> bool:
            return not [each for each in (await kube.get(SERVICES, dict))["items"] if each["metadata"]["name"] == "web"]

        await eventually(is_gone, SECONDS)
    assert account.parts() == frozenset()
    assert account.groups() == before_all
