# SPDX-License-Identifier: Apache-2.0
"""Writes plain data as YAML. There is no YAML in the standard library, and people read what the bed writes."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def dump(data: Any, indent: int = 0) -> str:
    """Return ``data`` (dicts, lists, strings, numbers, booleans, None) as block style YAML with a final newline."""
    return "".join(line + "\n" for line in _lines(data, indent))


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS and value.strip("."):
        return value
    return json.dumps(value)


def _lines(data: Any, indent: int) -> list[str]:
    pad = " " * indent
    lines: list[str] = []
    if isinstance(data, dict) and data:
        for key, value in data.items():
            lines += _entry(f"{pad}{_scalar(key)}:", value, indent)
    elif isinstance(data, list) and data:
        for value in data:
            if isinstance(value, (dict, list)) and value:
                inner = _lines(value, indent + 2)
                lines += [f"{pad}- {inner[0].lstrip()}", *inner[1:]]
            else:
                lines.append(f"{pad}- {_scalar(value)}")
    else:
        lines.append(pad + _scalar(data))
    return lines


def _entry(head: str, value: Any, indent: int) -> list[str]:
    if isinstance(value, (dict, list)) and value:
        return [head, *_lines(value, indent + 2)]
    if isinstance(value, str) and value.endswith("\n") and value.strip("\n") and not value[0].isspace():
        return [f"{head} |" if not value.endswith("\n\n") else f"{head} |+",
                *(" " * (indent + 2) + line if line else "" for line in value[:-1].split("\n"))]  # fmt: skip
    return [f"{head} {_scalar(value)}"]
