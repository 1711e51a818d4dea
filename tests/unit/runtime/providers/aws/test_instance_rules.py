# SPDX-License-Identifier: Apache-2.0
"""What a Node gets from an EC2 instance: names, addresses in order, state and labels."""

from __future__ import annotations

import pytest

from ccm.cloud import InstanceState, Transient
from ccm.providers.aws import instance_rules as rules

from .rows import interface, machine

ZONES = {"eu-central-1a": "euc1-az2"}


def shown(row: dict, *families: str) -> list[str]:
    return [f"{each.type}={each.address}" for each in rules.addresses(row, families or ("ipv4",))]


@pytest.mark.parametrize(
    ("text", "id", "canonical"),
    [
        ("aws:///eu-central-1a/i-0a1b2c3d", "i-0a1b2c3d", "aws:///eu-central-1a/i-0a1b2c3d"),
        ("aws:////i-0a1b2c3d", "i-0a1b2c3d", None),
        ("aws:///eu-central-1a/fargate-10.0.0.1", None, None),
        ("aws:///eu-central-1a/i-0a1b2c3d/more", None, None),
        ("aws:///eu-central-1a/i-XYZ", None, None),
        ("aws://eu-central-1a/i-0a1b2c3d", None, None),
        ("i-0a1b2c3d", None, None),
        ("", None, None),
    ],
)
def test_provider_ids(text, id, canonical):
    assert (rules.instance_id(text), rules.canonical(text)) == (id, canonical)


def test_an_instance_has_everything_that_a_node_shows():
    found = rules.instance(machine(), "eu-central-1", ("ipv4",), ZONES)
    assert found.provider_id == "aws:///eu-central-1a/i-0a1b2c3d"
    assert (found.zone, found.region, found.type) == ("eu-central-1a", "eu-central-1", "t3.small")
    assert found.labels == {"topology.k8s.aws/zone-id": "euc1-az2"}
    assert found.state is InstanceState.RUNNING


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        ({}, ()),
        ({0: ["2001:db8:0:1::/80", "2001:db8:0:2::/80"]}, ("2001:db8:0:1::/80",)),
        ({1: ["2001:db8:0:1::/80"]}, ()),
    ],
)
def test_pod_cidrs_are_the_prefix_of_the_primary_interface(prefixes, expected):
    """Prefixes of other interfaces, and IPv4 prefixes, belong to network plugins."""
    interfaces = [
        interface(index, "10.0.0.7")
        | {"Ipv4Prefixes": [{"Ipv4Prefix": "10.0.9.0/28"}]}
        | {"Ipv6Prefixes": [{"Ipv6Prefix": each} for each in prefixes.get(index, ())]}
        for index in (1, 0)
    ]
    found = rules.instance(machine(NetworkInterfaces=interfaces), "eu-central-1", ("ipv4",), ZONES)
    assert found.pod_cidrs == expected


def test_a_zone_without_a_known_id_gives_no_label():
    assert rules.instance(machine(), "eu-central-1", ("ipv4",), {}).labels == {}


@pytest.mark.parametrize(
    ("state", "exists", "expected"),
    [
        ("pending", True, InstanceState.RUNNING),
        ("running", True, InstanceState.RUNNING),
        ("shutting-down", True, InstanceState.RUNNING),
        ("stopping", True, InstanceState.RUNNING),
        ("stopped", True, InstanceState.SHUTDOWN),
        ("terminated", False, InstanceState.RUNNING),
    ],
)
def test_only_stopped_is_shut_down_and_only_terminated_is_gone(state, exists, expected):
    row = machine(State={"Name": state})
    assert rules.exists(row) is exists
    assert rules.instance(row, "eu-central-1", ("ipv4",), ZONES).state is expected


def test_no_state_is_gone():
    assert not rules.exists({"InstanceId": "i-0a1b2c3d"})


def test_addresses_come_in_the_order_of_the_original():
    row = machine(
        NetworkInterfaces=[interface(1, "10.0.1.7"), interface(0, "10.0.0.7", "10.0.0.8")],
        PublicIpAddress="203.0.113.7",
        PublicDnsName="ec2-203-0-113-7.compute.amazonaws.com",
    )
    assert shown(row) == [
        "InternalIP=10.0.0.7",
        "InternalIP=10.0.0.8",
        "InternalIP=10.0.1.7",
        "ExternalIP=203.0.113.7",
        "InternalDNS=ip-10-0-0-7.eu-central-1.compute.internal",
        "Hostname=ip-10-0-0-7.eu-central-1.compute.internal",
        "ExternalDNS=ec2-203-0-113-7.compute.amazonaws.com",
    ]


def test_families_decide_what_there_is_and_in_which_order():
    row = machine(
        PrivateDnsName="",
        NetworkInterfaces=[
            interface(1, "10.0.1.7", ipv6=("2001:db8::2", "2001:db8::3")),
            interface(0, "10.0.0.7", ipv6=("2001:db8::1",)),
        ],
    )
    assert shown(row, "ipv6", "ipv4") == [
        "InternalIP=2001:db8::1",
        "InternalIP=2001:db8::2",
        "InternalIP=10.0.0.7",
        "InternalIP=10.0.1.7",
    ]
    assert shown(row, "ipv6") == ["InternalIP=2001:db8::1", "InternalIP=2001:db8::2"]


def test_interfaces_that_are_not_in_use_are_left_out_and_detached_ones_come_last():
    loose = {**interface(0, "10.0.9.9"), "Attachment": None}
    attached, detaching = interface(3, "10.0.3.7"), interface(1, "10.0.1.7", status="detaching")
    row = machine(PrivateDnsName="", NetworkInterfaces=[loose, attached, detaching])
    assert shown(row) == ["InternalIP=10.0.3.7", "InternalIP=10.0.9.9"]


def test_a_node_may_have_any_name_that_aws_gives():
    by_address = machine()
    assert rules.names(by_address) == [
        "ip-10-0-0-7.eu-central-1.compute.internal",
        "i-0a1b2c3d",
        "i-0a1b2c3d.eu-central-1.compute.internal",
    ]
    by_resource = machine(PrivateDnsName="i-0a1b2c3d.eu-central-1.compute.internal")
    assert rules.names(by_resource) == [
        "i-0a1b2c3d.eu-central-1.compute.internal",
        "i-0a1b2c3d",
        "ip-10-0-0-7.eu-central-1.compute.internal",
    ]
    assert rules.names(machine(PrivateDnsName="")) == ["i-0a1b2c3d"]


@pytest.mark.parametrize(
    ("name", "id", "address"),
    [
        ("i-0a1b2c3d", "i-0a1b2c3d", ""),
        ("i-0a1b2c3d.ec2.internal", "i-0a1b2c3d", ""),
        ("i-0a1b2c3d4e5f60718", "i-0a1b2c3d4e5f60718", ""),
        ("i-machine", None, ""),
        ("i-beef", None, ""),
        ("i-0a1b2c3d4", None, ""),
        ("ip-10-0-0-7.ec2.internal", None, "10.0.0.7"),
        ("ip-10-0-0-7", None, "10.0.0.7"),
        ("ip-10-0-0", None, ""),
        ("worker", None, ""),
    ],
)
def test_what_a_name_says(name, id, address):
    assert (rules.named_id(name), rules.named_address(name)) == (id, address)


@pytest.mark.parametrize(
    "broken", [{"Placement": {}}, {"InstanceType": None, "Placement": None}, {"PublicIpAddress": "x"}]
)
def test_another_shape_is_transient(broken):
    with pytest.raises(Transient, match="form"):
        rules.instance(machine(**broken), "eu-central-1", ("ipv4",), ZONES)
