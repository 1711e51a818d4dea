# SPDX-License-Identifier: Apache-2.0
"""Keeps texts once that thousands of objects have in common, such as labels: with many Nodes, most of the memory.

Users and kubelets write such texts, so neither their number nor their length may grow without bounds.
"""

from __future__ import annotations

#: How many texts to remember: many more than clusters have zones and pools. And the longest of them in characters.
MOST, LONGEST = 4096, 256
#: An object with more of them is like no other: they would only displace those that others have in common.
MANY = 500

_texts: dict[str, str] = {}


def shared(text: str) -> str:
    """The text, as the same Python object as last time."""
    if len(text) > LONGEST:
        return text
    if len(_texts) > MOST:
        _texts.clear()
    return _texts.setdefault(text, text)
