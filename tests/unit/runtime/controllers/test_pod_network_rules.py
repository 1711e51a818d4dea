# SPDX-License-Identifier: Apache-2.0
"""Where pod CIDRs may be, and how wide a Node's pod CIDR may be. `test_route_rules` covers the effect on routes."""

import ipaddress

import pytest

from ccm.controllers.shared import pod_network_rules


def networks(*texts):
    return [ipaddress.ip_network(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.244.0.0/16", ["10.244.0.0/16"]),
        ("10.244.0.0/16,fd00::/48", ["10.244.0.0/16", "fd00::/48"]),
        (" fd00::/48 , 10.244.0.0/16 ", ["fd00::/48", "10.244.0.0/16"]),
        ("10.244.3.7/16", ["10.244.0.0/16"]),
    ],
)
def test_parse_cluster_cidrs(text, expected):
    assert pod_network_rules.parse_cluster_cidrs(text) == networks(*expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--cluster-cidr is empty, but .*--configure-cloud-routes=false"),
        ("  ", "--cluster-cidr is empty"),
        ("pods", "--cluster-cidr: 'pods' does not appear to be"),
        ("10.244.0.0/16,", "--cluster-cidr: '' does not appear to be"),
        ("10.244.0.0/33", "--cluster-cidr: '10.244.0.0/33'"),
        ("10.244.0.0/16,10.245.0.0/16", "at most one IPv4 and one IPv6 CIDR"),
        ("10.244.0.0/16,fd00::/48,fd01::/48", "at most one IPv4 and one IPv6 CIDR"),
    ],
)
def test_bad_cluster_cidrs(text, message):
    with pytest.raises(ValueError, match=message):
        pod_network_rules.parse_cluster_cidrs(text)


V4, V6 = "10.244.0.0/16", "fd00::/48"


@pytest.mark.parametrize(
    ("cluster", "sizes", "expected"),
    [
        pytest.param([V4, V6], (0, 0, 0), {4: 24, 6: 64}, id="nothing-given"),
        pytest.param([V4], (1, 0, 0), {4: 1, 6: 1}, id="shortest"),
        pytest.param([V4], (32, 0, 0), {4: 32, 6: 32}, id="longest-ipv4"),
        pytest.param([V6], (128, 0, 0), {4: 128, 6: 128}, id="longest-ipv6"),
        pytest.param([V6], (80, 0, 112), {4: 80, 6: 112}, id="the-family-s-own-first"),
        pytest.param([V4, V6], (0, 32, 128), {4: 32, 6: 128}, id="longest-of-both"),
        pytest.param([V4, V6], (0, 1, 1), {4: 1, 6: 1}, id="shortest-of-both"),
    ],
)
def test_node_prefixes(cluster, sizes, expected):
    assert pod_network_rules.parse_node_prefixes(networks(*cluster), *sizes) == expected


@pytest.mark.parametrize(
    ("cluster", "sizes", "message"),
    [
        ([V4], (33, 0, 0), "mask-size must be between 1 and 32, not 33"),
        ([V4], (-1, 0, 0), "mask-size must be between 1 and 32, not -1"),
        ([V6], (129, 0, 0), "mask-size must be between 1 and 128, not 129"),
        ([V4], (0, 33, 0), "mask-size-ipv4 must be between 1 and 32, not 33"),
        ([V6], (0, 0, 129), "mask-size-ipv6 must be between 1 and 128, not 129"),
        ([V4, V6], (0, -1, 0), "mask-size-ipv4 must be between 1 and 32, not -1"),
        ([V4, V6], (24, 0, 0), "applies to one family"),
    ],
)
def test_bad_node_prefixes(cluster, sizes, message):
    with pytest.raises(ValueError, match=message):
        pod_network_rules.parse_node_prefixes(networks(*cluster), *sizes)
