# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A component's command line according to its systemd unit, with the place in a file from which each argument comes.

Pure and stdlib-only (it also runs on managed nodes, Python 3.8): text in, spans out. A unit's ExecStart uses variables, which
Environment= and environment files set. Later ones override earlier ones, and the last occurrence of a flag counts. Therefore the files
must be read together. The module knows systemd, but no component.
"""

from __future__ import annotations

import base64
import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import (
    BOOLEAN_FLAGS, MANAGED_FLAGS, Char, Flag, Span, Word, apply_spans, managed, render, shell, split_flag, split_words,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import FileFacts, KubeletFacts, UnitFacts

_BRACED = re.compile(r"\$\{(\w+)\}")

#: First characters of a comment in a unit or an environment file.
COMMENTS = ("#", ";")

#: Directories with unit files of distribution packages. The next package upgrade overwrites edits there.
PACKAGE_DIRECTORIES = ("/lib/", "/usr/lib/", "/usr/share/")


class UnitRefused(ValueError):
    """A component's arguments cannot be changed safely; the message says why and what to do."""


class Value(NamedTuple):
    """The text of a variable (or of ExecStart) in a file: its decoded characters, and the place for another argument."""

    path: str
    chars: Tuple[Char, ...]
    insert_at: int
    quoted: bool


class Argument(NamedTuple):
    """One argument and its place in a file; C(variable) is '' for a word of ExecStart itself."""

    value: str
    path: str
    start: int
    end: int
    variable: str


class Occurrence(NamedTuple):
    """A managed flag among the arguments: C(parts) are its one or two arguments."""

    name: str
    value: str
    parts: Tuple[Argument, ...]

    @property
    def path(self) -> str:
        return self.parts[0].path


def decoded(path: str, content: bytes) -> str:
    """Return the text of a unit or an environment file. Raises UnitRefused with the line.

    systemd ignores comments, whatever bytes they contain. Bytes that are not UTF-8 stay unchanged (C(surrogateescape)).
    """
    text = content.decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        strange = re.search("[\udc80-\udcff]", line)
        if strange and not line.lstrip().startswith(COMMENTS):
            raise UnitRefused("{0} line {1}: the byte 0x{2:x} is not UTF-8, which systemd does not accept. Write the line in UTF-8".format(
                path, number, ord(strange.group(0)) & 0xFF))
    return text


def is_unit_file(path: str) -> bool:
    """Whether a path is a service unit or a drop-in of one, in any directory; false for environment files."""
    return re.search(r"\.service(\.d/[^/]+\.conf)?$", path) is not None


# -- systemd's file formats ------------------------------------------------------------------------------------------


def logical_lines(text: str, comments: bool = False) -> List[Tuple[int, int]]:
    """Return (start, end) of each logical line. A backslash at its end joins a line with the next one.

    C(comments): whether a continued line may contain comments, as in units (systemd.syntax), but not in environment files.
    """
    lines = []
    start = position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        first = text[start:end].lstrip()[:1] in COMMENTS
        inside = comments and text[position:end].lstrip()[:1] in COMMENTS
        if not first and end < len(text) and (inside or _goes_on(text[position:end])):
            position = end + 1
            continue
        lines.append((start, end))
        start = position = end + 1
    if start < len(text):
        lines.append((start, len(text)))
    return lines


def _goes_on(line: str) -> bool:
    """Whether a line ends in an unescaped backslash."""
    line = line.rstrip("\r")
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def parse_environment_file(path: str, text: str) -> Dict[str, Value]:
    """Return the variables of an EnvironmentFile. The last assignment of a variable counts."""
    values = {}
    for start, end in logical_lines(text):
        line = text[start:end]
        stripped = line.lstrip()
        if not stripped or stripped[0] in "#;" or "=" not in line:
            continue
        name = line.partition("=")[0].strip()
        begin = start + line.index("=") + 1
        values[name] = _decode(path, text, begin, end)
    return values


def _decode(path: str, text: str, begin: int, end: int) -> Value:
    """Decode the value in text[begin:end] as systemd does: remove outer quotes, and unescape characters after a backslash."""
    while end > begin and text[end - 1] in " \t\r":
        end -= 1
    chars: List[Char] = []
    quote = ""
    closed: Optional[int] = None
    position = begin
    while position < end:
        char = text[position]
        if char == "\\" and quote != "'" and position + 1 < end:
            following = text[position + 1]
            if following in "\r\n":
                skip = 3 if text[position + 1:position + 3] == "\r\n" else 2
                chars.append(Char(position, position + skip, " "))
                position += skip
                continue
            if not quote or following in "\"\\`$":
                chars.append(Char(position, position + 2, following))
                position += 2
                continue
        if char in "\"'" and not quote and not chars:
            quote, closed = char, None
            position += 1
            continue
        if quote and char == quote:
            closed, quote = position, ""
            position += 1
            continue
        chars.append(Char(position, position + 1, char))
        position += 1
    insert_at = closed if closed is not None else end
    return Value(path, tuple(chars), insert_at, closed is not None)


class Unit(NamedTuple):
    """The needed parts of a service unit: ExecStart's words, Environment= and the environment files in order."""

    exec_words: Tuple[Word, ...]
    exec_path: str
    environment: Dict[str, Value]
    environment_files: Tuple[str, ...]


def parse_unit(files: Iterable[Tuple[str, str]]) -> Unit:
    """Merge a unit file and its drop-ins (path, text) in systemd's order."""
    exec_words: Tuple[Word, ...] = ()
    exec_path = ""
    environment: Dict[str, Value] = {}
    environment_files: List[str] = []
    for path, text in files:
        section = ""
        for start, end in logical_lines(text, comments=True):
            line = text[start:end].strip()
            if line.startswith("["):
                section = line.strip("[]")
            if section != "Service" or "=" not in line:
                continue
            key = line.partition("=")[0].strip()
            begin = start + text[start:end].index("=") + 1
            words = split_words(_unit_chars(text, begin, end))
            if key == "ExecStart":
                exec_words, exec_path = (tuple(words), path) if words else ((), "")
            elif key == "Environment":
                if not words:
                    environment = {}
                for word in words:
                    environment.update(_assignment(path, text, word))
            elif key == "EnvironmentFile":
                if not words:
                    environment_files = []
                environment_files += [word.value.lstrip("-") for word in words]
    return Unit(exec_words, exec_path, environment, tuple(environment_files))


def _unit_chars(text: str, begin: int, end: int) -> List[Char]:
    chars = []
    position = begin
    while position < end:
        if text[position] == "\\" and text[position + 1:position + 2] in ("\n", "\r"):
            skip = 3 if text[position + 1:position + 3] == "\r\n" else 2
            chars.append(Char(position, position + skip, " "))
            position = _after_comments(text, position + skip, end)
            continue
        chars.append(Char(position, position + 1, text[position]))
        position += 1
    return chars


def _after_comments(text: str, position: int, end: int) -> int:
    """Return where a continued line continues after comments between its parts."""
    while text[position:end].lstrip(" \t")[:1] in COMMENTS:
        following = text.find("\n", position, end)
        position = end if following < 0 else following + 1
    return position


def _assignment(path: str, text: str, word: Word) -> Dict[str, Value]:
    """Return the variable that one word of Environment= sets: NAME=value, with or without quotes."""
    begin, end = word.start, word.end
    quoted = text[begin] in "\"'" and text[end - 1] == text[begin]
    if quoted:
        begin, end = begin + 1, end - 1
    equals = text.find("=", begin, end)
    if equals < 0:
        return {}
    first = equals + 1
    if not quoted and end - first > 1 and text[first] in "\"'" and text[end - 1] == text[first]:  # NAME="value"
        first, end, quoted = first + 1, end - 1, True
    chars = tuple(Char(i, i + 1, text[i]) for i in range(first, end))
    return {text[begin:equals]: Value(path, chars, end, quoted)}


# -- the command line ------------------------------------------------------------------------------------------------


class CommandLine(NamedTuple):
    """The arguments in order, and the variables that they use as C($NAME), in order of use.

    C(single): the variables that are used as C(${NAME}). The value of such a variable is exactly one argument, whatever it contains.
    """

    arguments: Tuple[Argument, ...]
    variables: Dict[str, Value]
    unset: Tuple[str, ...]
    unit: Unit
    single: Tuple[str, ...] = ()


def command_line(unit: Unit, environment_files: Iterable[Tuple[str, str]]) -> CommandLine:
    """Expand ExecStart with the environment; C(environment_files) are (path, text) in the unit's order."""
    environment = dict(unit.environment)
    for path, text in environment_files:
        environment.update(parse_environment_file(path, text))
    arguments: List[Argument] = []
    variables: Dict[str, Value] = {}
    unset = []
    single = []
    for word in unit.exec_words:
        braced = _BRACED.fullmatch(word.value)
        name = word.value[1:] if word.value.startswith("$") and not word.value.startswith("${") else ""
        if braced:
            single.append(braced.group(1))
            arguments.append(_one_argument(environment.get(braced.group(1)), braced.group(1), word, unit))
        elif not name:
            arguments.append(Argument(word.value, unit.exec_path, word.start, word.end, ""))
        elif name in environment:
            value = environment[name]
            variables[name] = value
            arguments += [Argument(w.value, value.path, w.start, w.end, name) for w in split_words(value.chars)]
        else:
            unset.append(name)
    variables = {name: value for name, value in variables.items() if name not in single}
    return CommandLine(tuple(arguments), variables, tuple(unset), unit, tuple(single))


def _one_argument(value: Optional[Value], name: str, word: Word, unit: Unit) -> Argument:
    """Return the argument that C(${NAME}) is. It is empty if nothing sets the variable."""
    if value is None or not value.chars:
        return Argument("", unit.exec_path, word.start, word.end, name)
    return Argument("".join(char.char for char in value.chars), value.path, value.chars[0].start, value.chars[-1].end, name)


def occurrences(line: CommandLine, names: Iterable[str] = MANAGED_FLAGS, whole: bool = False) -> List[Occurrence]:
    """Return the named flags among the arguments, in order; with C(whole) also C(--controllers) without a cloud controller."""
    wanted = set(names)
    found = []
    index = 0
    while index < len(line.arguments):
        argument = line.arguments[index]
        width = 1
        name, given, value = split_flag(argument.value)
        if name in wanted:
            parts: Tuple[Argument, ...] = (argument,)
            if not given and name in BOOLEAN_FLAGS:
                value = "true"
            elif not given and index + 1 < len(line.arguments):
                following = line.arguments[index + 1]
                parts, value, width = (argument, following), following.value, 2
            if whole or name not in MANAGED_FLAGS or managed(name, value):
                found.append(Occurrence(name, value, parts))
        index += width
    return found


def managed_flags(argv: Iterable[str]) -> List[Tuple[str, str]]:
    """Return (name, value) of the managed flags of a running kubelet's argument list."""
    words = tuple(Argument(arg, "", 0, 0, "") for arg in argv)
    line = CommandLine(words, {}, (), Unit((), "", {}, ()))
    return [(item.name, item.value) for item in occurrences(line)]


# -- edits -----------------------------------------------------------------------------------------------------------


class Sources(NamedTuple):
    """Everything that determines a unit's command line: its files in systemd's order, and their texts (None: does not exist)."""

    unit_files: Tuple[str, ...]
    environment_files: Tuple[str, ...]
    texts: Dict[str, Optional[str]]

    def command_line(self) -> CommandLine:
        unit = parse_unit([(path, self.texts.get(path) or "") for path in self.unit_files])
        found = [(path, self.texts[path] or "") for path in self.environment_files if self.texts.get(path) is not None]
        return command_line(unit._replace(environment_files=self.environment_files), found)

    def edited(self, spans: Dict[str, List[Span]]) -> "Sources":
        texts = dict(self.texts)
        texts.update({path: apply_spans(self.texts.get(path) or "", edits) for path, edits in spans.items()})
        return self._replace(texts=texts)


def sources(files: Dict[str, FileFacts], unit: Union[UnitFacts, KubeletFacts]) -> Sources:
    """Return the sources of a unit's command line, from files as detection reports them. Raises UnitRefused."""
    texts = {path: decoded(path, base64.b64decode(files[path]["content"])) if files[path]["exists"] else None
             for path in unit["unit_files"] + unit["environment_files"]}
    return Sources(tuple(unit["unit_files"]), tuple(unit["environment_files"]), texts)


def flags(line: CommandLine, names: Iterable[str] = MANAGED_FLAGS) -> List[Flag]:
    """Return the managed flags among the arguments, numbered as C(occurrences) lists them."""
    return [Flag(item.name, item.value, index, 1) for index, item in enumerate(occurrences(line, names))]


def refuse_unreadable(line: CommandLine) -> None:
    """Raise UnitRefused if no argument of a command line can be changed."""
    if not line.unit.exec_words:
        raise UnitRefused("its unit has no ExecStart")
    wrapper = shell(word.value for word in line.unit.exec_words)
    if wrapper:
        raise UnitRefused("{0} starts it with a shell ({1}), and this collection does not edit flags inside a shell command. Write the "
                          "program and its arguments into ExecStart".format(line.unit.exec_path, wrapper))


def remove(spans: Dict[str, List[Span]], line: CommandLine, item: Occurrence, texts: Dict[str, Optional[str]]) -> None:
    """Remove a flag from its file, together with the white space around it, or with its line if it is alone there."""
    parts = list(item.parts)
    one, two = parts[0], parts[-1]
    if one.path == two.path and not (texts[one.path] or "")[one.end:two.start].strip(" \t"):
        parts = [one._replace(end=two.end)]
    for unused, path, start, end, variable in parts:
        if variable in line.single:
            raise UnitRefused("{0} has ${{{1}}} in ExecStart, which stays as an empty argument when --{2} is removed from {3}. Write ${1} there, "
                              "then run again".format(line.unit.exec_path, variable, item.name, path))
        text = texts[path] or ""
        first = 0 if variable == "" else line.variables[variable].chars[0].start
        if start <= first:
            while text[end:end + 1] in (" ", "\t"):
                end += 1
        else:
            while start > first and text[start - 1] in " \t":
                start -= 1
            before, after = re.search(r"\\\r?\n$", text[:start]), re.match(r"[ \t]*(\\\r?\n|(?=\r?\n|$))", text[end:])
            if before and after and after.group(1):
                end += after.end()
            elif before and after:
                start = len(text[:before.start()].rstrip(" \t"))
        spans.setdefault(path, []).append(Span(start, end, ""))


def replace(spans: Dict[str, List[Span]], item: Occurrence, value: str) -> None:
    """Replace the value of a flag where it is set."""
    last = item.parts[-1]
    new = value if len(item.parts) == 2 else render(item.name, value)
    spans.setdefault(last.path, []).append(Span(last.start, last.end, new))


def append(spans: Dict[str, List[Span]], line: CommandLine, variable: str, flag: str) -> str:
    """Add a flag at the end of a variable that is set ('' for ExecStart itself); return the path of the file.

    In a unit, white space ends an unquoted assignment (systemd.exec, Environment=), so it gets quotes. Raises UnitRefused.
    """
    if variable == "":
        path, at = line.unit.exec_path, line.unit.exec_words[-1].end
        spans.setdefault(path, []).append(Span(at, at, " " + flag))
        return path
    value = line.variables[variable]
    found, at = spans.setdefault(value.path, []), value.insert_at
    quote = '"' if not value.quoted and (is_unit_file(value.path) or not value.chars) else ""
    earlier = next((span for span in found if span.start == span.end == at), None)
    if earlier is not None:
        found[found.index(earlier)] = earlier._replace(text=earlier.text[:len(earlier.text) - len(quote)] + " " + flag + quote)
        return value.path
    removed = [span for span in found if not span.text]
    left = [c for c in value.chars if not any(s.start <= c.start < s.end for s in removed)]
    text = (" " if left and not left[-1].char.isspace() else "") + flag + quote
    if quote and is_unit_file(value.path):
        if any(char.char in "\"'\\" for char in value.chars):
            raise UnitRefused("{0} has quotes inside the value of {1}, so --{2} cannot be added to it. Put the whole assignment in quotes, as in "
                              "Environment=\"{1}=...\"".format(value.path, variable, flag.lstrip("-").partition("=")[0]))
        begin = at - len(value.chars) - len(variable + "=")
        found.append(Span(begin, begin, quote))
    else:
        text = quote + text
    found.append(Span(at, at, text))
    return value.path


def last_variable(line: CommandLine) -> str:
    """Return the variable in which another flag comes last and survives upgrades, '' for ExecStart itself."""
    kept = [name for name, value in line.variables.items() if not value.path.startswith(PACKAGE_DIRECTORIES)]
    own = line.unit.exec_words[-1].value
    return kept[-1] if kept and own.startswith("$") else ""


def of_a_package(item: Occurrence) -> bool:
    return any(part.path.startswith(PACKAGE_DIRECTORIES) for part in item.parts)
