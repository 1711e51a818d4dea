# SPDX-License-Identifier: Apache-2.0
"""Checks and installs what the machine needs before a bed can be created."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from bed import golang
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run

# Not every user has the administrators' folders on the PATH.
_SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
_NETAVARK = (Path("/usr/lib/podman/netavark"), Path("/usr/libexec/podman/netavark"))


def _has(program: str) -> bool:
    if program == "netavark":
        return any(path.exists() for path in _NETAVARK)
    if program == "ensurepip":
        return importlib.util.find_spec("ensurepip") is not None
    return shutil.which(program, path=_SEARCH) is not None


# program (or module of Python) -> the Debian package that brings it
PACKAGES = {
    "podman": "podman",
    "runc": "runc",
    "netavark": "netavark",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "iptables": "iptables",
    "nft": "nftables",
    "ensurepip": "python3-venv",  # for `make setup`
}


def missing_packages(has: Callable[[str], bool] = _has) -> list[str]:
    """Return the packages whose program is missing."""
    return [package for program, package in PACKAGES.items() if not has(program)]


def install_command(packages: list[str]) -> list[str]:
    return ["apt-get", "install", "--yes", "--no-install-recommends", *packages]


def ensure(progress: Progress, root: bool | None = None) -> None:
    """Install what is missing. Raises BedError with the exact command if that needs root."""
    if sys.version_info < (3, 11):  # noqa: UP036 - nothing else has checked it when the bed runs
        raise BedError(f"Python {sys.version.split()[0]} is too old for the bed: run it with Python 3.11 or newer")
    _install(missing_packages(), progress, root)
    golang.ensure(progress)


def ensure_java(progress: Progress) -> None:
    """Install Java if it is missing. Only ansible-rulebook needs it."""
    _install([] if _has("java") else ["openjdk-17-jre-headless"], progress)


def _install(packages: list[str], progress: Progress, root: bool | None = None) -> None:
    root = os.geteuid() == 0 if root is None else root
    if packages:
        command = " ".join(install_command(packages))
        if not root:
            raise BedError(f"missing here: {', '.join(packages)}. Install with: sudo apt-get update && sudo {command}")
        if not shutil.which("apt-get"):
            raise BedError(f"missing here, and there is no apt-get to install it: {', '.join(packages)}")
        with progress.step(f"Installing what is missing: {command}"):
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            run("apt-get", "update", env=env)
            run(*install_command(packages), env=env)


def need_root(doing: str) -> None:
    """Raise BedError unless this is root: nodes are privileged containers with a network of their own."""
    if os.geteuid() != 0:
        raise BedError(f"{doing} needs root: run it again with sudo")
