# SPDX-License-Identifier: Apache-2.0
"""How many texts a generator draws: always the same texts, and fewer in frequent runs.

`make unit` draws the first thousand of each kind, `make sequences` all of them, and the tests of mutants fewer.
"""

from __future__ import annotations

import os

#: The number of texts if DRAWN_TEXTS is not set.
USUAL = 1000


def number(every: int) -> int:
    """Return how many of `every` texts this run draws."""
    return min(every, int(os.environ.get("DRAWN_TEXTS", USUAL)))


def enough(every: int) -> bool:
    """Return whether this run draws all texts: with fewer, the shares of results mean nothing."""
    return number(every) == every
