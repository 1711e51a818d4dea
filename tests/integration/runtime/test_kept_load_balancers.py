# SPDX-License-Identifier: Apache-2.0
"""A load balancer outlives its Service: the commands of docs/how-to/keep-load-balancers.md do what the page says."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from pathlib import Path

from ccm.controllers.services.keep_rules import KEEP, PROTECT, TAKE_BACK
from ccm.engine.client import KubeClient, NotFoundError
from ccm.engine.objects import Service
from ccm_simcloud.testing import Simulator
from tools.docs import commands

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import event_messages, eventually
from .test_services_and_routes import LIFECYCLE_OFF, balancers, service_body

PAGE = Path(__file__).parents[3] / "docs/how-to/keep-load-balancers.md"
(PROTECTING,), (KEEPING,), (DELETING, ASKING) = commands.blocks(PAGE.read_text())
SERVICES = "/api/v1/namespaces/shop/services"


async def kubectl(apiserver: ApiServer, command: str, *more: str) -> str:
    program, *words = shlex.split(command, comments=True)
    assert program == "kubectl"
    return await asyncio.to_thread(apiserver.kubectl, *words, *more)


async def serve(kube: KubeClient, name: str, **annotations: str) -> str:
    """Create a Service and wait for its address."""
    with contextlib.suppress(Exception):  # the namespace exists
        await kube.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    body = service_body(name)
    body["metadata"]["annotations"] = annotations
    await kube.create(SERVICES, body)

    async def address() -> str:
        service = await kube.get(f"{SERVICES}/{name}", Service)
        return service.status.load_balancer.ingress[0].ip if service.status.load_balancer.ingress else ""

    return await eventually(address)


async def is_gone(kube: KubeClient, name: str) -> bool:
    with contextlib.suppress(NotFoundError):
        await kube.get(f"{SERVICES}/{name}", Service)
        return False
    return True


async def test_a_protected_load_balancer_serves_until_the_annotation_goes(
    kube: KubeClient, apiserver: ApiServer, cloud: Simulator, start_ccm: StartCcm
):
    await start_ccm(**LIFECYCLE_OFF).leading()
    address = await serve(kube, "web")
    await kubectl(apiserver, PROTECTING)
    await kubectl(apiserver, DELETING, "--wait=false")
    await eventually(lambda: event_messages(kube, "LoadBalancerProtected", "web"))
    service = await kube.get(f"{SERVICES}/web", Service)
    assert service.metadata.deletion_timestamp
    assert [each.ip for each in balancers(cloud)] == [address]
    await kubectl(apiserver, f"kubectl -n shop annotate service web {PROTECT}-")
    await eventually(lambda: is_gone(kube, "web"))
    assert balancers(cloud) == []


async def test_a_kept_load_balancer_is_taken_back_with_its_address(
    kube: KubeClient, apiserver: ApiServer, cloud: Simulator, start_ccm: StartCcm
):
    await start_ccm(**LIFECYCLE_OFF).leading()
    address = await serve(kube, "web")
    await kubectl(apiserver, KEEPING)
    await kubectl(apiserver, DELETING)
    assert [each.ip for each in balancers(cloud)] == [address]
    await eventually(lambda: event_messages(kube, "KeptLoadBalancer", "web"))
    (balancer,) = balancers(cloud)
    assert balancer.name in await kubectl(apiserver, ASKING)
    assert await serve(kube, "following", **{TAKE_BACK: balancer.name}) == address
    await kube.delete(f"{SERVICES}/following")
    await eventually(lambda: is_gone(kube, "following"))
    assert balancers(cloud) == []
    assert KEEP in KEEPING
