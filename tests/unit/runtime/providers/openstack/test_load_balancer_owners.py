# SPDX-License-Identifier: Apache-2.0
"""Tags that record which Services use a load balancer: which are removed with a Service, and which stay."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import LoadBalancerSpec
from ccm.providers.openstack.load_balancers import load_balancer_owners
from ccm.providers.openstack.load_balancers.load_balancer_owners import Listing, Mark


def spec(uid: str, name: str = "web", cluster: str = "prod") -> LoadBalancerSpec:
    return LoadBalancerSpec(cluster, uid, "shop", name, ())


MINE, OTHER, NAMESAKE = Mark.of(spec("u-1"), "1"), Mark.of(spec("u-2", "db"), "1"), Mark.of(spec("u-3"), "1")
ABROAD = Mark.of(spec("u-1", cluster="test"), "1")
WEB, DB = "kube_service_prod_shop_web", "kube_service_prod_shop_db"


@pytest.mark.parametrize(
    ("tags", "owner", "name", "left"),
    [
        pytest.param(["a", WEB, str(MINE), DB, str(OTHER)], MINE, "", ["a", DB, str(OTHER)], id="by-its-mark"),
        pytest.param(["a", WEB, str(MINE), DB, str(OTHER)], MINE, WEB, ["a", DB, str(OTHER)], id="by-both"),
        pytest.param(["a", WEB, DB], None, WEB, ["a", DB], id="by-its-name"),
        pytest.param(["a", WEB, DB], None, "", ["a", WEB, DB], id="of-nobody"),
        pytest.param([WEB, str(MINE), str(NAMESAKE)], MINE, WEB, [WEB, str(NAMESAKE)], id="a-namesake-needs-the-name"),
        pytest.param([WEB, str(NAMESAKE)], None, WEB, [WEB, str(NAMESAKE)], id="it-is-the-namesakes"),
        pytest.param(None, MINE, WEB, [], id="without-tags"),
    ],
)
def test_what_goes_with_a_service(tags: list[str] | None, owner: Mark | None, name: str, left: list[str]) -> None:
    assert load_balancer_owners.tags_without({"tags": tags}, owner, name) == left


def test_what_is_written_replaces_the_services_own() -> None:
    earlier = Mark.of(spec("u-1"), "0")
    row = {"tags": [WEB, str(earlier), "a", str(ABROAD), DB, str(OTHER)]}
    assert load_balancer_owners.tags_with(row, WEB, MINE) == ["a", str(ABROAD), DB, str(OTHER), WEB, str(MINE)]
    assert load_balancer_owners.tags_with({"tags": None}, WEB, MINE) == [WEB, str(MINE)]


def test_whose_marks_there_are() -> None:
    row = {"tags": ["a", str(OTHER), str(MINE), WEB]}
    assert (
        load_balancer_owners.own_mark(row, "prod", "u-1") == MINE
        and load_balancer_owners.own_mark(row, "test", "u-1") is None
    )
    assert load_balancer_owners.foreign_marks(row, "u-1") == [OTHER] and load_balancer_owners.service_tags(row) == [WEB]
    assert load_balancer_owners.marks({}) == load_balancer_owners.service_tags({}) == []


def test_names_of_a_services_own_load_balancer() -> None:
    former = load_balancer_owners.default_name("u-1")
    assert (
        load_balancer_owners.names_of(spec("u-1")) == {WEB, former}
        and load_balancer_owners.names_of(spec("u-1", "")) == set()
    )
    owned = [
        load_balancer_owners.is_owner({"name": name}, MINE)
        for name in (WEB, former, DB, load_balancer_owners.default_name("u-2"), None)
    ]
    assert owned == [True, True, False, False, False]


def test_a_listing_finds_the_marks_of_a_service() -> None:
    """Marks of another cluster are found, too. A load balancer with two marks of the Service is found once."""
    rows: dict[str, Any] = {
        "a": {"id": "a", "tags": [str(MINE), str(ABROAD)]},
        "b": {"id": "b", "tags": [str(OTHER), "u-1"]},
        "c": {"id": "c", "tags": [str(ABROAD)]},
        "d": {"id": "d"},
    }
    listing = Listing.of(rows)
    assert [row["id"] for row in listing.with_uid("u-1")] == ["a", "c"]
    assert listing.with_uid("u-9") == () and Listing.of(listing) is listing
