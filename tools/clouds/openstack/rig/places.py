# SPDX-License-Identifier: Apache-2.0
"""The paths of the files of the OpenStack services (the rig), and the ports on which the services listen."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bed import paths
from bed.errors import BedError

RIG = Path(__file__).resolve().parent.parent
DRIVERS = RIG / "drivers"
REQUIREMENTS = RIG / "requirements.txt"
DATA = Path(os.environ.get("OUTOFTREE_RIG") or paths.BUILD / "openstack").resolve()
TLS = DATA / "tls"  # the proxy's certificate, and ca.crt for its clients

# The range for the ports of rigs, below the ports that Linux uses for outgoing connections, and the number of ports of
# one rig.
FIRST_PORT, LAST_PORT, BLOCK = 15000, 32000, 20
# Type in keystone's catalog -> offset of the service's port, in the order in which services start.
SERVICES = {
    "identity": 0,
    "placement": 1,
    "network": 2,
    "image": 3,
    "load-balancer": 4,
    "compute": 5,
    "block-storage": 6,
}
_BEHIND, _DATABASE, _CONTROL = 10, 9, 8
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """One block of ports: those of the proxy, which clients use; those of the services behind it; the database's port;
    and the proxy's control port.

    Clients reach the proxy at `address`: on loopback, or elsewhere with TLS.
    """

    base: int
    address: str = LOOPBACK

    def public(self, service: str) -> int:
        return self.base + SERVICES[service]

    def behind(self, service: str) -> int:
        return self.base + _BEHIND + SERVICES[service]

    @property
    def database(self) -> int:
        return self.base + _DATABASE

    @property
    def tls(self) -> bool:
        return self.address != LOOPBACK

    @property
    def control(self) -> int:
        return self.base + _CONTROL

    def public_url(self, service: str) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{self.address}:{self.public(service)}{_PATHS.get(service, '')}"

    def internal_url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.behind(service)}{_PATHS.get(service, '')}"

    def all(self) -> list[int]:
        return list(range(self.base, self.base + BLOCK))


_PATHS = {"identity": "/v3", "compute": "/v2.1", "block-storage": "/v3"}


def free_ports(wanted: int | None = None) -> Ports:
    """Return the block of ports that begins with `wanted`, or the first free block if `wanted` is None. Raises BedError
    if a program listens on one of its ports, or if no block is free."""
    for base in [wanted] if wanted else range(FIRST_PORT, LAST_PORT, 100):
        taken = [port for port in Ports(base).all() if not _free(port)]
        if not taken:
            return Ports(base)
        if wanted:
            raise BedError(f"ports {wanted} to {wanted + BLOCK - 1}: {taken[0]} is in use; choose another --port")
    raise BedError(f"no {BLOCK} free ports between {FIRST_PORT} and {LAST_PORT}")


def _free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@dataclass(frozen=True)
class Record:
    """What stays the same while a rig runs: its ports, and the bed whose cloud it is ("" for none)."""

    ports: Ports
    bed: str = ""

    def save(self) -> None:
        content = {"ports": self.ports.base, "address": self.ports.address, "bed": self.bed}
        (DATA / "rig.json").write_text(json.dumps(content))


def recorded() -> Record:
    """Return the record of the rig in `DATA`. Raises BedError if there is none."""
    try:
        found = json.loads((DATA / "rig.json").read_text())
    except FileNotFoundError as error:
        raise BedError("there is no rig: run `make openstack`") from error
    return Record(Ports(found["ports"], found["address"]), found["bed"])


def fingerprint(*folders: Path, more: Iterable[str] = ()) -> str:
    """Return a hash of `more`, and of the names and contents of all Python and TOML files in `folders`. A folder may
    also be a single file."""
    digest = hashlib.sha256()
    for folder in folders:
        files = [folder] if folder.is_file() else sorted(folder.rglob("*.py")) + sorted(folder.rglob("*.toml"))
        for file in files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    for text in more:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:12]
