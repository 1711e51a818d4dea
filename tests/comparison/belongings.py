# SPDX-License-Identifier: Apache-2.0
"""What a Service has in the cloud and in the API server, field by field, so that two controllers can be compared.

Addresses, UIDs and IDs that nobody requested are replaced by a description of their object: ``floating IP of web``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
#: A part's kind, and its name within the Service: ("listener", "TCP 80").
Part = tuple[str, str]


class Belongings:
    """The belongings of one Service. `fields`: part -> field -> value. `ids`: part -> its ID.

    `left_out`: matches names of fields that differ between any two objects, or that say which parts an object has. The
    parts themselves are compared.
    """

    def __init__(self, left_out: re.Pattern[str]) -> None:
        self._left_out = left_out
        self.fields: dict[Part, dict[str, Any]] = {}
        self.ids: dict[Part, str] = {}

    def add(self, kind: str, which: str, row: Row, **more: Any) -> None:
        self.fields[kind, which] = {key: row[key] for key in row if not self._left_out.fullmatch(key)} | more
        if "id" in row:
            self.ids[kind, which] = str(row["id"])


def unequal(one: Belongings, other: Belongings) -> dict[str, tuple[Any, Any]]:
    """Return the differences, such as ``listener TCP 80: tags``, with both values; ``exists`` if a part is missing."""
    found: dict[str, tuple[Any, Any]] = {}
    for part in one.fields.keys() | other.fields.keys():
        name = " ".join(filter(None, part))
        a, b = one.fields.get(part), other.fields.get(part)
        if a is None or b is None:
            found[f"{name}: exists"] = (a is not None, b is not None)
        else:
            changed = {field for field in a.keys() | b.keys() if a.get(field) != b.get(field)}
            found |= {f"{name}: {field}": (a.get(field), b.get(field)) for field in changed}
    return found


class Replacements:
    """Texts, and the descriptions that replace them."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)

    def add(self, text: str, what: str) -> None:
        self._texts[text] = what

    def replaced(self, value: Any) -> Any:
        """Return the value with all texts replaced, at any depth."""
        if isinstance(value, dict):
            return {key: self.replaced(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.replaced(each) for each in value]
        if isinstance(value, str) and self._texts:
            texts = "|".join(re.escape(text) for text in self._texts)
            return re.sub(rf"(?<![0-9A-Za-z.])(?:{texts})(?!\d)", lambda found: self._texts[found.group()], value)
        return value
