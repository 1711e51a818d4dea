# SPDX-License-Identifier: Apache-2.0
"""Load balancers that pass the clients' packets to nodes unchanged, so kube-proxy sees the addresses of the load
balancer and of the client. Answers go from the node to the client, and not through this process.

`Switch` chooses the node of each packet. `Tunnel` takes packets from the kernel and sends them on.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import logging
import os
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from .forward import UDP_IDLE, Pool, Rules, check_health, end_tasks

log = logging.getLogger("ccm_simcloud")

#: Seconds until an idle connection is forgotten (its next packet may get another target), and how many are remembered.
TCP_IDLE, FLOWS = 900.0, 8192
#: Packets that are handled before other tasks of the simulator get a turn.
TURN = 64
_PROTOCOLS = {6: "TCP", 17: "UDP"}
_SYN, _ACK = 0x02, 0x10
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_MTU = 1500

#: (protocol, address, port), as in `fabric`.
Key = tuple[str, str, int]


@dataclass(frozen=True)
class Packet:
    """The parts of an IPv4 packet that decide where it goes. `opens`: whether it begins a TCP connection."""

    key: Key
    client: str
    client_port: int
    opens: bool


@dataclass
class Flow:
    """The packets from one port of a client to one port of a load balancer. `last`: monotonic."""

    target: str
    last: float


def parse(data: bytes) -> Packet | None:
    """Return the parts of a packet; None for what no load balancer forwards: IPv6, later fragments, other protocols,
    truncated headers."""
    if len(data) < 20 or data[0] >> 4 != 4:
        return None
    start, protocol = (data[0] & 15) * 4, _PROTOCOLS.get(data[9])
    least = 20 if protocol == "TCP" else 8
    if protocol is None or start < 20 or int.from_bytes(data[6:8], "big") & 0x1FFF or len(data) < start + least:
        return None
    client_port, port = struct.unpack_from("!HH", data, start)
    opens = protocol == "TCP" and data[start + 13] & (_SYN | _ACK) == _SYN
    client, address = (str(ipaddress.IPv4Address(data[at : at + 4])) for at in (12, 16))
    return Packet((protocol, address, port), client, client_port, opens)


class PassedPort:
    """An open port; it is a `forward.Listener`."""

    def __init__(self, rules: Rules, clock: Callable[[], float]) -> None:
        self.pool = Pool(rules, clock)
        self._checker = asyncio.create_task(check_health(self.pool, tcp=False), name="health of pass-through targets")

    def update(self, rules: Rules) -> None:
        self.pool.update(rules)

    async def close(self) -> None:
        await end_tasks([self._checker])


class Switch:
    """The ports that are open, and the target of each connection."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pools: dict[Key, Pool] = {}
        self._flows: OrderedDict[tuple[Key, str, int], Flow] = OrderedDict()

    def listen(self, key: Key, rules: Rules) -> PassedPort:
        port = PassedPort(rules, self._clock)
        self._pools[key] = port.pool
        return port

    def forget(self, key: Key) -> None:
        """Forget a closed port and its connections."""
        self._pools.pop(key, None)
        for flow in [flow for flow in self._flows if flow[0] == key]:
            del self._flows[flow]

    def target(self, data: bytes) -> str | None:
        """Return the address of the node that gets this packet; None drops the packet. Remembers the node for later
        packets of the flow."""
        packet = parse(data)
        pool = self._pools.get(packet.key) if packet else None
        if packet is None or pool is None or not pool.allows(packet.client):
            return None
        now, flow = self._clock(), (packet.key, packet.client, packet.client_port)
        old = self._flows.pop(flow, None)
        if old is None or packet.opens or not self._goes_on(old, packet.key[0], pool, now):
            order = pool.order(packet.client)
            if not order:
                return None
            old = Flow(order[0].address, now)
        old.last = now
        self._flows[flow] = old
        while len(self._flows) > FLOWS:
            self._flows.popitem(last=False)
        return old.target

    @staticmethod
    def _goes_on(flow: Flow, protocol: str, pool: Pool, now: float) -> bool:
        """Return whether a flow keeps its target. A TCP connection outlives a change of the targets, because only the
        node can end it. UDP has no end, so its target must still work."""
        if protocol == "TCP":
            return now - flow.last < TCP_IDLE
        works = any(backend.address == flow.target and backend.healthy for backend in pool.backends.values())
        return works and now - flow.last < UDP_IDLE


class Tunnel:
    """A network device whose packets this process reads. Requires /dev/net/tun, root and NET_ADMIN; raises OSError."""

    def __init__(self, name: str, target: Callable[[bytes], str | None]) -> None:
        self._target = target
        self._device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        try:
            fcntl.ioctl(self._device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
            # The packets have their own headers, so the kernel sends each to the given address and leaves its
            # destination alone.
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_RAW)
        except BaseException:
            os.close(self._device)
            raise
        asyncio.get_running_loop().add_reader(self._device, self._read)

    def _read(self) -> None:
        for _ in range(TURN):
            try:
                data = os.read(self._device, _MTU)
            except OSError:  # nothing more for now, or the device is down
                return
            if (target := self._target(data)) is not None:
                with contextlib.suppress(OSError):  # a router drops what it cannot send
                    self._socket.sendto(data, (target, 0))

    def close(self) -> None:
        """Close the device, which removes the routes to it."""
        asyncio.get_running_loop().remove_reader(self._device)
        self._socket.close()
        os.close(self._device)
