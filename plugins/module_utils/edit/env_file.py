# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environment files (EnvironmentFile=), read character by character as systemd does.

The states are those of C(parse_env_file_internal) in systemd's src/basic/env-file.c. Quotes may span lines, a backslash joins lines with
nothing between them, and white space before a value is ignored. Pure and stdlib-only (it also runs on managed nodes, Python 3.8).
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit.words import WHITESPACE, Char, Place

COMMENTS = "#;"
_NEWLINE = "\n\r"
#: Characters that a backslash in double quotes escapes. A backslash before a line end is removed with it. Before any other character, it stays.
_ESCAPED = "\"\\`$"
#: systemd ignores variables with other names.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PRE_KEY, _KEY, _PRE_VALUE, _VALUE, _SINGLE, _DOUBLE, _COMMENT = range(7)


class Value(NamedTuple):
    """The text of a variable in a file: its decoded characters, and the place for more text at its end.

    C(begin) is where the assignment begins if it is one word of Environment= without quotes and backslashes, else -1.
    """

    path: str
    chars: Tuple[Char, ...]
    inside: Place
    begin: int = -1


def parse(path: str, text: str, continued: bool = True) -> Dict[str, Value]:
    """Return the variables of an environment file. The last assignment of a variable takes effect, and systemd ignores invalid ones.

    C(continued): whether a comment that ends in a backslash contains the next line, as for systemd before 254.
    """
    return _Reader(path, text, continued).read()


def ignored(text: str) -> List[Tuple[str, int, Tuple[Char, ...]]]:
    """Return (name, line, characters of the value) of each assignment that systemd ignores because a variable cannot have that name."""
    reader = _Reader("", text, True)
    reader.read()
    return reader.ignored


def ends_inside(text: str) -> bool:
    """Return whether a line that is added at the end would become a part of the text before it.

    It would if the file ends inside quotes, after a backslash, or in a comment whose last line ends with a backslash.
    """
    reader = _Reader("", text, True)
    reader.read()
    return reader.escape or reader.state in (_SINGLE, _DOUBLE) or reader.state == _COMMENT and text.endswith("\n")


def ambiguous(text: str) -> int:
    """Return the line of a comment that hides variables from systemd before 254, but not from later ones; 0 if there is none."""
    reader = _Reader("", text, True)
    old, new = reader.read(), parse("", text, False)
    return reader.comment if list(old.items()) != list(new.items()) else 0


def valid(name: str) -> bool:
    """Return whether systemd accepts a variable of this name."""
    return _NAME.fullmatch(name) is not None


class _Reader:
    after: int  # where the value begins

    def __init__(self, path: str, text: str, continued: bool) -> None:
        self.path, self.text, self.continued = path, text, continued
        self.state, self.escape, self.comment = _PRE_KEY, False, 0
        self.values: Dict[str, Value] = {}
        self.ignored: List[Tuple[str, int, Tuple[Char, ...]]] = []
        self._begin()

    def _begin(self) -> None:
        self.key = ""
        self.chars: List[Char] = []
        self.blanks: Optional[int] = None
        self.pair: Optional[Tuple[int, str]] = None

    def read(self) -> Dict[str, Value]:
        steps = (self._pre_key, self._key, self._pre_value, self._value, self._single, self._double, self._comment)
        for position, char in enumerate(self.text):
            steps[self.state](position, char)
        if self.state in (_PRE_VALUE, _VALUE, _SINGLE, _DOUBLE):
            self._push()
        return self.values

    def _pre_key(self, position: int, char: str) -> None:
        if char in COMMENTS:
            self.state = _COMMENT
        elif char not in WHITESPACE:
            self.state, self.key = _KEY, char

    def _key(self, position: int, char: str) -> None:
        if char in _NEWLINE:
            self._end()
        elif char == "=":
            self.state, self.after = _PRE_VALUE, position + 1
        else:
            self.key += char

    def _pre_value(self, position: int, char: str) -> None:
        if char in _NEWLINE:
            self._push()
            self._end()
        elif char in "\"'":
            self.state = _SINGLE if char == "'" else _DOUBLE
            self.pair = self.pair or (position + 1, char)
        elif char == "\\":
            self.state, self.escape = _VALUE, True
        elif char not in WHITESPACE:
            self.state = _VALUE
            self._add(position, position + 1, char, "")

    def _value(self, position: int, char: str) -> None:
        if self.escape:
            self.escape = False
            if char not in _NEWLINE:
                self._add(position - 1, position + 1, char, "")
        elif char in _NEWLINE:
            self._push()
            self._end()
        elif char == "\\":
            self.escape, self.blanks = True, None
        else:
            if char not in WHITESPACE:
                self.blanks = None
            elif self.blanks is None:
                self.blanks = len(self.chars)
            self._add(position, position + 1, char, "")

    def _single(self, position: int, char: str) -> None:
        if char == "'":
            self.state = _PRE_VALUE
        else:
            self._add(position, position + 1, char, "'")

    def _double(self, position: int, char: str) -> None:
        if self.escape:
            self.escape = False
            if char in _ESCAPED:
                self._add(position - 1, position + 1, char, '"')
            elif char != "\n":
                self._add(position - 1, position, "\\", '"')
                self._add(position, position + 1, char, '"')
        elif char == '"':
            self.state = _PRE_VALUE
        elif char == "\\":
            self.escape = True
        else:
            self._add(position, position + 1, char, '"')

    def _comment(self, position: int, char: str) -> None:
        if self.escape:
            self.escape = False
            if char in _NEWLINE:
                self.comment = self.comment or self.text.count("\n", 0, position) + 1
                if not self.continued:
                    self._end()
        elif char == "\\":
            self.escape = True
        elif char in _NEWLINE:
            self._end()

    def _add(self, start: int, end: int, char: str, quote: str) -> None:
        self.chars.append(Char(start, end, char, quote, self.path, "environment"))

    def _end(self) -> None:
        self.state = _PRE_KEY
        self._begin()

    def _push(self) -> None:
        chars = self.chars[:self.blanks]
        at, quote = self.pair or (self.after, "")
        if chars:
            at, quote = chars[-1].end, chars[-1].quote
        name = self.key.rstrip(WHITESPACE)
        if valid(name):
            self.values[name] = Value(self.path, tuple(chars), Place(self.path, at, quote, "environment"))
        else:
            self.ignored.append((name, self.text.count("\n", 0, self.after) + 1, tuple(chars)))
