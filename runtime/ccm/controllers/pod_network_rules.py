# SPDX-License-Identifier: Apache-2.0
"""Where pod CIDRs may lie, and how wide a Node's may be: pure decisions. CIDRs are networks, not texts."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ccm.cloud import Route

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: The length of a Node's prefix when nothing else is said, by family, as kube-controller-manager has it.
NODE_PREFIX: Mapping[int, int] = {4: 24, 6: 64}


def parse_cluster_cidrs(text: str) -> list[Network]:
    """`--cluster-cidr`: one CIDR, or one of each family with a comma between. Raises ValueError."""
    if not text.strip():
        raise ValueError(
            "--cluster-cidr is empty, but routes are to be configured: give the pods' CIDR (the one that "
            "kube-controller-manager has), or --configure-cloud-routes=false"
        )
    networks: list[Network] = []
    for part in text.split(","):
        try:
            networks.append(ipaddress.ip_network(part.strip(), strict=False))  # as Go: host bits do not matter
        except ValueError as error:
            raise ValueError(f"--cluster-cidr: {error}") from None
    if len(networks) > 2 or (len(networks) == 2 and networks[0].version == networks[1].version):
        raise ValueError(f"--cluster-cidr={text}: at most one IPv4 and one IPv6 CIDR")
    return networks


def parse_node_prefixes(cluster: Sequence[Network], size: int, ipv4: int, ipv6: int) -> Mapping[int, int]:
    """`--node-cidr-mask-size`, `-ipv4` and `-ipv6`, 0 for not given; the prefix length by family. Raises ValueError."""
    families = {network.version for network in cluster}
    if size and families == {4, 6}:
        raise ValueError(
            "--node-cidr-mask-size is for one family: with a --cluster-cidr of both, give --node-cidr-mask-size-ipv4 "
            "and --node-cidr-mask-size-ipv6"
        )
    found: dict[int, int] = {}
    for version, own, longest in ((4, ipv4, 32), (6, ipv6, 128)):
        for name, value in (("", size if version in families else 0), (f"-ipv{version}", own)):
            if not 0 <= value <= longest:
                raise ValueError(f"--node-cidr-mask-size{name} must be between 1 and {longest}, not {value}")
        found[version] = own or size or NODE_PREFIX[version]
    return found


@dataclass(frozen=True)
class PodNetwork:
    """Where pod CIDRs may lie: within `cluster` (`--cluster-cidr`), and no wider than `node_prefix` (length by family).

    A kubelet chooses the pod CIDRs of a Node that it creates. A route outside of the cluster CIDR would take somebody
    else's traffic to its machine, and many clouds switch off their check of source addresses for what is routed.
    """

    cluster: Sequence[Network]
    node_prefix: Mapping[int, int] = field(default_factory=lambda: NODE_PREFIX)

    def problem(self, network: Network) -> str:
        """Why no route to `network` may be created, "" when one may."""
        if not any(lies_in(network, cidr) for cidr in self.cluster):
            inside = ", ".join(map(str, self.cluster))
            return f"is not inside the cluster CIDR {inside} (--cluster-cidr)"
        shortest = self.node_prefix[network.version]
        if network.prefixlen < shortest:
            return (
                f"is wider than a Node's /{shortest}: where kube-controller-manager has another "
                f"--node-cidr-mask-size-ipv{network.version}, give the same here"
            )
        return ""

    def forbids(self, route: Route) -> str:
        """As `problem`, for a route that is about to be created."""
        network = parse(route.destination)
        return "is not a CIDR" if network is None else self.problem(network)


def lies_in(network: Network, cidr: Network) -> bool:
    return network.version == cidr.version and network.subnet_of(cidr)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=65536)
def parse(text: str) -> Network | None:
    """The network of a CIDR or an address, None for another text."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None
