# SPDX-License-Identifier: Apache-2.0
"""Labels of volumes: how many calls they take, and that a failing volume does not affect the labels of others."""

from __future__ import annotations

import asyncio

import pytest

from ccm.cloud import Invalid, NotFound, RateLimited, VolumeRef
from ccm.providers.aws.volume_rules import DRIVERS, REGION, ZONE
from ccm.providers.aws.volumes import CHUNK

from . import account as accounts
from .proxy import Fault
from .world import config

CSI, IN_TREE = DRIVERS
GONE = "vol-0123456789abcdef0"


@pytest.fixture
async def cloud(account, proxy, connect):
    return await connect(config(account, proxy))


async def labels(cloud, *refs: VolumeRef) -> list:
    """Ask for the labels of all volumes at once, and return the outcome for each."""
    return await asyncio.gather(*map(cloud.volumes.labels, refs), return_exceptions=True)


def in_zone(zone: str) -> dict[str, str]:
    return {ZONE: f"{accounts.REGION}{zone}", REGION: accounts.REGION}


async def test_volumes_that_are_asked_for_together_take_one_call(account, proxy, cloud):
    a, b = account.create_volume("a"), account.create_volume("b")
    since = len(proxy.calls)
    found = await labels(
        cloud,
        VolumeRef(CSI, a),
        VolumeRef(CSI, b),
        VolumeRef(IN_TREE, a),
        VolumeRef(IN_TREE, f"aws://{accounts.REGION}b/{b}"),
        VolumeRef(IN_TREE, f"aws:///{b}"),
    )
    assert found == [in_zone(each) for each in "ababb"]
    assert proxy.counted(since) == {"DescribeVolumes": 1}


async def test_a_question_during_a_read_gets_the_next_one(account, proxy, cloud):
    """A request during a read waits for the next read, because the running one does not include its volume."""
    a, b = account.create_volume("a"), account.create_volume("b")
    since = len(proxy.calls)
    with proxy.broken(Fault("slow", call="DescribeVolumes", seconds=1, times=1)):
        first = asyncio.create_task(cloud.volumes.labels(VolumeRef(CSI, a)))
        while proxy.counted(since) != {"DescribeVolumes": 1}:
            await asyncio.sleep(0.01)
        assert await cloud.volumes.labels(VolumeRef(CSI, b)) == in_zone("b")
    assert await first == in_zone("a")
    assert proxy.counted(since) == {"DescribeVolumes": 2}


async def test_one_that_is_gone_or_wrong_spoils_no_other_one(account, proxy, cloud):
    a, deleted = account.create_volume("a"), account.create_volume("a")
    account.delete_volume(deleted)
    since = len(proxy.calls)
    refs = [VolumeRef(CSI, each) for each in (GONE, a, deleted, "vol-wrong")]
    gone, good, also_gone, wrong = await labels(cloud, *refs)
    assert good == in_zone("a")
    assert isinstance(gone, NotFound) and isinstance(also_gone, NotFound) and isinstance(wrong, Invalid)
    assert proxy.counted(since) == {"DescribeVolumes": 1}


async def test_more_volumes_than_a_filter_has_values_take_more_calls(account, proxy, cloud):
    a = account.create_volume("a")
    since = len(proxy.calls)
    refs = [VolumeRef(CSI, f"vol-{number:017x}") for number in range(CHUNK)]
    *missing, found = await labels(cloud, *refs, VolumeRef(CSI, a))
    assert found == in_zone("a") and all(isinstance(each, NotFound) for each in missing)
    assert proxy.counted(since) == {"DescribeVolumes": 2}


async def test_a_failure_is_that_of_all_and_the_next_question_is_answered(account, proxy, cloud):
    refs = [VolumeRef(CSI, account.create_volume(each)) for each in "ab"]
    with proxy.broken(Fault("status", status=503, code="RequestLimitExceeded", call="DescribeVolumes")):
        assert [type(each) for each in await labels(cloud, *refs)] == [RateLimited, RateLimited]
    assert await labels(cloud, *refs) == [in_zone("a"), in_zone("b")]
