# SPDX-License-Identifier: Apache-2.0
"""The Classic Load Balancer that cloud-provider-aws itself made, after ours took its place."""

from __future__ import annotations

from collections import Counter

import pytest

from ccm.engine.client import KubeClient

from ..integration.runtime.support import (
    NODES,
    SERVICES,
    eventually,
    get_service,
    initialised,
    node_body,
    set_ready,
)
from .peer import Two, conf, failures
from .test_classic import ADVICE, TYPE, everything

# Of make test-clouds, not of CI: another program is compiled first.
pytestmark = pytest.mark.long

#: The runtime waits longer after each failure.
SECONDS = 300.0


async def test_the_vendors_own_survives_a_take_over(two: Two, kube: KubeClient) -> None:
    """With the vendor's cloud.conf, with LoadBalancerType = nlb, with the annotation, and while the Service goes."""
    account, text = two.account, conf(two.account, two.proxy)
    names = [str(account.run(zone=zone)["PrivateDnsName"]) for zone in "ab"]
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}]
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports},
    }

    async def is_served() -> bool:
        return bool((await get_service(kube, "web")).status.load_balancer.ingress)

    async with two.running("theirs", text):
        for number, name in enumerate(names, 1):
            await kube.create(NODES, node_body(name, number=number))
            await set_ready(kube, name, "True")
        await eventually(lambda: initialised(kube, *names), SECONDS)
        await kube.create(SERVICES, body)
        await eventually(is_served, SECONDS)
        await two.quiet(0)
    service = await get_service(kube, "web")
    balancer = f"a{service.metadata.uid.replace('-', '')}"[:32]
    before = everything(account)
    ((row,), _, _) = before["classic"]
    assert row["LoadBalancerName"] == balancer and len(row["Instances"]) == 2

    async def check_refused(before_it: Counter[str]) -> None:
        """One more Event says what to do, and nothing has changed."""

        async def is_refused() -> bool:
            new = await failures(kube, service.metadata.uid) - before_it
            return any(all(each.format(name=balancer) in message for each in ADVICE) for message in new)

        await eventually(is_refused, SECONDS)
        await two.quiet(0)
        assert everything(account) == before
        assert (await get_service(kube, "web")).status == service.status

    async with two.running("ours", text):
        await check_refused(Counter())
        joined = account.run()
        await kube.create(NODES, node_body(str(joined["PrivateDnsName"]), number=3))
        await eventually(lambda: initialised(kube, str(joined["PrivateDnsName"])), SECONDS)
        await two.quiet(0)
        assert everything(account) == before
    said = await failures(kube, service.metadata.uid)
    async with two.running("ours", f"{text}LoadBalancerType = nlb\n"):
        await check_refused(said)
        said = await failures(kube, service.metadata.uid)
        await kube.patch(f"{SERVICES}/web", {"metadata": {"annotations": {TYPE: "nlb"}}})
        await check_refused(said)
        said = await failures(kube, service.metadata.uid)
        await kube.delete(f"{SERVICES}/web")
        await check_refused(said)
        account.classic.delete_load_balancer(LoadBalancerName=balancer)

        async def is_gone() -> bool:
            return not [each for each in (await kube.get(SERVICES, dict))["items"] if each["metadata"]["name"] == "web"]

        await eventually(is_gone, SECONDS)
