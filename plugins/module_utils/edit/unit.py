# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A component's command line according to its systemd unit, with the place in a file from which each argument comes.

Pure and stdlib-only (it also runs on managed nodes, Python 3.8): text in, arguments out. A unit's ExecStart uses variables, which
Environment= and environment files set. Later ones override earlier ones, and the last occurrence of a flag takes effect. So the files
must be read together. The module knows systemd, but no component. unit_edits changes what this module reads.
"""

from __future__ import annotations

import base64
import re
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import env_file, words
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.env_file import Value
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.words import WHITESPACE, Char, Place, Word, split_words, text_of
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import (
    BOOLEAN_FLAGS, MANAGED_FLAGS, Flag, Span, managed, shell, split_flag,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import FileFacts, KubeletFacts, UnitFacts

_LINE_END = re.compile("\r\n|\n\r|\n|\r")

#: A variable inside a word of ExecStart.
_VARIABLE = re.compile(r"\$\{([^}]*)\}")

#: First characters of a comment in a unit or an environment file.
COMMENTS = ("#", ";")

#: Directories with unit files of distribution packages. The next package upgrade overwrites edits there.
PACKAGE_DIRECTORIES = ("/lib/", "/usr/lib/", "/usr/share/")

#: What systemd allows before the program of ExecStart, except |, which stands for a shell.
PREFIXES = "-@+!:"


class UnitRefused(ValueError):
    """A component's arguments cannot be changed safely; the message says why and what to do."""


class Argument(NamedTuple):
    """One argument and its place in a file; C(variable) is '' for a word of ExecStart itself.

    C(chars): its decoded characters, which may come from several files. C(raw): the characters to remove with it. C(exact): whether the files alone decide its
    value. C(inside): the place for more text at its end. C(open): a quote in it is never closed.
    """

    value: str
    path: str
    start: int
    end: int
    variable: str
    chars: Tuple[Char, ...] = ()
    raw: Tuple[Char, ...] = ()
    inside: Optional[Place] = None
    exact: bool = True
    open: bool = False


class Occurrence(NamedTuple):
    """A flag that occurrences() found: C(parts) are its one or two arguments."""

    name: str
    value: str
    parts: Tuple[Argument, ...]

    @property
    def path(self) -> str:
        """Return the file that gives the flag its value."""
        last = self.parts[-1]
        return last.chars[-1].path if last.chars else last.path

    @property
    def paths(self) -> Tuple[str, ...]:
        """Return every file that has a part of the flag."""
        return tuple(dict.fromkeys([part.path for part in self.parts] + [char.path for part in self.parts for char in part.chars]))


def decoded(path: str, content: bytes) -> str:
    """Return the text of a unit or an environment file. Raises UnitRefused with the line.

    Bytes that are not UTF-8 may be in comments, which systemd ignores. They stay unchanged (C(surrogateescape)).
    """
    text = content.decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        strange = re.search("[\udc80-\udcff]", line)
        if "\0" in line:
            raise UnitRefused("{0} line {1}: it has a zero byte, and systemd does not read such a file. Is it a text file?".format(path, number))
        if strange and not line.lstrip().startswith(COMMENTS):
            raise UnitRefused("{0} line {1}: the byte 0x{2:x} is not UTF-8, which systemd does not accept. Write the line in UTF-8".format(
                path, number, ord(strange.group(0)) & 0xFF))
    return text


def before_start(files: Iterable[Tuple[str, str]]) -> Iterator[Tuple[str, str]]:
    """Return (place, command) of each command that runs before the one of ExecStart."""
    for path, text in files:
        for key, chars in settings(path, text):
            if key in ("ExecCondition", "ExecStartPre") and chars:
                yield "{0} line {1}: {2}".format(path, line_of(text, chars[0].end), key), text_of(chars)


def is_unit_file(path: str) -> bool:
    """Return whether a path is a service unit or a drop-in of one, in any directory; false for environment files."""
    return re.search(r"\.service(\.d/[^/]+\.conf)?$", path) is not None


# -- units --------------------------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """The parts of a service unit that decide its command line: ExecStart's words, Environment= and the environment files in order.

    C(removed) are the variables, or assignments, that UnsetEnvironment= removes in the end, whatever sets them.
    """

    exec_words: Tuple[Word, ...]
    exec_path: str
    environment: Dict[str, Value]
    environment_files: Tuple[str, ...]
    removed: Tuple[str, ...] = ()


def logical_lines(path: str, text: str) -> Iterator[List[Char]]:
    """Return the characters of each logical line of a unit. A backslash at a line's end joins it with the next one by a blank.

    Comments between the lines that are joined are left out, as in systemd's C(config_parse).
    """
    joined: List[Char] = []
    for start, end, following in _lines(text):
        line = text[start:end]
        if line.lstrip(WHITESPACE).startswith(COMMENTS):
            if joined:  # text that is added after the joined line must also come after these comments
                joined[-1] = joined[-1]._replace(end=following)
            continue
        lead = 1 if not start and line.startswith("\ufeff") else 0
        joined += [Char(start + index, start + index + 1, char, "", path) for index, char in enumerate(line[lead:], lead)]
        if words.escapes(line):
            joined[-1] = joined[-1]._replace(end=following, char=" ")
            continue
        yield joined
        joined = []
    if joined:
        yield joined


def _lines(text: str) -> Iterator[Tuple[int, int, int]]:
    """Return (start, end, start of the next one) of each line."""
    start = 0
    for match in _LINE_END.finditer(text):
        yield start, match.start(), match.end()
        start = match.end()
    if start < len(text):
        yield start, len(text), len(text)


def settings(path: str, text: str, section: str = "Service") -> Iterator[Tuple[str, List[Char]]]:
    """Return (key, characters of the value) of each assignment in a section of a unit."""
    current = ""
    for chars in logical_lines(path, text):
        line = text_of(chars)
        if line.strip(WHITESPACE).startswith("["):
            current = line.strip(WHITESPACE).strip("[]")
        elif current == section and "=" in line:
            at = line.index("=")
            yield line[:at].strip(WHITESPACE), _stripped(chars[at + 1:])


def _stripped(chars: List[Char]) -> List[Char]:
    first, last = 0, len(chars)
    while first < last and chars[first].char in WHITESPACE:
        first += 1
    while last > first and chars[last - 1].char in WHITESPACE:
        last -= 1
    return chars[first:last]


def parse_unit(files: Iterable[Tuple[str, str]], specifiers: Optional[Dict[str, str]] = None) -> Unit:
    """Merge a unit file and its drop-ins (path, text) in systemd's order. C(specifiers): its %-specifiers, by default those of its name. Raises UnitRefused for
    an ExecStart that systemd does not start."""
    exec_words: Tuple[Word, ...] = ()
    exec_path = ""
    environment: Dict[str, Value] = {}
    environment_files: List[str] = []
    removed: List[str] = []
    for path, text in files:
        if specifiers is None:
            specifiers = words.of_unit(path.rpartition("/")[2])
        for key, chars in settings(path, text):
            if key == "ExecStart":
                split = split_words(chars, True)
                if any(word.open for word in split):
                    raise UnitRefused("{0} line {1}: ExecStart has a quote that is never closed, so systemd does not start it. Close it".format(
                        path, line_of(text, chars[0].end)))
                exec_words = tuple(word._replace(chars=tuple(words.specified(word.chars, specifiers))) for word in words.last_command(split))
                if exec_words and exec_words[0].value.lstrip(PREFIXES).startswith("$"):
                    raise UnitRefused("{0} line {1}: ExecStart has a variable as its program, which systemd does not look up. Write its path".format(
                        path, line_of(text, chars[0].end)))
                exec_path = path if exec_words else ""
            elif key == "Environment":
                if not chars:
                    environment = {}
                for word in split_words(chars, True):
                    if word.open or word.strange:
                        break  # systemd ignores the rest of the line
                    environment.update(_assignment(word._replace(chars=tuple(words.specified(word.chars, specifiers)))))
            elif key == "EnvironmentFile":
                if not chars:
                    environment_files = []
                else:
                    environment_files.append(text_of(words.specified(chars, specifiers)))
            elif key == "UnsetEnvironment":
                removed = removed + [text_of(words.specified(word.chars, specifiers)) for word in split_words(chars, True)] if chars else []
    names = [name[1:] if name.startswith("-") else name for name in environment_files]
    return Unit(exec_words, exec_path, environment, tuple(name for name in names if name.startswith("/")), tuple(removed))


def _assignment(word: Word) -> Dict[str, Value]:
    """Return the variable that one word of Environment= sets: NAME=value, with or without quotes; {} if systemd ignores the word."""
    name, equals, unused = word.value.partition("=")
    if not equals or not env_file.valid(name):
        return {}
    first = next(index for index, char in enumerate(word.chars) if char.char == "=") + 1
    chars = word.chars[first:]
    inside = word.inside
    if not chars:
        equal = word.chars[first - 1]
        pair = next((char for char in word.raw if char.char in words.QUOTES and char.start >= equal.end), None)
        inside = inside._replace(at=pair.end, quote=pair.char) if pair and not equal.quote else inside
    plain = not any(char.char in words.QUOTES + "\\" for char in word.raw)
    return {name: Value(inside.path, chars, inside, word.start if plain else -1)}


# -- the command line ------------------------------------------------------------------------------------------------


class CommandLine(NamedTuple):
    """The arguments in order, and the variables that they use as C($NAME), in order of use. C(unset): those that no file sets.

    C(single): the variables for which C(${NAME}) is a whole word; each value is exactly one argument. C(variables) leaves them out. C(unknown): all used
    variables that no file sets, also those inside a word (C(--a=${NAME})). systemd itself may have them.
    """

    arguments: Tuple[Argument, ...]
    variables: Dict[str, Value]
    unset: Tuple[str, ...]
    unit: Unit
    single: Tuple[str, ...] = ()
    unknown: Tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """Return the program that ExecStart starts, '' without an ExecStart."""
        return self.unit.exec_words[0].value.lstrip(PREFIXES) if self.unit.exec_words else ""

    @property
    def given(self) -> Tuple[Argument, ...]:
        """Return the arguments after the program's name. With C(@), that name is the second word."""
        prefix = self.arguments[0].value[:-len(self.program)] if self.arguments and self.program else ""
        return self.arguments[2 if "@" in prefix else 1:]


def command_line(unit: Unit, environment_files: Iterable[Tuple[str, str]]) -> CommandLine:
    """Expand ExecStart with the environment; C(environment_files) are (path, text) in the unit's order."""
    environment = dict(unit.environment)
    for path, text in environment_files:
        environment.update(env_file.parse(path, text))
    environment = {name: value for name, value in environment.items()
                   if name not in unit.removed and name + "=" + text_of(value.chars) not in unit.removed}
    arguments: List[Argument] = []
    variables: Dict[str, Value] = {}
    unset = []
    single: List[str] = []
    unknown: List[str] = []
    literal = bool(unit.exec_words) and ":" in _prefix(unit.exec_words[0].value)
    for index, word in enumerate(unit.exec_words):
        value = word.value
        if literal or not index or "$" not in value:
            arguments.append(_argument(word, word.chars, unit.exec_path))
        elif value.startswith("$") and value[1:2] not in ("{", "$"):
            name = value[1:]
            if name in environment:
                variables[name] = environment[name]
                arguments += [_argument(part, part.chars, environment[name].path, name) for part in split_words(environment[name].chars)]
            elif name not in unit.removed:
                unset.append(name)
        else:
            argument, used, absent = _expanded(word, environment, unit.exec_path)
            single += used
            unknown += [name for name in absent if name not in unit.removed]
            arguments.append(argument)
    variables = {name: value for name, value in variables.items() if name not in single}
    return CommandLine(tuple(arguments), variables, tuple(unset), unit, tuple(single), tuple(unset + unknown))


def _prefix(word: str) -> str:
    return word[:len(word) - len(word.lstrip(PREFIXES))]


def _argument(word: Word, chars: Tuple[Char, ...], path: str, variable: str = "") -> Argument:
    return Argument(text_of(chars), path, word.start, word.end, variable, chars, word.raw, word.inside, open=word.open)


def _expanded(word: Word, environment: Dict[str, Value], path: str) -> Tuple[Argument, List[str], List[str]]:
    """Replace C(${NAME}) in a word by its value and C($$) by C($) (C(replace_env)).

    Return the argument; [NAME] if the word is C(${NAME}) and nothing else, otherwise []; and the names that nothing sets. What follows a
    C(${) that is never closed stays as it is.
    """
    chars: List[Char] = []
    absent, position, whole = [], 0, []  # type: List[str], int, List[str]
    inside = word.inside
    while position < len(word.chars):
        char, rest = word.chars[position], text_of(word.chars[position:])
        variable = _VARIABLE.match(rest)
        if rest.startswith("${") and not variable:
            chars += word.chars[position:]
            break
        if rest.startswith("$$"):
            chars.append(char._replace(end=word.chars[position + 1].end))
            position += 2
        elif variable:
            name, width = variable.group(1), _width(word.chars[position:], variable.end())
            value = environment.get(name)
            if value is None:
                absent.append(name)
            else:
                chars += value.chars
                inside = value.inside
            if width == len(word.chars):
                whole = [name]
            position += width
        else:
            chars.append(char)
            position += 1
    start, end = (chars[0].start, chars[-1].end) if whole and chars else (word.start, word.end)
    place = inside.path if whole else path
    return Argument(text_of(chars), place, start, end, "".join(whole), tuple(chars), word.raw, inside, not absent), whole, absent


def _width(chars: Tuple[Char, ...], length: int) -> int:
    """Return how many of the first characters have C(length) letters in all. One of them may stand for a whole specifier."""
    count = 0
    while length > 0:
        length -= len(chars[count].char)
        count += 1
    return count


def occurrences(line: CommandLine, names: Iterable[str] = MANAGED_FLAGS, whole: bool = False) -> List[Occurrence]:
    """Return the named flags among the arguments, in order; with C(whole) also a C(--controllers) that names no cloud controller."""
    wanted = set(names)
    entries = []
    index = 0
    while index < len(line.arguments):
        argument = line.arguments[index]
        width = 1
        name, has_value, value = split_flag(argument.value)
        if name in wanted:
            parts: Tuple[Argument, ...] = (argument,)
            if not has_value and name in BOOLEAN_FLAGS:
                value = "true"
            elif not has_value and index + 1 < len(line.arguments):
                following = line.arguments[index + 1]
                parts, value, width = (argument, following), following.value, 2
            if whole or name not in MANAGED_FLAGS or managed(name, value):
                entries.append(Occurrence(name, value, parts))
        index += width
    return entries


def managed_flags(argv: Iterable[str]) -> List[Tuple[str, str]]:
    """Return (name, value) of the managed flags in the argument list of a process."""
    return [(item.name, item.value) for item in occurrences(of_process(argv))]


def of_process(argv: Iterable[str]) -> CommandLine:
    """Return the command line of a process. Its arguments have no place in a file."""
    return CommandLine(tuple(Argument(arg, "", 0, 0, "") for arg in argv), {}, (), Unit((), "", {}, ()))


def unmanaged(line: CommandLine) -> List[Argument]:
    """Return the arguments that are part of no managed flag, and of no C(--controllers)."""
    gone = {id(part) for item in occurrences(line, whole=True) for part in item.parts}
    return [argument for argument in line.arguments if id(argument) not in gone]


def line_of(text: str, position: int) -> int:
    """Return the number of the line that has the character before a position."""
    return len(list(_lines(text[:position])))


# -- files -----------------------------------------------------------------------------------------------------------


_Files = NamedTuple("_Files", [("unit_files", Tuple[str, ...]), ("environment_files", Tuple[str, ...]), ("texts", Dict[str, Optional[str]])])


class Sources(_Files):
    """Everything that determines a unit's command line: its files in systemd's order, and their texts (None: does not exist)."""

    _read: Optional[Tuple[object, CommandLine]] = None  # a plan and its proof read the same texts several times

    def command_line(self, specifiers: Optional[Dict[str, str]] = None) -> CommandLine:
        asked = ([self.texts.get(path) for path in self.unit_files + self.environment_files], specifiers)
        if self._read is None or self._read[0] != asked:
            unit = parse_unit([(path, self.texts.get(path) or "") for path in self.unit_files], specifiers)
            files = [(path, self.texts[path] or "") for path in self.environment_files if self.texts.get(path) is not None]
            self._read = asked, command_line(unit._replace(environment_files=self.environment_files), files)
        return self._read[1]

    def edited(self, spans: Dict[str, List[Span]]) -> "Sources":
        texts = dict(self.texts)
        texts.update({path: words.edited(self.texts.get(path) or "", edits, is_unit_file(path)) for path, edits in spans.items()})
        return self._replace(texts=texts)

    def place(self, argument: Argument) -> str:
        """Return the file and the line of an argument."""
        return "{0} line {1}".format(argument.path, line_of(self.texts.get(argument.path) or "", argument.start + 1))


def sources(files: Dict[str, FileFacts], unit: Union[UnitFacts, KubeletFacts]) -> Sources:
    """Return the sources of a unit's command line, from files as detection reports them. Raises UnitRefused."""
    texts = {path: decoded(path, base64.b64decode(files[path]["content"])) if files[path]["exists"] else None
             for path in unit["unit_files"] + unit["environment_files"]}
    for path in unit["environment_files"]:
        number = env_file.ambiguous(texts[path] or "")
        if number:
            raise UnitRefused("{0} line {1}: the comment ends in a backslash. For systemd before 254, the next line is a part of the comment. Later "
                              "releases read that line. Remove the backslash".format(path, number))
    return Sources(tuple(unit["unit_files"]), tuple(unit["environment_files"]), texts)


def flags(line: CommandLine, names: Iterable[str] = MANAGED_FLAGS) -> List[Flag]:
    """Return the named flags among the arguments, numbered as C(occurrences) lists them."""
    return [Flag(item.name, item.value, index, 1) for index, item in enumerate(occurrences(line, names))]


def refuse_unreadable(line: CommandLine) -> None:
    """Raise UnitRefused if no argument can be changed: the unit has no ExecStart, or starts a shell with a command as text."""
    if not line.unit.exec_words:
        raise UnitRefused("its unit has no ExecStart")
    wrapper = shell(word.value for word in line.unit.exec_words)
    if wrapper:
        raise UnitRefused("{0} starts it with a shell ({1}), and this collection does not edit flags inside a shell command. Write the "
                          "program and its arguments into ExecStart".format(line.unit.exec_path, wrapper))
