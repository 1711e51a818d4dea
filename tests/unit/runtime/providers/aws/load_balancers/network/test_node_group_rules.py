# SPDX-License-Identifier: Apache-2.0
"""Rules of the Nodes' security groups: their descriptions say which to add and remove. Foreign rules stay."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Invalid, Port
from ccm.providers.aws.load_balancers.network import node_group_rules as rules
from ccm.providers.aws.load_balancers.network.node_group_rules import Change, Rule

from ...rows import NAME, machine, spec, tags, want

CLIENT, HEALTH, MTU = f"kubernetes.io/rule/nlb/client={NAME}", f"kubernetes.io/rule/nlb/health={NAME}", rules.MTU
OWNED = tags(**{"kubernetes.io/cluster/kube": "owned"})


def group(id: str, *present: Rule, **more: Any) -> dict[str, Any]:
    return {"GroupId": id, "IpPermissions": rules.permissions(present), **more}


def test_a_service_for_everyone_needs_no_rule_for_checks():
    assert rules.desired_rules(NAME, want(), ["10.0.0.0/24"]) == [Rule("tcp", 30080, 30080, "0.0.0.0/0", CLIENT)]


@pytest.mark.parametrize(
    ("service", "protocol", "clients", "check_port"),
    [
        (spec(source_ranges=("192.0.2.0/24",)), "tcp", "192.0.2.0/24", 30080),
        (spec(Port("", "UDP", 53, 30080)), "udp", "0.0.0.0/0", 30080),
        (spec(annotations={"healthcheck-port": "99"}), "tcp", "0.0.0.0/0", 99),
    ],
)
def test_otherwise_checks_come_from_the_subnets(service, protocol, clients, check_port):
    found = rules.desired_rules(NAME, want(service), ["10.0.1.0/24", "10.0.0.0/24"])
    assert found == [
        Rule(protocol, 30080, 30080, clients),
        Rule("tcp", check_port, check_port, "10.0.0.0/24"),
        Rule("tcp", check_port, check_port, "10.0.1.0/24"),
    ]
    assert [each.description for each in found] == [CLIENT, HEALTH, HEALTH]


def test_a_group_of_targets_gets_the_rules_and_the_one_about_sizes():
    wanted = rules.desired_rules(NAME, want(), [])
    (change,) = rules.changes(NAME, [group("sg-1"), group("sg-2")], ["sg-1"], wanted)
    assert change == Change("sg-1", (wanted[0], Rule("icmp", 3, 4, "0.0.0.0/0")))
    assert change.add[1].description == MTU
    done = group("sg-1", *change.add)
    assert rules.changes(NAME, [done], ["sg-1"], wanted) == []


def test_a_group_without_targets_loses_them_and_others_keep_theirs():
    other = Rule("tcp", 30081, 30081, "192.0.2.0/24", "kubernetes.io/rule/nlb/client=a1")
    mine = Rule("tcp", 30080, 30080, "0.0.0.0/0", CLIENT)
    sizes = (Rule("icmp", 3, 4, "0.0.0.0/0", MTU), Rule("icmp", 3, 4, "192.0.2.0/24", MTU))
    persons = (Rule("tcp", 22, 22, "0.0.0.0/0"), Rule("tcp", 30080, 30080, "10.0.0.0/8", "by hand"))
    (change,) = rules.changes(NAME, [group("sg-1", mine, other, *sizes, *persons)], [], [])
    assert change.add == ()
    assert change.remove == (mine, sizes[0])


def test_a_rule_that_a_person_made_is_enough():
    present = Rule("tcp", 30080, 30080, "0.0.0.0/0", "by hand")
    wanted = rules.desired_rules(NAME, want(), [])
    assert rules.changes(NAME, [group("sg-1", present)], ["sg-1"], wanted) == []


def test_another_port_replaces_the_rule():
    old = Rule("tcp", 30079, 30079, "0.0.0.0/0", CLIENT)
    sizes = Rule("icmp", 3, 4, "0.0.0.0/0", MTU)
    wanted = rules.desired_rules(NAME, want(), [])
    (change,) = rules.changes(NAME, [group("sg-1", old, sizes)], ["sg-1"], wanted)
    assert (change.add, change.remove) == (tuple(wanted), (old,))


def test_rules_about_groups_and_all_protocols_are_left_out():
    found = {
        "GroupId": "sg-1",
        "IpPermissions": [
            {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-1"}], "IpRanges": []},
            {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "10.0.0.0/8"}]},
            {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]},
        ],
    }
    assert rules.rules_of(found) == [Rule("tcp", 1, 2, "10.0.0.0/8")]


def test_rules_with_the_same_ports_are_one_permission():
    given = [Rule("tcp", 1, 2, "10.0.0.0/8", "a"), Rule("tcp", 1, 2, "10.1.0.0/16", "b"), Rule("udp", 1, 2, "::", "c")]
    first, second = rules.permissions(given)
    assert first == {
        "IpProtocol": "tcp",
        "FromPort": 1,
        "ToPort": 2,
        "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "a"}, {"CidrIp": "10.1.0.0/16", "Description": "b"}],
    }
    assert second["IpProtocol"] == "udp"


@pytest.mark.parametrize(
    ("own", "tagged", "expected"),
    [
        (["sg-1"], [], "sg-1"),
        (["sg-1", "sg-2"], ["sg-2"], "sg-2"),
        ([], [], ""),
    ],
)
def test_which_group_of_an_instance_is_changed(own, tagged, expected):
    groups = {each: group(each, Tags=OWNED if each in tagged else []) for each in own}
    row = machine(SecurityGroups=[{"GroupId": each} for each in own])
    assert rules.group_of(row, groups, "kube") == expected


@pytest.mark.parametrize("tagged", [[], ["sg-1", "sg-2"]])
def test_an_ambiguous_group_is_refused(tagged):
    groups = {each: group(each, Tags=OWNED if each in tagged else []) for each in ("sg-1", "sg-2")}
    row = machine(SecurityGroups=[{"GroupId": each} for each in groups])
    with pytest.raises(Invalid, match="i-0a1b2c3d has the security groups sg-1, sg-2"):
        rules.group_of(row, groups, "kube")
