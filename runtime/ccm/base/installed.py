# SPDX-License-Identifier: Apache-2.0
"""What installed packages offer. A process looks through all of them once, which takes as long as 15 imports."""

from __future__ import annotations

import functools
from importlib import metadata

_all_entry_points = functools.cache(metadata.entry_points)


def entry_points(*, group: str) -> metadata.EntryPoints:
    """The entry points of this group."""
    return _all_entry_points().select(group=group)
