# SPDX-License-Identifier: Apache-2.0
"""Builds the peer: the upstream framework with a thin provider of the simulated cloud (``tests/bench/peer``).

The benchmarks run it beside ours; in an image it is "another vendor's" cloud-controller-manager.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from bed import golang, locks, paths
from bed.progress import Progress
from bed.run import run

SOURCES = paths.REPOSITORY / "tests" / "bench" / "peer"


def digest(folder: Path) -> str:
    """Of the names and contents of all files in a folder."""
    hashed = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        hashed.update(f"{file.name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return hashed.hexdigest()[:16]


def ensure(progress: Progress) -> Path:
    """The static binary, built into the cache, which knows it by its sources."""
    binary = paths.cache() / "bench" / f"peer-{digest(SOURCES)}"
    with locks.held("bench-peer"):
        if not os.access(binary, os.X_OK):
            go = golang.ensure(progress)
            binary.parent.mkdir(parents=True, exist_ok=True)
            partial = binary.with_suffix(".tmp")
            with progress.step("Build of the peer (the upstream framework): minutes the first time"):
                run("nice", str(go), "build", "-p", "2", "-trimpath", "-ldflags", "-s -w", "-o", str(partial), ".",
                    cwd=str(SOURCES), env={**os.environ, "CGO_ENABLED": "0"}, timeout=1800)  # fmt: skip
            partial.replace(binary)
    return binary
