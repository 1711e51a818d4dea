# SPDX-License-Identifier: Apache-2.0
"""The plan of a bed: addresses, names, systems, and the plans that are refused."""

import re
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from bed import paths, plan
from bed.errors import BedError

SCENARIOS = sorted((paths.REPOSITORY / "molecule").glob("*/inventory/scenario.yml"))


def test_demo_has_the_documented_addresses() -> None:
    demo = plan.make("demo", "v1.36.3")
    assert (demo.subnet, demo.bridge, demo.gateway) == ("10.89.77.0/24", "10.89.77.1", "10.89.77.2")
    assert demo.load_balancer_addresses == "10.89.77.200-10.89.77.250"
    assert [(node.name, node.address, node.zone, node.control_plane) for node in demo.nodes] == [
        ("demo-control-plane-1", "10.89.77.11", "north-a", True),
        ("demo-worker-1", "10.89.77.12", "north-b", False),
        ("demo-worker-2", "10.89.77.13", "north-a", False),
    ]


def test_other_names_get_subnets_of_their_own_each_time_the_same() -> None:
    subnets = {name: plan.make(name, "v1.36.3").subnet for name in ("demo", "t1", "col", "molecule")}
    assert len(set(subnets.values())) == len(subnets)
    assert subnets == {name: plan.default_subnet(name) for name in subnets}


def test_one_control_plane_is_reached_itself_several_through_the_gateway() -> None:
    assert plan.make("demo", "v1.36.3").api_endpoint == "10.89.77.11:6443"
    assert plan.make("demo", "v1.36.3", control_planes=3).api_endpoint == "10.89.77.2:6443"


def test_a_later_node_takes_the_lowest_free_address() -> None:
    bed = plan.make("demo", "v1.36.3")
    del bed.nodes[1]
    assert bed.add("late", control_plane=False).address == "10.89.77.12"


def test_nodes_never_reach_the_load_balancers_addresses() -> None:
    bed = plan.make("demo", "v1.36.3", control_planes=5, workers=100)
    with pytest.raises(BedError, match="no free address for last"):
        while True:
            number = len(bed.nodes)
            bed.add("last" if number == 188 else f"more-{number}", control_plane=False)
    first = ip_address(bed.load_balancer_addresses.split("-")[0])
    assert all(ip_address(node.address) in ip_network(bed.subnet) for node in bed.nodes)
    assert max(ip_address(node.address) for node in bed.nodes) < first


def test_the_plan_survives_the_disk() -> None:
    bed = plan.make("demo", "v1.36.3", leftovers=True)
    assert plan.Plan.from_dict(bed.to_dict()) == bed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "Demo"}, "'Demo' cannot name a bed"),
        ({"name": "../etc"}, "cannot name a bed"),
        ({"control_planes": 2}, "--control-planes is 2"),
        ({"workers": -1}, "--workers is -1"),
        ({"subnet": "10.89.77.0/16"}, "is not a network"),
        ({"subnet": "10.89.0.0/16"}, "give a private /24"),
        ({"subnet": "8.8.8.0/24"}, "give a private /24"),
        ({"subnet": "10.244.7.0/24"}, "overlaps 10.244.0.0/16"),
        ({"subnet": "kitchen"}, "--subnet kitchen is not a network"),
        ({"domain": "compute..internal"}, "--domain compute..internal cannot end the names of machines"),
        ({"hard_way": True, "serving_certs": True}, "--serving-certs needs kubeadm"),
        ({"kubespray": True, "external_etcd": True}, "--kubespray sets up one control plane with an etcd of its own"),
        ({"kubespray": True, "control_planes": 3}, "--kubespray sets up one control plane"),
        ({"dual_stack": True, "control_planes": 3}, "--dual-stack sets up one control plane"),
        ({"dual_stack": True, "cloud": False}, "in the simulated cloud"),
        ({"pass_through": True, "cloud": False}, "not with --no-cloud"),
        (
            {"hard_way": True, "external_etcd": True},
            "one control plane of kubeadm",
        ),
        ({"external_etcd": True, "control_planes": 3}, "--external-etcd sets up one etcd"),
        ({"systems": ("bookworm", "sarge")}, "--systems sarge: choose from bookworm, "),
        ({"systems": ("trixie",) * 4}, "--systems has 4 names for 3 machines"),
        ({"systems": ("trixie",), "hard_way": True}, "--systems works only with kubeadm's layout"),
        ({"domain": "Internal"}, "--domain Internal cannot end"),
        ({"domain": "a" * 45}, "cannot end the names of machines"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(BedError, match=says):
        plan.make(**{"name": "demo", "kubernetes": "v1.36.3", **arguments})  # type: ignore[arg-type]


def test_a_machine_of_a_dual_stack_bed_has_an_address_of_each_family() -> None:
    bed = plan.make("demo", "v1.36.3", dual_stack=True)
    assert bed.addresses(bed.nodes[0]) == ["10.89.77.11", "fd00:10:89:77::11"]
    network = ip_network(bed.subnet_6)
    for address in (bed.twin(bed.bridge), bed.twin(bed.gateway), *(bed.addresses(node)[1] for node in bed.nodes)):
        assert ip_address(address) in network
    assert bed.api_endpoint == "[fd00:10:89:77::11]:6443"
    others = [network for text in (bed.pod_cidr, bed.service_cidr) for network in map(ip_network, text.split(","))]
    assert [other.version for other in others] == [4, 6, 4, 6]
    assert not any(other.version == 6 and other.overlaps(network) for other in others)
    plain = plan.make("demo", "v1.36.3")
    assert plain.addresses(plain.nodes[0]) == ["10.89.77.11"]
    assert (plain.pod_cidr, plain.service_cidr) == ("10.244.0.0/16", "10.96.0.0/16")


def test_the_first_machines_have_the_systems_that_are_named() -> None:
    bed = plan.make("demo", "v1.36.3", systems=("bookworm-cri-o", "trixie"))
    assert [node.system_name for node in bed.nodes] == ["bookworm-cri-o", "trixie", "bookworm"]
    assert plan.Plan.from_dict(bed.to_dict()).nodes[0].system.socket == "unix:///var/run/crio/crio.sock"


def test_a_name_is_given_once() -> None:
    bed = plan.make("demo", "v1.36.3")
    for taken in ("demo-worker-1", "demo-gateway", "demo-fabric", "bastion"):
        with pytest.raises(BedError, match=f"a machine named {taken} already"):
            bed.add(taken, control_plane=False)


def test_machines_in_a_domain_have_names_of_their_addresses() -> None:
    bed = plan.make("demo", "v1.36.3", workers=1, domain="eu-central-1.compute.internal")
    bed.add("late", control_plane=False)
    assert [node.name for node in bed.nodes] == [
        "ip-10-89-77-11.eu-central-1.compute.internal",
        "ip-10-89-77-12.eu-central-1.compute.internal",
        "ip-10-89-77-13.eu-central-1.compute.internal",
    ]
    assert plan.Plan.from_dict(bed.to_dict()) == bed


def bed_name(scenario: Path) -> str:
    name = re.search(r"^    bed_name: (\S+)$", scenario.read_text(), re.M)
    assert name is not None
    return name[1]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.parts[-3])
def test_the_names_of_the_scenarios_can_be_given(scenario: Path) -> None:
    plan.make(bed_name(scenario), "v1.36.3", control_planes=3)


def test_scenarios_can_run_side_by_side() -> None:
    names = ["demo", *map(bed_name, SCENARIOS)]
    subnets = [plan.default_subnet(name) for name in names]
    assert sorted(set(subnets)) == sorted(subnets), sorted(zip(subnets, names, strict=True))


def test_a_name_of_a_node_may_be_as_long_as_a_hosts() -> None:
    bed = plan.make("a" * 32, "v1.36.3")
    bed.add("b" * 63, control_plane=False)
    with pytest.raises(BedError, match="cannot name a node: use up to 63"):
        bed.add("b" * 64, control_plane=False)
    with pytest.raises(BedError, match="cannot name a bed: use up to 32"):
        plan.make("a" * 33, "v1.36.3")
