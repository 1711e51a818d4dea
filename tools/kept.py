# SPDX-License-Identifier: Apache-2.0
"""Runs a check, unless it passed before on the same contents, in this checkout or in another one.

    python -m tools.kept NAME PATH... -- COMMAND...

The contents are the files below each PATH that git does not ignore, the command, and the packages of this Python. The
results are kept outside of the checkout, so that a fresh clone has them, too. Runs of one NAME wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DAYS = 30  # after which an unused result is deleted


def cache() -> Path:
    """Return the folder of the cache, which is that of the test bed (tools/bed/bed/paths.py)."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(os.environ.get("OUTOFTREE_CACHE") or home / "outoftree.ccm")


def digest(root: Path, files: Iterable[str], words: Iterable[str]) -> str:
    """Return a digest of the names, kinds and contents of these files, and of `words`."""
    total = hashlib.sha256()
    for name in sorted(set(files)):
        path = root / name
        kind = b"link" if path.is_symlink() else b"x" if os.access(path, os.X_OK) else b"-"
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b"none"
        total.update(b"\0".join((name.encode(), kind, hashlib.sha256(content).digest())))
    total.update("\0".join(words).encode())
    return total.hexdigest()


def files_of(root: Path, paths: Sequence[str]) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


def packages() -> list[str]:
    return sorted(f"{each.name}={each.version}" for each in importlib.metadata.distributions())


def check(
    name: str, paths: Sequence[str], command: Sequence[str], root: Path = ROOT, folder: Path | None = None
) -> int:
    """Run the command and return its exit status; return 0 without running it if it passed on these contents before."""
    folder = folder or cache() / "checks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / f"{name}-{digest(root, files_of(root, paths), [sys.version, *command, *packages()])}"
        if stamp.exists():
            stamp.touch()
            print(f"{name}: passed before on the same files")
            return 0
        status = subprocess.run(command, cwd=root).returncode
        if status == 0:
            stamp.touch()
            forget(folder, time.time() - DAYS * 86400)
        return status


def forget(folder: Path, before: float) -> None:
    for path in folder.iterdir():
        # Folders are the linters' own caches: keep them.
        if path.is_file() and path.suffix != ".lock" and path.stat().st_mtime < before:
            path.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    middle = arguments.index("--")
    name, *paths = arguments[:middle]
    return check(name, paths, arguments[middle + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
