# SPDX-License-Identifier: Apache-2.0
"""``fabric.py FOLDER INTERFACE``: does the work of amphorae and routers, in the network of a bed's gateway.

The drivers of the OpenStack services (rig_drivers) write FOLDER: ``balancer-ID.json`` for each load balancer that
serves, and ``network.json`` with the router's routes and the floating addresses. The simulated cloud's code does the
work (ccm_simcloud.fabric).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from ccm_simcloud.fabric import Fabric, Wanted
from ccm_simcloud.forward import Rules
from ccm_simcloud.kernel import NetlinkKernel

LOOK_SECONDS = 0.2
NETWORK = "network.json"


def wanted(folder: Path) -> Wanted:
    """Return the desired network. A floating address forwards like the VIP to which it belongs."""
    network = _read(folder / NETWORK) or {"routes": {}, "floating": {}}
    balancers = [found for file in sorted(folder.glob("balancer-*.json")) if (found := _read(file))]
    ports, addresses = {}, set()
    for balancer in balancers:
        vip = balancer["address"]
        for address in (vip, *(floating for floating, fixed in network["floating"].items() if fixed == vip)):
            addresses.add(address)
            for port in balancer["ports"]:
                ports[port["protocol"], address, port["port"]] = Rules(
                    tuple((member, number) for member, number in port["members"]),
                    tuple(port["allowed"]),
                    port["sticky"],
                    port["health_port"],
                    draining=frozenset(port.get("draining", ())),
                )
    return Wanted(network["routes"], frozenset(addresses), ports)


def _read(file: Path) -> dict[str, Any] | None:
    """Return the content of a file, None if there is no such file."""
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return None


def versions(folder: Path) -> set[tuple[str, int]]:
    """Return each existing file with the time of its last change."""
    found = set()
    for file in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found.add((file.name, file.stat().st_mtime_ns))
    return found


async def main(folder: Path, interface: str) -> None:
    fabric = Fabric(lambda: wanted(folder), NetlinkKernel(interface))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await fabric.start()
    seen = None
    while not stop.is_set():
        now = await asyncio.to_thread(versions, folder)
        if now != seen:
            seen = now
            fabric.changed()
        await asyncio.sleep(LOOK_SECONDS)
    await fabric.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
