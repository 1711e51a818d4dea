# SPDX-License-Identifier: Apache-2.0
"""Tags of instances: how many calls they take, and that a failing instance does not affect the tags of others."""

from __future__ import annotations

import asyncio

import pytest

from ccm.cloud import Conflict, Invalid, NotFound, QuotaExceeded, RateLimited
from ccm.providers.aws.instance_tags import CHUNK

from .account import REGION
from .proxy import Fault
from .services import backends
from .world import config

TAGS = {"team": "a"}
GONE = f"aws:///{REGION}a/i-0123456789abcdef0"


@pytest.fixture
async def cloud(account, proxy, connect):
    for zone in "abaa":
        account.run(zone=zone)
    return await connect(config(account, proxy))


async def provider_ids(cloud) -> list[str]:
    return [each.provider_id for each in await backends(cloud)]


async def add(cloud, ids: list[str], tags=TAGS) -> list[BaseException | None]:
    """Add tags to all instances at once, and return the outcome for each."""
    return await asyncio.gather(*(cloud.instance_tags.add(each, tags) for each in ids), return_exceptions=True)


async def teams(cloud) -> dict[str, str | None]:
    return {each: tags.get("team") for each, tags in (await cloud.instance_tags.list()).items()}


async def test_tags_that_are_added_together_take_a_read_and_a_write(proxy, cloud):
    ids = await provider_ids(cloud)
    since = len(proxy.calls)
    assert await add(cloud, ids) == [None] * 4
    assert proxy.counted(since) == {"DescribeInstances": 1, "CreateTags": 1}
    assert await teams(cloud) == dict.fromkeys(ids, "a")
    since = len(proxy.calls)
    assert await add(cloud, ids) == [None] * 4
    assert proxy.counted(since) == {"DescribeInstances": 1}


async def test_a_moment_later_is_together(proxy, cloud):
    first, second, *_ = await provider_ids(cloud)
    since = len(proxy.calls)
    earlier = asyncio.create_task(cloud.instance_tags.add(first, TAGS))
    for _ in range(3):
        await asyncio.sleep(0)
    await cloud.instance_tags.add(second, TAGS)
    await earlier
    assert proxy.counted(since) == {"DescribeInstances": 1, "CreateTags": 1}


async def test_other_tags_are_another_write(proxy, cloud):
    ids = await provider_ids(cloud)
    since = len(proxy.calls)
    found = await asyncio.gather(add(cloud, ids[:2]), add(cloud, ids[2:], {"team": "b"}))
    assert found == [[None] * 2] * 2
    assert proxy.counted(since)["CreateTags"] == 2
    assert await teams(cloud) == dict(zip(ids, "aabb", strict=True))


async def test_each_instance_has_an_outcome_of_its_own(account, proxy, cloud):
    ids = await provider_ids(cloud)
    account.ec2.create_tags(Resources=[ids[0].rpartition("/")[2]], Tags=[{"Key": "team", "Value": "z"}])
    kept, tagged, gone, foreign = await add(cloud, [ids[0], ids[1], GONE, "sim://north/i-1"])
    assert isinstance(kept, Conflict) and tagged is None
    assert isinstance(gone, NotFound) and isinstance(foreign, Conflict)
    assert await teams(cloud) == {ids[0]: "z", ids[1]: "a", ids[2]: None, ids[3]: None}


async def test_one_that_goes_meanwhile_makes_no_other_fail(proxy, cloud):
    """EC2 refuses a whole call because one instance is gone. Then each instance gets a call of its own."""
    ids = await provider_ids(cloud)
    refusals = [Fault("status", call="CreateTags", status=400, code="InvalidInstanceID.NotFound", skip=skip, times=1)
                for skip in (0, 1)]  # fmt: skip
    since = len(proxy.calls)
    with proxy.broken(*refusals):
        outcomes = await add(cloud, ids)
    assert proxy.counted(since)["CreateTags"] == 5
    (missing,) = [id for id, each in zip(ids, outcomes, strict=True) if isinstance(each, NotFound)]
    assert [each for each in outcomes if each is not None] == [outcomes[ids.index(missing)]]
    assert await teams(cloud) == {id: None if id == missing else "a" for id in ids}


async def test_one_that_has_all_the_tags_it_can_have_makes_no_other_fail(account, cloud):
    ids = await provider_ids(cloud)
    full = [{"Key": f"key-{number}", "Value": ""} for number in range(49)]
    account.ec2.create_tags(Resources=[ids[2].rpartition("/")[2]], Tags=full)
    outcomes = await add(cloud, ids)
    assert isinstance(outcomes[2], QuotaExceeded)
    assert await teams(cloud) == dict(zip(ids, ("a", "a", None, "a"), strict=True))


async def test_a_failed_write_is_an_error_of_all(proxy, cloud):
    ids = await provider_ids(cloud)
    with proxy.broken(Fault("status", call="CreateTags", code="RequestLimitExceeded")):
        outcomes = await add(cloud, ids)
    assert all(isinstance(each, RateLimited) for each in outcomes)
    assert await add(cloud, ids) == [None] * 4


async def test_a_write_whose_answer_was_lost_has_succeeded(proxy, cloud):
    (id, *_) = await provider_ids(cloud)
    with proxy.broken(Fault("lost", call="CreateTags", times=1)):
        assert await add(cloud, [id]) != [None]
    since = len(proxy.calls)
    assert await add(cloud, [id]) == [None]
    assert "CreateTags" not in proxy.calls[since:]


async def test_a_call_has_no_more_instances_than_allowed(account, proxy, cloud):
    for _ in range(CHUNK):
        account.run()
    since = len(proxy.calls)
    ids = await provider_ids(cloud)
    assert await add(cloud, ids) == [None] * (CHUNK + 4)
    assert proxy.counted(since)["CreateTags"] == 2


@pytest.mark.parametrize("tags", [{"aws:team": "a"}, {"": "a"}, {"k" * 129: "a"}, {"team": "v" * 257}])
async def test_tags_that_ec2_does_not_allow_make_no_call(proxy, cloud, tags):
    (id, *_) = await provider_ids(cloud)
    since = len(proxy.calls)
    with pytest.raises(Invalid):
        await cloud.instance_tags.add(id, tags)
    assert proxy.calls[since:] == []
