# SPDX-License-Identifier: Apache-2.0
"""Rules of the security groups of Classic Load Balancers, and rules of Nodes' groups that name them."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Conflict, Invalid
from ccm.providers.aws.load_balancers.classic import group_rules as rules
from ccm.providers.aws.load_balancers.classic import load_balancer_rules
from ccm.providers.aws.load_balancers.classic.group_rules import Change, Entry
from ccm.providers.aws.settings_sections import Global

from ...classic import HTTP, HTTPS, spec, want
from ...rows import tags

CLUSTER = tags(**{"kubernetes.io/cluster/kube": "owned"})
OTHERS = tags(**{"kubernetes.io/cluster/other": "owned"})
NAME = want().own_group


def group(id: str, *permissions: dict[str, Any], name: str = "", of: list[dict[str, str]] = CLUSTER) -> dict[str, Any]:
    return {"GroupId": id, "GroupName": name or id, "IpPermissions": list(permissions), "Tags": of}


def rule(protocol: str, first: int, last: int, *cidrs: str) -> dict[str, Any]:
    ranges = [{"CidrIp": each} for each in cidrs]
    return {"IpProtocol": protocol, "FromPort": first, "ToPort": last, "IpRanges": ranges}


def admits(*ids: str) -> dict[str, Any]:
    pairs = [{"GroupId": each, "UserId": "123456789012"} for each in ids]
    return {"IpProtocol": "-1", "IpRanges": [], "UserIdGroupPairs": pairs}


def entry(protocol: str, first: int, last: int, cidr: str) -> Entry:
    return Entry(protocol, first, last, "IpRanges", cidr)


def test_its_own_group_is_found_by_its_name():
    groups = [group("sg-1"), group("sg-2", name=NAME)]
    assert rules.own_group(groups, NAME, "kube") == groups[1]
    assert rules.own_group(groups[:1], NAME, "kube") is None


@pytest.mark.parametrize("of", [[], OTHERS])
def test_a_group_of_somebody_else_with_its_name_is_left_alone(of):
    with pytest.raises(Conflict, match=f"{NAME} exists without the tag of cluster kube"):
        rules.own_group([group("sg-2", name=NAME, of=of)], NAME, "kube")


def test_a_new_group_gets_ports_and_icmp():
    given = load_balancer_rules.desired_state(spec(HTTP, HTTPS, source_ranges=("192.0.2.0/24",)), Global(), "kube")
    assert rules.own_change(group("sg-2"), given) == Change(
        "sg-2",
        (
            entry("icmp", 3, 4, "192.0.2.0/24"),
            entry("tcp", 80, 80, "192.0.2.0/24"),
            entry("tcp", 443, 443, "192.0.2.0/24"),
        ),
    )


def test_exactly_the_rules_of_the_service_stay_in_its_own_group():
    six = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "IpRanges": [], "Ipv6Ranges": [{"CidrIpv6": "::/0"}]}
    lists = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "PrefixListIds": [{"PrefixListId": "pl-1"}]}
    present = [rule("tcp", 80, 80, "0.0.0.0/0", "192.0.2.0/24"), rule("icmp", 3, 4, "0.0.0.0/0"), six, lists]
    found = rules.own_change(group("sg-2", *present, admits("sg-9")), want())
    assert found.add == ()
    assert set(found.remove) == {
        entry("tcp", 80, 80, "192.0.2.0/24"),
        Entry("tcp", 80, 80, "Ipv6Ranges", "::/0"),
        Entry("tcp", 80, 80, "PrefixListIds", "pl-1"),
        rules.admission("sg-9"),
    }


def test_rules_have_the_form_of_the_api():
    given = [entry("tcp", 80, 80, "192.0.2.0/24"), entry("tcp", 80, 80, "0.0.0.0/0"), rules.admission("sg-2")]
    assert rules.permissions(given) == [
        {
            "IpProtocol": "tcp",
            "FromPort": 80,
            "ToPort": 80,
            "IpRanges": [{"CidrIp": "192.0.2.0/24"}, {"CidrIp": "0.0.0.0/0"}],
        },
        {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-2"}]},
    ]


def test_groups_of_targets_admit_it_and_former_ones_do_not_any_more():
    groups = [
        group("sg-new"),
        group("sg-kept", admits("sg-2", "sg-9")),
        group("sg-former", admits("sg-2")),
        group("sg-of-another-cluster", admits("sg-2"), of=OTHERS),
        group("sg-by-hand", rule("tcp", 22, 22, "192.0.2.0/24"), of=[]),
        group("sg-2", name=NAME),
    ]
    assert rules.node_changes(groups, "sg-2", {"sg-new", "sg-kept"}, "kube") == [
        Change("sg-new", add=(rules.admission("sg-2"),)),
        Change("sg-former", remove=(rules.admission("sg-2"),)),
    ]


def test_a_rule_for_some_ports_does_not_admit_everything():
    some = {**admits("sg-2"), "IpProtocol": "tcp", "FromPort": 80, "ToPort": 80}
    assert rules.node_changes([group("sg-1", some)], "sg-2", {"sg-1"}, "kube") == [
        Change("sg-1", add=(rules.admission("sg-2"),))
    ]


def test_the_group_of_the_configuration_is_never_changed():
    groups = [group("sg-all"), group("sg-1")]
    found = rules.node_changes(groups, "sg-all", {"sg-all", "sg-1"}, "kube", untouched="sg-all")
    assert [each.group for each in found] == ["sg-1"]


def test_every_rule_that_names_a_group_goes_before_it():
    some = {**admits("sg-2"), "IpProtocol": "tcp", "FromPort": 80, "ToPort": 80}
    groups = [group("sg-1", admits("sg-2", "sg-9"), of=[]), group("sg-3", some, of=OTHERS), group("sg-4")]
    assert rules.references(groups, "sg-2") == [
        Change("sg-1", remove=(rules.admission("sg-2"),)),
        Change("sg-3", remove=(Entry("tcp", 80, 80, "UserIdGroupPairs", "sg-2"),)),
    ]


@pytest.mark.parametrize(
    ("present", "noted", "own", "lead"),
    [
        (["sg-1", "sg-2"], "", "sg-2", "sg-2"),
        (["sg-1", "sg-2"], "", "", "sg-1"),
        (["sg-1", "sg-2"], "", "sg-9", "sg-1"),
        (["sg-1", "sg-2"], "sg-9", "sg-2", "sg-9"),
        ([], "", "", ""),
    ],
)
def test_from_which_group_the_traffic_comes(present, noted, own, lead):
    assert rules.lead_of(present, noted, own) == lead


def test_a_group_that_is_missing_is_reported():
    with pytest.raises(Invalid, match="the VPC has no security group sg-8, sg-9"):
        rules.check_asked([group("sg-1")], ["sg-9", "sg-1", "sg-8"])
