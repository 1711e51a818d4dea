# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits the ClusterConfiguration in the ConfigMap kubeadm-config, from which kubeadm creates the manifests at an upgrade.

It must match the manifests. Otherwise the next C(kubeadm upgrade) brings the removed flags back. Controller side only (it needs PyYAML).
Pure: text in, text out.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import YamlText, independent, quoted
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import MANAGED_FLAGS, Flag, managed, split_flag
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Change, Target, control_plane_changes

#: Sections of ClusterConfiguration and the component each one configures.
SECTIONS = (("apiServer", "kube-apiserver"), ("controllerManager", "kube-controller-manager"))


class BadClusterConfiguration(ValueError):
    """The text is YAML but not a supported ClusterConfiguration."""


class SectionChange(NamedTuple):
    component: str
    change: Change


def _flags(section: Any) -> List[Flag]:
    """Return extraArgs as flags; C(index) is the position in the list (v1beta4) or in the mapping (v1beta3)."""
    extra = (section or {}).get("extraArgs") or {}
    if isinstance(extra, dict):
        pairs = list(extra.items())
    elif isinstance(extra, list) and all(isinstance(item, dict) for item in extra):
        pairs = [(item.get("name"), item.get("value")) for item in extra]
    else:
        raise BadClusterConfiguration("extraArgs is neither a mapping (v1beta3) nor a list of name and value (v1beta4)")
    return [Flag(split_flag("--" + str(name))[0], "" if value is None else str(value), i, 1) for i, (name, value) in enumerate(pairs)]


def _document(text: str) -> YamlText:
    document = YamlText(text)
    if not isinstance(document.data, dict) or document.data.get("kind") != "ClusterConfiguration":
        raise BadClusterConfiguration("its kind is not ClusterConfiguration")
    for key, unused in SECTIONS:
        if document.data.get(key) is not None and not isinstance(document.data[key], dict):
            raise BadClusterConfiguration("{0} is not a mapping".format(key))
    return document


def managed_flags(text: str, whole: bool = False) -> Dict[str, List[Flag]]:
    """Return the managed flags among extraArgs by component; with C(whole) also C(controllers) without a cloud controller.

    Raises NotYaml and BadClusterConfiguration.
    """
    return {component: [flag for flag in flags if managed(flag.name, flag.value) or whole and flag.name in MANAGED_FLAGS]
            for component, flags in all_flags(text).items()}


def all_flags(text: str) -> Dict[str, List[Flag]]:
    """Return extraArgs by component. Raises NotYaml and BadClusterConfiguration."""
    document = _document(text)
    return {component: _flags(document.data.get(key)) for key, component in SECTIONS}


def lost_volumes(before: str, after: str) -> Dict[str, List[Dict[str, Any]]]:
    """Return the extraVolumes by component that an edit removed. Raises NotYaml and BadClusterConfiguration."""
    old, new = _document(before), _document(after)
    return {component: [item for item in old.get((key, "extraVolumes")) or [] if item not in (new.get((key, "extraVolumes")) or [])]
            for key, component in SECTIONS}


def edit(text: str, version: Tuple[int, int], target: Target = control_plane_changes,
         back: Optional[Dict[str, List[Dict[str, Any]]]] = None) -> Tuple[str, List[SectionChange]]:
    """Return the edited ClusterConfiguration and the changes. Raises NotYaml, BadClusterConfiguration, EditRefused.

    C(back): extraVolumes by component that are restored together with a cloud config.
    """
    document = _document(text)
    expected = independent(document.data)
    done: List[SectionChange] = []
    for key, component in SECTIONS:
        changes = target(component, _flags(document.data.get(key)), version)
        removed_paths = set()
        renamed = _rename(document, expected, key, changes)
        for change in changes:
            if change.flag is not None and change not in renamed:
                _apply(document, expected, key, change)
            done.append(SectionChange(component, change))
            if change.name == "cloud-config" and change.now and change.then is None:
                removed_paths.add(change.now)
        block = _add(document, expected, key, [change for change in changes if change.flag is None and change not in renamed])
        _drop_volumes(document, expected, key, removed_paths)
        if any(change.name == "cloud-config" and change.then for change in changes):
            block += _add_volumes(document, expected, key, (back or {}).get(component, []))
        if block:
            document.set_block(key, block)
        if key in expected and expected[key] and expected[key].get("extraArgs") in ({}, []):
            del expected[key]["extraArgs"]
    return (document.render(expected) if done else text), done


def scheduler_gates(text: str) -> List[Tuple[str, int]]:
    """Return each --feature-gates of kube-scheduler and its line. Raises NotYaml, BadClusterConfiguration, EditRefused."""
    document = YamlText(text)
    section = document.data.get("scheduler")
    extra = (section or {}).get("extraArgs") if isinstance(section, dict) else None
    keys = list(extra) if isinstance(extra, dict) else range(len(extra or []))
    return [(flag.value, document.line(("scheduler", "extraArgs", keys[flag.index])))
            for flag in _flags({"extraArgs": extra}) if flag.name == "feature-gates"]


def _apply(document: YamlText, expected: Any, key: str, change: Change) -> None:
    extra = document.get((key, "extraArgs"))
    if isinstance(extra, dict):
        name = list(extra)[change.flag.index]  # as it is written, with '-' or '_'
        path: Tuple = (key, "extraArgs", name)
        if change.then is None:
            document.remove(path)
            del expected[key]["extraArgs"][name]
        else:
            document.replace(path, change.then)
            expected[key]["extraArgs"][name] = change.then
        return
    entry = extra[change.flag.index]
    path = (key, "extraArgs", change.flag.index)
    at = next(i for i, item in enumerate(expected[key]["extraArgs"]) if item == entry)
    if change.then is None:
        document.remove(path)
        del expected[key]["extraArgs"][at]
    else:
        document.replace(path + ("value",), change.then)
        expected[key]["extraArgs"][at]["value"] = change.then


def _rename(document: YamlText, expected: Any, key: str, changes: List[Change]) -> List[Change]:
    """Reuse the entry of a removed flag for a new one if the list would otherwise have no entry left."""
    extra = document.get((key, "extraArgs"))
    gone = [change for change in changes if change.flag is not None and change.then is None]
    new = [change for change in changes if change.flag is None]
    if not isinstance(extra, list) or not new or len(gone) < len(extra):
        return []
    index = gone[0].flag.index
    for name, value in (("name", new[0].name), ("value", new[0].then or "")):
        document.replace((key, "extraArgs", index, name), value)
        expected[key]["extraArgs"][index][name] = value
    return [gone[0], new[0]]


def _add(document: YamlText, expected: Any, key: str, changes: List[Change]) -> str:
    """Add new flags to extraArgs, in the form that the document has or that its version needs.

    Returns the lines of a new extraArgs, '' if the section already has one.
    """
    if not changes:
        return ""
    extra = document.get((key, "extraArgs"))
    listed = isinstance(extra, list) if extra else str(document.data.get("apiVersion", "")).endswith("/v1beta4")
    section = expected.get(key) or {}
    expected[key] = section
    new: Any = [{"name": change.name, "value": change.then} for change in changes] if listed \
        else {change.name: change.then for change in changes}
    if not extra:
        section["extraArgs"] = new
        lines = ["  - name: {0}\n    value: {1}\n" if listed else "    {0}: {1}\n"] * len(changes)
        return "  extraArgs:\n" + "".join(line.format(change.name, quoted(change.then or "")) for line, change in zip(lines, changes))
    if listed:
        for item in new:
            document.append((key, "extraArgs"), item)
        section["extraArgs"] += new
    else:
        for name, value in new.items():
            document.add_key((key, "extraArgs"), name, value)
        section["extraArgs"].update(new)
    return ""


def _drop_volumes(document: YamlText, expected: Any, key: str, paths: set) -> None:
    """Remove extraVolumes that only mounted the removed cloud config into the container."""
    for index, volume in enumerate(document.get((key, "extraVolumes")) or []):
        if isinstance(volume, dict) and str(volume.get("mountPath", "")).rstrip("/") in paths:
            document.remove((key, "extraVolumes", index))
            expected[key]["extraVolumes"].remove(volume)


def _add_volumes(document: YamlText, expected: Any, key: str, volumes: List[Dict[str, Any]]) -> str:
    """Add missing extraVolumes, except for paths that are used again. Returns lines as _add does."""
    there = document.get((key, "extraVolumes")) or []
    new = [volume for volume in volumes if volume.get("mountPath") not in [item.get("mountPath") for item in there]]
    if not new:
        return ""
    section = expected.get(key) or {}
    expected[key] = section
    section["extraVolumes"] = there + new
    if there:
        for volume in new:
            document.append((key, "extraVolumes"), volume)
        return ""
    return "  extraVolumes:\n" + "".join("  - " + "\n    ".join(
        "{0}: {1}".format(name, str(value).lower() if isinstance(value, bool) else quoted(str(value))) for name, value in volume.items()) + "\n"
        for volume in new)
