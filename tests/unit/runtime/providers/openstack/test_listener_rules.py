# SPDX-License-Identifier: Apache-2.0
"""What a Service's port becomes in Octavia: protocols, monitors and the whole load balancer in one call."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from ccm.cloud import Address, AddressType, Backend, LoadBalancerSpec, Port
from ccm.providers.openstack.annotations import PREFIX
from ccm.providers.openstack.load_balancers.feature_rules import Features
from ccm.providers.openstack.load_balancers.listener_rules import XFF, Listener, create_body, listeners, member_bodies
from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark
from ccm.providers.openstack.load_balancers.load_balancer_rules import (
    DesiredLoadBalancer,
    desired_load_balancer,
)
from ccm.providers.openstack.settings_sections import LoadBalancerSection

ALL = Features()
NODES = [Backend("a", "openstack:///1", (Address(AddressType.INTERNAL_IP, "10.0.0.1"),), {})]
TWO = [*NODES, Backend("b", "openstack:///2", (Address(AddressType.INTERNAL_IP, "10.0.0.2"),), {})]


def desired(*ports: Port, local: bool = False, **annotations: str) -> DesiredLoadBalancer:
    spec = LoadBalancerSpec(
        "kubernetes",
        "uid",
        "shop",
        "web",
        ports,
        annotations={PREFIX + key.replace("_", "-"): value for key, value in annotations.items()},
        external_traffic_policy="Local" if local else "Cluster",
        health_check_node_port=32000 if local else 0,
    )
    return desired_load_balancer(spec, LoadBalancerSection(), {})


def port(protocol: str = "TCP", node_port: int = 30080) -> Port:
    return Port("p", protocol, 80, node_port)


def listener(protocol: str = "TCP", features: Features = ALL, **more: Any) -> Listener:
    (found,) = listeners(desired(port(protocol), **more), NODES, "subnet", features)
    return found


@pytest.mark.parametrize(
    ("protocol", "annotations", "outer", "inner", "header"),
    [
        ("TCP", {}, "TCP", "TCP", False),
        ("TCP", {"x_forwarded_for": "true"}, "HTTP", "HTTP", True),
        ("UDP", {"x_forwarded_for": "true"}, "UDP", "UDP", False),
        ("SCTP", {"x_forwarded_for": "true"}, "SCTP", "SCTP", False),
        ("TCP", {"default_tls_container_ref": "https://x/1"}, "TERMINATED_HTTPS", "HTTP", False),
        (
            "TCP",
            {"default_tls_container_ref": "https://x/1", "x_forwarded_for": "true"},
            "TERMINATED_HTTPS",
            "HTTP",
            True,
        ),
        ("UDP", {"default_tls_container_ref": "https://x/1"}, "UDP", "UDP", False),
        ("TCP", {"proxy_protocol": "true"}, "TCP", "PROXY", False),
        ("UDP", {"proxy_protocol": "true"}, "UDP", "UDP", False),
    ],
)
def test_protocols(protocol, annotations, outer, inner, header):
    found = listener(protocol, **annotations)
    assert (found.protocol, found.pool.protocol) == (outer, inner)
    assert found.settings["insert_headers"] == ({XFF: "true"} if header else {})


NO_HTTP = dataclasses.replace(ALL, http_monitor=False)
NO_UDP_HTTP = dataclasses.replace(ALL, udp_http_monitor=False)


@pytest.mark.parametrize(
    ("protocol", "features", "local", "kind", "probed_at"),
    [
        ("TCP", ALL, True, "HTTP", 32000),
        ("TCP", ALL, False, "TCP", None),
        ("UDP", ALL, True, "HTTP", 32000),
        ("UDP", ALL, False, "UDP-CONNECT", None),
        ("UDP", NO_UDP_HTTP, True, "UDP-CONNECT", None),
        ("TCP", NO_UDP_HTTP, True, "HTTP", 32000),
        ("TCP", NO_HTTP, True, "TCP", None),
        ("UDP", NO_HTTP, True, "UDP-CONNECT", None),
        ("SCTP", ALL, False, "SCTP", None),
    ],
)
def test_members_are_probed_where_the_service_says_and_octavia_can(protocol, features, local, kind, probed_at):
    pool = listener(protocol, features, local=local, enable_health_monitor="true").pool
    assert pool.monitor.type == kind and ("url_path" in pool.monitor.settings) is (kind == "HTTP")
    assert [member.monitor_port for member in pool.members] == [probed_at]


@pytest.mark.parametrize("local", [True, False])
def test_without_a_monitor_nothing_is_probed(local):
    pool = listener("TCP", local=local, enable_health_monitor="false").pool
    assert pool.monitor is None and [member.monitor_port for member in pool.members] == [None]


def test_a_port_without_a_node_port_has_no_members():
    (found,) = listeners(desired(port(node_port=0)), NODES, "subnet", ALL)
    assert found.pool.members == ()
    assert "healthmonitor" not in dataclasses.replace(found, pool=dataclasses.replace(found.pool, monitor=None)).whole()


@pytest.mark.parametrize("nodes", [[], NODES, TWO], ids=len)
@pytest.mark.parametrize(("local", "subnet"), [(False, "subnet"), (True, "subnet"), (False, ""), (True, "")])
def test_members_alone_are_those_of_the_whole_pool(local: bool, subnet: str, nodes: list[Backend]) -> None:
    want = desired(port(), local=local)
    (whole,) = listeners(want, nodes, subnet, ALL)
    alone = msgspec.json.decode(member_bodies(want, nodes, port(), subnet, ALL))
    assert alone == [member.body() for member in whole.pool.members] and len(alone) == len(nodes)


@pytest.mark.parametrize(
    ("able", "there"), [(ALL, True), (Features(acl=False, timeouts=False, flavors=False, zones=False), False)]
)
def test_what_octavia_cannot_do_is_not_asked_for(able, there):
    want = dataclasses.replace(desired(port()), flavor_id="f", availability_zone="z")
    (found,) = listeners(want, NODES, "subnet", able)
    assert ("allowed_cidrs" in found.settings, "timeout_client_data" in found.settings) == (there, there)
    body = create_body(want, (), Mark("c", "u", "n"), "", "", able)
    assert (body.get("flavor_id"), body.get("availability_zone")) == (("f", "z") if there else (None, None))


def test_what_nobody_asked_for_is_not_in_the_request():
    body = create_body(desired(port()), (), Mark("c", "u", "n"), "", "", ALL)
    assert set(body) <= {"name", "description", "tags", "provider"}


@pytest.mark.parametrize(
    ("all_desired", "subnet_id", "vip", "expected"),
    [
        ({"port_id": "p"}, "s", "10.0.0.9", {"vip_port_id": "p"}),
        ({}, "s", "10.0.0.9", {"vip_subnet_id": "s", "vip_address": "10.0.0.9"}),
        ({"network_id": "n"}, "", "", {"vip_network_id": "n"}),
    ],
)
def test_where_the_vip_is(all_desired, subnet_id, vip, expected):
    want = dataclasses.replace(desired(port()), **all_desired)
    body = create_body(want, (), Mark("c", "u", "n"), subnet_id, vip, ALL)
    assert {key: value for key, value in body.items() if key.startswith("vip_")} == expected


def test_all_parts_are_created_in_one_call():
    want = desired(port(), enable_health_monitor="true")
    found = listeners(want, NODES, "subnet", ALL)
    (whole,) = create_body(want, found, Mark("c", "u", "n"), "s", "", ALL)["listeners"]
    pool = whole["default_pool"]
    assert (whole["protocol_port"], pool["healthmonitor"]["type"]) == (80, "TCP")
    member = {"name": "a", "address": "10.0.0.1", "protocol_port": 30080, "subnet_id": "subnet", "weight": 1}
    assert pool["members"] == [member]


def test_members_that_drain_have_no_weight_or_are_left_out() -> None:
    drains = [dataclasses.replace(NODES[0], draining=True), TWO[1]]
    weightless = Features(weights=False)
    for features, weights in ((ALL, {"a": 0, "b": 1}), (weightless, {"b": None})):
        bodies = msgspec.json.decode(member_bodies(desired(port()), drains, port(), "s", features))
        assert {each["name"]: each.get("weight") for each in bodies} == weights
        (found,) = listeners(desired(port()), drains, "s", features)
        assert [each.body() for each in found.pool.members] == bodies
    alone = [dataclasses.replace(TWO[0], draining=True, labels={"a": "b"}), TWO[1]]
    selected = msgspec.json.decode(member_bodies(desired(port(), node_selector="a"), alone, port(), "s", ALL))
    assert [(each["name"], each["weight"]) for each in selected] == [("a", 1)], "the only one that the Service selects"
