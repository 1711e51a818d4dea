# SPDX-License-Identifier: Apache-2.0
"""The paths of this repository, of the cache that outlives it, and of what a bed writes."""

from __future__ import annotations

import os
from pathlib import Path

BED = Path(__file__).resolve().parent.parent
REPOSITORY = BED.parent.parent
BUILD = REPOSITORY / "build"
RUNTIME = REPOSITORY / "runtime"


def cache() -> Path:
    """Return the cache. It is outside the checkout: all checkouts of a person share binaries and images."""
    if own := os.environ.get("OUTOFTREE_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "outoftree.ccm"


def of_bed(name: str) -> Path:
    """Return the folder with a bed's inventory, kubeconfig and state."""
    return BUILD / "bed" / name
