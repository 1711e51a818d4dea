# SPDX-License-Identifier: Apache-2.0
"""What a load balancer cannot do for a Service, or what has no effect, is refused or reported by the provider's rules.

Source ranges of one family never open the other family.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from ccm.cloud import Invalid, LoadBalancerSpec, NotImplementedByCloud, Port
from ccm.cloud.toolkit.service_checks import ipv4_only
from ccm.providers.aws.load_balancers.classic import load_balancer_rules as classic_rules
from ccm.providers.aws.load_balancers.network import load_balancer_rules as network_rules
from ccm.providers.aws.settings_sections import Global
from ccm.providers.cloudstack import load_balancer_rules as cloudstack_rules
from ccm.providers.hetzner import load_balancer_rules as hetzner_rules
from ccm.providers.hetzner.settings import Variables
from ccm.providers.openstack.load_balancers import feature_rules
from ccm.providers.openstack.load_balancers import load_balancer_rules as octavia
from ccm.providers.openstack.settings_sections import LoadBalancerSection
from ccm.providers.sim import load_balancer_rules as sim_rules

SERVICE = LoadBalancerSpec("kube", "1-2-3-4", "default", "web", (Port("p", "TCP", 80, 30080),))


def with_octavia(spec: LoadBalancerSpec) -> list[str]:
    section = LoadBalancerSection(subnet_id="s", internal_lb=True)
    features = feature_rules.Features.of((2, 25), "amphora")  # before additional VIPs
    want = octavia.desired_load_balancer(spec, section, {})
    if problems := feature_rules.refused(want, features):
        raise Invalid("; ".join(problems))
    return feature_rules.left_out(spec, want, features, section, {})


def with_sim(spec: LoadBalancerSpec) -> list[str]:
    sim_rules.check_supported(spec)
    return list(ipv4_only(spec))


#: Provider -> a function that returns the warnings about a Service and raises what `ensure` raises.
WARNINGS: dict[str, Callable[[LoadBalancerSpec], Any]] = {
    "hetzner": lambda spec: hetzner_rules.desired_state(spec, Variables()).warnings,
    "aws nlb": lambda spec: network_rules.desired_state(spec, Global(), "kube").warnings,
    "aws classic": lambda spec: classic_rules.desired_state(spec, Global(), "kube").warnings,
    "cloudstack": lambda spec: cloudstack_rules.desired_state(spec).warnings,
    "openstack": with_octavia,
    "sim": with_sim,
}
ALL = pytest.mark.parametrize("provider", WARNINGS)


@ALL
def test_a_port_without_a_node_port_is_refused(provider: str) -> None:
    ports = (Port("p", "TCP", 80, 30080), Port("q", "TCP", 443, 0))
    with pytest.raises(Invalid, match=r"allocateLoadBalancerNodePorts.*443"):
        WARNINGS[provider](dataclasses.replace(SERVICE, ports=ports))


@pytest.mark.parametrize("provider", [name for name in WARNINGS if name != "openstack"])
def test_ipv6_alone_is_refused_where_nodes_are_reached_with_ipv4(provider: str) -> None:
    with pytest.raises((Invalid, NotImplementedByCloud), match="IPv"):
        WARNINGS[provider](dataclasses.replace(SERVICE, ip_families=("IPv6",)))


@pytest.mark.parametrize("provider", [name for name in WARNINGS if name not in ("hetzner", "aws nlb")])  # serve both
def test_a_second_family_is_reported(provider: str) -> None:
    both = dataclasses.replace(SERVICE, ip_families=("IPv4", "IPv6"))
    [sentence] = WARNINGS[provider](both)
    assert "IPv4" in sentence


@ALL
@pytest.mark.parametrize("ranges", [("::/0",), ("2001:db8::/32",), ("::/0", "2001:db8::/32")])
def test_ranges_of_ipv6_never_open_ipv4(provider: str, ranges: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="SourceRanges"):
        WARNINGS[provider](dataclasses.replace(SERVICE, source_ranges=ranges))


@pytest.mark.parametrize("rules", [network_rules, classic_rules], ids=["nlb", "classic"])
def test_nodes_follow_without_opening_ipv4(rules: Any) -> None:
    closed = dataclasses.replace(SERVICE, source_ranges=("::/0",))
    assert rules.desired_state(closed, Global(), "kube", nodes_only=True).clients == ()


@pytest.mark.parametrize("provider", [name for name in WARNINGS if name != "hetzner"])
def test_ranges_of_ipv6_beside_others_change_nothing(provider: str) -> None:
    assert list(WARNINGS[provider](dataclasses.replace(SERVICE, source_ranges=("0.0.0.0/0", "2001:db8::/32")))) == []


def test_annotations_that_the_shared_probe_overrules_are_reported() -> None:
    prefix = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-"
    given = {prefix + "port": "8080", prefix + "path": "/x", prefix + "protocol": "http", prefix + "interval": "20"}
    spec = dataclasses.replace(SERVICE, annotations=given)
    shared = Global(clusterserviceloadbalancerhealthprobemode="Shared")
    [sentence] = network_rules.desired_state(spec, shared, "kube").warnings
    assert all(prefix + name in sentence for name in ("port", "path", "protocol")) and "interval" not in sentence
    assert network_rules.desired_state(spec, Global(), "kube").warnings == ()
    local = dataclasses.replace(spec, external_traffic_policy="Local", health_check_node_port=31000)
    assert network_rules.desired_state(local, shared, "kube").warnings == ()


def test_what_only_a_new_nlb_gets_is_reported_when_it_changes() -> None:
    prefix = "service.beta.kubernetes.io/aws-load-balancer-"
    given = {"subnets": "one", "eip-allocations": "eipalloc-2", "private-ipv4-addresses": "10.0.0.9"}
    want = network_rules.desired_state(
        dataclasses.replace(SERVICE, annotations={prefix + key: text for key, text in given.items()}), Global(), "kube"
    )
    addresses = [{"AllocationId": "eipalloc-1", "PrivateIPv4Address": "10.0.0.8"}]
    row = {"AvailabilityZones": [{"SubnetId": "subnet-1", "LoadBalancerAddresses": addresses}]}
    [sentence] = network_rules.kept(row, want, ["subnet-2"])
    for part in ("subnets subnet-2 (it has subnet-1)", "eipalloc-2 (it has eipalloc-1)", "10.0.0.9 (it has 10.0.0.8)"):
        assert part in sentence
    same = dataclasses.replace(want, allocations=("eipalloc-1",), addresses=("10.0.0.8",))
    assert network_rules.kept(row, same, ["subnet-1"]) == network_rules.kept(
        row, dataclasses.replace(same, addresses=()), ()
    )
