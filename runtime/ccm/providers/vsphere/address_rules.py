# SPDX-License-Identifier: Apache-2.0
"""Decides which addresses of a machine its Node gets, as cloud-provider-vsphere does. Pure.

For each IP family: at most one InternalIP and one ExternalIP. Networks of `[Nodes]` decide first, then port groups.
If neither finds anything, the first address that may be the InternalIP becomes the InternalIP, and likewise for the
ExternalIP.
"""

from __future__ import annotations

import base64
import ipaddress
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.cloud import Address, AddressType
from ccm.cloud.toolkit.located_yaml import Document
from ccm.cloud.toolkit.setting_kinds import IPNetwork

from .settings_sections import Nodes

IP = ipaddress.IPv4Address | ipaddress.IPv6Address

#: The maximum size of the compressed part of `guestinfo.metadata`, in bytes after decompression.
LARGEST_METADATA = 1 << 20


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface as the guest tools report it. `device`: -1 if it is not a device of the machine."""

    network: str
    device: int
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    text: str
    ip: IP
    network: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """The addresses of a Node. `problem`: why the machine has no usable addresses, "" if it has some. `warnings`: what
    a person should fix."""

    addresses: tuple[Address, ...] = ()
    problem: str = ""
    warnings: tuple[str, ...] = ()


def choose(
    nics: Iterable[Nic], families: Sequence[str], nodes: Nodes, metadata: str = "", encoding: str = ""
) -> Chosen:
    """Choose the addresses of a machine's Node: for each family, in the order of `families`, at most one InternalIP and
    one ExternalIP; or return the problem.

    `metadata`, `encoding`: the machine's `guestinfo.metadata` and its encoding. Addresses in the metadata are
    preferred.
    """
    real = [nic for nic in nics if nic.device != -1]
    if not real:
        return Chosen(problem="VMware Tools report no network interface")
    names = (nodes.internal_vm_network_name, nodes.external_vm_network_name)
    if all(names) and not any(_same(nic.network, name) for nic in real for name in names):
        return Chosen(problem=f"no network interface is in {names[0]!r} or {names[1]!r}")
    candidates = [
        _Candidate(text, ip, nic.network) for nic in real for text in nic.addresses if (ip := usable(text)) is not None
    ]
    if not candidates:
        return Chosen(problem="VMware Tools report no IP address that other machines can reach")
    static, warning = static_addresses(metadata, encoding)
    order = {ip: index for index, ip in reversed(list(enumerate(static)))}
    candidates.sort(key=lambda each: order.get(each.ip, len(order) + len(static)))
    chosen: dict[Address, None] = {}
    for family in families:
        version = 4 if family == "ipv4" else 6
        internal, external = _pair([each for each in candidates if each.ip.version == version], nodes)
        if internal is None and external is None:
            return Chosen(problem=f"no {family} address may be used as InternalIP or ExternalIP")
        for kind, address in ((AddressType.INTERNAL_IP, internal), (AddressType.EXTERNAL_IP, external)):
            if address is not None:
                chosen[Address(kind, address.text)] = None
    return Chosen(tuple(chosen), warnings=(warning,) if warning else ())


def usable(text: str) -> IP | None:
    """Return the address; None if the text is not an address, or the address is valid only on the machine or its link.
    An IPv4 address in IPv6 form becomes IPv4."""
    try:
        ip: IP = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id:
            return None
        ip = ip.ipv4_mapped or ip
    link_multicast = ip in _LINK_MULTICAST[ip.version]
    return None if ip.is_unspecified or ip.is_loopback or ip.is_link_local or link_multicast else ip


_LINK_MULTICAST: dict[int, IPNetwork] = {
    4: ipaddress.IPv4Network("224.0.0.0/24"),
    6: ipaddress.IPv6Network("ff02::/16"),
}


def _pair(candidates: Sequence[_Candidate], nodes: Nodes) -> tuple[_Candidate | None, _Candidate | None]:
    """Return the InternalIP and the ExternalIP among the addresses of one family, None for one that does not exist."""
    inside = [
        candidate for candidate in candidates if not _in(candidate.ip, nodes.exclude_internal_network_subnet_cidr)
    ]
    outside = [
        candidate for candidate in candidates if not _in(candidate.ip, nodes.exclude_external_network_subnet_cidr)
    ]
    internal = _in_networks(inside, nodes.internal_network_subnet_cidr) or _first(
        inside, lambda each: _same(each.network, nodes.internal_vm_network_name)
    )
    external = _in_networks(outside, nodes.external_network_subnet_cidr) or _first(
        outside, lambda each: _same(each.network, nodes.external_vm_network_name)
    )
    if internal is None and external is None:
        return next(iter(inside), None), next(iter(outside), None)
    return internal, external


def _in(ip: IP, networks: Iterable[IPNetwork]) -> bool:
    return any(ip in network for network in networks)


def _in_networks(candidates: Sequence[_Candidate], networks: Iterable[IPNetwork]) -> _Candidate | None:
    """Return the first address in the first network that has one, None if no network has one."""
    for network in networks:
        if (match := next((candidate for candidate in candidates if candidate.ip in network), None)) is not None:
            return match
    return None


def _first(candidates: Iterable[_Candidate], matches: Callable[[_Candidate], bool]) -> _Candidate | None:
    return next((each for each in candidates if matches(each)), None)


def _same(one: str, other: str) -> bool:
    return bool(other) and one.casefold() == other.casefold()


def static_addresses(metadata: str, encoding: str) -> tuple[list[IP], str]:
    """Return the addresses that cloud-init's metadata sets, in order, and a warning if the metadata cannot be read,
    else "". Without metadata, or in another encoding than base64, there are no addresses and no warning.

    The metadata is YAML in base64. Its `network` is a mapping, or a text in base64, compressed or not.
    """
    if not metadata or encoding != "base64":
        return [], ""
    try:
        top = _mapping(base64.b64decode(metadata, validate=True))
        network, packed = top.get("network"), str(top.get("network.encoding") or "")
        if packed in ("base64", "b64"):
            network = _mapping(base64.b64decode(str(network), validate=True))
        elif packed in ("gzip+base64", "gz+b64"):
            network = _mapping(_decompressed(base64.b64decode(str(network), validate=True)))
        return list(_addresses_of(network)), ""
    except (ValueError, zlib.error):
        return [], "its guestinfo.metadata cannot be read, so its addresses are in the order of the network interfaces"


def _decompressed(content: bytes) -> bytes:
    """Return the decompressed content. Raises ValueError for more than LARGEST_METADATA, because the first part of a
    document may itself be a valid document."""
    decompressor = zlib.decompressobj(wbits=31)
    text = decompressor.decompress(content, LARGEST_METADATA)
    if decompressor.unconsumed_tail:
        raise ValueError("too large")
    return text


def _mapping(content: bytes) -> dict[str, Any]:
    """Parse keys and values in YAML. Raises ValueError for anything else."""
    document = Document.parse(content.decode(), "guestinfo.metadata", secret=True)
    if document.problems or not isinstance(document.data, dict):
        raise ValueError("expected keys and values")
    return document.data


def _addresses_of(network: Any) -> Iterator[IP]:
    ethernets = network.get("ethernets") if isinstance(network, dict) else None
    for ethernet in ethernets.values() if isinstance(ethernets, dict) else ():
        texts = ethernet.get("addresses") if isinstance(ethernet, dict) else None
        for text in texts if isinstance(texts, list) else ():
            if (ip := usable(str(text).partition("/")[0])) is not None:
                yield ip
