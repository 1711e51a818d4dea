# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits of the flags in a unit's files, and the proof that an edit changes these flags and nothing else.

Pure and stdlib-only: a parsed command line in, spans out. The remaining text keeps its quotes and escapes.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import compare, env_file, unit, words
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit import (
    PACKAGE_DIRECTORIES, Argument, CommandLine, Occurrence, Sources, UnitRefused, is_unit_file, occurrences,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.words import Place
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Span, render

Spans = Dict[str, List[Span]]


def remove(spans: Spans, line: CommandLine, item: Occurrence, texts: Dict[str, Optional[str]]) -> None:
    """Remove a flag from its file, together with the white space on one side, or with its line if it is alone there. Raises UnitRefused."""
    parts = list(item.parts)
    one, two = parts[0], parts[-1]
    if one.path == two.path and one.variable == two.variable and not (texts[one.path] or "")[one.end:two.start].strip(" \t"):
        parts = [one._replace(end=two.end, raw=one.raw if _whole(one) and _whole(two) else one.raw + two.raw)]
    for part in parts:
        if part.variable in line.single:
            raise UnitRefused("{0} has ${{{1}}} in ExecStart, which stays as an empty argument when --{2} is removed from {3}. Write ${1} there, "
                              "then run again".format(line.unit.exec_path, part.variable, item.name, part.path))
        if not _whole(part):
            for path, gone in words.spans_of(part.raw).items():
                spans.setdefault(path, []).extend(gone)
            continue
        start, end = _with_blanks(texts[part.path] or "", line, part)
        spans.setdefault(part.path, []).append(Span(start, end, ""))


def _whole(part: Argument) -> bool:
    """Return whether an argument is in one piece in its file."""
    return all(one.end == two.start for one, two in zip(part.raw, part.raw[1:]))


def _with_blanks(text: str, line: CommandLine, part: Argument) -> Tuple[int, int]:
    """Return the span of an argument with the white space that goes with it. At least one blank stays between its neighbours."""
    start, end = part.start, part.end
    value = line.variables[part.variable].chars if part.variable else None
    first, last = 0, len(text)
    if value:
        first, last = value[0].start, value[-1].end
    if start <= first:
        while end < last and text[end] in " \t":
            end += 1
        return start, end
    while start > first and text[start - 1] in " \t" and not words.escapes(text[:start - 1]):
        start -= 1
    in_unit = value is None or is_unit_file(part.path)
    before = words.JOINED.search(text[:start]) if in_unit else re.search(r"\\(\n)$", text[:start])
    after = re.match(r"[ \t]*(\\\r?\n|(?=\r?\n|$))" if in_unit else r"[ \t]*(\\\n|(?=\r?\n|$))", text[end:])
    if before and not before.group(1).strip() and (not text[end:last].strip(" \t") or after and not after.group(1)):
        return len(text[:before.start()].rstrip(" \t")), end
    if before and after:
        # In an environment file, a backslash joins lines without a blank.
        blank = in_unit or text[before.start() - 1] in " \t" or text[end + after.end():][:1] in (" ", "\t")
        return start, end + (after.end() if blank else 0)
    lead = re.search(r"\r?\n$", text[:start])
    if value and not in_unit and lead and lead.start() >= first and re.match(r"[ \t]*(\r?\n|[\"']|$)", text[end:]):
        return lead.start(), end
    return start, end


def replace(spans: Spans, line: CommandLine, item: Occurrence, value: str) -> str:
    """Replace the value of a flag where it is set, and return the path of the file. Raises UnitRefused."""
    part = item.parts[-1]
    name, equals, unused = part.value.partition("=")
    new = value if len(item.parts) == 2 else name + "=" + value
    inside = part.inside or Place(part.path, part.end, "", "unit")
    split = bool(part.variable) and part.variable not in line.single
    try:
        edits = words.rewritten(part.chars, inside, new, split, not part.variable)
        if not new and part.variable not in line.single and not _has_quotes(part):  # without quotes, there would be no word
            first = part.chars[0]
            place = Place(first.path, first.start, first.quote, first.layer)
            edits[first.path][0] = edits[first.path][0]._replace(text=words.encoded('""', place, False) if split else '""')
    except words.CannotWrite as exc:
        raise UnitRefused("{0}: --{1} cannot be set to {2}: {3}. Put the value in double quotes".format(part.path, item.name, value, exc)) from exc
    for path, more in edits.items():
        spans.setdefault(path, []).extend(more)
    return next(iter(edits), item.path)


def _has_quotes(part: Argument) -> bool:
    """Return whether a word has quotes around some of its characters."""
    own = {(char.path, position) for char in part.chars for position in range(char.start, char.end)}
    return any(char.char in words.QUOTES and (char.path, char.start) not in own for char in part.raw)


def append(spans: Spans, line: CommandLine, variable: str, flag: str) -> str:
    """Add a flag at the end of a variable that is set ('' for ExecStart itself); return the path of the file.

    In a unit, white space ends an unquoted assignment (systemd.exec, Environment=), so the assignment gets quotes. Raises UnitRefused.
    """
    if variable == "":
        path, at = line.unit.exec_path, line.unit.exec_words[-1].end
        spans.setdefault(path, []).append(Span(at, at, " " + words.encoded(flag, Place(path, at, "", "unit"), False, True)))
        return path
    value = line.variables[variable]
    place, in_unit = value.inside, value.inside.layer == "unit"
    if any(part.open for part in words.split_words(value.chars)):
        raise UnitRefused("{0}: a quote or a backslash in the value of {1} is never closed, so --{2} would become a part of the argument before it. "
                          "Close the quote".format(value.path, variable, _name(flag)))
    edits, at = spans.setdefault(value.path, []), place.at
    quote = '"' if not place.quote and (in_unit or not value.chars) else ""
    try:
        flag = words.encoded(flag, place._replace(quote=quote or place.quote), True)
    except words.CannotWrite as exc:
        raise UnitRefused("{0}: --{1} cannot be added to {2}: {3}. Put the value in double quotes".format(
            value.path, _name(flag), variable, exc)) from exc
    earlier = next((span for span in edits if span.start == span.end == at), None)
    if earlier is not None:
        edits[edits.index(earlier)] = earlier._replace(text=earlier.text[:len(earlier.text) - len(quote)] + " " + flag + quote)
        return value.path
    removed = [span for span in edits if not span.text]
    left = [c for c in value.chars if not any(s.start <= c.start < s.end for s in removed)]
    text = (" " if left and not left[-1].char.isspace() else "") + flag + quote
    if quote and in_unit and value.begin >= 0:  # the whole assignment gets quotes
        edits.append(Span(value.begin, value.begin, quote))
    else:
        text = quote + text
    edits.append(Span(at, at, text))
    return value.path


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0]


def new_variable(spans: Spans, sources: Sources, path: str, variable: str, flag: str) -> None:
    """Add a variable with a flag at the end of an environment file. Raises UnitRefused."""
    text = sources.texts.get(path) or ""
    if env_file.ends_inside(text):
        raise UnitRefused("{0} line {1}: the file ends inside quotes or after a backslash, so a new line would become a part of the text before it. "
                          "Close the quote or remove the backslash, then run again".format(path, unit.line_of(text, len(text))))
    newline = "\r\n" if "\r\n" in text else "\n"
    lead = newline if text and not text.endswith("\n") else ""
    span = Span(len(text), len(text), '{0}{1}="{2}"{3}'.format(lead, variable, flag, newline))
    spans.setdefault(path, []).append(span)


def last_variable(line: CommandLine) -> str:
    """Return the variable for a new flag: the last one that ExecStart uses and whose file survives upgrades. Return '' for ExecStart itself,
    if there is no such variable or if ExecStart ends with another word."""
    kept = [name for name, value in line.variables.items() if not value.path.startswith(PACKAGE_DIRECTORIES)]
    own = line.unit.exec_words[-1].value
    return kept[-1] if kept and own.startswith("$") else ""


def of_a_package(item: Occurrence) -> bool:
    return any(part.path.startswith(PACKAGE_DIRECTORIES) for part in item.parts)


# -- the proof ----------------------------------------------------------------------------------------------------------


class Planned(NamedTuple):
    """One planned flag: which occurrence changes (None: a new flag), and its value afterwards (None: it is removed)."""

    item: Optional[Occurrence]
    name: str
    then: Optional[str]


def proven(sources: Sources, spans: Spans, planned: List[Planned]) -> Sources:
    """Return the edited sources, read again: their arguments are the old ones with the planned flags and no other change.

    Raises UnitRefused with the first other difference.
    """
    before = sources.command_line()
    try:
        edited = sources.edited(spans)
        after = edited.command_line()
    except ValueError as exc:
        raise UnitRefused("the edited files could not be read again: {0}".format(exc)) from exc
    old, new = unit.unmanaged(before), unit.unmanaged(after)
    for one, two in zip(old, new):
        if one.value != two.value:
            raise UnitRefused("{0}: an edit there would also turn the argument {1} into {2}. Put every flag of the file into one pair of "
                              "double quotes".format(sources.place(one), compare.shown(one.value), compare.shown(two.value)))
    if len(old) != len(new):
        longer, place = (old, sources) if len(old) > len(new) else (new, edited)
        other = longer[min(len(old), len(new))]
        raise UnitRefused("{0}: an edit there would also {1} the argument {2}. Put every flag of the file into one pair of double quotes".format(
            place.place(other), "remove" if longer is old else "add", compare.shown(other.value)))
    expected = _expected(before, planned)
    values = [(item.name, item.value) for item in occurrences(after, whole=True)]
    if sorted(values) != sorted(expected) or _kept(values, planned) != _kept(expected, planned):
        raise UnitRefused("{0}: after the edit, its flags would be {1} instead of {2}. Write each flag as one word, --flag=value".format(
            " and ".join(sorted(spans)), _show(values), _show(expected)))
    return edited


def _expected(before: CommandLine, planned: List[Planned]) -> List[Tuple[str, str]]:
    changed = {plan.item: plan.then for plan in planned if plan.item is not None}
    kept = [(item.name, changed.get(item, item.value)) for item in occurrences(before, whole=True)]
    return [(name, value) for name, value in kept if value is not None] + [(plan.name, plan.then or "") for plan in planned if plan.item is None]


def _kept(pairs: List[Tuple[str, str]], planned: List[Planned]) -> List[Tuple[str, str]]:
    """Return the flags in their order, without the new ones, which may have any place."""
    pairs = list(pairs)
    for plan in planned:
        if plan.item is None:
            pairs.remove((plan.name, plan.then or ""))
    return pairs


def _show(pairs: List[Tuple[str, str]]) -> str:
    return " ".join(render(name, value) for name, value in pairs) or "none"
