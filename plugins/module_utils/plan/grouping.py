# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short forms for many hosts: ranges of names, one row for equal edits, one line for equal messages. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Sequence, Tuple

#: From this number of hosts on, equal rows or messages share one.
SHARED = 5

#: Number of names and ranges that a short form has at most.
NAMED = 8


def in_order(name: str) -> List[Any]:
    """Return a key that sorts names by their numbers: w-2 before w-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]{1,18})", name)]


def spans(names: Sequence[str]) -> List[str]:
    """Return the names in their order, with runs of at least three consecutive numbers as C(w-01...w-12)."""
    runs: List[List[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    found: List[str] = []
    for run in runs:
        found += run if len(run) < 3 else ["{0}...{1}".format(run[0], run[-1])]
    return found


def _follows(first: str, second: str) -> bool:
    """Whether two names differ only in their last number, and the second number is the next one."""
    a, b = _parts(first), _parts(second)
    return a is not None and b is not None and (a[0], a[2]) == (b[0], b[2]) and int(a[1]) + 1 == int(b[1]) \
        and (len(a[1]) == len(b[1]) or not b[1].startswith("0") and len(a[1]) == len(str(int(a[1]))))


def _parts(name: str) -> Any:
    match = re.fullmatch(r"(.*?)([0-9]{1,18})([^0-9]*)", name)
    return match.groups() if match else None


def compact(names: Sequence[str]) -> str:
    """Return names and ranges with commas between them; of many, the first ones and the number of the others."""
    found = spans(names)
    if len(found) <= NAMED:
        return ", ".join(found)
    shown = found[:NAMED]
    rest = len(names) - sum(_size(names, span) for span in shown)
    return "{0} and {1} more".format(", ".join(shown), rest)


def _size(names: Sequence[str], span: str) -> int:
    if span in names:
        return 1
    first, unused, last = span.partition("...")
    return list(names).index(last) - list(names).index(first) + 1


def hosts(names: Sequence[str]) -> str:
    """Return the number of hosts and their names: C(297 hosts: w-001...w-297)."""
    return "{0} hosts: {1}".format(len(names), compact(names))


def equal_edits(edits: Sequence[Dict[str, Any]]) -> List[Tuple[Dict[str, Any], List[str]]]:
    """Return (edit, its hosts) in the order of the edits. Edits that are equal on at least SHARED hosts are one.

    The edit of a Node names the Node as its file, so the name does not count there.
    """
    found: Dict[Tuple[Any, ...], List[Dict[str, Any]]] = {}
    for edit in edits:
        found.setdefault(_kind(edit), []).append(edit)
    result: List[Tuple[Dict[str, Any], List[str]]] = []
    for edit in edits:
        same = found[_kind(edit)]
        if len(same) < SHARED:
            result.append((edit, [edit["host"]]))
        elif same[0] is edit:
            result.append((dict(edit, file=_file(edit)), [other["host"] for other in same]))
    return result


def _file(edit: Dict[str, Any]) -> str:
    return "Node/NAME" if edit["component"] == "node" else str(edit["file"])


def _kind(edit: Dict[str, Any]) -> Tuple[Any, ...]:
    return (_file(edit),) + tuple(edit[name] for name in ("component", "flag", "now", "then", "why", "risk"))


def equal_messages(texts: Sequence[str]) -> List[str]:
    """Return messages in their order. Messages C(HOST: TEXT) with the same text are one if there are at least SHARED."""
    found: Dict[str, List[str]] = {}
    for text in texts:
        found.setdefault(_text(text), []).append(text)
    result: List[str] = []
    for text in texts:
        same = found[_text(text)]
        if len(same) < SHARED:
            result.append(text)
        elif same[0] is text:
            result.append("{0}: {1}".format(hosts([each.partition(": ")[0] for each in same]), _text(text)))
    return result


def _text(message: str) -> str:
    host, colon, text = message.partition(": ")
    return text if colon and re.fullmatch(r"\S+", host) else message
