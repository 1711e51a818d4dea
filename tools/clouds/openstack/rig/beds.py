# SPDX-License-Identifier: Apache-2.0
"""The rig as the cloud of a bed (tools/bed): where its machines reach it, their networks, and what forwards to them.

A bed's /24 is one wire. For neutron it is two networks: the lower half is the nodes', with VIPs above them, and the
upper half is the public one, with floating addresses. So every address is reached without a route.
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

#: Where drivers write what the gateway has to do, if the rig is a bed's cloud: RIG_WIRES.
WIRES = DATA / "wires"
_FIRST_VIP, _LAST_VIP = 64, 126


@dataclass(frozen=True)
class Network:
    """A subnet for neutron: its addresses, its gateway ("" for none), and the first and last address that it gives."""

    cidr: str = ""
    gateway: str = ""
    first: str = ""
    last: str = ""


def plan_of(name: str) -> Plan:
    """The plan of a bed that is up. Raises BedError, also if it has a simulated cloud or nodes without a port."""
    prerequisites.need_root("being the cloud of a bed")
    plan = Bed.load(name).plan
    if plan.cloud:
        raise BedError(f"the gateway of the bed {name} is a simulated cloud: raise the bed with --no-cloud")
    beyond = [node.name for node in plan.nodes if IPv4Address(node.address) >= IPv4Address(plan.host(_FIRST_VIP))]
    if beyond:
        raise BedError(f"{', '.join(beyond)}: nodes have addresses below {plan.host(_FIRST_VIP)}")
    return plan


def networks(plan: Plan) -> tuple[Network, Network]:
    """The nodes' network and the public one."""
    lower, upper = map(str, IPv4Network(plan.subnet).subnets())
    first, _, last = plan.load_balancer_addresses.partition("-")
    nodes = Network(lower, plan.gateway, plan.host(_FIRST_VIP), plan.host(_LAST_VIP))
    return nodes, Network(upper, "", first, last)


def start_fabric(plan: Plan) -> None:
    """In the gateway's network: load balancers that forward, and the router's routes (gateway/fabric.py)."""
    if plan.fabric_name in dict(machines.containers(plan.name)):
        return
    podman(
        "run", "--detach", "--name", plan.fabric_name, "--network", f"container:{plan.gateway_name}",
        "--label", f"{machines.LABEL}={plan.name}", "--user", "0", "--privileged", "--http-proxy=false",
        *machines.limits(), "--volume", f"{WIRES}:/wires:ro", "--volume", f"{RIG / 'gateway'}:/gateway:ro",
        # The image may be another checkout's; the code is this one's.
        "--volume", f"{paths.RUNTIME / 'simcloud'}:/simcloud:ro", "--env", "PYTHONPATH=/simcloud",
        "--entrypoint", "python", images.SIMULATOR_IMAGE, "/gateway/fabric.py", "/wires", "eth0",
    )  # fmt: skip


def end_fabric(bed: str) -> None:
    """Of a bed that may be gone."""
    machines.remove_container(f"{bed}-fabric")
