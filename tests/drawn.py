# SPDX-License-Identifier: Apache-2.0
"""How many texts a generator draws. The tests of mutants draw fewer, the same ones each time."""

from __future__ import annotations

import os


def number(usual: int) -> int:
    """The usual number, or DRAWN_TEXTS if that is less."""
    return min(usual, int(os.environ.get("DRAWN_TEXTS", usual)))


def enough(usual: int) -> bool:
    """Whether all texts are drawn: the shares of results mean nothing if there are fewer."""
    return number(usual) == usual
