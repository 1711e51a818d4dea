# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits the ClusterConfiguration in the ConfigMap kubeadm-config, from which kubeadm creates the manifests at an upgrade.

The ClusterConfiguration must match the manifests. Otherwise the next C(kubeadm upgrade) brings the removed flags back. Pure: text in, text out.
Runs only on the Ansible controller (it needs PyYAML).
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.manifest import removed_files, restores_files
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, YamlText, independent
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import MANAGED_FLAGS, Flag, managed, split_flag
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Change, Target, control_plane_changes

#: Sections of ClusterConfiguration and the component each one configures.
SECTIONS = (("apiServer", "kube-apiserver"), ("controllerManager", "kube-controller-manager"))


#: API versions in which extraArgs is a mapping. In all later ones, it is a list of items with a name and a value.
_MAPPINGS = re.compile(r"/v1beta[123]$")


class BadClusterConfiguration(ValueError):
    """The text is YAML but not a supported ClusterConfiguration."""


class SectionChange(NamedTuple):
    component: str
    change: Change


def _flags(section: Any) -> List[Flag]:
    """Return extraArgs as flags in kubeadm's order; C(index) is the position in the list (v1beta4) or in the mapping (v1beta3). Raises
    BadClusterConfiguration."""
    extra = (section or {}).get("extraArgs") or {}
    if isinstance(extra, dict):
        names = [_dashed(name) for name in extra]
        pairs = sorted(((name, value, index) for index, (name, value) in enumerate(extra.items())),
                       key=lambda item: (names.index(_dashed(item[0])), item[0]))  # two spellings of a name: kubeadm sorts them
    elif isinstance(extra, list) and all(isinstance(item, dict) for item in extra):
        pairs = [(item.get("name"), item.get("value"), index) for index, item in enumerate(extra)]
    else:
        raise BadClusterConfiguration("extraArgs is neither a mapping (v1beta3) nor a list of name and value (v1beta4)")
    return [Flag(_dashed(name), "" if value is None else str(value), index, 1) for name, value, index in pairs]


def _dashed(name: Any) -> str:
    return split_flag("--" + str(name))[0]


def _document(text: str) -> YamlText:
    document = YamlText(text)
    if not isinstance(document.data, dict) or document.data.get("kind") != "ClusterConfiguration":
        raise BadClusterConfiguration("its kind is not ClusterConfiguration")
    for key, unused in SECTIONS:
        if document.data.get(key) is not None and not isinstance(document.data[key], dict):
            raise BadClusterConfiguration("{0} is not a mapping".format(key))
    return document


def managed_flags(text: str, whole: bool = False) -> Dict[str, List[Flag]]:
    """Return the managed flags among extraArgs by component; with C(whole) also the flag C(controllers) if it names no cloud controller.

    Raises NotYaml and BadClusterConfiguration.
    """
    return {component: [flag for flag in flags if managed(flag.name, flag.value) or whole and flag.name in MANAGED_FLAGS]
            for component, flags in all_flags(text).items()}


def all_flags(text: str) -> Dict[str, List[Flag]]:
    """Return extraArgs by component. Raises NotYaml and BadClusterConfiguration."""
    document = _document(text)
    return {component: _flags(document.data.get(key)) for key, component in SECTIONS}


def lost_volumes(before: str, after: str) -> Dict[str, List[Dict[str, Any]]]:
    """Return, by component, the extraVolumes that an edit removed. Raises NotYaml and BadClusterConfiguration."""
    old, new = _document(before), _document(after)
    return {component: [item for item in old.get((key, "extraVolumes")) or [] if item not in (new.get((key, "extraVolumes")) or [])]
            for key, component in SECTIONS}


def edit(text: str, version: Tuple[int, int], target: Target = control_plane_changes,
         back: Optional[Dict[str, List[Dict[str, Any]]]] = None) -> Tuple[str, List[SectionChange]]:
    """Return the edited ClusterConfiguration and the changes. Raises NotYaml, BadClusterConfiguration, EditRefused.

    C(back): extraVolumes by component that are restored if a flag that names a file is set again.
    """
    document = _document(text)
    expected = independent(document.data)
    done: List[SectionChange] = []
    for key, component in SECTIONS:
        changes = target(component, _flags(document.data.get(key)), version)
        done += [SectionChange(component, change) for change in changes]
        if changes:
            added = _change_arguments(document, expected, key, changes)
            added.update(_change_volumes(document, expected, key, changes, (back or {}).get(component, [])))
            _add(document, expected, key, added)
    return (document.render(expected) if done else text), done


def scheduler_gates(text: str) -> List[Tuple[str, int]]:
    """Return each --feature-gates of kube-scheduler and its line. Raises NotYaml, BadClusterConfiguration, EditRefused."""
    document = YamlText(text)
    section = document.data.get("scheduler")
    extra = (section or {}).get("extraArgs") if isinstance(section, dict) else None
    keys = list(extra) if isinstance(extra, dict) else range(len(extra or []))
    return [(flag.value, document.line(("scheduler", "extraArgs", keys[flag.index])))
            for flag in _flags({"extraArgs": extra}) if flag.name == "feature-gates"]


def _change_arguments(document: YamlText, expected: Any, key: str, changes: List[Change]) -> Dict[str, Any]:
    """Change the extraArgs of a section, and keep their form. If there are none yet, return new ones for the caller to add, in the form of the document's
    version; otherwise return {}.
    """
    path = (key, "extraArgs")
    extra = document.get(path)
    for change in changes:
        if change.flag is not None:
            _refuse_merged(document, path, extra, change.flag)
            _change(document, path, extra, change.flag, change.then)
    new = [(change.name, change.then or "") for change in changes if change.flag is None]
    if extra:
        expected[key]["extraArgs"] = _changed(extra, changes)
    if isinstance(extra, list) if extra else not _MAPPINGS.search(str(document.data.get("apiVersion", ""))):
        items: Any = [{"name": name, "value": value} for name, value in new]
        for item in items if extra else []:
            document.append(path, item)
            expected[key]["extraArgs"].append(item)
    else:
        items = _spelled(new, expected[key]["extraArgs"] if extra else {})
        for name, value in items.items() if extra else []:
            document.add_key(path, name, value)
            expected[key]["extraArgs"][name] = value
    return {"extraArgs": items} if items and not extra else {}


def _spelled(new: List[Tuple[str, str]], there: Any) -> Dict[str, str]:
    """Return new entries of a mapping, which cannot have a name twice. So the second entry of a name is spelled with C(_) in place of C(-).
    kubeadm passes that entry last. Raises EditRefused."""
    entries: Dict[str, str] = {}
    for name, value in new:
        spelling = name.replace("-", "_") if name in entries or name in there else name
        if spelling in entries or spelling in there:
            raise EditRefused("extraArgs would have {0} more often than a mapping can. Edit it by hand".format(name))
        entries[spelling] = value
    return entries


def _refuse_merged(document: YamlText, path: Tuple, extra: Any, flag: Flag) -> None:
    """Raise EditRefused for an argument with a mergeMethod (kubeadm.k8s.io/v1): kubeadm joins its value with one of its own."""
    if isinstance(extra, list) and extra[flag.index].get("mergeMethod"):
        raise EditRefused("line {0}: {1} has a mergeMethod, so its value is only a part of the flag. Edit it by hand".format(
            document.line(path + (flag.index,)), flag.name))


def _change(document: YamlText, path: Tuple, extra: Any, flag: Flag, then: Optional[str]) -> None:
    entry = path + (list(extra)[flag.index] if isinstance(extra, dict) else flag.index,)  # a key as it is written, with '-' or '_'
    place = entry if isinstance(extra, dict) else entry + ("value",)
    if then is None:
        document.remove(entry)
    elif document.get(place) is None:
        document.add_key(place[:-1], str(place[-1]), then)
    else:
        document.replace(place, then)


def _changed(extra: Any, changes: List[Change]) -> Any:
    """Return extraArgs with the changes of its existing entries. The caller adds the new ones."""
    then = {change.flag.index: change.then for change in changes if change.flag is not None}
    pairs = [(index, item) for index, item in enumerate(extra) if then.get(index, "") is not None]
    if isinstance(extra, dict):
        return {name: then.get(index, extra[name]) for index, name in pairs}
    return [dict(item, value=then[index]) if index in then else dict(item) for index, item in pairs]


def _change_volumes(document: YamlText, expected: Any, key: str, changes: List[Change], back: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Remove the extraVolumes that only a removed file needs, or restore those of C(back). If the section has none yet, return those of C(back) for the caller
    to add; otherwise return {}. Raises BadClusterConfiguration.
    """
    path = (key, "extraVolumes")
    there = document.get(path) or []
    if not isinstance(there, list) or not all(isinstance(volume, dict) for volume in there):
        raise BadClusterConfiguration("{0}.extraVolumes is not a list of volumes".format(key))
    values = [flag.value for flag in _flags(expected.get(key))]
    for index, volume in enumerate(there):
        if manifest.is_unused(str(volume.get("mountPath", "")), removed_files(changes), values):
            document.remove(path + (index,))
            expected[key]["extraVolumes"].remove(volume)
    if not restores_files(changes):
        return {}
    new = [volume for volume in back if volume.get("mountPath") not in [item.get("mountPath") for item in there]]
    if there:
        for volume in new:
            document.append(path, volume)
        expected[key]["extraVolumes"] += new
    return {"extraVolumes": new} if new and not there else {}


def _add(document: YamlText, expected: Any, key: str, added: Dict[str, Any]) -> None:
    """Add keys to a section, which may be missing or empty."""
    if not added:
        return
    section = document.data.get(key)
    if section:
        for name, value in added.items():
            document.add_key((key,), name, value)
    else:
        document.add_key((), key, added)
    expected[key] = dict(expected.get(key) or {}, **added)
