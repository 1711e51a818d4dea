# SPDX-License-Identifier: Apache-2.0
"""Reads a gcfg configuration into dataclasses whose fields are `setting_kinds.key`. Pure.

It reports all problems at once, each with its line, and quotes no values. A problem that a provider concludes from some
keys is reported only if these keys can be read. For example, a password that cannot be read is not also reported as
missing.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from . import gcfg
from .setting_kinds import boolean, deprecated, names, text

_COMMENT = "the text after {} is a comment; put the value in double quotes if the text belongs to it"


class GcfgSections:
    """Converts entries to sections and collects problems. Line 0 stands for no specific line.

    `sections`: name, as documented -> its dataclass. `named`: sections of the form `[Section "name"]`, of which there
    may be several. `ignored` and `refused`: section and key -> the reason, and what to do. `foreign`: sections of other
    programs -> the reason why they have no effect. `may_be_empty`: further kinds for which an empty value is valid; for
    all others, an empty value means the default. `defaults`: the section that has the defaults of others. `separator`:
    what joins the words of a key; "" for keys as Go's gcfg spells fields, such as `CallsPerSecond`.
    """

    def __init__(
        self,
        config: str,
        sections: Mapping[str, type],
        *,
        named: Collection[str] = (),
        ignored: Mapping[tuple[str, str], str] | None = None,
        refused: Mapping[tuple[str, str], str] | None = None,
        foreign: Mapping[str, str] | None = None,
        may_be_empty: Collection[Callable[[str], Any]] = (),
        defaults: str = "",
        separator: str = "-",
    ) -> None:
        self.document = gcfg.read(config)
        self.problems: list[tuple[int, str]] = list(self.document.problems)
        #: Section and key, in lower case, of each line that cannot be read; "" for an unknown section or key.
        self._unread = set(self.document.unread)
        #: Warnings, one sentence each: about settings without effect, former names, secrets that a comment may cut,
        #: and what `warn` adds.
        self.ignored: list[str] = []
        self._sections, self._named = sections, named
        self._ignored, self._refused = ignored or {}, refused or {}
        self._defaults, self._separator = defaults.lower(), separator
        self._may_be_empty = (text, names, *may_be_empty)
        self._lines: dict[tuple[str, str, str], int] = {}
        known = {name.lower(): name for name in sections}
        others = {name.lower(): (name, reason) for name, reason in (foreign or {}).items()}
        for section, sub, line in self.document.sections:
            if section in others:
                name, reason = others[section]
                self.ignored.append(f"line {line}: [{name}] has no effect: {reason}")
            elif section not in known:
                self._doubt_section(section, {name: name for name in sections}, line, f"[{section}]: unknown section")
            elif (known[section] in named) != bool(sub):
                shape = f'[{known[section]} "name"]' if known[section] in named else f"[{known[section]}]"
                self._doubt(section, "", line, f"[{known[section]}]: must be written {shape}")

    def report(self) -> Iterator[str]:
        """Yield the problems, each as one sentence, sorted by line."""
        for line, problem in sorted(set(self.problems)):
            yield f"line {line}: {problem}" if line else problem

    def lines(self, section: str) -> dict[str, int]:
        """Return key -> line, for the keys of a section that are set."""
        return {spelt: line for (name, _, spelt), line in self._lines.items() if name == section}

    def names_of(self, section: str) -> list[str]:
        """Return the names in `[section "name"]`, in order."""
        return list(dict.fromkeys(sub for name, sub, _ in self.document.sections if name == section.lower()))

    def problem(self, section: str, at: str, problem: str, or_at: str = "", sub: str = "") -> None:
        """Report what the provider concludes from the keys `at` and `or_at`, with the line of the first that is set.

        Call it after all sections are read. Nothing is reported if one of the keys cannot be read.
        """
        if not self._unread & {(section.lower(), at), (section.lower(), or_at)}:
            self._conclude(section, at, problem, or_at, sub)

    def missing(self, section: str, at: str, problem: str, or_at: str = "", sub: str = "") -> None:
        """Like `problem`, for a missing setting. Nothing is reported if an unreadable line may be this setting: a line
        of the section, of the section with defaults, or below a header that cannot be read. An unknown section counts
        as an unreadable line of the section with the most similar name."""
        if not {section.lower(), self._defaults, ""} & {name for name, _ in self._unread}:
            self._conclude(section, at, problem, or_at, sub)

    def _conclude(self, section: str, at: str, problem: str, or_at: str, sub: str) -> None:
        line = self._lines.get((section, sub, at), self._lines.get((section, sub, or_at), 0))
        self.problems.append((line, f"{_header(section, sub)} {problem}" if section else problem))

    def _doubt_section(self, name: str, known: Mapping[str, str], line: int, problem: str) -> None:
        """Report an unknown section. `known`: section -> its name in the file. Settings that are missing in the section
        with the most similar name may be in this one, so that section counts as unreadable."""
        hint = meant(name, list(known.values()))
        self.problems.append((line, f"{problem}; {hint}"))
        self._unread |= {(section.lower(), "") for section, spelt in known.items() if hint == f"did you mean {spelt}?"}

    def _doubt(self, section: str, key: str, line: int, problem: str) -> None:
        self.problems.append((line, problem))
        self._unread.add((section.lower(), key))

    def no_effect(self, section: str, at: str, reason: str, sub: str = "") -> None:
        """Report a key that is set and has no effect."""
        self.warn(section, at, f"has no effect: {reason}", sub=sub)

    def warn(self, section: str, at: str, sentence: str, or_at: str = "", sub: str = "") -> None:
        """Warn about a key, which does not prevent the start. The line is that of the first key that is set."""
        line = self._lines.get((section, sub, at), self._lines.get((section, sub, or_at), 0))
        self.ignored.append(f"line {line}: {_header(section, sub)} {at} {sentence}")

    def section(self, name: str, sub: str = "") -> Any:
        """Return the dataclass of the section, with defaults in place of invalid values. Collect its problems and
        warnings, and the lines of its keys."""
        cls = self._sections[name]
        fields = {field.name.replace("_", self._separator): field for field in dataclasses.fields(cls)}
        former = {field.metadata.get("former", ""): key for key, field in fields.items()}
        values: dict[str, Any] = {}
        for entry in self.document.entries:
            if (entry.section, entry.subsection) != (name.lower(), sub):
                continue
            where = f"{_header(name, sub)} {entry.name}"
            if (name, entry.name) in self._ignored:
                self.ignored.append(f"line {entry.line}: {where} has no effect: {self._ignored[name, entry.name]}")
            elif (name, entry.name) in self._refused:
                self._doubt(name, entry.name, entry.line, f"{where}: {self._refused[name, entry.name]}")
            elif (current := former.get(entry.name, entry.name)) not in fields:
                self._doubt(name, entry.name, entry.line, f"{where}: unknown key; {meant(entry.name, fields, 'keys')}")
            else:
                if current != entry.name:
                    self.ignored.append(f"line {entry.line}: {deprecated(where, current)}")
                self._take(name, where, fields[current], entry, values)
                self._lines[name, sub, current] = entry.line
        return cls(**values)

    def _take(
        self, section: str, where: str, field: dataclasses.Field[Any], entry: gcfg.Entry, values: dict[str, Any]
    ) -> None:
        if entry.comment and field.metadata["secret"]:
            self.ignored.append(f"line {entry.line}: {where}: {_COMMENT.format(entry.comment)}")
        kind = field.metadata["kind"]
        raw = "true" if entry.value is None and kind is boolean else entry.value
        if raw is None:
            self._doubt(section, entry.name, entry.line, f"{where}: the value is missing")
            return
        try:
            value = kind(raw) if raw or kind in self._may_be_empty else field.default
        except ValueError as error:
            self._doubt(section, entry.name, entry.line, f"{where}: {error}")
            return
        repeatable = isinstance(field.default, tuple)
        if field.name in values and repeatable:
            value = values[field.name] + value if raw else ()  # empty: discards earlier values, as in git
        elif field.name in values and values[field.name] != value:
            self._doubt(section, entry.name, entry.line, f"{where}: duplicate key with different values")
        values[field.name] = value


def _header(section: str, sub: str) -> str:
    return f'[{section} "{sub}"]' if sub else f"[{section}]"


def meant(name: str, known: Collection[str], what: str = "sections") -> str:
    """Return a hint for an unknown name: the most similar known name, or all known names if none is similar."""
    spelt = {each.lower(): each for each in known}
    similar = difflib.get_close_matches(name.lower(), spelt, 1)
    return f"did you mean {spelt[similar[0]]}?" if similar else f"known {what} are {', '.join(known)}"
