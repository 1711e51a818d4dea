# SPDX-License-Identifier: Apache-2.0
"""Load balancers of our runtime and of the released cloud-provider-openstack are equal field by field, and each
controller takes over those of the other.

`peer_services.DIFFERENCES` lists all that may differ, and each difference has a row on the provider's page.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.comparison import confirm
from tests.comparison.differences import Found, are_listed, differing, rows_of, unlisted
from tests.comparison.rounds import Rounds
from tests.integration.cluster import ApiServer, remove_objects
from tests.patient import PatientClient

from .customer import Site
from .peer_services import DIFFERENCES, REPLACED, TABLES, things
from .side_by_side import Stage, compare, join

# `make test-clouds` runs these tests, but CI does not, because another program must be compiled first.
pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[3] / "docs" / "providers" / "openstack.md"
HEADING = "### What differs in the cloud"


@pytest.fixture(scope="module")
def seen(apiserver: ApiServer, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Rounds]]:
    """Run both controllers on each table and yield what they did. All tests of this file share this run, because it
    takes minutes."""

    async def run(names: Mapping[str, str]) -> dict[str, Rounds]:
        kube = PatientClient.from_config(kubeconfig=str(apiserver.kubeconfig()))
        stage = Stage(apiserver, kube, site, tmp_path_factory.mktemp("peer"))
        try:
            await join(stage)
            return {title: await compare(stage, table, names) for title, table in TABLES.items()}
        finally:
            await remove_objects(kube)
            await kube.close()

    with things(site) as names:
        yield asyncio.run(run(names))


def test_load_balancers_are_equal(seen: dict[str, Rounds]) -> None:
    """Apart from `DIFFERENCES`, both controllers create the same listeners, pools, members, monitors, security groups,
    floating IPs and status."""
    found: Found = {}
    for rounds in seen.values():
        found |= differing(rounds.theirs.created, rounds.ours.created)
    are_listed(found, DIFFERENCES)
    everywhere = [each for each in DIFFERENCES if not each.services]
    equal = [name for name, fields in found.items() if not unlisted(name, fields, everywhere)]
    confirm("openstack", "load balancers equal", f"{len(equal)} of {len(found)}")


@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_load_balancers_are_taken_over(who: str, seen: dict[str, Rounds]) -> None:
    """After a take-over, IDs are the same, except those of `REPLACED`: nothing else was deleted and created again."""
    found: Found = {}
    kept: dict[str, bool] = {}
    for rounds in seen.values():
        other = rounds.taken_by(who)
        found |= differing(other.created, other.taken)
        kept |= {name: other.created[name].ids == other.taken[name].ids for name in other.created}
    are_listed(found, [each for each in DIFFERENCES if (each.by_ours if who == "ours" else each.by_theirs)])
    assert [name for name, same in kept.items() if not same] == [*REPLACED]
    confirm("openstack", f"taken over by {who}", f"{sum(kept.values())} of {len(kept)}")


@pytest.mark.parametrize("title", TABLES)
def test_taking_over_writes_little(title: str, seen: dict[str, Rounds]) -> None:
    """Our runtime adds its tags, and cloud-provider-openstack rewrites the source ranges of `ranges-open`. Each
    controller replaces the listeners that the two create differently on purpose (`REPLACED`). Nothing else is written.
    """
    table, rounds = TABLES[title], seen[title]
    balancers = sum(not case.shares and "loadBalancerClass" not in case.spec for case in table.cases.values())
    guests = sum(bool(case.shares) for case in table.cases.values())
    ours = Counter({"load-balancer PUT /loadbalancers/{id}": balancers + guests})
    if "manage-security-groups" in table.conf.get("LoadBalancer", {}):
        ours["network PUT /security-groups/{id}/tags"] = balancers
    theirs: Counter[str] = Counter()
    if title == "annotations":
        calls = (
            "DELETE /pools/{id}",
            "DELETE /listeners/{id}",
            "POST /listeners",
            "POST /pools",
            "PUT /pools/{id}/members",
        )
        corrected = Counter(f"load-balancer {call}" for call in calls)
        ours += corrected
        theirs = corrected + Counter({"load-balancer PUT /listeners/{id}": 1})
    assert rounds.theirs.writes == ours
    assert rounds.ours.writes == theirs


@pytest.mark.parametrize("title", TABLES)
def test_nothing_is_left(title: str, seen: dict[str, Rounds]) -> None:
    """Nothing is left except kept floating IPs, whichever controller created and whichever deletes a load balancer."""
    kept = Counter({"FloatingIP": TABLES[title].kept} if TABLES[title].kept else {})
    assert seen[title].theirs.left == seen[title].ours.left == kept


def test_the_page_lists_the_differences() -> None:
    assert rows_of(PAGE, HEADING) == [each.page for each in DIFFERENCES]
