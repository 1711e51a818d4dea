# SPDX-License-Identifier: Apache-2.0
"""The dialect of INI that cloud.conf is written in: git's configuration files, as Go's gcfg reads them.

`configparser` reads another one: it knows no repeated keys, no `[Section "name"]`, no quotes, no values continued on
the next line, and no line numbers. Pure. Values may be secrets, so that no problem ever quotes one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SECTION = re.compile(r'\[\s*(?P<name>[A-Za-z0-9.-]+)(?:\s+"(?P<sub>(?:[^"\\]|\\.)*)")?\s*\]\s*(?:[#;].*)?')
VARIABLE = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)\s*(?:=(?P<value>.*)|(?P<bare>[#;].*)?)")
ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "t": "\t", "b": "\b"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line `name = value`. `section` and `name` in lower case; `value` is None where there is no `=`."""

    section: str
    subsection: str
    name: str
    value: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """`sections`: those that were opened, with the line, empty ones too. `problems`: line and what is wrong."""

    entries: list[Entry]
    sections: list[tuple[str, str, int]]
    problems: list[tuple[int, str]]


def read(text: str) -> Document:
    """All entries in their order, and all that cannot be read."""
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
                found.problems.append((number, 'cannot be read: expected [Section] or [Section "name"]'))
                continue
            section = header["name"].lower(), re.sub(r"\\(.)", r"\1", header["sub"] or "")
            found.sections.append((*section, number))
            continue
        variable = VARIABLE.fullmatch(line)
        if variable is None:
            found.problems.append((number, "cannot be read: expected [Section], key = value, or a comment"))
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
            found.problems.append((number, f"{variable['name']}: stands in no section that can be read"))
            continue
        found.entries.append(Entry(*section, variable["name"].lower(), value, number))
    return found


def _continues(raw: str) -> bool:
    """Whether the line ends in a backslash that is not escaped itself."""
    return (len(raw) - len(raw.rstrip("\\"))) % 2 == 1


def _value(raw: str) -> tuple[str, str]:
    """The value, and what is wrong with it, "" when nothing is. Outside of quotes # and ; begin a comment."""
    kept: list[str] = []
    quoted, length = False, 0
    characters = iter(raw.strip())
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ESCAPES or not escaped:
                return "", r'a backslash must be followed by one of \ " n t b; to mean a backslash, write two'
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
        return "", 'the quote is not closed; to mean a quote, write \\"'
    return "".join(kept[:length]), ""
