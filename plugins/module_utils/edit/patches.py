# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits kubeadm's patches: files on a host that change what C(kubeadm upgrade) writes, and may bring flags back.

A name such as C(kube-apiserver0+merge.yaml) has the target and the kind of the patch. kubeadm does not store the folder; an operator
passes it at each upgrade. Runs only on the Ansible controller (it needs PyYAML). Pure: text in, text out.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, YamlText, independent, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import MANAGED_FLAGS, Flag, find_flags, render, split_flag
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import REMOVED_PLUGIN, Change, control_plane_changes

#: Targets whose flags are edited. Those of kube-scheduler, and the gates of KubeletConfiguration, are only reported.
COMPONENTS = ("kube-apiserver", "kube-controller-manager")
SCHEDULER, KUBELET_CONFIGURATION = "kube-scheduler", "kubeletconfiguration"

#: kubeadm's patch targets of 1.29 to 1.37 (cmd/kubeadm/app/util/patches/patches.go), and how it reads a file's name.
TARGETS = ("etcd",) + COMPONENTS + (SCHEDULER, KUBELET_CONFIGURATION, "corednsdeployment", "kubeproxydaemonset")
_NAME = re.compile(r"({0})([^.+\n]*)(\+)?(json|merge|strategic)?".format("|".join(TARGETS)))
_EXTENSION = re.compile(r".+\.(json|yaml)$")

#: What separates the patches of a file (k8s.io/apimachinery, YAMLReader).
_SEPARATOR = re.compile(r"^---[ \t\r]*(?:\n|\Z)", re.MULTILINE)

#: Flags whose name alone shows that they concern a cloud.
_CLOUD = tuple(flag for flag in MANAGED_FLAGS if "cloud" in flag or "leader-migration" in flag or "service-syncs" in flag)
_GATES = tuple(dict.fromkeys(fact.value.partition("=")[0] for fact in versions.FACTS if fact.flag == "feature-gates" and fact.value))


class PatchRefused(ValueError):
    """The patch cannot be edited, or kubeadm refuses its name; the message says what to do."""


class Name(NamedTuple):
    component: str
    kind: str


def parse_name(path: str) -> Optional[Name]:
    """Return the target and the kind of a patch; None if kubeadm ignores a file of that name. Raises PatchRefused if kubeadm fails."""
    name = os.path.basename(path)
    match = _NAME.match(name) if _EXTENSION.match(name) else None
    if match is None:
        return None
    if match.group(3) and not match.group(4):
        raise PatchRefused("kubeadm refuses a folder with a file of this name, because no kind of patch (json, merge, strategic) follows the '+'. "
                           "Rename it")
    return Name(match.group(1), match.group(4) or "strategic")


def named(text: str) -> List[str]:
    """Return which names a text of any layout contains: flags of clouds, gates that the module versions knows, the plugin PersistentVolumeLabel."""
    dashed = text.replace("_", "-")
    words = [flag for flag in _CLOUD if flag in dashed] + [name for name in _GATES + (REMOVED_PLUGIN,) if name in text]
    return list(dict.fromkeys(words))


def unread(path: str, text: str) -> List[str]:
    """Return what named() finds in a file outside of comments, without the names that flags() and kubelet_gates() find in it."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    try:
        known = ["--{0}={1}".format(flag.name, flag.value) for flag in flags(path, text)] + [str(gates) for gates in kubelet_gates(path, text)]
    except (PatchRefused, NotYaml, manifest.BadManifest):
        known = []
    return [name for name in named(lines) if not any(name in item for item in known)]


def documents(text: str) -> List[Tuple[int, int]]:
    """Return where each patch of a file starts and ends."""
    starts, position = [], 0
    for match in _SEPARATOR.finditer(text):
        starts.append((position, match.start()))
        position = match.end()
    return [(start, end) for start, end in starts + [(position, len(text))] if text[start:end].strip()]


def texts(text: str) -> List[str]:
    """Return the patches of a file."""
    return [text[start:end] for start, end in documents(text)]


def edit(path: str, text: str, version: Tuple[int, int]) -> Tuple[str, List[Change]]:
    """Return a file's text with the flags in its patches changed like those in the manifests, and the changes. Raises PatchRefused or EditRefused."""
    name = parse_name(path)
    if name is None or name.component not in COMPONENTS or not any(flag in text.replace("_", "-") for flag in MANAGED_FLAGS):
        return text, []
    pieces: List[str] = []
    done: List[Change] = []
    position = 0
    for start, end in documents(text):
        after, changes = _edit_document(name, text[start:end], version, text.count("\n", 0, start))
        pieces += [text[position:start], after]
        done += changes
        position = end
    return "".join(pieces) + text[position:], done


def _edit_document(name: Name, text: str, version: Tuple[int, int], lines: int) -> Tuple[str, List[Change]]:
    try:
        document = YamlText(text)
    except NotYaml as exc:
        raise PatchRefused("{0}{1}. It may contain a cloud flag. Edit it by hand".format(_behind(lines), exc)) from exc
    if document.data is None:
        return text, []
    if name.kind == "json":
        return _edit_operations(document, text, name.component, version, lines)
    if not isinstance(document.data, dict):
        raise PatchRefused("{0}it is not a mapping".format(_behind(lines)))
    if not _containers(document.data):
        return text, []
    try:
        parsed = manifest.read(text, name.component)
        if not control_plane_changes(name.component, parsed.flags, version):
            return text, []
        after, changes, unused = manifest.edit(text, name.component, version, _target(document.data, name.component))
    except manifest.BadManifest as exc:
        raise PatchRefused("{0}{1}. It contains a cloud flag. Edit it by hand".format(_behind(lines), exc)) from exc
    return after, changes


def _behind(lines: int) -> str:
    return "the patch after line {0}: ".format(lines) if lines else ""


def _containers(data: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the containers with a command or arguments."""
    spec = data.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return [item for item in containers if isinstance(item, dict) and (item.get("command") or item.get("args"))] if isinstance(containers, list) else []


def _target(data: Dict[str, Any], component: str) -> Any:
    """Return a function like control_plane_changes. Unless the patch sets the whole command, the function adds no flags: kubeadm's own command gets those."""
    whole = any(item.get("name") == component and item.get("command") for item in _containers(data))
    return lambda *about: [change for change in control_plane_changes(*about) if whole or change.flag is not None]


def _edit_operations(document: YamlText, text: str, component: str, version: Tuple[int, int], lines: int) -> Tuple[str, List[Change]]:
    """Edit a JSON patch (RFC 6902): remove each operation that adds a flag to remove, and give the other flags their new values. Raises PatchRefused."""
    if not isinstance(document.data, list):
        raise PatchRefused("{0}it is not a list of operations".format(_behind(lines)))
    done: List[Change] = []
    expected: List[Any] = []
    for index, operation in enumerate(document.data):
        value = operation.get("value") if isinstance(operation, dict) else None
        expected.append(independent(operation))
        changes = [change for change in control_plane_changes(component, find_flags(_arguments(value)), version) if change.flag is not None]
        if not changes:
            continue
        line = document.line((index,)) + lines
        if isinstance(value, list) or split_flag(value or "")[:2] != (changes[0].name, True):
            raise PatchRefused("line {0} sets --{1} among other flags. Edit it by hand".format(line, changes[0].name))
        done += changes
        if changes[0].then is not None:
            new = render(changes[0].name, changes[0].then)
            document.replace((index, "value"), new)
            expected[-1]["value"] = new
        elif operation.get("op") != "add":
            what = "replaces another flag with --{0}" if operation.get("op") == "replace" else "tests for --{0}, which the manifest loses"
            raise PatchRefused("line {0} {1}. Edit it by hand".format(line, what.format(changes[0].name)))
        elif not str(operation.get("path", "")).endswith("/-") and index + 1 < len(document.data):
            raise PatchRefused("line {0} adds --{1} at a position, which moves what later operations change. Edit it by hand".format(
                line, changes[0].name))
        else:
            document.remove((index,))
            expected.pop()
    return (document.render(expected) if done else text), done


def _arguments(value: Any) -> List[str]:
    """Return the arguments that an operation of a JSON patch sets."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else [value] if isinstance(value, str) else []


# -- what is only reported ---------------------------------------------------------------------------------------------


def flags(path: str, text: str) -> List[Flag]:
    """Return the managed flags that a patch gives its component, [] if the patch has another target. Raises
    PatchRefused, NotYaml and BadManifest."""
    name = parse_name(path)
    if name is None or name.component not in COMPONENTS + (SCHEDULER,):
        return []
    flags_read: List[Flag] = []
    for start, end in documents(text):
        data = load(text[start:end])
        if name.kind == "json":
            for operation in data if isinstance(data, list) else []:
                flags_read += find_flags(_arguments(operation.get("value") if isinstance(operation, dict) else None))
        elif isinstance(data, dict) and _containers(data):
            flags_read += manifest.read(text[start:end], name.component).flags
    return flags_read


def kubelet_gates(path: str, text: str) -> List[Dict[str, Any]]:
    """Return the featureGates of each patch of the KubeletConfiguration. Raises PatchRefused and NotYaml."""
    name = parse_name(path)
    if name is None or name.component != KUBELET_CONFIGURATION:
        return []
    datas = [load(text[start:end]) for start, end in documents(text)]
    if name.kind == "json":
        datas = [_patched_gates(operation) for data in datas if isinstance(data, list) for operation in data if isinstance(operation, dict)]
    gates = [data.get("featureGates") for data in datas if isinstance(data, dict)]
    return [item for item in gates if isinstance(item, dict)]


def _patched_gates(operation: Dict[str, Any]) -> Dict[str, Any]:
    """Return the gates that an operation of a JSON patch sets, as a KubeletConfiguration with only featureGates; {} if it sets none."""
    place, value = str(operation.get("path", "")), operation.get("value")
    if place == "/featureGates":
        return {"featureGates": value}
    return {"featureGates": {place[len("/featureGates/"):]: value}} if place.startswith("/featureGates/") else {}
