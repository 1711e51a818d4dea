# SPDX-License-Identifier: Apache-2.0
"""Faults of real services: refused tokens, missing roles, load balancers with pending changes, and a request that is
never answered."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from ccm.cloud import Forbidden, LoadBalancerSpec, Port, RetryAfter, Transient, Unauthorized
from ccm.providers.openstack import OpenStackCloud

from .conftest import Provider
from .customer import ROLES, Site


async def test_a_token_that_is_no_longer_good_is_renewed_once(provider: Provider, site: Site) -> None:
    async with provider() as cloud:
        await cloud.instances.list_page(None)
        site.rig.reset()
        refusal = json.dumps({"error": {"message": "The request you have made requires authentication.", "code": 401}})
        site.rig.fault(service="compute", status=401, body=refusal, times=1)
        await cloud.instances.list_page(None)
        assert site.rig.logins() == 1

        site.rig.fault(service="compute", status=401, body=refusal)
        with pytest.raises(Unauthorized, match="credentials"):
            await cloud.instances.list_page(None)
        assert site.rig.logins() == 2


async def test_a_missing_role_is_named_with_the_call(provider: Provider, site: Site) -> None:
    """The error names the missing role and the call. By default, current versions of Octavia let a `member` write."""
    await asyncio.to_thread(site.give, "reader")
    for role in ROLES:
        await asyncio.to_thread(site.take, role)
    try:
        async with provider() as cloud:
            assert list(await cloud.load_balancers.list(site.name)) == []
            with pytest.raises(Forbidden, match=r"POST load-balancer .*load-balancer_member"):
                await cloud.load_balancers.ensure(_spec(site), [])
    finally:
        await asyncio.to_thread(site.give, *ROLES)
        await asyncio.to_thread(site.take, "reader")
    assert await asyncio.to_thread(site.balancers) == []


async def test_what_octavia_is_at_work_on_is_asked_again(provider: Provider, site: Site) -> None:
    """Octavia answers 409 while a change is pending. The call is repeated later, and no worker waits for that."""
    spec = _spec(site)
    try:
        async with provider() as cloud:
            await _ready(cloud, spec)
            site.rig.load_balancers(3600.0)
            balancer = site.balancers()[0]
            await asyncio.to_thread(site.cloud.load_balancer.update_load_balancer, balancer.id, description="by hand")
            changed = dataclasses.replace(spec, ports=(Port("http", "TCP", 81, 30081),))
            with pytest.raises(RetryAfter):
                await cloud.load_balancers.ensure(changed, [])
            site.rig.load_balancers(0.1)
            await _ready(cloud, changed)
            (listener,) = site.cloud.load_balancer.listeners()
            assert listener.protocol_port == 81
    finally:
        await asyncio.to_thread(site.clean_balancers)


async def test_a_request_that_is_never_answered_is_given_up_and_what_it_made_is_found(
    provider: Provider, site: Site
) -> None:
    spec = _spec(site)
    try:
        async with provider(Metadata={"request-timeout": "10s"}) as cloud:
            site.rig.fault(service="load-balancer", method="POST", kind="hang", late=True, times=1)
            with pytest.raises(Transient):
                await cloud.load_balancers.ensure(spec, [])
            await _ready(cloud, spec)
            assert len(await asyncio.to_thread(site.balancers)) == 1
    finally:
        await asyncio.to_thread(site.clean_balancers)


def _spec(site: Site) -> LoadBalancerSpec:
    return LoadBalancerSpec(
        cluster=site.name, uid="0b2f4a4e-52e2-4b8e-9d62-3d3b0a2b5f3c", namespace="default", name="busy",
        ports=(Port("http", "TCP", 80, 30080),),
    )  # fmt: skip


async def _ready(cloud: OpenStackCloud, spec: LoadBalancerSpec) -> None:
    while True:
        try:
            if (await cloud.load_balancers.ensure(spec, [])).ready:
                return
        except (RetryAfter, Transient):  # on a busy machine, an answer may come too late
            pass
        await asyncio.sleep(0.5)
