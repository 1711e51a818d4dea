# SPDX-License-Identifier: Apache-2.0
"""If a load balancer has room for only a part of the Nodes, each provider chooses that part fairly.

Hundreds of members break an Octavia amphora (cloud-provider-openstack#1770), and AWS and Hetzner refuse more targets
than fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ccm.cloud import Address, AddressType, Backend, Backends, LoadBalancerSpec, Port
from ccm.providers.aws.annotations import PREFIX as AWS
from ccm.providers.aws.load_balancers.classic import load_balancer_rules as classic_rules
from ccm.providers.aws.load_balancers.network import load_balancer_rules as network_rules
from ccm.providers.aws.load_balancers.shared import target_rules
from ccm.providers.aws.settings_sections import Global
from ccm.providers.hetzner import load_balancer_rules as hetzner_rules
from ccm.providers.hetzner.settings import Variables
from ccm.providers.openstack.load_balancers import listener_rules
from ccm.providers.openstack.load_balancers import load_balancer_rules as openstack_rules
from ccm.providers.openstack.settings_sections import EVERY, LoadBalancerSection

ZONE = "topology.kubernetes.io/zone"
ROOM = 6
#: Returns the numbers of the Nodes that get new connections.
Choose = Callable[[LoadBalancerSpec, Sequence[Backend]], set[int]]


def spec(uid: str = "u-1", annotations: dict[str, str] | None = None, **more: Any) -> LoadBalancerSpec:
    ports = more.pop("ports", (Port("http", "TCP", 80, 30080),))
    return LoadBalancerSpec("prod", uid, "shop", f"web-{uid}", annotations=annotations or {}, ports=ports, **more)


def network(service: LoadBalancerSpec, nodes: Sequence[Backend]) -> set[int]:
    service = dataclasses.replace(service, annotations={AWS + "type": "nlb"})
    return on_aws(network_rules.desired_state(service, Global(), "prod", most=ROOM), nodes)


def classic(service: LoadBalancerSpec, nodes: Sequence[Backend]) -> set[int]:
    return on_aws(classic_rules.desired_state(service, Global(), "prod", most=ROOM), nodes)


def on_aws(desired: target_rules.Selecting, nodes: Sequence[Backend]) -> set[int]:
    return {int(id_.removeprefix("i-"), 16) for id_ in target_rules.ids(desired, nodes)}


def hetzner(service: LoadBalancerSpec, nodes: Sequence[Backend]) -> set[int]:
    desired = hetzner_rules.desired_state(service, Variables())
    return set(hetzner_rules.fitting(desired, Backends(nodes), ROOM, service.uid))


def openstack(service: LoadBalancerSpec, nodes: Sequence[Backend]) -> set[int]:
    section = LoadBalancerSection(allowed_annotations=(EVERY,), floating_network_id="n", max_members=ROOM)
    desired = openstack_rules.desired_load_balancer(service, section, {})
    draining = listener_rules.draining_of(desired, nodes)
    members = listener_rules.members_of(desired, nodes)
    return {int(name.removeprefix("n")) for name, address in members if address not in draining}


PROVIDERS = {"aws-network": network, "aws-classic": classic, "hetzner": hetzner, "openstack": openstack}
PROVIDER_ID = {"hetzner": "hcloud://{}", "openstack": "openstack:///{}"}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def backend(provider: str, number: int, *, draining: bool = False) -> Backend:
    id_ = PROVIDER_ID.get(provider, "aws:///eu-west-1a/i-{:017x}").format(number)
    addresses = (Address(AddressType.INTERNAL_IP, f"10.0.0.{number}"),)
    return Backend(f"n{number}", id_, addresses, {ZONE: "ab"[number % 2]}, draining)


def many(provider: str, *, draining: int = 0) -> list[Backend]:
    """Return 20 Nodes in two zones. `draining`: the number of one that drains, 0 for none."""
    return [backend(provider, number, draining=number == draining) for number in range(1, 21)]


def test_a_limit_is_kept_and_zones_and_services_share_it(provider: str) -> None:
    choose, nodes = PROVIDERS[provider], many(provider)
    chosen = {f"u-{number}": choose(spec(f"u-{number}"), nodes) for number in range(40)}
    assert {len(each) for each in chosen.values()} == {ROOM}
    assert all(sum(number % 2 for number in each) == ROOM // 2 for each in chosen.values()), "half of each zone"
    assert set.union(*chosen.values()) == set(range(1, 21)), "each Node has a part of the traffic"


def test_a_node_that_comes_or_goes_replaces_one_member_at_most(provider: str) -> None:
    choose, nodes = PROVIDERS[provider], many(provider)
    before = choose(spec(), nodes)
    for gone in nodes:
        assert len(before - choose(spec(), [each for each in nodes if each is not gone])) <= 1
    assert len(before - choose(spec(), [*nodes, backend(provider, 21)])) <= 1


def test_a_node_that_drains_gets_nothing_and_nodes_that_fit_are_all_used(provider: str) -> None:
    choose = PROVIDERS[provider]
    chosen = sorted(choose(spec(), many(provider)))[0]
    after = choose(spec(), many(provider, draining=chosen))
    assert ROOM - 1 <= len(after) <= ROOM
    assert (chosen in after) is (provider == "hetzner")  # its targets cannot drain
    assert choose(spec(), many(provider)[:ROOM]) == set(range(1, ROOM + 1))


def test_each_node_may_have_the_only_pod_with_the_policy_local(provider: str) -> None:
    """A limit that the operator sets then leaves no Node out. Hetzner's limit is the cloud's own, so it still holds."""
    local = spec(external_traffic_policy="Local", health_check_node_port=32000)
    assert len(PROVIDERS[provider](local, many(provider))) == (ROOM if provider == "hetzner" else 20)


@pytest.mark.parametrize(
    ("where", "expected"), [("aws-network", 3), ("openstack", 3), ("aws-classic", 6), ("hetzner", 6)]
)
def test_ports_count_where_the_cloud_counts_a_member_for_each(where: str, expected: int) -> None:
    ports = (Port("http", "TCP", 80, 30080), Port("https", "TCP", 443, 30443))
    assert len(PROVIDERS[where](spec(ports=ports), many(where))) == expected
