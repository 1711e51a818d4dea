# SPDX-License-Identifier: Apache-2.0
"""Load balancers of our runtime and of the released cloud-provider-aws are equal, field by field, and each controller
takes over those of the other.

`peer_services.DIFFERENCES` lists all that may differ, and each difference has a row on the provider's page.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.comparison import confirm
from tests.comparison.differences import Found, are_listed, differing, rows_of, unlisted
from tests.comparison.rounds import Rounds
from tests.integration.cluster import ApiServer, remove_objects
from tests.patient import PatientClient

from .account import Account, Moto
from .peer import ENVIRONMENT, Two
from .peer_services import DIFFERENCES, REFUSED, TABLES
from .proxy import Proxy
from .side_by_side import Stage, compare, join, refuse

# `make test-clouds` runs these tests, but CI does not, because another program must be compiled first.
pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[3] / "docs" / "providers" / "aws.md"
#: What cloud-provider-aws writes whenever it checks the load balancers of a table.
ALWAYS = {
    "ports and ranges": {"ModifyTargetGroup": 2},
    "annotations": {"ModifyTargetGroup": 3, "ModifyListener": 2},
    "checks of kube-proxy": {"ModifyTargetGroup": 3},
    "checks of kube-proxy for UDP": {"ModifyTargetGroup": 1},
    "checks of kube-proxy, annotated": {"ModifyTargetGroup": 1},
    "rules of others": {},
    "the older tag": {},
    "classic": {
        "classic ModifyLoadBalancerAttributes": 18,
        "classic CreateLoadBalancerPolicy": 1,
        "classic SetLoadBalancerPoliciesOfListener": 1,
    },
    "classic, annotations": {"classic ModifyLoadBalancerAttributes": 14, "classic AddTags": 1},
    "classic, checks of kube-proxy": {"classic ModifyLoadBalancerAttributes": 3},
    "classic, rules of others": {"classic ModifyLoadBalancerAttributes": 1},
    "classic, a group of the configuration": {"classic ModifyLoadBalancerAttributes": 1},
    "classic, the older tag": {"classic ModifyLoadBalancerAttributes": 1},
}
SERVED = [name for table in TABLES.values() for name, case in table.cases.items() if not case.is_left]
HEADING = "### What differs in the cloud"


@dataclass(frozen=True)
class Run:
    """What both controllers did. `refused`: controller -> its messages about each Service, and what it leaves."""

    rounds: Mapping[str, Rounds]
    refused: Mapping[str, tuple[Mapping[str, Counter[str]], frozenset[str]]]


@pytest.fixture(scope="module")
def seen(apiserver: ApiServer, moto: Moto, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run both controllers on each table and yield what they did. All tests of this file share this run, because it
    takes minutes."""

    async def run(two: Two) -> Run:
        kube = PatientClient.from_config(kubeconfig=str(apiserver.kubeconfig()))
        stage = Stage(two, kube)
        try:
            await join(stage)
            rounds = {title: await compare(stage, table) for title, table in TABLES.items()}
            return Run(rounds, {which: await refuse(stage, which) for which in ("theirs", "ours")})
        finally:
            await remove_objects(kube)
            await kube.close()

    moto.reset()
    proxy = Proxy(moto.port)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in ENVIRONMENT.items():
                patch.setenv(name, value)
            yield asyncio.run(run(Two(apiserver, Account(moto), proxy, tmp_path_factory.mktemp("peer"))))
    finally:
        proxy.close()


def test_load_balancers_are_equal(seen: Run) -> None:
    """Both controllers create the same attributes, listeners, target groups with their targets and checks, rules of
    security groups, tags and status."""
    found: Found = {}
    for rounds in seen.rounds.values():
        found |= differing(rounds.theirs.created, rounds.ours.created)
    are_listed(found, DIFFERENCES)
    everywhere = [each for each in DIFFERENCES if not each.services]
    equal = [name for name in SERVED if not unlisted(name, found[name], everywhere)]
    confirm("aws", "load balancers equal", f"{len(equal)} of {len(SERVED)}")


@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_load_balancers_are_taken_over(who: str, seen: Run) -> None:
    """After a take-over, ARNs and host names are the same, because nothing was deleted and created again."""
    found: Found = {}
    kept: dict[str, bool] = {}
    for rounds in seen.rounds.values():
        other = rounds.taken_by(who)
        found |= differing(other.created, other.taken)
        kept |= {name: other.created[name].ids == other.taken[name].ids for name in other.created if name in SERVED}
    are_listed(found, [each for each in DIFFERENCES if (each.by_ours if who == "ours" else each.by_theirs)])
    assert [name for name, same in kept.items() if not same] == []
    confirm("aws", f"taken over by {who}", f"{sum(kept.values())} of {len(kept)}")


@pytest.mark.parametrize("title", TABLES)
def test_taking_over_writes_little(title: str, seen: Run) -> None:
    """After a take-over, each controller writes only the following.

    Ours adds its tags: one call for each load balancer, and one for each target group. cloud-provider-aws repeats what
    it writes at every sync (`ALWAYS`): health checks with a path, TLS without a policy, and for Classic Load Balancers
    the attributes, policies and tags of annotations. The two controllers want different source ranges for
    `ranges-open`, a known difference. So each controller rewrites the rules of both security groups of Nodes, or of the
    security group of a Classic Load Balancer.
    """
    rounds = seen.rounds[title]
    served = [case for case in TABLES[title].cases.values() if not case.is_left]
    theirs = Counter(ALWAYS[title])
    network = {"AddTags": sum(1 + len(case.ports) for case in served)}
    ours = Counter(network if TABLES[title].type_ else {"classic AddTags": len(served)})
    if "ranges-open" in TABLES[title].cases:
        ours["RevokeSecurityGroupIngress"] = 2
        theirs["AuthorizeSecurityGroupIngress"] = 2 * 2
    if "classic-ranges-open" in TABLES[title].cases:
        ours["RevokeSecurityGroupIngress"] = theirs["AuthorizeSecurityGroupIngress"] = 1
    assert rounds.theirs.writes == ours
    assert rounds.ours.writes == theirs


@pytest.mark.parametrize("title", TABLES)
def test_nothing_is_left(title: str, seen: Run) -> None:
    """Nothing is left, no matter which controller created a load balancer and which one deletes it."""
    assert seen.rounds[title].theirs.left == seen.rounds[title].ours.left == Counter()


@pytest.mark.parametrize("which", ["theirs", "ours"])
def test_what_both_refuse_leaves_nothing(which: str, seen: Run) -> None:
    messages, parts = seen.refused[which]
    assert messages.keys() == REFUSED.keys()
    assert parts == frozenset()


def test_the_page_lists_the_differences() -> None:
    assert rows_of(PAGE, HEADING) == [each.page for each in DIFFERENCES]
