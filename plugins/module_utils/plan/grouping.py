# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Short forms for many hosts: ranges of names, one row for equal edits, one line for equal messages. Pure."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Tuple, cast

from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Edit

#: From this number on, hosts with equal edits share a row, and messages that differ in some words share a line.
SHARED = 5

#: Maximum number of names and ranges in a short form.
NAMED = 8

#: Maximum number of lines of the message that ends a run.
LINES = 20

#: Maximum number of kinds of messages with the same number of words that are compared, so that the time is bounded.
KINDS = 100


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
    texts: List[str] = []
    for run in runs:
        texts += run if len(run) < 3 else ["{0}...{1}".format(run[0], run[-1])]
    return texts


def _follows(first: str, second: str) -> bool:
    """Return whether two names differ only in their last number, and the second number is the next one."""
    a, b = _parts(first), _parts(second)
    return a is not None and b is not None and (a[0], a[2]) == (b[0], b[2]) and int(a[1]) + 1 == int(b[1]) \
        and (len(a[1]) == len(b[1]) or not b[1].startswith("0") and len(a[1]) == len(str(int(a[1]))))


def _parts(name: str) -> Any:
    match = re.fullmatch(r"(.*?)([0-9]{1,18})([^0-9]*)", name)
    return match.groups() if match else None


def compact(names: Sequence[str]) -> str:
    """Return names and ranges with commas between them; if there are many, the first ones and the number of the others."""
    texts = spans(names)
    if len(texts) <= NAMED:
        return ", ".join(texts)
    shown = texts[:NAMED]
    rest = len(names) - sum(_size(names, span) for span in shown)
    return "{0} and {1} more".format(", ".join(shown), rest)


def _size(names: Sequence[str], span: str) -> int:
    if span in names:
        return 1
    first, unused, last = span.partition("...")
    return list(names).index(last) - list(names).index(first) + 1


def hosts(names: Sequence[str], of: str = "hosts") -> str:
    """Return how many names there are, and the names, such as C(297 hosts: w-001...w-297). C(of) says what the names are."""
    return "{0} {1}: {2}".format(len(names), of, compact(names))


def equal_edits(edits: Sequence[Edit]) -> List[Tuple[Edit, List[str]]]:
    """Return (edit, its hosts) in the order of the edits. Edits that are equal on at least SHARED hosts are merged.

    The edit of a Node names the Node as its file, so that name is ignored.
    """
    groups: Dict[Tuple[Optional[str], ...], List[Edit]] = {}
    for edit in edits:
        groups.setdefault(_kind(edit), []).append(edit)
    result: List[Tuple[Edit, List[str]]] = []
    for edit in edits:
        same = groups[_kind(edit)]
        if len(same) < SHARED:
            result.append((edit, [edit["host"]]))
        elif same[0] is edit:
            result.append((cast(Edit, dict(edit, file=_file(edit))), [other["host"] for other in same]))
    return result


def _file(edit: Edit) -> str:
    return "Node/NAME" if edit["component"] == "node" else str(edit["file"])


def _kind(edit: Edit) -> Tuple[Optional[str], ...]:
    return _file(edit), edit["component"], edit["flag"], edit["now"], edit["then"], edit["why"], edit["risk"]


def equal_messages(texts: Sequence[str], of: str = "hosts") -> List[str]:
    """Return messages in their order, with those of one kind merged. C(of) says what the names before the texts are.

    Messages C(HOST: TEXT) with the same text are merged. So are at least SHARED messages that differ only in some words, such as names.
    The first one then is the example for the others.
    """
    kinds: Dict[str, List[str]] = {}
    for text in dict.fromkeys(texts):
        kinds.setdefault(_text(text), []).append(text)
    result: List[str] = []
    for same in _alike(list(kinds)):
        members = [message for text in same for message in kinds[text]]
        if len(same) > 1 and len(members) < SHARED:
            result += [_shared(kinds[text], of) for text in same]
        else:
            result.append(_shared(members, of))
    return result


def _alike(texts: List[str]) -> List[List[str]]:
    """Return the texts in groups: a text has as many words as the first text of its group, and at most a quarter of them differ from that text's."""
    groups: List[List[str]] = []
    first: Dict[int, List[Tuple[List[str], List[str]]]] = {}
    for text in texts:
        words = text.split()
        known = first.setdefault(len(words), [])
        group = next((group for other, group in known if sum(a != b for a, b in zip(words, other)) <= len(words) // 4), None)
        if group is None:
            group = []
            groups.append(group)
            if len(known) < KINDS:
                known.append((words, group))
        group.append(text)
    return groups


def _shared(messages: List[str], of: str) -> str:
    """Return one line for messages of one kind."""
    named = [message.partition(": ")[0] for message in messages if _text(message) != message]
    if len(messages) == 1:
        return messages[0]
    if len(named) < len(messages):
        others = _differing(messages)[1:]
        return "{0} (and {1} more of this kind{2})".format(messages[0], len(messages) - 1, ": " + compact(sorted(others, key=in_order)) if others else "")
    names = sorted(set(named), key=in_order)
    who = hosts(names, of) if len(names) > 1 else names[0]
    if len({_text(message) for message in messages}) == 1:
        return "{0}: {1}".format(who, _text(messages[0]))
    return "{0}: {1} of this kind, such as {2}".format(who, len(messages), messages[0])


def _differing(messages: List[str]) -> List[str]:
    """Return each message's word at the first position where the messages differ, such as a name; [] if two messages have the same word there.

    All messages have the same number of words.
    """
    columns = list(zip(*(message.split() for message in messages)))
    words = next((column for column in columns if len(set(column)) > 1), ())
    return list(words) if len(set(words)) == len(messages) else []


def few(texts: Sequence[str], more: str = "The table has all of them") -> List[str]:
    """Return at most LINES lines that sum up the messages, for the error that ends a run. C(more): a sentence that says
    where people find the others."""
    return cut(equal_messages(texts), more)


def cut(lines: List[str], more: str = "The table has all of them") -> List[str]:
    """Return at most LINES of the lines, the last of which counts the others."""
    return lines if len(lines) <= LINES else lines[:LINES - 1] + ["and {0} more. {1}".format(len(lines) - LINES + 1, more)]


def sample(names: Sequence[str], what: str) -> str:
    """Return the number of names, what they are, and some of them: C(123 Nodes, such as cp-1...cp-3)."""
    shown = ", ".join(spans(sorted(names, key=in_order))[:3])
    return "{0} {1}{2}".format(len(names) or "no", what, (", such as " if len(names) > 3 else ": ") + shown if shown else "")


def _text(message: str) -> str:
    host, colon, text = message.partition(": ")
    return text if colon and re.fullmatch(r"\S+", host) else message
