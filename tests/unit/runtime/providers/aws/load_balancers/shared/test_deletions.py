# SPDX-License-Identifier: Apache-2.0
"""Deletions of load balancers of both types: which calls they take, and what a second deletion finds because a listing
was late.
"""

from __future__ import annotations

import pytest

from ccm.cloud import NotFound, ProviderConfig
from ccm.providers.aws import LAG, AwsCloud
from ccm.providers.aws.api import Api
from ccm.providers.aws.load_balancers.network import load_balancer_owners as owners
from ccm.providers.aws.load_balancers.shared.deletions import KEEP, Deletions
from ccm.providers.aws.settings_sections import CLASSIC, NETWORK

from ...balancers_in_memory import Account
from ...rows import VPC, spec

SPEC = spec()
#: The tags that mark a load balancer and its groups as the Service's.
OWNER = {**owners.mark_tags(SPEC), "kubernetes.io/cluster/kube": "owned"}
FIND = ["elbv2 describe_load_balancers", "elbv2 describe_tags"]
PARTS = ["elbv2 describe_target_groups"]
DELETE = ["elbv2 delete_load_balancer", "elbv2 delete_target_group"]
GROUPS, CLOSE = ["ec2 describe_security_groups"], ["ec2 revoke_security_group_ingress"]
NO_CLASSIC = ["elb describe_load_balancers"]
FIND_CLASSIC = ["elb describe_load_balancers", "elb describe_tags"]
DELETE_CLASSIC = ["elb delete_load_balancer", *CLOSE, "ec2 delete_security_group"]
NO_NETWORK = ["elbv2 describe_load_balancers", *PARTS, *GROUPS]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def account(clock, monkeypatch):
    made = Account(clock, OWNER)
    monkeypatch.setattr(Api, "call", lambda _, service, operation, **sent: made.call(service, operation, **sent))
    return made


@pytest.fixture
async def balancers(clock, account):
    """Return the load balancers of a process that has been the leader for an hour."""
    text = f"[Global]\nRegion = eu-central-1\nVPC = {VPC}\nKubernetesClusterID = kube\n"
    found = AwsCloud(ProviderConfig(text, "cloud.conf", {})).load_balancers
    found.deletions.clock = clock
    await found.list(SPEC.cluster)
    account.calls.clear()
    clock.now += 3600.0
    return found


async def test_a_network_load_balancer_takes_one_look_for_a_classic_one(account, balancers):
    account.create_network()
    await balancers.delete(SPEC)
    assert account.parts == set()
    assert account.asked() == [*FIND, *PARTS, *DELETE, *GROUPS, *CLOSE, *NO_CLASSIC]


async def test_a_classic_load_balancer_takes_one_look_for_a_network_one(account, balancers):
    account.create_classic()
    await balancers.delete(SPEC)
    assert account.parts == set()
    assert account.asked() == [*NO_NETWORK, *FIND_CLASSIC, *DELETE_CLASSIC]


@pytest.mark.parametrize(
    ("type_", "again"),
    [(NETWORK, [*PARTS, *GROUPS]), (CLASSIC, GROUPS)],
)
async def test_a_deletion_soon_after_a_write_looks_again_for_parts_alone(clock, account, balancers, type_, again):
    """The second deletion only looks for parts of the type that was written, because all others were certainly gone."""
    account.create_network() if type_ == NETWORK else account.create_classic()
    balancers.deletions.wrote(SPEC, type_)
    clock.now += 1.0
    await balancers.delete(SPEC)
    assert account.parts == set() and account.asked()
    clock.now += LAG
    with pytest.raises(NotFound):
        await balancers.delete(SPEC)
    assert account.asked() == again


@pytest.mark.parametrize("written", [NETWORK, CLASSIC])
async def test_load_balancers_of_both_types_go(account, balancers, written):
    """Both are deleted, whichever was written last: the annotation may have changed, or a process stopped halfway."""
    balancers.deletions.wrote(SPEC, written)
    account.create_network()
    account.create_classic()
    await balancers.delete(SPEC)
    assert account.parts == set()


@pytest.mark.parametrize("late", ["shown", "group", "rule"])
async def test_what_is_listed_late_goes_with_the_next_deletion(clock, account, balancers, late):
    account.create_network(**{late: clock.now + LAG})
    balancers.deletions.wrote(SPEC, NETWORK)
    clock.now += LAG / 2
    await balancers.delete(SPEC)
    assert account.parts
    clock.now += LAG / 2
    await balancers.delete(SPEC)
    assert account.parts == set()


async def test_the_other_type_is_looked_for_again_if_another_process_may_have_written_it(clock, account, balancers):
    """A former leader's last write may be unlisted until LAG seconds after this process became the leader."""
    balancers.deletions = Deletions(clock)
    balancers.deletions.lists()
    account.create_network()
    account.create_classic(shown=clock.now + LAG)
    balancers.deletions.wrote(SPEC, NETWORK)
    clock.now += 1.0
    await balancers.delete(SPEC)
    assert account.classic
    clock.now += LAG
    await balancers.delete(SPEC)
    assert account.parts == set()


async def test_an_answer_that_there_is_nothing_is_checked_in_full(account, balancers):
    """The framework deletes again, because one wrong answer would leave a load balancer behind."""
    for _ in range(2):
        with pytest.raises(NotFound):
            await balancers.delete(SPEC)
        assert account.asked() == [*NO_NETWORK, *NO_CLASSIC]


async def test_a_load_balancer_of_somebody_else_stays(account, balancers):
    account.owner = {**OWNER, f"{owners.PREFIX}cluster": "other"}
    account.create_network()
    account.target_groups.clear()
    account.groups["nodes"].clear()
    with pytest.raises(NotFound):
        await balancers.delete(SPEC)
    assert account.parts == {SPEC.default_name}


@pytest.mark.parametrize("what", ["a write", "time"])
async def test_what_was_seen_counts_for_one_deletion(clock, account, balancers, what):
    account.create_network()
    await balancers.delete(SPEC)
    account.asked()
    if what == "a write":
        balancers.deletions.wrote(SPEC, NETWORK)
    else:
        clock.now += KEEP
    account.create_network()
    account.create_classic()
    await balancers.delete(SPEC)
    assert account.parts == set()


def test_only_the_recent_is_kept(clock):
    found = Deletions(clock)
    for number in range(100):
        each = spec(uid=str(number))
        found.wrote(each, NETWORK)
        first = found.of(each)
        assert found.of(each) is first
        clock.now += KEEP
    assert len(found._written) == len(found._deletions) == 1
