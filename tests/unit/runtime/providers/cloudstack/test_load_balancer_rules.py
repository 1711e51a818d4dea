# SPDX-License-Identifier: Apache-2.0
"""The desired state of a Service's load balancer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.cloud import Address, AddressType, Backend, Backends, Invalid, Port
from ccm.providers.cloudstack import load_balancer_rules as rules

from .wants import BASE, service

ID = "a5b7e7c4-5c2b-4f1a-9d39-0c1c3fd6d2d5"


@pytest.mark.parametrize(
    ("port", "proxy", "name", "protocol"),
    [
        (Port("p", "TCP", 80, 30080), "false", f"{BASE}-tcp-80", "tcp"),
        (Port("p", "TCP", 80, 30080), "true", f"{BASE}-tcp-proxy-80", "tcp-proxy"),
        (Port("p", "UDP", 53, 30053), "true", f"{BASE}-udp-53", "udp"),
    ],
)
def test_a_port_is_a_rule_with_the_name_that_the_original_gives_it(
    port: Port, proxy: str, name: str, protocol: str
) -> None:
    (found,) = rules.desired_state(service(port, annotations={"proxy-protocol": proxy})).rules
    assert (found.name, found.protocol, found.port, found.node_port) == (name, protocol, port.port, port.node_port)


def test_rules_are_sorted_and_a_port_may_have_both_protocols() -> None:
    ports = (Port("a", "UDP", 53, 30054), Port("b", "TCP", 443, 30443), Port("c", "TCP", 53, 30053))
    assert [each.key for each in rules.desired_state(service(*ports)).rules] == [("tcp", 53), ("tcp", 443), ("udp", 53)]


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ({"session_affinity": "ClientIP"}, "algorithm", "source"),
        ({}, "algorithm", "roundrobin"),
        ({"source_ranges": ("203.0.113.0/24", "10.1.2.3/8")}, "ranges", ("10.0.0.0/8", "203.0.113.0/24")),
        ({"source_ranges": ("0.0.0.0/0", "10.0.0.0/8")}, "ranges", ()),
        ({"source_ranges": ("10.0.0.0/8", "2001:db8::/32")}, "ranges", ("10.0.0.0/8",)),
        ({"annotations": {"source-cidrs": "10.0.0.0/8"}}, "cidrs", ("10.0.0.0/8",)),
        ({"annotations": {"source-cidrs": "0.0.0.0/0"}}, "cidrs", ()),
        ({"load_balancer_ip": "203.0.113.7"}, "address", "203.0.113.7"),
        ({"annotations": {"hostname": "lb.example.org"}}, "hostname", "lb.example.org"),
    ],
)
def test_settings(more: dict[str, Any], name: str, value: Any) -> None:
    found = rules.desired_state(service(**more))
    assert getattr(found, name) == value
    plain = rules.desired_state(service())
    assert (found.digest == plain.digest) is (getattr(plain, name) == value)


@pytest.mark.parametrize(
    ("ports", "more", "expected"),
    [
        ((Port("p", "SCTP", 80, 30080),), {}, "not SCTP 80"),
        ((), {"ip_families": ("IPv6",)}, "spec.ipFamilies"),
        ((), {"load_balancer_ip": "2001:db8::1"}, "spec.loadBalancerIP"),
        ((), {"source_ranges": ("2001:db8::/32",)}, "nobody could connect"),
    ],
)
def test_what_the_cloud_cannot_do_is_refused(ports: tuple[Port, ...], more: dict[str, Any], expected: str) -> None:
    with pytest.raises(Invalid, match=expected):
        rules.desired_state(service(*ports, **more))


def test_what_has_no_effect_is_a_warning() -> None:
    found = rules.desired_state(service(health_check_node_port=32456, ip_families=("IPv4", "IPv6"))).warnings
    assert len(found) == 2 and "healthCheckNodePort" in found[0] and "IPv4 address only" in found[1]
    assert rules.desired_state(service()).warnings == ()


ONE, OTHER = ("10.0.0.0/8",), ("203.0.113.0/24",)


@pytest.mark.parametrize(
    ("cidrs", "ranges", "has_firewall", "expected"),
    [
        ((), (), True, ((), ())),
        (ONE, OTHER, True, (ONE, OTHER)),
        ((), OTHER, True, ((), OTHER)),
        ((), OTHER, False, (OTHER, ())),
        (ONE, (), False, (ONE, ())),
        (ONE, ONE, False, (ONE, ())),
    ],
)
def test_who_is_admitted(cidrs: Any, ranges: Any, has_firewall: bool, expected: Any) -> None:
    """Without a firewall, the load balancer's rules themselves admit the clients that the Service names."""
    want = dataclasses.replace(rules.desired_state(service()), cidrs=cidrs, ranges=ranges)
    assert rules.admitted(want, has_firewall) == expected


def test_two_lists_without_a_firewall_are_refused() -> None:
    want = dataclasses.replace(rules.desired_state(service()), cidrs=ONE, ranges=OTHER)
    with pytest.raises(Invalid, match="remove one of them"):
        rules.admitted(want, False)


def test_targets_are_machines_with_an_address() -> None:
    address = (Address(AddressType.INTERNAL_IP, "10.1.0.1"),)
    every = Backends(
        [
            Backend("b", f"external-cloudstack://{ID}", address),
            Backend("old", "cloudstack://42", address),
            Backend("unconfirmed", "external-cloudstack://7", ()),
            Backend("foreign", "hcloud://7", address),
        ]
    )
    assert rules.targets(every, {}) == ("42", ID)
    assert rules.targets_digest(every, {}) == rules.targets_digest(Backends(every[:2]), {})
    assert rules.targets_digest(every, {}) != rules.targets_digest(Backends(every[:1]), {})


@pytest.mark.parametrize(
    ("draining", "nodes", "expected"),
    [
        ("", {}, ("1", "2", "3")),
        ("2", {}, ("1", "3")),
        ("123", {}, ("1", "2", "3")),
        ("", {"pool": "web"}, ("1", "2")),
        ("", {"pool": None}, ("1", "2", "3")),
        ("1", {"pool": "web"}, ("2",)),
        pytest.param("12", {"pool": "web"}, ("1", "2"), id="all-that-it-selects-drain"),
        ("", {"pool": "nobody"}, ()),
    ],
)
def test_nodes_that_drain_or_lack_a_label_get_nothing(draining: str, nodes: Any, expected: tuple[str, ...]) -> None:
    address = (Address(AddressType.INTERNAL_IP, "10.1.0.1"),)
    pools = {"1": "web", "2": "web", "3": "db"}
    every = Backends(
        Backend(f"node-{id_}", f"cloudstack://{id_}", address, {"pool": pool}, id_ in draining)
        for id_, pool in pools.items()
    )
    assert rules.targets(every, nodes) == expected


def test_only_a_selector_that_cannot_be_read_stops_an_update_of_targets() -> None:
    assert rules.selector(service(annotations={"node-selector": "pool=web", "hostname": "NO"})) == {"pool": "web"}
    with pytest.raises(Invalid, match="node-selector"):
        rules.selector(service(annotations={"node-selector": "=web"}))


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        ({"1": ["a"], "2": ["b"], "3": ["b", "a"]}, "b"),
        ({"1": ["b"], "2": ["a"]}, "a"),
        ({"1": [], "2": ["b"], "9": ["a"]}, "b"),
        ({}, ""),
    ],
)
def test_the_network_of_most_machines_is_taken(networks: dict[str, list[str]], expected: str) -> None:
    address = (Address(AddressType.INTERNAL_IP, "10.1.0.1"),)
    every = Backends([Backend(f"node-{id_}", f"cloudstack://{id_}", address) for id_ in "123"])
    assert rules.network(every, networks) == expected


@pytest.mark.parametrize(
    ("hostname", "proxy", "expected"),
    [
        ("", False, ("203.0.113.7", "", "VIP")),
        ("", True, ("203.0.113.7", "", "Proxy")),
        ("lb.example.org", True, ("", "lb.example.org", None)),
    ],
)
def test_the_status_of_the_service(hostname: str, proxy: bool, expected: Any) -> None:
    (found,) = rules.ingress("203.0.113.7", hostname, proxy)
    assert (found.ip, found.hostname, found.ip_mode) == expected
    assert rules.ingress("", "", False) == ()
