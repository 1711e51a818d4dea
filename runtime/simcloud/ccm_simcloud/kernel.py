# SPDX-License-Identifier: Apache-2.0
"""Routes and addresses in the kernel for the fabric; it changes only those that it created.

They are marked, so that a restart finds them and touches nothing else: routes by a protocol number and a metric,
addresses by a label.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from .pass_through import Tunnel

#: `ip route show proto 177`; not in use by any routing daemon (/etc/iproute2/rt_protos).
ROUTE_PROTOCOL = 177
#: The device of pass-through load balancers. It ends with the process, and so do the routes to it.
TUNNEL = "simcloud-lb"
#: A unique metric makes "replace" affect only our own routes.
ROUTE_METRIC = 177


class KernelError(Exception):
    """The kernel refuses an operation; the message says which one and what to do."""


#: Returns the node that gets a packet; None drops the packet.
Target = Callable[[bytes], str | None]


class Kernel(Protocol):
    """The operations of the fabric. `routes` maps destinations to gateways."""

    async def open(self) -> None: ...

    async def routes(self) -> dict[str, str]: ...

    async def set_route(self, destination: str, gateway: str) -> None: ...

    async def remove_route(self, destination: str) -> None: ...

    async def addresses(self) -> set[str]: ...

    async def add_address(self, address: str) -> None: ...

    async def remove_address(self, address: str) -> None: ...

    async def divert(self, addresses: frozenset[str], target: Target) -> None:
        """Ask `target` about each packet to these addresses, and about no other packet."""

    async def close(self) -> None: ...


class MemoryKernel:
    """A kernel that only records the changes. It suffices for load balancers on 127.0.0.0/8, and needs no root."""

    def __init__(self) -> None:
        self.route_table: dict[str, str] = {}
        self.address_table: set[str] = set()
        self.diverted: frozenset[str] = frozenset()
        self.target: Target = lambda _: None

    async def open(self) -> None: ...

    async def routes(self) -> dict[str, str]:
        return dict(self.route_table)

    async def set_route(self, destination: str, gateway: str) -> None:
        self.route_table[destination] = gateway

    async def remove_route(self, destination: str) -> None:
        del self.route_table[destination]

    async def addresses(self) -> set[str]:
        return set(self.address_table)

    async def add_address(self, address: str) -> None:
        self.address_table.add(address)

    async def remove_address(self, address: str) -> None:
        self.address_table.remove(address)

    async def divert(self, addresses: frozenset[str], target: Target) -> None:
        self.diverted, self.target = addresses, target

    async def close(self) -> None: ...


class NetlinkKernel:
    """The kernel of this network namespace, with `interface`. Requires Linux, NET_ADMIN and pyroute2."""

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self._label = f"{interface[:12]}:lb"
        self._index = 0
        self._netlink: Any = None
        self._tunnel: Tunnel | None = None
        self._diverted: frozenset[str] = frozenset()

    async def open(self) -> None:
        """Connect to the kernel, and add and remove an address. Raises KernelError if the fabric cannot work here."""
        try:
            from pyroute2 import AsyncIPRoute
        except ImportError:
            raise KernelError("--fabric requires pyroute2: install outoftree-ccm-simcloud[fabric]") from None
        if not forwards_packets():
            raise KernelError("--fabric requires net.ipv4.ip_forward=1 (podman run --sysctl net.ipv4.ip_forward=1)")
        names = sorted(name for _, name in socket.if_nameindex())
        if self.interface not in names:
            raise KernelError(
                f"interface {self.interface!r} does not exist; choose --fabric-interface from {', '.join(names)}"
            )
        self._index = socket.if_nametoindex(self.interface)
        self._netlink = await AsyncIPRoute().__aenter__()
        probe = "192.0.2.177"  # from a range for documentation
        await self.add_address(probe, announce=False)
        await self.remove_address(probe)

    async def routes(self) -> dict[str, str]:
        found = {}
        for family in (socket.AF_INET, socket.AF_INET6):
            async for route in await self._netlink.route("dump", family=family):
                if route["proto"] == ROUTE_PROTOCOL and route.get("RTA_DST"):
                    found[f"{route.get('RTA_DST')}/{route['dst_len']}"] = str(route.get("RTA_GATEWAY"))
        return found

    async def set_route(self, destination: str, gateway: str) -> None:
        with _refusals(f"route {destination} via {gateway}"):
            await self._netlink.route("replace", gateway=gateway, **self._route(destination))

    async def remove_route(self, destination: str) -> None:
        with _refusals(f"removing route {destination}", errno.ESRCH):
            await self._netlink.route("del", **self._route(destination))

    async def addresses(self) -> set[str]:
        return {
            str(address.get("IFA_LOCAL") or address.get("IFA_ADDRESS"))
            async for address in await self._netlink.addr("dump", index=self._index)
            if address.get("IFA_LABEL") == self._label
        }

    async def add_address(self, address: str, *, announce: bool = True) -> None:
        with _refusals(f"address {address} on {self.interface}", errno.EEXIST):
            await self._netlink.addr("add", index=self._index, address=address, prefixlen=32, label=self._label)
        if announce:
            announce_address(self.interface, address)

    async def remove_address(self, address: str) -> None:
        with _refusals(f"removing address {address} from {self.interface}", errno.EADDRNOTAVAIL):
            await self._netlink.addr("del", index=self._index, address=address, prefixlen=32)

    async def divert(self, addresses: frozenset[str], target: Target) -> None:
        if addresses and self._tunnel is None:
            await self._open_tunnel(target)
        for address in self._diverted - addresses:
            with _refusals(f"removing the route of {address} to the tunnel", errno.ESRCH):
                await self._netlink.route("del", dst=f"{address}/32", oif=socket.if_nametoindex(TUNNEL))
            self._diverted -= {address}
        for address in addresses - self._diverted:
            with _refusals(f"the route of {address} to the tunnel"):
                await self._netlink.route("replace", dst=f"{address}/32", oif=socket.if_nametoindex(TUNNEL))
            self._diverted |= {address}
            announce_address(self.interface, address)

    async def _open_tunnel(self, target: Target) -> None:
        """Open the tunnel, and let the interface answer at once when its neighbours ask who has an address of the
        tunnel. Raises KernelError."""
        try:
            answer_for_others(self.interface)
            tunnel = Tunnel(TUNNEL, target)
        except OSError as error:
            raise KernelError(
                f"pass-through load balancers: {error.strerror or error}: {error.filename or '/dev/net/tun'} "
                "(podman run --device /dev/net/tun --cap-add NET_ADMIN,NET_RAW)"
            ) from None
        try:
            with _refusals(f"starting {TUNNEL}"):
                await self._netlink.link("set", index=socket.if_nametoindex(TUNNEL), state="up")
        except BaseException:
            tunnel.close()
            raise
        self._tunnel = tunnel

    async def close(self) -> None:
        if self._tunnel is not None:
            self._tunnel.close()
        if self._netlink is not None:
            await self._netlink.__aexit__(None, None, None)

    def _route(self, destination: str) -> dict[str, Any]:
        family = socket.AF_INET if ipaddress.ip_network(destination).version == 4 else socket.AF_INET6
        return {
            "dst": destination,
            "family": family,
            "oif": self._index,
            "proto": ROUTE_PROTOCOL,
            "priority": ROUTE_METRIC,
        }


def forwards_packets() -> bool:
    """Return whether this network namespace is a router for IPv4."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "1"
    return False


def answer_for_others(interface: str) -> None:
    """Answer ARP for addresses whose route leads to another interface, without the usual delay."""
    for name, value in (("conf/{}/proxy_arp", "1"), ("neigh/{}/proxy_delay", "0")):
        Path("/proc/sys/net/ipv4", name.format(interface)).write_text(value)


@contextlib.contextmanager
def _refusals(what: str, *settled: int) -> Iterator[None]:
    """Convert errors of the kernel to KernelError; the errno values `settled` mean that nothing is left to do."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as error:
        if error.code in settled:
            return
        hint = "; give the container NET_ADMIN (podman run --cap-add NET_ADMIN)" if error.code == errno.EPERM else ""
        raise KernelError(f"{what}: {os.strerror(error.code)}{hint}") from None


def announce_address(interface: str, address: str) -> None:
    """Send a gratuitous ARP, so that neighbours that knew the address elsewhere learn its new place. Without NET_RAW,
    or on links without ARP, nothing is sent, and they find out later."""
    if not hasattr(socket, "AF_PACKET"):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packet:
        packet.bind((interface, 0))
        hardware, ip = packet.getsockname()[4], socket.inet_aton(address)
        if len(hardware) == 6:
            request = b"\0\1\x08\0\x06\x04\0\1" + hardware + ip + b"\0" * 6 + ip
            packet.send(b"\xff" * 6 + hardware + b"\x08\x06" + request)
