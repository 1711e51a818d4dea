# SPDX-License-Identifier: Apache-2.0
"""The INI dialect of cloud.conf: git's configuration format, as Go's gcfg reads it.

`configparser` reads a different dialect: it does not support repeated keys, `[Section "name"]`, quotes, values that
continue on the next line, or line numbers. Pure. Values may be secrets, so no problem quotes one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SECTION = re.compile(r'\[\s*(?P<name>[A-Za-z0-9.-]+)(?:\s+"(?P<sub>(?:[^"\\]|\\.)*)")?\s*\]\s*(?:[#;].*)?')
VARIABLE = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)\s*(?:=(?P<value>.*)|(?P<bare>[#;].*)?)")
ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "t": "\t", "b": "\b"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line `name = value`. `section` and `name` are in lower case; `value` is None if there is no `=`."""

    section: str
    subsection: str
    name: str
    value: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """`sections`: all sections with their lines, including empty ones. `problems`: line and problem."""

    entries: list[Entry]
    sections: list[tuple[str, str, int]]
    problems: list[tuple[int, str]]


def read(text: str) -> Document:
    """All entries in order, and all problems."""
    found = Document([], [], [])
    section: tuple[str, str] | None = None
    lines = text.removeprefix("\ufeff").split("\n")
    index = 0
    while index < len(lines):
        line, number = lines[index].strip(), index + 1
        index += 1
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            header = SECTION.fullmatch(line)
            section = None
            if header is None:
                found.problems.append((number, 'syntax error: expected [Section] or [Section "name"]'))
                continue
            section = header["name"].lower(), re.sub(r"\\(.)", r"\1", header["sub"] or "")
            found.sections.append((*section, number))
            continue
        variable = VARIABLE.fullmatch(line)
        if variable is None:
            found.problems.append((number, "syntax error: expected [Section], key = value, or a comment"))
            continue
        value: str | None = None
        if variable["value"] is not None:
            raw = variable["value"]
            while _continues(raw) and index < len(lines):
                raw = raw[:-1] + lines[index].removesuffix("\r")
                index += 1
            value, problem = _value(raw)
            if problem:
                found.problems.append((number, f"{variable['name']}: {problem}"))
                continue
        if section is None:
            found.problems.append((number, f"{variable['name']}: the key is not in a valid section"))
            continue
        found.entries.append(Entry(*section, variable["name"].lower(), value, number))
    return found


def _continues(raw: str) -> bool:
    """Whether the line ends in an unescaped backslash."""
    return (len(raw) - len(raw.rstrip("\\"))) % 2 == 1


def _value(raw: str) -> tuple[str, str]:
    """The value, and its problem, "" if there is none. Outside quotes, # and ; start a comment."""
    kept: list[str] = []
    quoted, length = False, 0
    characters = iter(raw.strip())
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ESCAPES or not escaped:
                return "", r'a backslash must be followed by one of \ " n t b; for a literal backslash, write two'
            kept.append(ESCAPES[escaped])
            length = len(kept)
        elif character == '"':
            quoted = not quoted
            length = len(kept)
        elif character in "#;" and not quoted:
            break
        else:
            kept.append(character)
            if quoted or not character.isspace():
                length = len(kept)
    if quoted:
        return "", 'the quote is not closed; for a literal quote, write \\"'
    return "".join(kept[:length]), ""
