# SPDX-License-Identifier: Apache-2.0
"""How many texts a generator draws: always the same ones, and fewer where they are drawn often.

`make unit` draws the first thousand of each kind, `make sequences` all of them, and the tests of mutants fewer.
"""

from __future__ import annotations

import os

#: Without DRAWN_TEXTS.
USUAL = 1000


def number(every: int) -> int:
    """How many of so many texts are drawn now."""
    return min(every, int(os.environ.get("DRAWN_TEXTS", USUAL)))


def enough(every: int) -> bool:
    """Whether all texts are drawn: the shares of results mean nothing if there are fewer."""
    return number(every) == every
