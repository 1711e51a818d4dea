# SPDX-License-Identifier: Apache-2.0
"""The desired state of a Service's load balancer: the decisions of load_balancer_rules one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.cloud import Ingress, Invalid, LoadBalancerSpec, Port
from ccm.providers.openstack.annotations import INTERNAL, PREFIX
from ccm.providers.openstack.load_balancers import feature_rules
from ccm.providers.openstack.load_balancers import load_balancer_rules as rules
from ccm.providers.openstack.load_balancers.feature_rules import Features
from ccm.providers.openstack.load_balancers.load_balancer_rules import DesiredLoadBalancer
from ccm.providers.openstack.settings_sections import EVERY, LoadBalancerClass, LoadBalancerSection

PORTS = (Port("", "TCP", 80, 30080),)
#: The longest form of an address.
FULL_IPV6 = "0000:0000:0000:0000:0000:ffff:255.255.255.255"
ALL = Features()
NOTHING = Features(*[False] * len(dataclasses.fields(Features)))


def uuid(number: int) -> str:
    return f"{number:08}-0000-4000-8000-000000000000"


def spec(keys: dict[str, str] | None = None, **more: Any) -> LoadBalancerSpec:
    annotations = {key if "/" in key else PREFIX + key: value for key, value in (keys or {}).items()}
    base = {
        "cluster": "c",
        "uid": "u-1",
        "namespace": "shop",
        "name": "web",
        "ports": PORTS,
        "annotations": annotations,
    }
    return LoadBalancerSpec(**(base | more))


def section(**more: Any) -> LoadBalancerSection:
    return LoadBalancerSection(allowed_annotations=(EVERY,), **more)


def desired(
    keys: dict[str, str] | None = None, conf: dict[str, Any] | None = None, made_by: str = "", **more: Any
) -> DesiredLoadBalancer:
    classes = {"own": LoadBalancerClass(**more.pop("chosen", {}))}
    return rules.desired_load_balancer(spec(keys, **more), section(**(conf or {})), classes, made_by)


OWN = {"class": "own"}


@pytest.mark.parametrize("key", ["network_id", "subnet_id"])
def test_where_the_vip_is_comes_from_the_class_then_the_annotation_then_cloud_conf(key):
    said, conf, chosen = {key.replace("_", "-"): uuid(1)}, {key: uuid(2)}, {key: uuid(3)}
    assert getattr(desired({**said, **OWN}, conf, chosen=chosen), key) == uuid(3)
    assert getattr(desired(said, conf), key) == uuid(1)
    assert getattr(desired({}, conf), key) == uuid(2)
    assert getattr(desired(), key) == ""


@pytest.mark.parametrize("key", ["network_id", "subnet_id"])
@pytest.mark.parametrize("internal", [({INTERNAL: "true"}, {}), ({}, {"internal_lb": True})])
def test_where_the_vip_of_an_internal_load_balancer_is_comes_from_the_annotation_first(key, internal):
    said, conf, chosen = {key.replace("_", "-"): uuid(1)}, {key: uuid(2), **internal[1]}, {key: uuid(3)}
    assert getattr(desired({**said, **OWN, **internal[0]}, conf, chosen=chosen), key) == uuid(1)
    assert getattr(desired({**OWN, **internal[0]}, conf, chosen=chosen), key) == uuid(3)
    assert getattr(desired(internal[0], conf), key) == uuid(2)


PLACES = [
    ({"member-subnet-id": uuid(1)}, {}, {}),
    ({}, {}, {"member_subnet_id": uuid(2)}),
    ({}, {"member_subnet_id": uuid(3)}, {}),
    ({}, {"subnet_id": uuid(4)}, {}),
    ({"subnet-id": uuid(5)}, {}, {}),
    ({}, {}, {"subnet_id": uuid(6)}),
]


@pytest.mark.parametrize("first", range(len(PLACES)))
def test_the_subnet_of_members_is_the_first_that_is_said(first):
    said, conf, chosen = ({key: value for place in PLACES[first:] for key, value in place[i].items()} for i in range(3))
    assert desired({**said, **OWN}, conf, chosen=chosen).member_subnet_id == uuid(first + 1)


@pytest.mark.parametrize(
    ("keys", "conf", "chosen", "expected"),
    [
        ({}, {}, {}, ("", "", "", "")),
        ({"floating-subnet": "a*"}, {"floating_subnet_id": uuid(1)}, {}, ("", "", "a*", "")),
        (
            {"floating-subnet-id": uuid(2), "floating-subnet": "a*", "floating-subnet-tags": "t"},
            {},
            {},
            ("", uuid(2), "", ""),
        ),
        ({"floating-subnet-tags": "t"}, {"floating_subnet": "b"}, {"floating_subnet": "c"}, ("", "", "c", "")),
        ({}, {"floating_subnet_tags": "t", "floating_network_id": uuid(3)}, {}, (uuid(3), "", "", "t")),
        ({"floating-network-id": uuid(4)}, {"floating_network_id": uuid(3)}, {}, (uuid(4), "", "", "")),
        ({"floating-network-id": uuid(4)}, {}, {"floating_network_id": uuid(5)}, (uuid(5), "", "", "")),
    ],
)
def test_where_a_floating_ip_comes_from(keys, conf, chosen, expected):
    found = desired({**keys, **OWN}, conf, chosen=chosen).floating
    assert (found.network_id, found.subnet_id, found.pattern, found.tags) == expected


@pytest.mark.parametrize(
    ("keys", "conf", "more", "internal", "vip", "floating"),
    [
        ({}, {}, {"load_balancer_ip": " 192.0.2.1 "}, False, "", "192.0.2.1"),
        ({INTERNAL: "true"}, {}, {"load_balancer_ip": "10.0.0.9"}, True, "10.0.0.9", None),
        ({}, {"internal_lb": True}, {"load_balancer_ip": "10.0.0.9"}, True, "10.0.0.9", None),
        ({INTERNAL: "false"}, {"internal_lb": True}, {}, True, "", None),
        ({}, {}, {"load_balancer_ip": "FD00:0::9", "ip_families": ("IPv6",)}, False, "fd00::9", None),
        ({}, {}, {"load_balancer_ip": FULL_IPV6, "ip_families": ("IPv6",)}, False, "::ffff:ffff:ffff", None),
        ({}, {}, {"ip_families": ("IPv6", "IPv4")}, False, "", None),
        ({}, {}, {"ip_families": ("IPv4", "IPv6")}, False, "", ""),
    ],
)
def test_the_address_it_asks_for(keys, conf, more, internal, vip, floating):
    found = desired(keys, conf, **more)
    assert (found.internal, found.vip_address) == (internal, vip)
    assert (found.floating and found.floating.address) == floating


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"load_balancer_ip": "fd00::1"}, "loadBalancerIP"),
        ({"load_balancer_ip": "192.0.2.1", "ip_families": ("IPv6",)}, "loadBalancerIP"),
        ({"load_balancer_ip": "fe80::1%eth0", "ip_families": ("IPv6",)}, "loadBalancerIP"),
        ({"load_balancer_ip": "odd"}, "loadBalancerIP"),
        ({"ports": ()}, "ports"),
        ({"source_ranges": ("fd00::/8",)}, "loadBalancerSourceRanges"),
        ({"keys": {"class": "other"}}, "own"),
        ({"keys": {"proxy-protocol": "true", "x-forwarded-for": "true"}}, "x-forwarded-for"),
        ({"keys": {"connection-limit": "x"}}, "connection-limit"),
    ],
)
def test_what_can_never_work_is_refused(more, word):
    with pytest.raises(Invalid, match=word):
        desired(**more)


def test_a_load_balancer_that_is_there_is_as_its_provider_can():
    conf = {"lb_provider": "ovn", "lb_method": "ROUND_ROBIN"}
    assert desired({}, conf).method == "SOURCE_IP_PORT"
    assert desired({}, conf, made_by="amphora").method == "ROUND_ROBIN"
    assert desired({}, {}, made_by="ovn").method == "SOURCE_IP_PORT"
    assert desired({"lb-method": "SOURCE_IP"}, conf).method == "SOURCE_IP"
    assert (desired({}, conf, made_by="amphora").runs_on, desired({}, conf).runs_on) == ("amphora", "ovn")


@pytest.mark.parametrize(
    ("ranges", "expected", "allowed"),
    [
        ((), (), ("0.0.0.0/0",)),
        (("10.0.0.0/8", "fd00::/8"), ("10.0.0.0/8",), ("10.0.0.0/8",)),
        (("10.0.0.0/8", "0.0.0.0/0"), (), ("0.0.0.0/0",)),
        (("10.0.0.0/8", "192.0.2.0/24"), ("10.0.0.0/8", "192.0.2.0/24"), ("10.0.0.0/8", "192.0.2.0/24")),
    ],
)
def test_who_may_connect(ranges, expected, allowed):
    found = desired(source_ranges=ranges)
    assert (found.source_ranges, found.allowed) == (expected, allowed)


def test_a_monitor_is_made_of_annotations_and_cloud_conf():
    assert (
        desired().monitor is None
        and desired({"enable-health-monitor": "false"}, {"create_monitor": True}).monitor is None
    )
    assert desired({}, {"create_monitor": True, "monitor_delay": 7.0}).monitor == {
        "delay": 7,
        "timeout": 3,
        "max_retries": 1,
        "max_retries_down": 3,
    }
    same = {"enable-health-monitor": "true", "health-monitor-delay": "4", "health-monitor-timeout": "4"}
    assert desired(same).monitor["timeout"] == 4 and not feature_rules.slow_monitor(desired(same))
    slow = desired({**same, "health-monitor-timeout": "5"})
    warning = feature_rules.slow_monitor(slow)
    assert slow.monitor["timeout"] == 5 and "5 s is more than the delay between two probes, 4 s" in warning


@pytest.mark.parametrize(("policy", "port"), [("Local", 32000), ("Cluster", 0)])
def test_nodes_are_probed_only_where_the_policy_is_local(policy, port):
    assert desired(external_traffic_policy=policy, health_check_node_port=32000).health_check_node_port == port


def test_what_nobody_says_has_its_default():
    found = desired()
    assert (found.connection_limit, found.keep_floating_ip, found.affinity, found.suffix) == (-1, False, False, "")
    assert found.timeouts == {
        "timeout_client_data": 50000,
        "timeout_member_connect": 5000,
        "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0,
    }
    assert desired(session_affinity="ClientIP").affinity


@pytest.mark.parametrize(
    ("keys", "conf", "suffix"),
    [
        ({"proxy-protocol": "true"}, {"enable_ingress_hostname": True}, "nip.io"),
        ({}, {"enable_ingress_hostname": True}, ""),
        ({"proxy-protocol": "true"}, {}, ""),
    ],
)
def test_a_name_instead_of_the_address_is_for_the_proxy_protocol(keys, conf, suffix):
    assert desired(keys, conf).suffix == suffix


@pytest.mark.parametrize(
    ("all_desired", "address", "expected"),
    [
        ({"hostname": "lb.example"}, "192.0.2.1", (Ingress(hostname="lb.example"),)),
        ({}, "", ()),
        ({"suffix": "nip.io"}, "192.0.2.1", (Ingress(hostname="192.0.2.1.nip.io"),)),
        ({"proxy": "PROXY"}, "192.0.2.1", (Ingress(ip="192.0.2.1", ip_mode="Proxy"),)),
        ({}, "192.0.2.1", (Ingress(ip="192.0.2.1", ip_mode="VIP"),)),
    ],
)
def test_the_status(all_desired, address, expected):
    assert rules.ingress(dataclasses.replace(desired(), **all_desired), address) == expected


RANGES = {"source_ranges": ("10.0.0.0/8",)}


@pytest.mark.parametrize(
    ("wanted", "features", "count"),
    [
        (desired(), NOTHING, 0),
        (desired(**RANGES), ALL, 0),
        (desired(**RANGES), NOTHING, 1),
        (desired({}, {"lb_provider": "ovn"}, **RANGES), NOTHING, 1),
        (desired({}, {"lb_provider": "ovn", "manage_security_groups": True}, **RANGES), NOTHING, 0),
        (desired({}, {"manage_security_groups": True}, **RANGES), NOTHING, 1),
        (desired({"lb-method": "SOURCE_IP"}, {"lb_provider": "ovn"}), ALL, 1),
        (desired({"lb-method": "SOURCE_IP"}), ALL, 0),
        (desired({"lb-method": "SOURCE_IP_PORT"}, {"lb_provider": "ovn"}), ALL, 0),
        (desired({"flavor-id": uuid(1), "availability-zone": "z", "timeout-client-data": "1"}), NOTHING, 3),
        (desired({"flavor-id": uuid(1), "availability-zone": "z", "timeout-client-data": "1"}), ALL, 0),
        (desired({}, {"flavor_id": uuid(1), "availability_zone": "z"}), NOTHING, 0),
    ],
)
def test_what_this_octavia_cannot_do_is_refused_where_the_service_asked(wanted, features, count):
    assert len(feature_rules.refused(wanted, features)) == count


@pytest.mark.parametrize(
    ("keys", "conf", "more", "features", "words"),
    [
        ({}, {}, {}, ALL, []),
        ({}, {"flavor_id": "f", "availability_zone": "z"}, {}, ALL, []),
        ({}, {"flavor_id": "f", "availability_zone": "z"}, {}, NOTHING, ["flavor-id", "availability-zone"]),
        ({}, {}, {"ip_families": ("IPv4", "IPv6")}, NOTHING, ["gets only IPv4"]),
        ({}, {}, {"ip_families": ("IPv4", "IPv6")}, ALL, []),
        ({}, {}, {"ip_families": ("IPv4",)}, ALL, []),
        ({}, {}, {"external_traffic_policy": "Local"}, ALL, ["externalTrafficPolicy"]),
        ({}, {"create_monitor": True}, {"external_traffic_policy": "Local"}, ALL, []),
        ({}, {"floating_subnet": "a"}, {"ip_families": ("IPv6",)}, ALL, ["floating-subnet"]),
        ({INTERNAL: "true"}, {"floating_subnet": "a"}, {"ip_families": ("IPv6",)}, ALL, []),
        ({}, {"floating_subnet": "a"}, {}, ALL, []),
        ({}, {}, {"ip_families": ("IPv6",)}, ALL, []),
    ],
)
def test_what_a_service_goes_without_is_said(keys, conf, more, features, words):
    service, own = spec(keys, **more), section(**conf)
    found = feature_rules.left_out(service, rules.desired_load_balancer(service, own, {}), features, own, {})
    assert len(found) == len(words) and all(word in text for word, text in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("all_desired", "row", "features", "keys"),
    [
        ({}, {"provider": "amphora"}, ALL, []),
        ({}, {"provider": "octavia"}, ALL, []),
        ({}, {"provider": "ovn"}, ALL, ["lb-provider"]),
        ({"provider": "ovn"}, {"provider": "amphora"}, ALL, ["lb-provider"]),
        ({"provider": ""}, {"provider": "ovn"}, ALL, []),
        ({"flavor_id": "f"}, {"provider": "amphora", "flavor_id": "g"}, ALL, ["flavor-id"]),
        ({"flavor_id": "f"}, {"provider": "amphora", "flavor_id": "f"}, ALL, []),
        ({"flavor_id": "f", "availability_zone": "z"}, {"provider": "amphora"}, NOTHING, []),
        ({"availability_zone": "z"}, {"provider": "amphora"}, ALL, ["availability-zone"]),
        ({"network_id": "n", "subnet_id": "s"}, {"provider": "amphora"}, ALL, ["network-id", "subnet-id"]),
        ({"network_id": "n", "subnet_id": "s", "port_id": "p"}, {"provider": "amphora"}, ALL, ["port-id"]),
        ({"flavor_id": "amphora"}, {"provider": "amphora", "flavor_id": "octavia"}, ALL, ["flavor-id"]),
    ],
)
def test_what_a_load_balancer_was_not_made_with(all_desired, row, features, keys):
    found = feature_rules.kept(dataclasses.replace(desired(), **all_desired), row, features)
    assert list(found) == keys
    assert all(str(row.get(key.replace("-", "_").removeprefix("lb_"), "none")) in text for key, text in found.items())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("fd00::1", "FD00:0::1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("x", "x", True),
        ("x", "y", False),
        ("", "10.0.0.1", False),
    ],
)
def test_whether_two_addresses_are_the_same(one, other, same):
    assert rules.same_address(one, other) is same


def test_families_that_are_not_served_count_in_the_fingerprint():
    prints = [
        rules.fingerprint(spec(ip_families=each), section(), {})
        for each in (("IPv4",), ("IPv4", "IPv6"), ("IPv6", "IPv4"))
    ]
    assert len(set(prints)) == 3 and all(len(each) == 12 and each[0] != "!" for each in prints)
    odd = rules.fingerprint(spec(ports=()), section(), {})
    assert odd[0] == "!" and len(odd) == 12
    assert len(rules.members_fingerprint([("a", "10.0.0.1")])) == 12


@pytest.mark.parametrize(
    ("version", "lacking"),
    [
        ((2, 0), 6),
        ((2, 1), 5),
        ((2, 5), 5),
        ((2, 6), 4),
        ((2, 11), 4),
        ((2, 12), 3),
        ((2, 13), 3),
        ((2, 14), 2),
        ((2, 15), 2),
        ((2, 16), 1),
        ((2, 25), 1),
        ((2, 26), 0),
    ],
)
def test_each_version_of_octavia_can_one_thing_more(version, lacking):
    assert sum(not each for each in dataclasses.astuple(Features.of(version, "amphora"))) == lacking
