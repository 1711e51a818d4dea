# SPDX-License-Identifier: Apache-2.0
"""A provider that was written for release 0.1 keeps working: it fails no older case of the kit that it passed before,
and the framework can still call it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from ccm.cloud import Backends, InstanceRef, LoadBalancerSpec, NotFound, Port, ProviderConfig, RateLimited
from ccm.conformance import CASES, Case, Outcome, Subject, World, check
from ccm.gateway.gateway import Gateway
from tests.kit import PATIENT

from .last_release.acme_of_0_1 import AcmeCloud

EXAMPLE = Path(__file__).parents[4] / "runtime" / "examples" / "ccm-provider-acme"
sys.path.insert(0, str(EXAMPLE))
try:
    from acme_cloud import KEY, Acme, refused
finally:
    sys.path.remove(str(EXAMPLE))

#: Cases that are newer than that release, and cases that its example failed.
STRICTER = {
    "load_balancers.source_ranges_are_applied_or_refused",
    "load_balancers.session_affinity_is_applied_or_refused",
    "load_balancers.a_health_check_node_port_is_used_or_refused",
    "load_balancers.a_requested_address_is_given_or_refused",
    "load_balancers.a_port_without_node_port_is_refused",
    "load_balancers.each_ip_family_is_served_or_reported",
    "load_balancers.a_range_of_ipv6_does_not_open_ipv4",
    "load_balancers.a_load_balancer_without_targets_is_reported",
    "load_balancers.a_setting_that_comes_too_late_is_refused_or_reported",
}
#: Groups of cases that need a cloud that fails on request. Other tests cover those of instances and load balancers.
NEEDS_TROUBLE = ("failures.", "later_pages.")


class AcmeWorld(World):
    """The hooks of release 0.1 that cause no failures."""

    def __init__(self, cloud: Acme) -> None:
        self._cloud = cloud

    async def create_instance(self, name: str) -> None:
        self._cloud.add_server(name)

    async def delete_instance(self, provider_id: str) -> None:
        self._cloud.servers.pop(provider_id.rpartition("/")[2], None)

    async def stop_instance(self, provider_id: str) -> None:
        self._cloud.servers[provider_id.rpartition("/")[2]]["power"] = "off"

    async def load_balancer_members(self, name: str) -> frozenset[str]:
        return frozenset(self._cloud.balancers[name]["targets"])


@contextlib.asynccontextmanager
async def acme() -> AsyncIterator[tuple[Acme, ProviderConfig]]:
    cloud = Acme()
    for number in range(5):
        cloud.add_server(f"worker-{number}")
    runner = web.AppRunner(cloud.application(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        conf = f"[acme]\nurl = http://127.0.0.1:{runner.addresses[0][1]}\nkey = {KEY}\ntimeout = {PATIENT}\n"
        yield cloud, ProviderConfig(conf, "acme.conf")
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.name.startswith(NEEDS_TROUBLE)], ids=lambda case: case.name
)
def test_it_fails_no_case_but_of_newer_rules(case: Case) -> None:
    async def examine() -> None:
        async with acme() as (cloud, config):
            result = await check(case, Subject("acme", AcmeCloud, config, allow_writes=True, world=AcmeWorld(cloud)))
        assert (result.outcome is Outcome.FAILED) == (case.name in STRICTER), result.detail
        if case.needs == "instances" and case.name != "instances.a_lost_tag_changes_no_instance":
            assert result.outcome is Outcome.PASSED, result.detail

    asyncio.run(examine())


def test_the_framework_asks_it_as_before() -> None:
    async def use() -> None:
        async with acme() as (cloud, config):
            gateway = Gateway(provider := AcmeCloud(config))
            await gateway.call("cloud.start", provider.start)
            assert provider.watched_files == ()
            assert gateway.instances is not None
            listed = await gateway.instances.list(not_before=0.0)
            assert len(listed.by_id) == 5 and listed.proves_absence
            found = listed.find(InstanceRef("worker-3"))
            assert (found.names, found.aliases, found.warnings) == (("worker-3",), (), ())
            with pytest.raises(NotFound):
                listed.find(InstanceRef("worker-9"))
            backends, spec = Backends(), LoadBalancerSpec("c", "u", "n", "s", (Port("http", "TCP", 80, 30080),))
            balancers = provider.load_balancers
            made = await gateway.call("load_balancers.ensure", lambda: balancers.ensure(spec, backends))
            assert made.fingerprint == balancers.fingerprint(spec, backends)

            async def too_many(request: web.Request, handler: object) -> web.StreamResponse:
                return refused(429, "slow_down", **{"Retry-After": "9"})

            cloud.trouble = too_many
            with pytest.raises(RateLimited) as caught:
                await gateway.call("instances.list", lambda: provider.instances.list_page(None))
            assert (caught.value.scope, caught.value.retry_after) == ("all", 9.0)
            await gateway.close()

    asyncio.run(use())
