# SPDX-License-Identifier: Apache-2.0
"""Runs MariaDB from Debian's packages, unpacked in the cache: nothing is installed. The server stops with the OpenStack
services.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from bed import locks, paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import CommandFailed, run
from rig.processes import Processes

PACKAGES = ("mariadb-server-core", "mariadb-client-core", "mariadb-common", "libaio1", "liburing2")
SOCKET = "mariadb.sock"
# Do not wait for the disk: the data may be lost in a power cut.
FLAGS = (
    "--innodb-flush-log-at-trx-commit=0",
    "--sync-binlog=0",
    "--innodb-buffer-pool-size=128M",
    "--performance-schema=OFF",
    "--max-connections=500",
    "--skip-name-resolve",
    "--character-set-server=utf8mb3",
)


def ensure(progress: Progress) -> Path:
    """Return the folder with the unpacked packages; download them if need be."""
    root = paths.cache() / "openstack" / "mariadb"
    with locks.held("openstack-mariadb"):
        if not (root / "complete").exists():
            with progress.step("MariaDB from Debian's packages, unpacked"):
                _unpack(root)
    return root


def _unpack(root: Path) -> None:
    for program in ("apt-get", "dpkg"):
        if not shutil.which(program):
            raise BedError(f"MariaDB comes from Debian's packages, and there is no {program} here")
    shutil.rmtree(root, ignore_errors=True)
    downloads = root / "packages"
    downloads.mkdir(parents=True)
    try:
        run("apt-get", "download", *PACKAGES, cwd=str(downloads))
    except CommandFailed:
        if os.geteuid() != 0:
            raise
        run("apt-get", "update")
        run("apt-get", "download", *PACKAGES, cwd=str(downloads))
    for package in downloads.glob("*.deb"):
        run("dpkg", "-x", str(package), str(root))
    shutil.rmtree(downloads)
    (root / "complete").touch()


class Database:
    """One server with its data in ``data / "mariadb"``."""

    def __init__(self, root: Path, data: Path, port: int, processes: Processes) -> None:
        self.root, self.folder, self.port = root, data / "mariadb", port
        self._processes = processes
        self._socket = data / "run" / SOCKET
        machine = f"{platform.machine()}-linux-gnu"
        self._env = {**os.environ, "LD_LIBRARY_PATH": f"{root}/usr/lib/{machine}:{root}/lib/{machine}"}

    def create(self, databases: Sequence[str]) -> None:
        """Create and start a server with these empty databases, and with the user os."""
        common = ("--no-defaults", f"--basedir={self.root}/usr", f"--datadir={self.folder}", *_user())
        command = (f"{self.root}/usr/bin/mariadb-install-db", *common, "--auth-root-authentication-method=normal")
        run(*command, "--skip-test-db", env=self._env)
        self.start()
        self.sql("create user os@'127.0.0.1' identified by 'os'; grant all on *.* to os@'127.0.0.1';")
        self.sql("".join(f"create database {name};" for name in databases))

    def start(self) -> None:
        self._processes.start(
            "mariadb",
            [
                f"{self.root}/usr/sbin/mariadbd",
                "--no-defaults",
                f"--basedir={self.root}/usr",
                f"--datadir={self.folder}",
                *_user(),
                "--bind-address=127.0.0.1",
                f"--port={self.port}",
                f"--socket={self._socket}",
                *FLAGS,
            ],
            env=self._env,
        )
        self._processes.wait("mariadb", self._answers)

    def sql(self, statements: str, database: str = "") -> str:
        """Run statements and return their answer, with columns separated by tabs."""
        client = (f"{self.root}/usr/bin/mariadb", "--no-defaults", "-uroot", "-S", str(self._socket), "-N", "-B")
        return run(*client, *([database] if database else []), stdin=statements, env=self._env)

    def _answers(self) -> bool:
        try:
            self.sql("select 1")
        except CommandFailed:
            return False
        return True


def _user() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []
