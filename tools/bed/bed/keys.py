# SPDX-License-Identifier: Apache-2.0
"""Keys of contents: something is built again only when its sources have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_IGNORED = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".import_linter_cache"}


def sources(root: Path) -> list[Path]:
    """Return the files below ``root`` (or ``root`` itself) in a fixed order, except those that tools leave there."""
    if root.is_file():
        return [root]
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not _IGNORED & set(path.relative_to(root).parts) and ".egg-info" not in str(path)
    )


def of_sources(roots: Iterable[Path], *words: str) -> str:
    """Return a key of names, modes and contents of all files below ``roots``, and of ``words``."""
    digest = hashlib.sha256("\0".join(words).encode())
    for root in roots:
        for path in sources(root):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"\0{path.relative_to(root.parent)}\0{path.stat().st_mode & 0o111}\0{content}".encode())
    return digest.hexdigest()[:16]


def of_binaries(paths: Iterable[Path]) -> str:
    """Return a key of large files by name, size and time: reading half a gigabyte at each start would take a second."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        digest.update(f"{path.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:16]
