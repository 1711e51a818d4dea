# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undoes the migration's flags in a text that was changed after it. Other changes stay, byte for byte.

Three texts decide: the original, what the migration wrote, and the current text. If nobody else changed the lines that the migration
changed, a three-way merge restores them. Otherwise, or if the merge would change anything but the flags, only the flags are edited.
Runs only on the Ansible controller (it needs PyYAML). Pure: text in, text out.
"""

from __future__ import annotations

import abc
import contextlib
import difflib
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm, manifest, patches, rancher, unit, unit_edits, words
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import independent, load, pruned
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Flag, find_flags, render
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.registration import FROM_METADATA
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import ADMISSION_LISTS, Change, flags_after

#: Flags whose value is a list of items, to which others may have added items.
LISTS = ADMISSION_LISTS + ("feature-gates", "controllers", "disable")

WHY = "as it was before the migration"


class CannotUndo(ValueError):
    """The migration's changes in a file cannot be undone; the message says why."""


class Undone(NamedTuple):
    """The text without the migration's changes, and a sentence for each change that could not be undone."""

    text: str
    kept: List[str]


# -- flags ------------------------------------------------------------------------------------------------------------


def reversal(component: str, before: List[Flag], ours: List[Flag], now: List[Flag],
             version: Tuple[int, int]) -> Tuple[List[Change], List[str]]:
    """Return the changes that undo the migration in the current flags, and a sentence for each flag that is not restored.

    A flag that was changed after the migration keeps its value. A list of items that was changed loses the items that the migration added, and
    gets those back that it removed. A flag with which this release does not start is not restored.
    Raises CannotUndo if a later change contains the migration's value.
    """
    changes: List[Change] = []
    kept: List[str] = []
    for name in dict.fromkeys(flag.name for flag in before + ours):
        old, new = _values(before, name), _values(ours, name)
        current = [flag for flag in now if flag.name == name]
        values = [flag.value for flag in current]
        if old == new or values == old:
            continue
        if values == new:
            back = old
        elif name in LISTS and max(len(old), len(new), len(values)) <= 1:
            back = _list_back(name, old, new, values)
        elif set(values) & (set(new) - set(old)):
            raise CannotUndo("--{0} was {1}, the migration set it to {2}, and somebody else then set it to {3}".format(
                name, _show(old), _show(new), _show(values)))
        else:
            kept.append("--{0} stays {1}, because it was set after the migration; before the migration it was {2}".format(
                name, _show(values), _show(old)))
            continue
        back, dead = _starting(component, name, back, values, version)
        kept += dead
        changes += _paired(name, current, back)
    fresh = [change for change in changes if change.flag is None]
    return sorted((change for change in changes if change.flag is not None), key=lambda change: change.flag.index) + fresh, kept


def _values(flags: List[Flag], name: str) -> List[str]:
    return [flag.value for flag in flags if flag.name == name]


def _show(values: List[str]) -> str:
    return " ".join(value or "''" for value in values) or "not set"


def _items(values: List[str]) -> List[str]:
    return [item.strip() for value in values for item in value.split(",") if item.strip()]


def _list_back(name: str, old: List[str], new: List[str], now: List[str]) -> List[str]:
    """Return a list without the items that the migration added and with those that it removed. Later changes stay."""
    def key(item: str) -> str:
        return item.partition("=")[0] if name == "feature-gates" else item

    gone = [item for item in _items(old) if item not in _items(new)]
    added = [item for item in _items(new) if item not in _items(old)]
    left = [item for item in _items(now) if item not in added]
    left += [item for item in gone if key(item) not in map(key, left)]
    return [",".join(left)] if left else []


def _starting(component: str, name: str, values: List[str], now: List[str],
              version: Tuple[int, int]) -> Tuple[List[str], List[str]]:
    """Return the values without those with which this release does not start (unless they are set now), and the reason for each."""
    good, dead = [], []
    for value in values:
        items = value.split(",") if name in LISTS else [value]
        bad = [item for item in items if item not in _items(now) + now and versions.fatal(component, name, item, version)]
        dead += ["--{0}={1} is not restored: {2} {3} does not start with it ({4})".format(
            name, item, component, versions.show(version), versions.fatal(component, name, item, version)) for item in bad]
        if len(bad) < len(items):
            good.append(",".join(item for item in items if item not in bad))
    return good, dead


def _paired(name: str, present: List[Flag], back: List[str]) -> List[Change]:
    changes = []
    for index in range(max(len(present), len(back))):
        flag = present[index] if index < len(present) else None
        value = back[index] if index < len(back) else None
        if flag is None or flag.value != value:
            changes.append(Change(name, flag, value, WHY, ""))
    return changes


# -- texts ------------------------------------------------------------------------------------------------------------


class Kind(abc.ABC):
    """How one kind of file sets flags. C(component): the component to which the file belongs."""

    def __init__(self, component: str) -> None:
        self.component = component

    @abc.abstractmethod
    def flags(self, text: str) -> Dict[str, List[Flag]]:
        """Return the managed flags by component."""

    @abc.abstractmethod
    def rest(self, text: str) -> Any:
        """Return everything that an undo must not change, for comparison."""

    def edit(self, before: str, ours: str, now: str, changes: Dict[str, List[Change]], version: Tuple[int, int]) -> str:
        """Return the text with the flags changed. Raises ValueError."""
        raise CannotUndo("the lines that the migration changed were changed again later")


class Manifest(Kind):
    """A static Pod's manifest, or one document of a kubeadm patch in the form of one."""

    def flags(self, text: str) -> Dict[str, List[Flag]]:
        return {self.component: find_flags(manifest.read(text, self.component).argv, whole=True)}

    def rest(self, text: str) -> Any:
        data = independent(load(text))
        for container in data["spec"]["containers"]:
            for key in ("command", "args"):
                if container.get("name") == self.component and key in container:
                    container[key] = _unmanaged(container[key])
            container["volumeMounts"] = _sorted(container.get("volumeMounts"))
        data["spec"]["volumes"] = _sorted(data["spec"].get("volumes"))
        return pruned(data)

    def edit(self, before: str, ours: str, now: str, changes: Dict[str, List[Change]], version: Tuple[int, int]) -> str:
        back = manifest.lost_mounts(before, ours, self.component)
        return manifest.edit(now, self.component, version, lambda *unused: changes[self.component], back)[0]


class Patch(Manifest):
    """A kubeadm patch in the form of manifests, of which it may have several."""

    def flags(self, text: str) -> Dict[str, List[Flag]]:
        flags_: List[Flag] = []
        for document in patches.texts(text):
            with contextlib.suppress(manifest.BadManifest):  # it has no arguments
                flags_ += super().flags(document)[self.component]
        return {self.component: flags_}


class ClusterConfiguration(Kind):
    """The text in the ConfigMap kubeadm-config. C(kubeadm upgrade) may have converted its extraArgs from a mapping to a list."""

    def flags(self, text: str) -> Dict[str, List[Flag]]:
        return kubeadm.managed_flags(text, whole=True)

    def rest(self, text: str) -> Any:
        data, flags = independent(load(text)), kubeadm.managed_flags(text, whole=True)
        for key, component in kubeadm.SECTIONS:
            section = data.get(key) or {}
            gone = {flag.name for flag in flags[component]}
            extra = section.get("extraArgs") or {}
            section["extraArgs"] = [item for item in extra if item.get("name") not in gone] if isinstance(extra, list) else \
                {name: value for name, value in extra.items() if name not in gone}
            section["extraVolumes"] = _sorted(section.get("extraVolumes"))
        return pruned(data)

    def edit(self, before: str, ours: str, now: str, changes: Dict[str, List[Change]], version: Tuple[int, int]) -> str:
        return kubeadm.edit(now, version, lambda component, *unused: changes[component], kubeadm.lost_volumes(before, ours))[0]


class Unit(Kind):
    """A unit or an environment file, among all files that make a command line."""

    def __init__(self, component: str, path: str, sources: unit.Sources) -> None:
        super().__init__(component)
        self.path, self.sources = path, sources
        self._lines: Dict[str, unit.CommandLine] = {}  # by text: an undo asks for the same ones again and again

    def _line(self, text: str) -> unit.CommandLine:
        if text not in self._lines:
            self._lines[text] = self.sources._replace(texts=dict(self.sources.texts, **{self.path: text})).command_line()
        return self._lines[text]

    def _found(self, line: unit.CommandLine) -> List[unit.Occurrence]:
        return [item for item in unit.occurrences(line, whole=True) if self.path in item.paths]

    def flags(self, text: str) -> Dict[str, List[Flag]]:
        flags_ = self._found(self._line(text))
        return {self.component: [Flag(item.name, item.value, index, 1) for index, item in enumerate(flags_)]}

    def rest(self, text: str) -> Any:
        return _unmanaged([argument.value for argument in self._line(text).arguments])

    def edit(self, before: str, ours: str, now: str, changes: Dict[str, List[Change]], version: Tuple[int, int]) -> str:
        line = self._line(now)
        arguments = self._found(line)
        spans: unit_edits.Spans = {}
        for change in changes[self.component]:
            if change.flag is None:
                unit_edits.append(spans, line, self._place(before, line, change.name), render(change.name, change.then or ""))
            elif change.then is None:
                unit_edits.remove(spans, line, arguments[change.flag.index], dict(self.sources.texts, **{self.path: now}))
            else:
                unit_edits.replace(spans, line, arguments[change.flag.index], change.then)
        if set(spans) - {self.path}:
            raise CannotUndo("one of its flags is now set in two files")
        text = words.edited(now, spans.get(self.path, []), unit.is_unit_file(self.path))
        if self.rest(text) != self.rest(now):
            raise CannotUndo("an edit of its flags would also change its other arguments")
        return text

    def _place(self, before: str, line: unit.CommandLine, name: str) -> str:
        """Return the variable of this file that had the flag before ('': ExecStart itself), or another variable of this file. Raises CannotUndo if there is
        none."""
        own = [variable for variable, value in line.variables.items() if value.path == self.path]
        was = [item.parts[0].variable for item in self._found(self._line(before)) if item.name == name]
        own = [variable for variable in was if variable in own or variable == "" and line.unit.exec_path == self.path] + own
        if not own:
            raise CannotUndo("it has no place for --{0}, because its unit uses no variable of this file any more".format(name))
        return own[0]


class Rancher(Kind):
    """A configuration file of k3s or RKE2. Its own keys count as flags here."""

    KEYS = ("disable", "disable-cloud-controller", "cloud-provider-name", "cloud-provider-config", "node-name", FROM_METADATA)

    @staticmethod
    def _items(file: rancher.File, key: str) -> List[rancher.Item]:
        return [item for name in (key, key + "+") for item in file.items(name)]

    def _arguments(self, file: rancher.File, key: str) -> List[List[Flag]]:
        """Return, for each item of a component's key, a list with its managed flag, or an empty list."""
        return [rancher.flags_of(item, whole=True) for item in self._items(file, key)]

    def flags(self, text: str) -> Dict[str, List[Flag]]:
        file = rancher.File("it", text)
        flags_ = {component: [flag._replace(index=index) for index, flags in enumerate(self._arguments(file, key)) for flag in flags]
                  for key, component in rancher.COMPONENT_KEYS.items()}
        own = [key for key in self.KEYS if self._items(file, key)]
        flags_[self.component] = [Flag(key, ",".join(item.value for item in self._items(file, key)), index, 1) for index, key in enumerate(own)]
        return flags_

    def rest(self, text: str) -> Any:
        file = rancher.File("it", text)
        data = dict(file.data or {})
        for key in rancher.COMPONENT_KEYS:
            data[key] = [item.value for item, flags in zip(self._items(file, key), self._arguments(file, key)) if not flags]
            data.pop(key + "+", None)
        return pruned({key: value for key, value in data.items() if key.rstrip("+") not in self.KEYS})

    def edit(self, before: str, ours: str, now: str, changes: Dict[str, List[Change]], version: Tuple[int, int]) -> str:
        file = rancher.File("it", now)
        for key, component in rancher.COMPONENT_KEYS.items():
            items = self._items(file, key)
            for change in (change for change in changes[component] if change.flag is not None and change.then is not None):
                item = items[change.flag.index]
                file.set(item, rancher.with_value(item, str(change.then)))
            _remove(file, [items[change.flag.index] for change in changes[component] if change.flag is not None and change.then is None])
            for change in (change for change in changes[component] if change.flag is None):
                file.add_item(key, "{0}={1}".format(change.name, change.then))
        for change in changes[self.component]:
            items, wanted = self._items(file, change.name), _items([change.then or ""])
            if change.name == "disable":
                _remove(file, [item for item in items if item.value not in wanted])
                for value in wanted:
                    if value not in [item.value for item in items]:
                        file.add_item(change.name, value)
            elif change.then is None:
                _remove(file, items)
            elif items:
                file.set(items[-1], change.then)
            else:
                file.add_key(change.name, change.then)
        return file.render()


def _remove(file: rancher.File, items: List[rancher.Item]) -> None:
    for key in dict.fromkeys(item.key for item in items):
        file.remove([item for item in items if item.key == key])


def _unmanaged(argv: List[str]) -> List[str]:
    gone = {index for flag in find_flags(argv, whole=True) for index in range(flag.index, flag.index + flag.width)}
    return [argument for index, argument in enumerate(argv) if index not in gone]


def _sorted(items: Any) -> List[Any]:
    return sorted(items or [], key=str)


def undo(kind: Kind, before: str, ours: str, now: str, version: Tuple[int, int]) -> Undone:
    """Return the current text without the migration's changes, and a sentence for each change that could not be undone. Raises CannotUndo."""
    if isinstance(kind, Patch):
        return _undo_documents(Manifest(kind.component), before, ours, now, version)
    try:
        old, new, present = kind.flags(before), kind.flags(ours), kind.flags(now)
        changes: Dict[str, List[Change]] = {}
        kept: List[str] = []
        for component in present:
            changes[component], more = reversal(component, old.get(component, []), new.get(component, []), present[component], version)
            kept += more
        unread = _plain(old) == _plain(new)  # the migration's change no longer has any effect
        if not unread and not any(changes.values()):
            return Undone(now, kept)
        wanted = {component: flags_after(flags, changes[component], whole=True) for component, flags in present.items()}
        merged = merge(ours, before, now)
        if merged is not None and _agrees(kind, merged, now, wanted, _back(kind, before, ours, changes)):
            return Undone(merged, kept)
        if unread:
            raise CannotUndo("the lines that the migration changed were changed again later, and nothing reads them any more")
        text = kind.edit(before, ours, now, changes, version)
        if _plain(kind.flags(text)) != _named(wanted):
            raise CannotUndo("the result would not have the original flags")
        return Undone(text, kept)
    except CannotUndo:
        raise
    except ValueError as exc:  # not YAML, not a manifest, or an edit that would change something else
        raise CannotUndo(str(exc)) from exc


def _undo_documents(kind: Manifest, before: str, ours: str, now: str, version: Tuple[int, int]) -> Undone:
    """Undo the migration in each document that it changed. Raises CannotUndo if the text now has more or fewer documents."""
    written = patches.documents(ours)
    if len(written) < 2:
        return undo(kind, before, ours, now, version)
    places = patches.documents(now)
    if len(places) != len(written):
        raise CannotUndo("it has {0} documents, but it had {1} after the migration".format(len(places), len(written)))
    kept: List[str] = []
    text = now
    for old, new, (start, end) in reversed(list(zip(patches.texts(before), patches.texts(ours), places))):
        if old != new:
            undone = undo(kind, old, new, now[start:end], version)
            text, kept = text[:start] + undone.text + text[end:], undone.kept + kept
    return Undone(text, kept)


def _back(kind: Kind, before: str, ours: str, changes: Dict[str, List[Change]]) -> List[Any]:
    """Return the volumes and mounts that a restored cloud config may bring back."""
    if not any(change.name == "cloud-config" and change.then for own in changes.values() for change in own):
        return []
    if isinstance(kind, Manifest):
        return [item for items in manifest.lost_mounts(before, ours, kind.component) for item in items]
    if isinstance(kind, ClusterConfiguration):
        return [item for items in kubeadm.lost_volumes(before, ours).values() for item in items]
    return []


def _agrees(kind: Kind, merged: str, now: str, wanted: Dict[str, List[Tuple[str, str]]], back: List[Any]) -> bool:
    """Return whether a merged text has the wanted flags and is otherwise equal to the current text."""
    try:
        return _plain(kind.flags(merged)) == _named(wanted) and _without(kind.rest(merged), back) == _without(kind.rest(now), back)
    except (ValueError, LookupError, TypeError, AttributeError):  # merged lines may no longer be a manifest
        return False


def _without(data: Any, gone: List[Any]) -> Any:
    if isinstance(data, dict):
        return {key: _without(value, gone) for key, value in data.items() if _without(value, gone) not in ({}, [])}
    return [_without(item, gone) for item in data if item not in gone] if isinstance(data, list) else data


def _plain(flags_of: Dict[str, List[Flag]]) -> Dict[str, Dict[str, List[str]]]:
    return _named({component: [(flag.name, flag.value) for flag in flags] for component, flags in flags_of.items()})


def _named(pairs_of: Dict[str, List[Tuple[str, str]]]) -> Dict[str, Dict[str, List[str]]]:
    """Return the values of flags by component and name. The order of different flags, and of the items of a list, is ignored."""
    names: Dict[str, Dict[str, List[str]]] = {}
    for component, pairs in pairs_of.items():
        for name, value in pairs:
            text = ",".join(sorted(_items([value]))) if name in LISTS else value
            names.setdefault(component, {}).setdefault(name, []).append(text)
    return names


# -- lines ------------------------------------------------------------------------------------------------------------


def merge(base: str, first: str, second: str) -> Optional[str]:
    """Return C(base) with the lines that C(first) and C(second) changed in it; None if they changed the same lines differently."""
    lines = _lines(base)
    mine, theirs = _edits(lines, _lines(first)), _edits(lines, _lines(second))
    edits = mine + [edit for edit in theirs if edit not in mine]
    for start, end, new in mine:
        for begin, stop, other in theirs:
            touched = max(start, begin) < min(end, stop) or (start == end and begin < start < stop) \
                or (begin == stop and start < begin < end) or start == end == begin == stop
            if touched and (start, end, new) != (begin, stop, other):
                return None
    result: List[str] = []
    position = 0
    for start, end, new in sorted(edits):
        result += lines[position:start] + new
        position = end
    return "".join(result + lines[position:])


def _lines(text: str) -> List[str]:
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def _edits(old: List[str], new: List[str]) -> List[Tuple[int, int, List[str]]]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [(i, j, new[k:m]) for kind, i, j, k, m in matcher.get_opcodes() if kind != "equal"]
