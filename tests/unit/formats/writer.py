# SPDX-License-Identifier: Apache-2.0
"""Writes data as people, installers and editors write YAML: in block or flow style, with quotes and comments."""

from __future__ import annotations

import json
import random
import re
from typing import Any

_PLAIN = re.compile(r"(--|[A-Za-z/])[A-Za-z0-9_./=,:@+-]*[A-Za-z0-9]")
_WORDS = {"y", "n", "yes", "no", "true", "false", "on", "off", "null"}


class Writer:
    """The style of one text. Each habit's probability is drawn once for a text, so texts differ more than lines."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._comments, self._gaps = chance.choice([0, 0, 0.15]), chance.choice([0, 0, 0.1])
        self._flow, self._quotes = chance.choice([0, 0, 0.1, 0.3]), chance.choice([0, 0.2, 1])
        self._step, self._dent = chance.choice([2, 2, 2, 4]), chance.choice([0, 0, 2])

    def document(self, data: Any) -> str:
        chance = self.chance
        style = chance.random()
        if style < 0.06:
            text = json.dumps(data, indent=chance.choice([None, 2, "\t"]))
        else:
            text = "\n".join(self._lines(data, 0)) + "\n"
        text = chance.choice(["", "", "", "---\n", "# by the installer\n", "%YAML 1.1\n---\n"]) + text
        if style >= 0.06:
            text += chance.choice([""] * 6 + ["# end\n", "\n\n", "---\n", "...\n", "---\nkind: Other\n"])
        if chance.random() < 0.06 and "\n  " not in text.replace("\n   ", ""):
            text = text.rstrip("\n")
        return text.replace("\n", "\r\n") if chance.random() < 0.06 else text

    def _lines(self, data: Any, level: int) -> list[str]:
        lines: list[str] = []
        for key, value in data.items():
            lines += self._between(level)
            if isinstance(value, (dict, list)) and value and (self.chance.random() >= self._flow or level < 1):
                lines.append(f"{key}:{self._comment()}")
                if isinstance(value, dict):
                    lines += [" " * self._step + line if line else line for line in self._lines(value, level + 1)]
                else:
                    lines += [" " * self._dent + line if line else line for line in self._items(value, level + 1)]
            else:
                lines.append(f"{key}{self.chance.choice([''] * 20 + [' '])}: {self._scalar(value)}{self._comment()}")
        return lines

    def _items(self, items: list[Any], level: int) -> list[str]:
        lines: list[str] = []
        for item in items:
            lines += self._between(level)
            if isinstance(item, dict) and item and self.chance.random() >= self._flow:
                inner = self._lines(item, level + 1)
                while inner[0].lstrip().startswith("#") or not inner[0]:
                    inner.pop(0)
                lines += ["- " + inner[0]] + ["  " + line if line else line for line in inner[1:]]
            else:
                lines += self._long(item) or [f"- {self._scalar(item)}{self._comment()}"]
        return lines

    def _long(self, value: Any) -> list[str]:
        return (
            ["- >-", f"    {value}"]
            if isinstance(value, str) and value == value.strip() != "" and self.chance.random() < 0.004
            else []
        )

    def _between(self, level: int) -> list[str]:
        lines = [self.chance.choice(["# a remark", "# é 𝄞"])] if self.chance.random() < self._comments else []
        return lines + ([""] if self.chance.random() < self._gaps else [])

    def _comment(self) -> str:
        return "  # why" if self.chance.random() < self._comments else ""

    def _scalar(self, value: Any, flow: bool = False) -> str:
        if isinstance(value, str):
            plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS and not (flow and "," in value)
            if plain and self.chance.random() >= self._quotes:
                return value
            return json.dumps(value) if "'" in value or self.chance.random() < 0.5 else f"'{value}'"
        if isinstance(value, dict) and value:
            blank = self.chance.choice(["", " "])
            return (
                "{"
                + blank
                + ", ".join(f"{key}: {self._scalar(item, True)}" for key, item in value.items())
                + blank
                + "}"
            )
        if isinstance(value, list) and value:
            return (
                "["
                + ", ".join(self._scalar(item, True) for item in value)
                + self.chance.choice(["", "", "", ","])
                + "]"
            )
        return json.dumps(value)
