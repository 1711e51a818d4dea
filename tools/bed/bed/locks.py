# SPDX-License-Identifier: Apache-2.0
"""Locks for the shared cache: if two beds start at the same time, the second bed waits, and then finds the images and
binaries in the cache."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from bed import paths


@contextmanager
def held(name: str) -> Iterator[None]:
    """Hold the machine-wide lock ``name`` of the cache; the system frees it when the process ends."""
    folder = paths.cache() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
