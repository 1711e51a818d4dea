# SPDX-License-Identifier: Apache-2.0
"""The example `rack_provider` is complete although it is small: it passes the kit and makes no needless calls."""

from __future__ import annotations

import pytest

from ccm.cloud import ConfigError, InstanceRef, ProviderConfig, Unauthorized
from ccm.conformance import CASES, Case, Outcome, Subject
from ccm.gateway.gateway import Gateway
from tests.kit import PATIENT, check

from .rack_cloud import TOKEN, RackApi, RackWorld, running
from .rack_provider import RackCloud

ABOUT_INSTANCES = [case for case in CASES if case.needs in ("", "instances")]


def conf(url: str, token: str = TOKEN) -> ProviderConfig:
    return ProviderConfig(f"[Rack]\nurl = {url}\ntoken = {token}\ntimeout = {PATIENT}s\n", "rack.conf", {})


@pytest.mark.parametrize("case", ABOUT_INSTANCES, ids=lambda case: case.name)
async def test_it_passes(case: Case) -> None:
    cloud = RackApi()
    async with running(cloud) as url:
        result = await check(case, Subject("rack", RackCloud, conf(url), world=RackWorld(cloud)))
    assert result.outcome is Outcome.PASSED, result.detail


def test_the_kit_asks_it_much() -> None:
    assert len(ABOUT_INSTANCES) >= 40


async def test_an_answer_costs_a_call_and_a_listing_its_pages() -> None:
    cloud = RackApi()
    async with running(cloud) as url:
        gateway = Gateway(provider := RackCloud(conf(url)))
        await gateway.call("cloud.start", provider.start)
        assert gateway.instances is not None
        listed = await gateway.instances.list(not_before=0.0)
        assert len(listed.by_id) == 5
        found = listed.find(InstanceRef("worker-2.rack.internal"))
        assert found.provider_id == "rack://3" and found.warnings
        assert await gateway.instances.get(InstanceRef("worker-2", "rack://3")) == found
        await gateway.close()
    assert cloud.asked == [
        "GET /account",
        "GET /machines?per_page=3",
        "GET /machines?per_page=3&page=2",
        "GET /machines/3",
    ]


async def test_the_token_may_stand_in_the_environment() -> None:
    cloud = RackApi()
    async with running(cloud) as url:
        provider = RackCloud(ProviderConfig(f"[Rack]\nurl = {url}\n", "rack.conf", {"RACK_TOKEN": TOKEN}))
        await provider.start()
        await provider.close()
        wrong = RackCloud(conf(url, "wrong-token"))
        with pytest.raises(Unauthorized, match=r"rack\.conf"):
            await wrong.start()
        await wrong.close()


def test_all_problems_of_a_configuration_are_told_with_their_lines() -> None:
    text = "[Rack]\nurl = ftp://x\ntimeout = 5\nurll = y\n"
    with pytest.raises(ConfigError) as caught:
        RackCloud(ProviderConfig(text, "rack.conf", {}))
    assert caught.value.problems == [
        "rack.conf: line 2: [Rack] url: expected https://HOST, without credentials",
        "rack.conf: line 3: [Rack] timeout: expected a duration with its unit, such as 5s or 1m30s",
        "rack.conf: line 4: [Rack] urll: unknown key; did you mean url?",
    ]
    with pytest.raises(ConfigError) as caught:
        RackCloud(ProviderConfig("[Rack]\nurl = http://x\n", "rack.conf", {}))
    assert caught.value.problems == ["rack.conf: [Rack] token: is missing, here and as $RACK_TOKEN"]


def test_it_is_small() -> None:
    """A provider over a JSON API needs only configuration, mappings and calls: fewer than 120 lines."""
    with open(RackCloud.__init__.__code__.co_filename) as file:
        assert sum(1 for line in file if line.strip() and not line.strip().startswith("#")) < 120
