# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of text within the columns of a terminal. Pure."""

from __future__ import annotations

import re
import textwrap
from typing import List, Sequence

#: Default number of columns of a terminal.
TERMINAL = 80
#: Columns that Ansible's YAML output puts before each line of a message.
MARGIN = 8

#: A command at the end of a text. It gets a line of its own, so that people can copy it.
_COMMAND = re.compile(r":\s+((?:ansible-playbook|kubectl) (?:(?!\. ).)+)\Z", re.S)
#: A blank at which no line is broken: after the sign of a changed flag, and in a reference to a line below the table. Until the line is
#: shown, _BLANK stands for this blank, so that the words around it count as one word.
_BOUND = re.compile(r"(?:\A\s*[-+]|\((?:risk|why)) (?=--|\w+\)\Z)")
_BLANK = "\0"


def fitted(lines: Sequence[str], columns: int = TERMINAL) -> List[str]:
    """Return the lines, each within the columns of the terminal where its words allow that.

    Further lines of a text are indented: to the last cell of a row, or else by two. A command at the end of a text is never broken.
    """
    return [part for line in lines for text in line.split("\n") for part in _fitted(text, columns - MARGIN)]


def parts(widths: Sequence[int], columns: int = TERMINAL) -> List[List[int]]:
    """Return which cells of a row share a line, if lines must fit and each further one is indented by two. Cells are two columns apart."""
    lines: List[List[int]] = []
    room = 0
    for number, width in enumerate(widths):
        if not lines or width > room:
            lines.append([])
            room = columns - MARGIN - (2 if number else 0)
        lines[-1].append(number)
        room -= width + 2
    return lines


def _fitted(line: str, width: int) -> List[str]:
    if len(line) <= width:
        return [line]
    command = _COMMAND.search(line)
    if command:
        return _fitted(line[:command.start() + 1], width) + [command.group(1)]
    if line.startswith(("ansible-playbook ", "kubectl ")) or len(line.split()) == 1:
        return [line]
    indent = " " * _hanging(line, width)
    line = _BOUND.sub(lambda match: match.group(0)[:-1] + _BLANK, line)
    start = line[:len(line) - len(line.lstrip())] + line.split()[0]
    alone = [start] if len(start) > width else []
    rest = (indent + line[len(start):].lstrip()) if alone else line
    wrapped = textwrap.wrap(rest, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
    return [text.replace(_BLANK, " ") for text in alone + wrapped]


def _hanging(line: str, width: int) -> int:
    """Return the indentation of further lines: that of the row's last cell, if the cell begins in the first half of the width and its longest word fits
    into the rest; else two more than the line's own.
    """
    own = len(line) - len(line.lstrip()) + 2
    cells = [cell.end() for cell in re.finditer(r"\S  +(?=\S)", line)]
    last = cells[-1] if cells and cells[-1] <= width // 2 else own
    return last if max(map(len, line[last:].split())) + last <= width else own
