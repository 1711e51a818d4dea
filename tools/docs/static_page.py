# SPDX-License-Identifier: Apache-2.0
"""Generates the tables of docs/providers/static.md, which list the keys of the provider `static`, from the tables in
the provider's code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ccm.providers.static import settings

PAGE = Path(__file__).parents[2] / "docs/providers/static.md"
KEYS = {
    "Key": settings.KEYS,
    "Key of a machine": settings.MACHINE_KEYS,
}


def filled(text: str, table: Callable[[tuple[str, ...], list[tuple[str, ...]]], str]) -> str:
    """Return the page with new tables. Each table follows a comment that names its source. Raises ValueError
    if the page has no such comment."""
    for title, keys in KEYS.items():
        rows = [(f"`{key}`", without, meaning) for key, (without, meaning) in keys.items()]
        mark = f"<!-- {title}: written by `make docs` from settings.py -->\n"
        if mark not in text:
            raise ValueError(f"{PAGE}: there is no place for the table {title!r}: a line {mark!r}")
        made = table((title, "Without it", "Meaning"), rows)
        text = re.sub(re.escape(mark) + r"\n(\|.*\n)*\n?", f"{mark}\n{made}\n".replace("\\", r"\\"), text)
    return text
