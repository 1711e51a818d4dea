# SPDX-License-Identifier: Apache-2.0
"""The provider `openstack` passes every case of the kit whose capability it has, on real services."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm.cloud import LoadBalancerSpec, ProviderConfig, VolumeRef
from ccm.conformance import CASES, Case, Listener, Outcome, Subject, Trouble, World, check
from ccm.conformance.cases import load_balancers
from ccm.conformance.kit import DRAINS, KEEPS
from ccm.providers.openstack import OpenStackCloud, errors
from ccm.providers.openstack.annotations import PREFIX
from ccm.providers.openstack.load_balancers import load_balancers as octavia
from ccm.providers.openstack.load_balancers import parts, removal, security_groups
from ccm.providers.openstack.volumes import DRIVERS
from tests.comparison import confirm

from .customer import Site

#: How many seconds a call may take that the conformance kit expects "at once", because services share two cores with
#: the tests. In these cases, the cloud works for a minute, which is much longer.
AT_ONCE = 20.0
#: Seconds until the provider is called again while octavia works. Here, octavia needs 0.1 s for a change.
SOON = 0.3
FAULTS: dict[Trouble, dict[str, Any]] = {
    Trouble.SERVER_ERROR: {"status": 503, "body": json.dumps({"error": {"message": "try later", "code": 503}})},
    Trouble.PROXY_PAGE: {"status": 404, "body": "<html>404</html>", "headers": {"Content-Type": "text/html"}},
    Trouble.CUT_ANSWER: {"kind": "truncate"},
    Trouble.SHORT_LISTING: {"kind": "half", "service": "compute", "path": "/servers/detail"},
    Trouble.LATER_PAGE: {"query": "*marker=*", "status": 503},
    Trouble.HANG: {"kind": "hang"},
    Trouble.UNAUTHORIZED: {"status": 401, "body": json.dumps({"error": {"message": "no", "code": 401}})},
    Trouble.RATE_LIMITED: {
        "status": 429,
        "headers": {"Retry-After": str(int(World.RETRY_AFTER))},
        "body": json.dumps({"overLimit": {"message": "slower", "code": 429}}),
    },
    Trouble.LOST_ANSWER: {
        "service": "load-balancer",
        "method": "POST",
        "path": "/loadbalancers",
        "kind": "drop",
        "late": True,
        "times": 1,
    },
    Trouble.REFUSED: {
        "service": "load-balancer",
        "method": "POST",
        "path": "/loadbalancers",
        "status": 418,
        "body": json.dumps({"faultcode": "Client", "faultstring": "an odd request"}),
    },
    # When this request fails, octavia has made the whole load balancer; only its floating IP is missing.
    Trouble.HALF_MADE: {
        "service": "network",
        "method": "POST",
        "path": "/floatingips",
        "status": 503,
        "body": json.dumps({"NeutronError": {"type": "ServiceUnavailable", "message": "try later", "detail": ""}}),
    },
}
#: Seconds that the provider waits for an answer in cases where none comes. They are enough to create load balancers
#: and routes before such a case.
UNANSWERED = {
    "failures.no_answer_is_transient": 10,
    "failures.a_cancelled_call_ends": 10,
    "load_balancers.no_answer_is_transient": 20,
    "routes.no_answer_is_transient": 20,
    "volumes.no_answer_is_transient": 10,
}


class RigWorld(World):
    """The OpenStack services as the conformance kit's `World`. `troubled`: whether anything was broken since the world
    was created.
    """

    load_balancers_in_a_page = 2

    def __init__(self, site: Site) -> None:
        self._site = site
        self.troubled = False

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        rig, self.troubled = self._site.rig, True
        if kind is Trouble.SLOW_LOAD_BALANCERS:
            rig.load_balancers(60.0)
        else:
            rig.fault(**FAULTS[kind])
        try:
            yield
        finally:
            rig.end_faults()
            rig.load_balancers(0.1)

    async def create_instance(self, name: str) -> None:
        await asyncio.to_thread(self._site.boot, name)

    async def delete_instance(self, provider_id: str) -> None:
        await asyncio.to_thread(self._site.delete, provider_id.rpartition("/")[2])

    async def stop_instance(self, provider_id: str) -> None:
        await asyncio.to_thread(self._site.stop, provider_id.rpartition("/")[2])

    async def untag_instance(self, provider_id: str) -> None:
        await asyncio.to_thread(self._site.untag, provider_id.rpartition("/")[2])

    async def load_balancer_parts(self) -> frozenset[str]:
        return await asyncio.to_thread(self._site.balancer_parts)

    async def load_balancer_listeners(self, name: str) -> tuple[Listener, ...]:
        return await asyncio.to_thread(self._site.listeners, name)

    async def share(self, spec: LoadBalancerSpec, name: str) -> LoadBalancerSpec:
        balancer = await asyncio.to_thread(self._site.balancer_id, name)
        return dataclasses.replace(spec, annotations={**spec.annotations, f"{PREFIX}load-balancer-id": balancer})

    async def create_volume(self) -> VolumeRef:
        return VolumeRef(DRIVERS[0], await asyncio.to_thread(self._site.make_volume, "zone-b"))

    async def delete_volume(self, ref: VolumeRef) -> None:
        await asyncio.to_thread(self._site.delete_volume, ref.handle)

    async def break_load_balancer(self, name: str) -> None:
        self.troubled = True
        await asyncio.to_thread(self._site.break_balancer, name)


#: The provider's capabilities, and "" for cases that need none.
HAS = ("", "instances", "load_balancers", KEEPS, DRAINS, "routes", "volumes", "quotas")


#: Case -> whether it passed; None if nothing was broken in it.
SURVIVED: dict[str, bool | None] = {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_openstack_passes(case: Case, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_balancers, "AT_ONCE", AT_ONCE)
    for module in (octavia, parts, removal, security_groups):
        monkeypatch.setattr(module, "SOON", SOON)
    monkeypatch.setattr(errors, "BUSY", SOON)
    # Long timeouts because the machine may be busy, except in cases that wait for the timeout itself.
    seconds = UNANSWERED.get(case.name, 60)
    page_size = RigWorld.load_balancers_in_a_page if case.name.startswith("later_pages.") else 1000
    conf = site.conf(Metadata={"request-timeout": f"{seconds}s"}, Runtime={"page-size": page_size})
    config = ProviderConfig(conf, "cloud.conf")
    world = RigWorld(site)
    subject = Subject("openstack", OpenStackCloud, config, allow_writes=True, world=world)
    result = await check(case, subject)
    SURVIVED[case.name] = result.outcome is Outcome.PASSED if world.troubled else None
    expected = Outcome.PASSED if case.needs in HAS else Outcome.NOT_APPLICABLE
    assert result.outcome is expected, result.detail


def test_the_faults_that_it_survives_are_written() -> None:
    """Confirm the figure in the docs. This is a test and not the teardown of a fixture, because pytest would report an
    error of the teardown for the last case, whose second try then passes."""
    assert SURVIVED.keys() == {case.name for case in CASES}, "run all cases of this file: the figure counts all of them"
    troubled = [passed for passed in SURVIVED.values() if passed is not None]
    confirm("openstack", "faults survived", f"{sum(troubled)} of {len(troubled)}")
