# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of text within the columns of a terminal. Pure."""

from __future__ import annotations

import re
import textwrap
from typing import List, Sequence

#: Columns of a terminal that nobody made wider.
TERMINAL = 80
#: Columns that Ansible's YAML output puts before each line of a message.
MARGIN = 8

#: A command at the end of a text: a person copies its line.
_COMMAND = re.compile(r":\s+((?:ansible-playbook|kubectl) (?:(?!\. ).)+)\Z", re.S)


def fitted(lines: Sequence[str], columns: int = TERMINAL) -> List[str]:
    """Return the lines, each within the columns of the terminal where its words allow that.

    What follows a line is indented: as the last cell of a row, or else by two. A command that ends a line stands alone, in one line.
    """
    return [part for line in lines for text in line.split("\n") for part in _fitted(text, columns - MARGIN)]


def _fitted(line: str, width: int) -> List[str]:
    if len(line) <= width:
        return [line]
    command = _COMMAND.search(line)
    if command:
        return _fitted(line[:command.start() + 1], width) + [command.group(1)]
    if line.startswith(("ansible-playbook ", "kubectl ")) or len(line.split()) == 1:
        return [line]
    indent = " " * _hanging(line, width)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)


def _hanging(line: str, width: int) -> int:
    """Return the columns before the last cell of a row, if half of them are left for it, and its longest word has place there."""
    own = len(line) - len(line.lstrip()) + 2
    cells = [found.end() for found in re.finditer(r"\S  +(?=\S)", line)]
    last = cells[-1] if cells and cells[-1] <= width // 2 else own
    return last if max(map(len, line[last:].split())) + last <= width else own
