# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ClusterConfiguration that kubeadm keeps in the ConfigMap kubeadm-config: the source of the manifests at an upgrade.

It must say the same as the manifests, or the next C(kubeadm upgrade) brings the removed flags back. Controller side
only (it needs PyYAML). Pure: text in, text out.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils._flags import Flag, split_flag
from ansible_collections.outoftree.ccm.plugins.module_utils._target import Change, control_plane_changes
from ansible_collections.outoftree.ccm.plugins.module_utils._yamltext import YamlText, independent

#: Sections of ClusterConfiguration and the component each one configures.
SECTIONS = (("apiServer", "kube-apiserver"), ("controllerManager", "kube-controller-manager"))


class BadClusterConfiguration(ValueError):
    """The text is YAML but not a ClusterConfiguration we understand."""


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


def edit(text: str, version: Tuple[int, int]) -> Tuple[str, List[SectionChange]]:
    """Return ClusterConfiguration as it should be, and what changes. Raises NotYaml, BadClusterConfiguration, EditRefused."""
    document = YamlText(text)
    if not isinstance(document.data, dict) or document.data.get("kind") != "ClusterConfiguration":
        raise BadClusterConfiguration("its kind is not ClusterConfiguration")
    expected = independent(document.data)
    done: List[SectionChange] = []
    for key, component in SECTIONS:
        section = document.data.get(key)
        if section is not None and not isinstance(section, dict):
            raise BadClusterConfiguration("{0} is not a mapping".format(key))
        flags = _flags(section)
        changes = control_plane_changes(component, flags, version)
        removed_paths = set()
        for change in changes:
            _apply(document, expected, key, change)
            done.append(SectionChange(component, change))
            if change.name == "cloud-config" and change.now:
                removed_paths.add(change.now)
        _drop_volumes(document, expected, key, removed_paths)
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
    if change.flag is None:
        _add(document, expected, key, extra, change)
        return
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


def _add(document: YamlText, expected: Any, key: str, extra: Any, change: Change) -> None:
    listed = isinstance(extra, list) or str(document.data.get("apiVersion", "")).endswith("/v1beta4")
    section = expected.get(key) or {}
    expected[key] = section
    if listed:
        if extra:
            raise BadClusterConfiguration("cannot add {0} to a v1beta4 list".format(change.name))
        section["extraArgs"] = [{"name": change.name, "value": change.then}]
        document.set_block(key, "  extraArgs:\n  - name: {0}\n    value: {1}\n".format(change.name, change.then))
    elif extra:
        section["extraArgs"][change.name] = change.then
        document.add_key((key, "extraArgs"), change.name, change.then or "")
    else:
        section["extraArgs"] = {change.name: change.then}
        document.set_block(key, "  extraArgs:\n    {0}: {1}\n".format(change.name, change.then))


def _drop_volumes(document: YamlText, expected: Any, key: str, paths: set) -> None:
    """Remove extraVolumes that only brought the removed cloud config into the container."""
    for index, volume in enumerate(document.get((key, "extraVolumes")) or []):
        if isinstance(volume, dict) and str(volume.get("mountPath", "")).rstrip("/") in paths:
            document.remove((key, "extraVolumes", index))
            expected[key]["extraVolumes"].remove(volume)
