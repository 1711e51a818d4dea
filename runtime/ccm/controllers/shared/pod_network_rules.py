# SPDX-License-Identifier: Apache-2.0
"""Decide where pod CIDRs may lie and how wide a Node's may be. No I/O. CIDRs are compared as networks, not as text."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping, Sequence

import msgspec

from ccm.cloud import Route

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: The default prefix length of a Node's pod CIDR by family, as in kube-controller-manager.
NODE_PREFIX: Mapping[int, int] = {4: 24, 6: 64}


def parse_cluster_cidrs(text: str) -> list[Network]:
    """Parse `--cluster-cidr`: one CIDR, or one of each family separated by a comma. Raises ValueError."""
    if not text.strip():
        raise ValueError(
            "--cluster-cidr is empty, but routes are enabled: set it to the pods' CIDR (the same as for "
            "kube-controller-manager), or set --configure-cloud-routes=false"
        )
    networks: list[Network] = []
    for part in text.split(","):
        try:
            networks.append(parse_cidr(part))
        except ValueError as error:
            raise ValueError(f"--cluster-cidr: {error}") from None
    if len(networks) > 2 or (len(networks) == 2 and networks[0].version == networks[1].version):
        raise ValueError(f"--cluster-cidr={text}: give at most one IPv4 and one IPv6 CIDR")
    return networks


def parse_cidr(text: str) -> Network:
    """Parse a CIDR as Go does, which ignores host bits. Raises ValueError."""
    return ipaddress.ip_network(text.strip(), strict=False)


def parse_node_prefixes(cluster: Sequence[Network], size: int, ipv4: int, ipv6: int) -> Mapping[int, int]:
    """Return prefix lengths by family from the `--node-cidr-mask-size*` flags (0: not set, so `NODE_PREFIX` applies).
    Raises ValueError."""
    families = {network.version for network in cluster}
    if size and families == {4, 6}:
        raise ValueError(
            "--node-cidr-mask-size applies to one family only: with a dual-stack --cluster-cidr, set "
            "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"
        )
    prefixes: dict[int, int] = {}
    for version, own, longest in ((4, ipv4, 32), (6, ipv6, 128)):
        for name, value in (("", size if version in families else 0), (f"-ipv{version}", own)):
            if not 0 <= value <= longest:
                raise ValueError(f"--node-cidr-mask-size{name} must be between 1 and {longest}, not {value}")
        prefixes[version] = own or size or NODE_PREFIX[version]
    return prefixes


class PodNetwork(msgspec.Struct, frozen=True):
    """Where pod CIDRs may lie: within `cluster` (`--cluster-cidr`), and no wider than `node_prefix` (length by family).

    A kubelet chooses the pod CIDRs of a Node that it creates. A route outside of the cluster CIDR would redirect
    other machines' traffic to its machine, and many clouds do not check source addresses of routed traffic.
    """

    cluster: Sequence[Network]
    node_prefix: Mapping[int, int] = msgspec.field(default_factory=lambda: NODE_PREFIX)

    def range_of(self, cidr: str) -> str:
        """Return the range of `cluster` in which a pod CIDR lies, "" for none."""
        network = parse(cidr)
        return next((str(each) for each in self.cluster if network is not None and lies_in(network, each)), "")

    def problem(self, network: Network) -> str:
        """Return why no route to `network` may be created, "" if one may."""
        if not any(lies_in(network, cidr) for cidr in self.cluster):
            inside = ", ".join(map(str, self.cluster))
            return f"is not inside the cluster CIDR {inside} (--cluster-cidr)"
        shortest = self.node_prefix[network.version]
        if network.prefixlen < shortest:
            return (
                f"is wider than a Node's /{shortest}: if kube-controller-manager has another "
                f"--node-cidr-mask-size-ipv{network.version}, set the same value here"
            )
        return ""

    def forbids(self, route: Route) -> str:
        """Return why the route may not be created, "" if it may: its destination is not a CIDR, or has a `problem`."""
        network = parse(route.destination)
        return "is not a CIDR" if network is None else self.problem(network)


def lies_in(network: Network, cidr: Network) -> bool:
    return network.version == cidr.version and network.subnet_of(cidr)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=65536)
def parse(text: str) -> Network | None:
    """Return the network of a CIDR or an address, None for other text and for a CIDR with host bits."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None
