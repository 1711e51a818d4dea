# SPDX-License-Identifier: Apache-2.0
"""Go programs that tests run, compiled into the cache: the benchmarks' peer, vcsim, and vendors' own controllers.

A program is known by the contents of its module's folder: sources, versions and checksums. The vendors' controllers
are their released code; their modules below ``tests/bed/vendors`` have no more than a ``tool`` line.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from bed import golang, locks, paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run

_VENDORS = paths.BED / "vendors"


@dataclass(frozen=True)
class Program:
    """``module`` is the folder of go.mod, ``package`` what is compiled there; ``title`` is for people."""

    module: Path
    package: str
    title: str


PROGRAMS = {
    "peer": Program(paths.REPOSITORY / "tests/bench/peer", ".", "the peer (the upstream framework)"),
    "vcsim": Program(paths.REPOSITORY / "tests/vsphere/simulator", ".", "vcsim"),
    "openstack-cloud-controller-manager": Program(
        _VENDORS / "openstack",
        "k8s.io/cloud-provider-openstack/cmd/openstack-cloud-controller-manager",
        "cloud-provider-openstack",
    ),
    "vsphere-cloud-controller-manager": Program(
        _VENDORS / "vsphere",
        "k8s.io/cloud-provider-vsphere/cmd/vsphere-cloud-controller-manager",
        "cloud-provider-vsphere",
    ),
    "aws-cloud-controller-manager": Program(
        _VENDORS / "aws", "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager", "cloud-provider-aws"
    ),
}


def ensure(name: str, progress: Progress) -> Path:
    """The static binary of one of PROGRAMS. Raises BedError when Go cannot compile it."""
    program = PROGRAMS.get(name)
    if program is None:
        raise BedError(f"program {name} is not one the bed knows: choose from {', '.join(PROGRAMS)}")
    binary = paths.cache() / "programs" / f"{name}-{_digest(program.module)}"
    with locks.held(f"program-{name}"):
        if not os.access(binary, os.X_OK):
            go = golang.ensure(progress)
            binary.parent.mkdir(parents=True, exist_ok=True)
            partial = binary.with_suffix(".tmp")
            with progress.step(f"Build of {program.title}: minutes the first time"):
                command = ["nice", str(go), "build", "-p", "2", "-trimpath", "-ldflags", "-s -w", "-o", str(partial)]
                environment = {**os.environ, "CGO_ENABLED": "0"}
                run(*command, program.package, cwd=str(program.module), env=environment, timeout=3600)
            partial.replace(binary)
    return binary


def _digest(folder: Path) -> str:
    """Of the names and contents of all files in a folder."""
    hashed = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        hashed.update(f"{file.name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return hashed.hexdigest()[:16]
