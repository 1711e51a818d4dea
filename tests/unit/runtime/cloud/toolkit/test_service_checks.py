# SPDX-License-Identifier: Apache-2.0
"""Services that the cloud could not serve as specified are refused or reported."""

import pytest

from ccm.cloud import Backend, Invalid, LoadBalancerSpec, Port
from ccm.cloud.toolkit import service_checks as checks


def service(**more):
    return LoadBalancerSpec("kube", "u", "default", "web", more.pop("ports", (Port("p", "TCP", 80, 30080),)), **more)


def test_a_port_without_a_node_port_is_named():
    checks.require_node_ports(service())
    with pytest.raises(Invalid, match="port 443 has none: set it to true"):
        checks.require_node_ports(service(ports=(Port("p", "TCP", 80, 30080), Port("q", "TCP", 443, 0))))


def test_ipv6_alone_is_refused_where_nodes_are_reached_with_ipv4():
    checks.require_ipv4(service(ip_families=("IPv6", "IPv4")))
    with pytest.raises(Invalid, match="IPv6 only"):
        checks.require_ipv4(service(ip_families=("IPv6",)))


@pytest.mark.parametrize(
    ("ranges", "expected", "limits"),
    [
        ((), (), False),
        (("0.0.0.0/0",), ("0.0.0.0/0",), False),
        (("10.0.0.0/8", "::/0"), ("10.0.0.0/8",), True),
        (("192.0.2.0/24", "10.0.0.0/8"), ("10.0.0.0/8", "192.0.2.0/24"), True),
        (("0.0.0.0/0", "2001:db8::/32"), ("0.0.0.0/0",), False),
    ],
)
def test_ranges_of_ipv4(ranges, expected, limits):
    assert checks.ipv4_ranges(service(source_ranges=ranges)) == expected
    assert checks.limits_clients(service(source_ranges=ranges)) == limits


@pytest.mark.parametrize("ranges", [("::/0",), ("2001:db8::/32",), ("::/0", "2001:db8::/32")])
def test_no_range_of_ipv6_opens_ipv4(ranges):
    with pytest.raises(Invalid, match="no IPv4 range"):
        checks.ipv4_ranges(service(source_ranges=ranges))


def test_what_ipv4_leaves_out_is_reported():
    assert list(checks.ipv4_only(service())) == []
    assert list(checks.ipv4_only(service(source_ranges=("0.0.0.0/0", "2001:db8::/32")))) == []
    [family] = checks.ipv4_only(service(ip_families=("IPv4", "IPv6")))
    [ranges] = checks.ipv4_only(service(source_ranges=("10.0.0.0/8", "2001:db8::/32")))
    assert "spec.ipFamilies" in family and "IPv6 ranges admit nobody" in ranges


def test_nobody_serves_only_if_there_are_nodes_and_no_targets():
    nodes = [Backend("a", "x://a")]
    assert checks.nobody_serves([], []) == checks.nobody_serves(nodes, ["a"]) == ()
    assert checks.nobody_serves(nodes, []) == ("nobody serves this Service: no node can be a target",)
    [selected] = checks.nobody_serves(nodes, [], "annotation x", "has an IPv6 address")
    assert selected == "nobody serves this Service: no node with the labels of annotation x has an IPv6 address"
