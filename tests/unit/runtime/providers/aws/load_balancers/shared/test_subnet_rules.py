# SPDX-License-Identifier: Apache-2.0
"""Which subnets a load balancer gets."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Invalid
from ccm.providers.aws.load_balancers.shared import subnet_rules as rules

from ...rows import tags

MAIN = {"Associations": [{"Main": True}], "Routes": [{"GatewayId": "local"}]}
PUBLIC = {
    "Associations": [{"SubnetId": each} for each in ("subnet-a", "subnet-a2", "subnet-b", "subnet-l")],
    "Routes": [{"GatewayId": "local"}, {"GatewayId": "igw-1"}],
}
OURS, THEIRS = "kubernetes.io/cluster/kube", "kubernetes.io/cluster/other"


def subnet(id: str, zone: str, *keys: str, **more: str) -> dict[str, Any]:
    return {"SubnetId": id, "AvailabilityZone": zone, "Tags": tags(**dict.fromkeys(keys, ""), **more)}


def chosen(*subnets: dict[str, Any], internal: bool = False, fallback: str = "") -> list[str]:
    return rules.chosen(
        subnets,
        [MAIN, PUBLIC],
        cluster="kube",
        internal=internal,
        zone_types={"a": "availability-zone", "l": "local-zone"},
        fallback=fallback,
    )


def test_one_for_each_zone_of_the_region_and_public_unless_internal():
    subnets = [subnet("subnet-l", "l", OURS), subnet("subnet-b", "b", OURS), subnet("subnet-a", "a", OURS)]
    assert chosen(*subnets) == ["subnet-a", "subnet-b"]
    private = subnet("subnet-p", "c", OURS)
    assert chosen(*subnets, private) == ["subnet-a", "subnet-b"]
    assert chosen(*subnets, private, internal=True) == ["subnet-a", "subnet-b", "subnet-p"]


@pytest.mark.parametrize(
    ("first", "second", "internal", "expected"),
    [
        (("kubernetes.io/role/elb",), (), False, "subnet-a2"),
        (("kubernetes.io/role/internal-elb",), (), False, "subnet-a"),
        (("kubernetes.io/role/internal-elb",), (), True, "subnet-a2"),
        ((), (OURS,), False, "subnet-a"),
        (("kubernetes.io/role/elb",), (OURS,), False, "subnet-a2"),
        ((), (), False, "subnet-a"),
    ],
)
def test_of_two_in_a_zone_the_role_counts_then_the_cluster_then_the_id(first, second, internal, expected):
    found = chosen(subnet("subnet-a2", "a", *first), subnet("subnet-a", "a", *second), internal=internal)
    assert found == [expected]


def test_another_clusters_subnets_are_the_last_resort_only_if_configured():
    theirs = subnet("subnet-a", "a", THEIRS)
    with pytest.raises(Invalid, match="tag subnets with kubernetes"):
        chosen(theirs)
    assert chosen(theirs, fallback="subnet-a") == ["subnet-a"]


def test_a_private_fallback_is_no_public_subnet():
    with pytest.raises(Invalid, match="internet gateway"):
        chosen(subnet("subnet-p", "a", OURS))


def test_the_main_table_counts_for_subnets_without_their_own():
    main = {"Associations": [{"Main": True}], "Routes": [{"GatewayId": "igw-1"}]}
    assert rules.is_public([main], "subnet-x")
    assert not rules.is_public([MAIN], "subnet-x")
    assert not rules.is_public([], "subnet-x")
    assert not rules.is_public([{"Associations": [{"SubnetId": "subnet-x"}], "Routes": []}, main], "subnet-x")


def test_named_subnets_are_found_by_id_and_by_name():
    subnets = [subnet("subnet-a", "a", Name="public a"), subnet("subnet-b", "b"), subnet("subnet-c", "c", Name="twice"),
               subnet("subnet-d", "d", Name="twice")]  # fmt: skip
    assert rules.named(subnets, ["subnet-b", "public a"]) == ["subnet-b", "subnet-a"]
    for wrong, count in (("missing", 0), ("twice", 2)):
        with pytest.raises(Invalid, match=f"{count} subnets '{wrong}'"):
            rules.named(subnets, [wrong])
