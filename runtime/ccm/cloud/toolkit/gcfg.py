# SPDX-License-Identifier: Apache-2.0
"""The INI dialect of cloud.conf: git's configuration format, as Go's gcfg (gopkg.in/gcfg.v1 1.2.3) reads it.

`configparser` reads a different dialect: it does not support repeated keys, `[Section "name"]`, quotes, values that
continue on the next line, or line numbers. Pure. Values may be secrets, so no problem quotes one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SPACE = " \t\r"
SECTION = re.compile(
    r'\[[ \t\r]*(?P<name>[A-Za-z0-9.-]+)[ \t\r]*(?:"(?P<sub>(?:[^"\\]|\\[\\"])*)")?[ \t\r]*\][ \t\r]*(?:[#;].*)?'
)
VARIABLE = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_-]*)[ \t\r]*(?:=|(?P<bare>[#;].*)?$)")
#: Inside quotes: the character after a backslash -> what the two stand for. Outside of quotes, a backslash may precede
#: only a double quote or the end of the line.
ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "t": "\t"}
_QUOTED_BACKSLASH = r'in quotes, a backslash must be followed by one of \ " n t; for a literal backslash, write two'
_BACKSLASH = "a value with a backslash needs double quotes, and two backslashes for each one"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line `name = value`. `section` and `name` are in lower case; `value` is None if there is no `=`.

    `comment`: the character that starts a comment after an unquoted value, "" if there is none.
    """

    section: str
    subsection: str
    name: str
    value: str | None
    line: int
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. `sections`: all sections with their lines, including empty ones. `problems`: line and problem.

    `unread`: section and key, in lower case, of each line that cannot be read; "" where they are unknown.
    """

    entries: list[Entry]
    sections: list[tuple[str, str, int]]
    problems: list[tuple[int, str]]
    unread: set[tuple[str, str]]


def read(text: str) -> Document:
    """Parse a configuration: return all entries in order, and all problems."""
    reader = _Reader(text.removeprefix("\ufeff"))
    while reader.at < len(reader.text):
        reader.line()
    return reader.document


class _Reader:
    """Reads a file line by line. `at`: where the next line starts. `number`: the number of the current line."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.number = text, 0, 1
        self.document = Document([], [], [], set())
        self._section: tuple[str, str] | None = None

    def line(self) -> None:
        start, end = self.at, _line_end(self.text, self.at)
        line = self.text[start:end].strip(SPACE)
        if line and line[0] == "[":
            self._header(line)
        elif line and line[0] not in "#;":
            end = self._variable(line, end)
        if "\0" in self.text[start:end]:
            self._problem("the line contains a NUL character")
        self.at, self.number = end + 1, self.number + 1 + self.text.count("\n", start, end)

    def _header(self, line: str) -> None:
        header, self._section = SECTION.fullmatch(line), None
        if header is None:
            self._problem('syntax error: expected [Section] or [Section "name"]')
            return
        self._section = header["name"].lower(), re.sub(r"\\(.)", r"\1", header["sub"] or "")
        self.document.sections.append((*self._section, self.number))

    def _variable(self, line: str, end: int) -> int:
        """Read an entry, and return where the last line of its value ends."""
        variable = VARIABLE.match(line)
        if variable is None:
            self._problem("syntax error: expected [Section], key = value, or a comment")
            return end
        value = None
        if line[variable.end() - 1] == "=":
            value = _value(self.text, self.text.index("=", self.at) + 1)
            end = _line_end(self.text, value.end)
        if value is not None and value.problem:
            self._problem(value.problem, variable["name"])
        elif self._section is None:
            self._problem("the key is not in a valid section", variable["name"])
        else:
            content = (None, "") if value is None else (value.text, value.comment)
            entry = Entry(*self._section, variable["name"].lower(), content[0], self.number, content[1])
            self.document.entries.append(entry)
        return end

    def _problem(self, sentence: str, key: str = "") -> None:
        self.document.problems.append((self.number, f"{key}: {sentence}" if key else sentence))
        self.document.unread.add((self._section[0] if self._section else "", key.lower()))


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


@dataclass(frozen=True, slots=True)
class _Value:
    """The value of one line. `end`: where reading stopped; the rest of that line is a comment or cannot be read."""

    text: str
    problem: str
    end: int
    comment: str = ""


def _value(text: str, at: int) -> _Value:
    """Return the value that starts at `at`. Outside quotes, # and ; start a comment, and blanks at the ends are
    dropped."""
    while text[at : at + 1] and text[at] in SPACE:
        at += 1
    kept: list[str] = []
    length, quoted, last = 0, False, ""
    while at < len(text) and (quoted or text[at] not in "\n#;"):
        character = text[at]
        at += 1
        if character == "\\":
            escaped, at = _escaped(text, at, quoted)
            if escaped is None:
                return _Value("", _QUOTED_BACKSLASH if quoted else _BACKSLASH, at - 1)
            kept.append(escaped)
        elif character == '"':
            quoted = not quoted
        elif character == "\n":
            return _Value("", 'the quote is not closed; for a literal quote, write \\"', at - 1)
        elif character != "\r":
            kept.append(character)
        if quoted or character not in SPACE:
            length, last = len(kept), character
    if quoted:
        return _Value("", 'the quote is not closed; for a literal quote, write \\"', at)
    comment = text[at : at + 1].strip("\n") if last != '"' else ""
    return _Value("".join(kept[:length]), "", at, comment)


def _escaped(text: str, at: int, quoted: bool) -> tuple[str | None, int]:
    """Return what the characters after a backslash stand for, None if gcfg refuses them; and where they end."""
    if not quoted and text[at : at + 1] == "\r":
        at += 1
    escaped = text[at : at + 1]
    if quoted:
        return ESCAPES.get(escaped), at + 1
    return {"\n": "", '"': '"'}.get(escaped), at + 1
