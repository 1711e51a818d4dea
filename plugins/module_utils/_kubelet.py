# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's command line as its systemd unit makes it, with the place in a file that each argument comes from.

Pure and stdlib-only (it also runs on managed nodes, Python 3.8): text in, spans out. A unit's ExecStart names
variables, Environment= and environment files set them, later ones override earlier ones, and of a flag given twice the
last one counts. That is why the files cannot be judged one at a time.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils._flags import (
    MANAGED_FLAGS,
    Char,
    Span,
    Word,
    render,
    split_words,
)

EXTERNAL = "external"

#: Variables that may carry our flag, best first, each with why its file survives upgrades of the installer.
PREFERRED_VARIABLES = ("KUBELET_KUBEADM_ARGS", "KUBELET_CLOUDPROVIDER", "KUBELET_EXTRA_ARGS", "KUBELET_ARGS")

#: Where distributions' packages put unit files: an edit there is lost at the next package upgrade.
PACKAGE_DIRECTORIES = ("/lib/", "/usr/lib/", "/usr/share/")


class KubeletRefused(ValueError):
    """The kubelet's arguments are laid out in a way that cannot be changed safely; the message says why and what to do."""


class Value(NamedTuple):
    """A variable's (or ExecStart's) text in a file: decoded characters and where a further argument would go."""

    path: str
    chars: Tuple[Char, ...]
    insert_at: int
    quoted: bool


class Argument(NamedTuple):
    """One argument of the kubelet and where it is written; C(variable) is '' for a word of ExecStart itself."""

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


class KubeletChange(NamedTuple):
    """One flag that changes in one file. C(now) is None when it is new, C(then) is None when it goes."""

    path: str
    flag: str
    now: Optional[str]
    then: Optional[str]
    why: str


# -- systemd's file formats ------------------------------------------------------------------------------------------


def logical_lines(text: str) -> List[Tuple[int, int]]:
    """Return (start, end) of each line, where a backslash before the line end joins it with the next."""
    lines = []
    start = position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        body = text[start:end].rstrip("\r")
        comment = text[start:end].lstrip()[:1] in ("#", ";")
        if body.endswith("\\") and not comment and end < len(text):
            position = end + 1
            continue
        lines.append((start, end))
        start = position = end + 1
    if start < len(text):
        lines.append((start, len(text)))
    return lines


def parse_environment_file(path: str, text: str) -> Dict[str, Value]:
    """Return the variables of an EnvironmentFile; of a variable set twice the last one counts."""
    values = {}
    for start, end in logical_lines(text):
        line = text[start:end]
        stripped = line.lstrip()
        if not stripped or stripped[0] in "#;" or "=" not in line:
            continue
        name = line.split("=", 1)[0].strip()
        begin = start + line.index("=") + 1
        values[name] = _decode(path, text, begin, end)
    return values


def _decode(path: str, text: str, begin: int, end: int) -> Value:
    """Decode the value in text[begin:end] as systemd does: outer quotes vanish, a backslash escapes the next character."""
    while end > begin and text[end - 1] in " \t\r":
        end -= 1
    chars: List[Char] = []
    quote = ""
    opened: Optional[int] = None
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
        if char in "\"'" and not quote and (opened is None or closed is not None):
            if position == begin or not chars:
                quote, opened, closed = char, position, None
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
    """What matters of a service unit: ExecStart's words, Environment= and the environment files in order."""

    exec_words: Tuple[Word, ...]
    exec_path: str
    environment: Dict[str, Value]
    environment_files: Tuple[str, ...]


def parse_unit(files: Iterable[Tuple[str, str]]) -> Unit:
    """Merge a unit file and its drop-ins (path, text), given in systemd's order."""
    exec_words: Tuple[Word, ...] = ()
    exec_path = ""
    environment: Dict[str, Value] = {}
    environment_files: List[str] = []
    for path, text in files:
        section = ""
        for start, end in logical_lines(text):
            line = text[start:end].strip()
            if line.startswith("["):
                section = line.strip("[]")
            if section != "Service" or not line or line[0] in "#;" or "=" not in line:
                continue
            key = line.split("=", 1)[0].strip()
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
            position += skip
            continue
        chars.append(Char(position, position + 1, text[position]))
        position += 1
    return chars


def _assignment(path: str, text: str, word: Word) -> Dict[str, Value]:
    """Return the variable that one word of Environment= sets: NAME=value, in quotes or not."""
    begin, end = word.start, word.end
    quoted = text[begin] in "\"'" and text[end - 1] == text[begin]
    if quoted:
        begin, end = begin + 1, end - 1
    equals = text.find("=", begin, end)
    if equals < 0:
        return {}
    chars = tuple(Char(i, i + 1, text[i]) for i in range(equals + 1, end))
    return {text[begin:equals]: Value(path, chars, end, quoted)}


# -- the command line ------------------------------------------------------------------------------------------------


class CommandLine(NamedTuple):
    """The kubelet's arguments in order, and the variables among them in order of use."""

    arguments: Tuple[Argument, ...]
    variables: Dict[str, Value]
    unset: Tuple[str, ...]
    unit: Unit


def command_line(unit: Unit, environment_files: Iterable[Tuple[str, str]]) -> CommandLine:
    """Expand ExecStart with the environment; C(environment_files) are (path, text) in the unit's order."""
    environment = dict(unit.environment)
    for path, text in environment_files:
        environment.update(parse_environment_file(path, text))
    arguments: List[Argument] = []
    variables: Dict[str, Value] = {}
    unset = []
    for word in unit.exec_words:
        name = word.value[1:].strip("{}") if word.value.startswith("$") else ""
        if not name:
            arguments.append(Argument(word.value, unit.exec_path, word.start, word.end, ""))
        elif name in environment:
            value = environment[name]
            variables[name] = value
            arguments += [Argument(w.value, value.path, w.start, w.end, name) for w in split_words(value.chars)]
        else:
            unset.append(name)
    return CommandLine(tuple(arguments), variables, tuple(unset), unit)


def occurrences(line: CommandLine, names: Iterable[str] = MANAGED_FLAGS) -> List[Occurrence]:
    """Return the managed flags among the arguments, in order."""
    wanted = set(names)
    found = []
    index = 0
    while index < len(line.arguments):
        argument = line.arguments[index]
        width = 1
        if argument.value.startswith("--"):
            name, equals, value = argument.value[2:].partition("=")
            if name in wanted:
                parts: Tuple[Argument, ...] = (argument,)
                if not equals and index + 1 < len(line.arguments):
                    following = line.arguments[index + 1]
                    parts, value, width = (argument, following), following.value, 2
                found.append(Occurrence(name, value, parts))
        index += width
    return found


def managed_flags(argv: Iterable[str]) -> List[Tuple[str, str]]:
    """Return (name, value) of the managed flags of a running kubelet's argument list."""
    words = tuple(Argument(arg, "", 0, 0, "") for arg in argv)
    line = CommandLine(words, {}, (), Unit((), "", {}, ()))
    return [(item.name, item.value) for item in occurrences(line)]


# -- the edit --------------------------------------------------------------------------------------------------------


class Edit(NamedTuple):
    """Replacements by file, what changes, and what the command line's managed flags are afterwards."""

    spans: Dict[str, List[Span]]
    changes: List[KubeletChange]
    after: List[Tuple[str, str]]
    created: Optional[str]


def describe(found: List[Occurrence]) -> str:
    """Name every place that sets a flag, for messages about flags set twice."""
    return " and ".join("{0} ({1})".format(item.path, render(item.name, item.value)) for item in found)


def plan(line: CommandLine, texts: Dict[str, str]) -> Edit:
    """Return the edits that leave exactly C(--cloud-provider=external), in the file that upgrades keep.

    C(texts) has the content of every file of the unit and its environment that exists. Raises KubeletRefused.
    """
    if not line.unit.exec_words:
        raise KubeletRefused("its unit has no ExecStart")
    found = occurrences(line, ("cloud-provider", "cloud-config"))
    providers = [item for item in found if item.name == "cloud-provider"]
    configs = [item for item in found if item.name == "cloud-config"]
    in_tree = sorted({item.value for item in providers if item.value not in ("", EXTERNAL)})
    if len(in_tree) > 1:
        raise KubeletRefused(
            "it is told two different providers: {0}. Which cloud this node runs in cannot be told from that: "
            "remove the wrong one by hand, then run again".format(describe(providers)))
    edit = Edit({}, [], [], None)
    conflict = ""
    if len({item.path for item in providers}) > 1 and len({item.value for item in providers}) > 1:
        conflict = "set twice, the last one counts: {0}".format(describe(providers))
    for item in configs:
        _remove(edit, line, item, texts, conflict="the external controller reads the cloud's configuration, not the kubelet")
    settled = bool(providers) and all(item.value == EXTERNAL for item in providers)
    if settled:
        return edit._replace(after=[("cloud-provider", EXTERNAL)] * len(providers))
    target = _target(line)
    why = conflict or "the kubelet must leave addresses, providerID and the taint to the external controller"
    keep = next((item for item in providers if item.parts[0].variable == target), None)
    for item in providers:
        if item is not keep:
            _remove(edit, line, item, texts, conflict or "an in-tree value that would override or repeat the new one")
    created = None
    if keep is None:
        created = _insert(edit, line, target, texts, why)
    elif keep.value != EXTERNAL:
        _replace(edit, keep, why)
    return edit._replace(after=[("cloud-provider", EXTERNAL)], created=created)


def _target(line: CommandLine) -> str:
    """Return the variable that shall carry the flag ('' for ExecStart itself), or refuse."""
    for name in PREFERRED_VARIABLES:
        if name in line.variables and not line.variables[name].path.startswith(PACKAGE_DIRECTORIES):
            return name
        if name in line.unset and _file_for(line, name):
            return name
    if line.unit.exec_path and not line.unit.exec_path.startswith(PACKAGE_DIRECTORIES) and not line.variables:
        return ""
    raise KubeletRefused(
        "its unit ({0}) uses none of {1} from a file of its own, so there is no place for --cloud-provider=external "
        "that an upgrade would keep. Add 'EnvironmentFile=-/etc/default/kubelet' and $KUBELET_EXTRA_ARGS to a drop-in "
        "of kubelet.service, then run again".format(line.unit.exec_path or "unknown", ", ".join(PREFERRED_VARIABLES)))


def _file_for(line: CommandLine, variable: str) -> str:
    """Return the environment file in which an unset variable belongs, '' when the unit reads none for it."""
    marks = {
        "KUBELET_KUBEADM_ARGS": ("kubeadm-flags.env",),
        "KUBELET_CLOUDPROVIDER": ("kubelet.env",),
        "KUBELET_EXTRA_ARGS": ("/etc/default/kubelet", "/etc/sysconfig/kubelet", "kubelet.env"),
        "KUBELET_ARGS": ("/etc/default/kubelet", "/etc/sysconfig/kubelet", "kubelet.env", "/kubelet"),
    }
    for mark in marks[variable]:
        for path in line.unit.environment_files:
            if path.endswith(mark) and "*" not in path:
                return path
    return ""


def _remove(edit: Edit, line: CommandLine, item: Occurrence, texts: Dict[str, str], conflict: str) -> None:
    if any(part.path.startswith(PACKAGE_DIRECTORIES) for part in item.parts):
        raise KubeletRefused(
            "{0} sets {1}, and that file belongs to a package: override it with a drop-in under "
            "/etc/systemd/system/kubelet.service.d, then run again".format(item.path, render(item.name, item.value)))
    for part in item.parts:
        text = texts[part.path]
        first = 0 if part.variable == "" else line.variables[part.variable].chars[0].start
        start, end = part.start, part.end
        if start > first:
            while start > first and text[start - 1] in " \t":
                start -= 1
        else:
            while text[end:end + 1] in (" ", "\t"):
                end += 1
        edit.spans.setdefault(part.path, []).append(Span(start, end, ""))
    edit.changes.append(KubeletChange(item.path, item.name, item.value, None, conflict))


def _replace(edit: Edit, item: Occurrence, why: str) -> None:
    last = item.parts[-1]
    new = EXTERNAL if len(item.parts) == 2 else render(item.name, EXTERNAL)
    edit.spans.setdefault(last.path, []).append(Span(last.start, last.end, new))
    edit.changes.append(KubeletChange(last.path, item.name, item.value, EXTERNAL, why))


def _insert(edit: Edit, line: CommandLine, target: str, texts: Dict[str, str], why: str) -> Optional[str]:
    """Add the flag to its variable; return the path of a file that has to be created for it."""
    flag = render("cloud-provider", EXTERNAL)
    if target == "":
        path, at = line.unit.exec_path, line.unit.exec_words[-1].end
        span, created = Span(at, at, " " + flag), None
    elif target in line.variables:
        value = line.variables[target]
        path, created = value.path, None
        removed = edit.spans.get(path, [])
        left = [c for c in value.chars if not any(s.start <= c.start < s.end for s in removed)]
        lead = " " if left and not left[-1].char.isspace() else ""
        text = lead + flag
        if not value.quoted and not value.chars:
            text = '"{0}"'.format(flag)
        span = Span(value.insert_at, value.insert_at, text)
    else:
        path = _file_for(line, target)
        text = texts.get(path)
        created = path if text is None else None
        lead = "\n" if text and not text.endswith("\n") else ""
        span = Span(len(text or ""), len(text or ""), '{0}{1}="{2}"\n'.format(lead, target, flag))
    edit.spans.setdefault(path, []).append(span)
    edit.changes.append(KubeletChange(path, "cloud-provider", None, EXTERNAL, why))
    return created
