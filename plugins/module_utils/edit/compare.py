# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares all arguments of a process with those in its files, or with those of an earlier process.

Pure and stdlib-only (it also runs on managed nodes, Python 3.8). It returns sentences, and decides nothing.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, Iterable, List, Optional, Sequence

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import env_file
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit import Argument, CommandLine, Sources, of_process, unmanaged
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.words import split_words
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags, render

#: A specifier that only the host knows, such as C(%H).
_SPECIFIER = re.compile("%[a-zA-Z]")


def others(argv: Iterable[str]) -> List[Argument]:
    """Return the arguments of a process that a change of managed flags must not touch."""
    return unmanaged(of_process(list(argv)[1:]))


def difference(sources: Sources, component: str, argv: List[str], specifiers: Optional[Dict[str, str]] = None) -> str:
    """Return the first difference between a process's arguments and those in the files, '' if they are the same or cannot be compared.

    They can be compared only if the unit starts the component itself. A wrapper may add arguments of its own.
    """
    line = sources.command_line(specifiers)
    if line.program.rpartition("/")[2] != component or not argv:
        return ""
    text = first_difference(line.given, argv[1:], sources.place)
    return text + of_systemd(line) if text else ""


def of_systemd(line: CommandLine) -> str:
    """Return the end of a sentence about arguments that no file explains. It names the variables that no file sets, because systemd itself may have them;
    '' if there are none."""
    if not line.unknown:
        return ""
    return ". No file sets {0}, which {1} uses: systemd itself may have it (PassEnvironment=, DefaultEnvironment= in system.conf, or 'systemctl " \
        "set-environment'). Set it with Environment= or in an environment file of the unit".format(
            " and ".join("$" + name for name in dict.fromkeys(line.unknown)), line.unit.exec_path)


def ignored(sources: Sources) -> List[str]:
    """Return a sentence for each managed flag in a line of an environment file that systemd ignores, such as C(export A=...)."""
    return ["{0} line {1} sets {2}, but systemd ignores that line, because a variable cannot have the name {3}".format(
        path, number, render(flag.name, flag.value), shown(name))
        for path in sources.environment_files
        for name, number, chars in env_file.ignored(sources.texts.get(path) or "")
        for flag in find_flags(word.value for word in split_words(chars))]


def first_difference(expected: Sequence[Argument], running: Sequence[str], place: Callable[[Argument], str]) -> str:
    """Return the first difference of a process's arguments from the expected ones, '' if there is none.

    C(place) returns where an expected argument comes from, or ''.
    """
    for index, (argument, value) in enumerate(zip(expected, running), 1):
        if argument.value != value and argument.exact and not _SPECIFIER.search(argument.value):
            return "argument {0} of the process is {1} instead of {2}".format(index, shown(value), _with_place(argument, place))
    if len(running) > len(expected):
        return "the process has one more argument, {0}".format(shown(running[len(expected)]))
    if len(expected) > len(running):
        return "the process does not have the argument {0}".format(_with_place(expected[len(running)], place))
    return ""


def _with_place(argument: Argument, place: Callable[[Argument], str]) -> str:
    where = place(argument)
    return "{0} ({1})".format(shown(argument.value), where) if where else shown(argument.value)


def shown(value: str) -> str:
    """Return an argument for people to read: in quotes, at most 200 characters of it, with escapes for characters that cannot be printed."""
    text = value if len(value) <= 200 else value[:197] + "..."
    return "'{0}'".format(text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text)
