# SPDX-License-Identifier: Apache-2.0
"""The entry points of installed packages. Reading them takes as long as 15 imports, so a process reads them once."""

from __future__ import annotations

import functools
from importlib import metadata

_all_entry_points = functools.cache(metadata.entry_points)


def entry_points(*, group: str) -> metadata.EntryPoints:
    return _all_entry_points().select(group=group)
