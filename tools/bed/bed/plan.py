# SPDX-License-Identifier: Apache-2.0
"""Decides which machines a bed has, and their addresses. Pure: the same name and sizes give the same plan.

In a bed's /24: the host is .1, the gateway (which is the simulated cloud) .2, nodes start at .11, and
load balancers get .200 to .250. A machine of a dual-stack bed has a second address that reads like its first one:
10.89.77.11 and fd00:10:89:77::11.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import asdict, dataclass, field
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from typing import Any

from bed.errors import BedError
from bed.systems import DEFAULT, SYSTEMS, System

POD_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
# The IPv6 networks of dual-stack clusters. kube-controller-manager gives each node a /64 of the Pods' network.
POD_CIDR_6 = "fd00:10:244::/56"
SERVICE_CIDR_6 = "fd00:10:96::/112"
CLOUD_PORT = 9440
API_PORT = 6443
REGION = "north"
ZONES = ("north-a", "north-b")
INSTANCE_TYPE = "sim.small"
PROJECT = "demo"
# The token of the simulated cloud. It need not be secret: the cloud is a container of this machine.
CLOUD_TOKEN = "demo-token"

_FIRST_NODE = 11
_LAST_NODE = 199
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
# A node's name is its bed's name and its role there, and a host's name has at most 63 characters.
_LONGEST = {"bed": 32, "node": 63}


@dataclass(frozen=True)
class Node:
    """A machine that is or becomes a Kubernetes node; container, host, instance and Node have the same name."""

    name: str
    control_plane: bool
    address: str
    zone: str
    system_name: str = DEFAULT

    @property
    def system(self) -> System:
        return SYSTEMS[self.system_name]


@dataclass
class Plan:
    """The plan of a test bed. ``leftovers`` asks for what in-tree clouds left behind in clusters that are to be
    migrated, ``serving_certs`` for kubelets that have their serving certificates signed by the cluster. With a
    ``domain``, the machines are named as EC2 names instances by default: ip-10-89-77-11.DOMAIN. ``hard_way`` makes
    every component a systemd unit of its host, ``external_etcd`` only etcd. ``kubespray`` arranges files as kubespray
    does. ``dual_stack`` gives machines, Pods and Services addresses of both families. ``pass_through`` is the mode of
    the cloud's load balancers: they pass the clients' packets to nodes unchanged.
    """

    name: str
    subnet: str
    kubernetes: str
    nodes: list[Node] = field(default_factory=list)
    leftovers: bool = False
    cloud: bool = True
    serving_certs: bool = False
    domain: str = ""
    hard_way: bool = False
    external_etcd: bool = False
    kubespray: bool = False
    dual_stack: bool = False
    pass_through: bool = False

    def host(self, number: int) -> str:
        """Return the address with this last number in the bed's subnet."""
        return str(IPv4Network(self.subnet)[number])

    def twin(self, address: str) -> str:
        """Return the IPv6 address of the machine with this IPv4 address: the same digits, read as hexadecimal."""
        first, last = address.rsplit(".", 1)
        return f"fd00:{first.replace('.', ':')}::{last}"

    @property
    def subnet_6(self) -> str:
        return f"{self.twin(self.host(0)).removesuffix('0')}/64"

    def addresses(self, node: Node) -> list[str]:
        """Return the addresses of a node, IPv4 first."""
        return [node.address, *([self.twin(node.address)] if self.dual_stack else [])]

    @property
    def pod_cidr(self) -> str:
        """Return the Pods' network; for a dual-stack bed both networks, with a comma, as in Kubernetes' flags."""
        return f"{POD_CIDR},{POD_CIDR_6}" if self.dual_stack else POD_CIDR

    @property
    def service_cidr(self) -> str:
        return f"{SERVICE_CIDR},{SERVICE_CIDR_6}" if self.dual_stack else SERVICE_CIDR

    @property
    def bridge(self) -> str:
        return self.host(1)

    @property
    def gateway(self) -> str:
        return self.host(2)

    @property
    def load_balancer_addresses(self) -> str:
        return f"{self.host(200)}-{self.host(250)}"

    @property
    def network(self) -> str:
        return f"{self.name}-bed"

    @property
    def gateway_name(self) -> str:
        return f"{self.name}-gateway"

    @property
    def forwarder_name(self) -> str:
        return f"{self.name}-api-forwarder"

    @property
    def fabric_name(self) -> str:
        """Return the name of the container that routes for another cloud in the gateway's network (rig/beds.py)."""
        return f"{self.name}-fabric"

    @property
    def control_planes(self) -> list[Node]:
        return [node for node in self.nodes if node.control_plane]

    @property
    def workers(self) -> list[Node]:
        return [node for node in self.nodes if not node.control_plane]

    @property
    def api_endpoint(self) -> str:
        """Return HOST:PORT of the API server, or of the forwarder in the gateway if there are several control planes.
        A dual-stack bed has an IPv6 address here."""
        address = self.gateway if len(self.control_planes) > 1 else self.control_planes[0].address
        return f"[{self.twin(address)}]:{API_PORT}" if self.dual_stack else f"{address}:{API_PORT}"

    @property
    def cloud_url(self) -> str:
        """Return the URL of the project in the simulated cloud."""
        return f"http://{self.gateway}:{CLOUD_PORT}/v1/projects/{PROJECT}"

    def add(self, name: str, control_plane: bool, system: str = DEFAULT) -> Node:
        """Add a node at the lowest free address and return it. Raises BedError if the name is invalid or taken, or the
        subnet full."""
        check_name(name, "node")
        others = {self.gateway_name, self.forwarder_name, self.fabric_name, "bastion"}
        if name in {node.name for node in self.nodes} | others:
            raise BedError(f"the bed {self.name} has a machine named {name} already: choose another name")
        address = self._free_address(name)
        if self.domain:
            name = f"ip-{address.replace('.', '-')}.{self.domain}"
        node = Node(name, control_plane, address, ZONES[len(self.nodes) % len(ZONES)], system)
        self.nodes.append(node)
        return node

    def _free_address(self, name: str) -> str:
        taken = {node.address for node in self.nodes}
        for number in range(_FIRST_NODE, _LAST_NODE):
            if (address := self.host(number)) not in taken:
                return address
        raise BedError(f"the subnet {self.subnet} of the bed {self.name} has no free address for {name}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        return cls(**{**data, "nodes": [Node(**node) for node in data["nodes"]]})


def check_name(name: str, what: str) -> None:
    """Raise BedError unless the name can be a host name, and a part of container names."""
    longest = _LONGEST[what]
    if not _NAME.fullmatch(name) or len(name) > longest:
        raise BedError(f"{name!r} cannot name a {what}: use up to {longest} of a-z, 0-9 and -, starting with a letter")


def default_subnet(name: str) -> str:
    """Return the bed's /24: a fixed one for ``demo``, one that depends on the name for others, so that beds coexist."""
    third = 77 if name == "demo" else 100 + zlib.crc32(name.encode()) % 100
    return f"10.89.{third}.0/24"


def make(
    name: str,
    kubernetes: str,
    control_planes: int = 1,
    workers: int = 2,
    subnet: str | None = None,
    leftovers: bool = False,
    cloud: bool = True,
    serving_certs: bool = False,
    domain: str = "",
    hard_way: bool = False,
    external_etcd: bool = False,
    kubespray: bool = False,
    dual_stack: bool = False,
    systems: tuple[str, ...] = (),
    pass_through: bool = False,
) -> Plan:
    """Return the plan of a new bed. Raises BedError for an invalid value, and for options that exclude each other.

    ``systems`` are for the first machines, control planes first; the other machines have the default.
    """
    check_name(name, "bed")
    if domain and (not _DOMAIN.fullmatch(domain) or len(f"ip-255-255-255-255.{domain}") > _LONGEST["node"]):
        raise BedError(f"--domain {domain} cannot end the names of machines: give one such as compute.internal")
    if control_planes not in (1, 3, 5):
        raise BedError(f"--control-planes is {control_planes}: stacked etcd needs 1, 3 or 5")
    if hard_way and serving_certs:
        raise BedError("--serving-certs needs kubeadm: not with --hard-way")
    if external_etcd and (control_planes != 1 or hard_way):
        raise BedError("--external-etcd sets up one etcd for one control plane of kubeadm")
    if kubespray and (control_planes != 1 or hard_way or external_etcd or serving_certs):
        raise BedError("--kubespray sets up one control plane with an etcd of its own: give no other layout")
    if dual_stack and (control_planes != 1 or hard_way or kubespray or not cloud):
        raise BedError("--dual-stack sets up one control plane of kubeadm in the simulated cloud")
    if pass_through and not cloud:
        raise BedError("--pass-through is about load balancers of the simulated cloud: not with --no-cloud")
    if unknown := set(systems) - set(SYSTEMS):
        raise BedError(f"--systems {','.join(sorted(unknown))}: choose from {', '.join(SYSTEMS)}")
    if len(systems) > control_planes + workers:
        raise BedError(f"--systems has {len(systems)} names for {control_planes + workers} machines")
    if systems and (hard_way or kubespray):
        raise BedError("--systems works only with kubeadm's layout")
    if not 0 <= workers <= 100:
        raise BedError(f"--workers is {workers}: choose 0 to 100")
    subnet = subnet or default_subnet(name)
    try:
        parsed = IPv4Network(subnet)
    except (AddressValueError, NetmaskValueError, ValueError) as error:
        raise BedError(f"--subnet {subnet} is not a network: {error}") from error
    if parsed.prefixlen != 24 or not parsed.is_private:
        raise BedError(f"--subnet {subnet}: give a private /24 such as {default_subnet(name)}")
    for other in (POD_CIDR, SERVICE_CIDR):
        if parsed.overlaps(IPv4Network(other)):
            raise BedError(f"--subnet {subnet} overlaps {other}, which is inside the clusters: choose another")
    plan = Plan(
        name,
        str(parsed),
        kubernetes,
        leftovers=leftovers,
        cloud=cloud,
        serving_certs=serving_certs,
        domain=domain,
        hard_way=hard_way,
        external_etcd=external_etcd,
        kubespray=kubespray,
        dual_stack=dual_stack,
        pass_through=pass_through,
    )
    of_machines = iter(systems)
    for number in range(1, control_planes + 1):
        plan.add(f"{name}-control-plane-{number}", True, next(of_machines, DEFAULT))
    for number in range(1, workers + 1):
        plan.add(f"{name}-worker-{number}", False, next(of_machines, DEFAULT))
    return plan
