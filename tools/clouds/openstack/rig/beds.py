# SPDX-License-Identifier: Apache-2.0
"""Makes the OpenStack services (the rig) the cloud of a test bed (tools/bed): the networks of the bed's machines, and
the program that forwards to the machines.

The machines of a bed share one Ethernet segment with a /24. neutron sees it as two networks: the lower half is for
nodes, with VIPs above them, and the upper half is the public network, with floating addresses. So every address can be
reached without a route.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from bed import images, machines, paths, prerequisites
from bed.cluster import Bed
from bed.errors import BedError
from bed.machines import podman
from bed.plan import Plan
from rig.places import DATA, RIG

#: The folder ($RIG_WIRES) in which the drivers write what the gateway must do, if the rig is a bed's cloud.
WIRES = DATA / "wires"
_FIRST_VIP, _LAST_VIP = 64, 126


@dataclass(frozen=True)
class Network:
    """A subnet for neutron: its range, its gateway ("" for none), and the first and last address that it assigns."""

    cidr: str = ""
    gateway: str = ""
    first: str = ""
    last: str = ""


def plan_of(name: str) -> Plan:
    """Return the plan of a running bed. Raises BedError if there is none, if it has a simulated cloud, or if nodes have
    addresses in the range of VIPs."""
    prerequisites.need_root("being the cloud of a bed")
    plan = Bed.load(name).plan
    if plan.cloud:
        raise BedError(f"the gateway of the bed {name} is a simulated cloud: raise the bed with --no-cloud")
    beyond = [node.name for node in plan.nodes if IPv4Address(node.address) >= IPv4Address(plan.host(_FIRST_VIP))]
    if beyond:
        raise BedError(f"{', '.join(beyond)}: nodes have addresses below {plan.host(_FIRST_VIP)}")
    return plan


def networks(plan: Plan) -> tuple[Network, Network]:
    """Return the nodes' network and the public network."""
    lower, upper = map(str, IPv4Network(plan.subnet).subnets())
    first, _, last = plan.load_balancer_addresses.partition("-")
    nodes = Network(lower, plan.gateway, plan.host(_FIRST_VIP), plan.host(_LAST_VIP))
    return nodes, Network(upper, "", first, last)


def start_fabric(plan: Plan) -> None:
    """Start the container that does the work of load balancers (forwarding) and of the router (routing) in the
    gateway's network: gateway/fabric.py."""
    if plan.fabric_name in dict(machines.containers(plan.name)):
        return
    podman(
        "run", "--detach", "--name", plan.fabric_name, "--network", f"container:{plan.gateway_name}",
        "--label", f"{machines.LABEL}={plan.name}", "--user", "0", "--privileged", "--http-proxy=false",
        *machines.limits(), "--volume", f"{WIRES}:/wires:ro", "--volume", f"{RIG / 'gateway'}:/gateway:ro",
        # Another checkout may have built the image, so mount the code of this one.
        "--volume", f"{paths.RUNTIME / 'simcloud'}:/simcloud:ro", "--env", "PYTHONPATH=/simcloud",
        "--entrypoint", "python", images.SIMULATOR_IMAGE, "/gateway/fabric.py", "/wires", "eth0",
    )  # fmt: skip


def end_fabric(bed: str) -> None:
    """Remove the container that `start_fabric` started. The bed itself may be gone."""
    machines.remove_container(f"{bed}-fabric")
