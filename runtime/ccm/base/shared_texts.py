# SPDX-License-Identifier: Apache-2.0
"""Keeps one copy of texts that thousands of objects share, such as labels, because copies would take most of the
memory.

Users and kubelets write such texts, so neither their number nor their length may grow without bounds.
"""

from __future__ import annotations

#: `MOST`: how many texts to remember, many more than a cluster has zones and pools; above that, all are forgotten.
#: `LONGEST`: the maximum length of such a text, in characters.
MOST, LONGEST = 4096, 256
#: A map or list with more entries than this keeps its own copies, because it probably equals no other one, and its
#: texts would displace shared ones.
MANY = 500

_texts: dict[str, str] = {}


def shared(text: str) -> str:
    """Return one Python object for equal texts of at most `LONGEST` characters, until all texts are forgotten (`MOST`).
    Return a longer text as it is."""
    if len(text) > LONGEST:
        return text
    if len(_texts) > MOST:
        _texts.clear()
    return _texts.setdefault(text, text)
