# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the flags in static Pod manifests of control-plane components, and edits them without reformatting the file.

Runs only on the Ansible controller (it needs PyYAML). Pure: text in, text out.
"""

from __future__ import annotations

import base64
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, YamlText, independent
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Flag, find_flags, render
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import FileFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Change, Target, control_plane_changes

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")

#: Flags whose value is a file, which a volume may bring into the container.
FILES = ("cloud-config", "leader-migration-config")

#: Paths that kubeadm mounts for other purposes. Their volumes stay even if a removed flag has a path below them.
SHARED_MOUNTS = frozenset((
    "/", "/etc", "/etc/kubernetes", "/etc/kubernetes/pki", "/etc/pki", "/etc/ssl", "/etc/ssl/certs",
    "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
    "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf",
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
))

#: How a file in UTF-16 begins, in one byte order or the other.
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class BadManifest(ValueError):
    """The manifest is YAML but not the Pod of one control-plane component."""


class Component(NamedTuple):
    """A control-plane component as its manifest describes it."""

    name: str
    argv: List[str]
    flags: List[Flag]
    image: str


def component_name(data: Any) -> str:
    """Return the component that a static Pod runs, by the container's name; '' if it is something else."""
    try:
        containers = data["spec"]["containers"]
        names = [container.get("name", "") for container in containers]
    except (KeyError, TypeError, AttributeError):
        return ""
    for name in COMPONENTS:
        if name in names:
            return name
    return ""


def image_of(data: Any) -> Tuple[str, str]:
    """Return the component that a static Pod runs and the image of its container; ('', '') if it is something else."""
    name = component_name(data)
    images = [container.get("image") for container in data["spec"]["containers"] if container.get("name") == name] if name else []
    return name, str(images[0] or "") if images else ""


def decoded(entry: FileFacts) -> str:
    """Return the text of a YAML file as detection reports it. Raises NotYaml."""
    content = base64.b64decode(entry["content"])
    if content.startswith(_UTF_16):
        raise NotYaml("it is UTF-16, which this collection does not edit. Write it in UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise NotYaml("line {0}: the byte 0x{1:x} is not UTF-8".format(content.count(b"\n", 0, exc.start) + 1, content[exc.start])) from exc


def unreadable(path: str, entry: FileFacts, why: NotYaml) -> Tuple[str, str]:
    """Return where a plan reports a file in the folder of manifests that cannot be read, C(problems) or C(notes), and the sentence."""
    content = base64.b64decode(entry["content"])
    wide = content.startswith(_UTF_16)
    text = content.decode("utf-16" if wide else "utf-8", "replace")
    named = [name for name in COMPONENTS if name in text + path.rpartition("/")[2]]
    if wide:  # the kubelet reads UTF-16, so this Pod runs
        return ("problems" if named else "notes"), "{0} cannot be read: {1}. It names {2}".format(path, why, " and ".join(named) or "no component")
    if not named:
        return "notes", "{0} is not YAML: {1}. The kubelet ignores it, and it names no component, so this run ignores it, too".format(path, why)
    return "problems", "{0} is not YAML: {1}. It names {2}. Fix it, or move it out of the folder, because the kubelet reads every file there".format(
        path, why, " and ".join(named))


def _container(document: YamlText, component: str) -> Tuple:
    containers = document.get(("spec", "containers"))
    if not isinstance(containers, list):
        raise BadManifest("it has no spec.containers list")
    for index, container in enumerate(containers):
        if isinstance(container, dict) and container.get("name") == component:
            return ("spec", "containers", index)
    raise BadManifest("it has no container named {0}".format(component))


def _arguments(document: YamlText, container: Tuple) -> List[Tuple[Tuple, str]]:
    """Return (path, argument) of command and args, because real manifests have flags in both. Raises BadManifest."""
    arguments = []
    for key in ("command", "args"):
        values = document.get(container + (key,)) or []
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise BadManifest("{0} is not a list of strings".format(key))
        arguments += [(container + (key, index), value) for index, value in enumerate(values)]
    if not arguments:
        raise BadManifest("its container has no command")
    return arguments


def read(text: str, component: str) -> Component:
    """Parse a manifest. Raises NotYaml or BadManifest."""
    document = YamlText(text)
    container = _container(document, component)
    argv = [value for unused, value in _arguments(document, container)]
    return Component(component, argv, find_flags(argv), str(document.get(container + ("image",), "")))


class Mounts(NamedTuple):
    """Volume mounts of a component's container, and volumes of its Pod, in the form of the manifest."""

    mounts: List[Dict[str, Any]]
    volumes: List[Dict[str, Any]]


def lost_mounts(before: str, after: str, component: str) -> Mounts:
    """Return the mounts and volumes that an edit of a manifest removed. Raises NotYaml and BadManifest."""
    def listed(text: str) -> Mounts:
        document = YamlText(text)
        return Mounts(_volumes(document, _container(document, component) + ("volumeMounts",)), _volumes(document, ("spec", "volumes")))

    old, new = listed(before), listed(after)
    return Mounts([item for item in old.mounts if item not in new.mounts], [item for item in old.volumes if item not in new.volumes])


def edit(text: str, component: str, version: Tuple[int, int], target: Target = control_plane_changes,
         back: Mounts = Mounts([], [])) -> Tuple[str, List[Change], List[str]]:
    """Return the edited manifest, the changed flags, and notes about mounts and volumes that are removed with them.

    C(back): mounts and volumes that are restored if a flag that names a file is set again. Raises NotYaml, BadManifest or EditRefused.
    """
    document = YamlText(text)
    container = _container(document, component)
    arguments = _arguments(document, container)
    argv = [value for unused, value in arguments]
    changes = target(component, find_flags(argv), version)
    if not changes:
        return text, [], []
    new_argv: Dict[int, Any] = dict(enumerate(argv))
    added = []
    for change in changes:
        if change.flag is None:
            added.append(render(change.name, change.then or ""))
            continue
        first, value_at = change.flag.index, change.flag.index + change.flag.width - 1
        if change.then is None:
            for index in range(first, value_at + 1):
                new_argv[index] = None
                document.remove(arguments[index][0])
        else:
            new = change.then if value_at != first else render(change.name, change.then)
            new_argv[value_at] = new
            document.replace(arguments[value_at][0], new)
    expected = independent(document.data)
    edited = _at(expected, container)
    for key in ("command", "args"):
        kept = [new_argv[i] for i, (path, unused) in enumerate(arguments) if path[-2] == key]
        if key in edited:
            edited[key] = [value for value in kept if value is not None]
    if added:
        last_key = arguments[-1][0][-2]
        for argument in added:
            document.append(container + (last_key,), argument)
        edited[last_key] += added
    notes = _remove_mounts(document, expected, container, changes, [v for v in new_argv.values() if v is not None] + added)
    if restores_files(changes):
        _add_mounts(document, expected, container, back)
    return document.render(expected), changes, notes


def _at(data: Any, path: Tuple) -> Any:
    for step in path:
        data = data[step]
    return data


def removed_files(changes: List[Change]) -> Set[str]:
    """Return the files that the removed flags named."""
    return {change.now for change in changes if change.name in FILES and change.then is None and change.now}


def restores_files(changes: List[Change]) -> bool:
    """Return whether a flag with a file is set again, so that the mounts of the file are needed again."""
    return any(change.name in FILES and change.then for change in changes)


def is_unused(where: str, files: Set[str], values: List[str]) -> bool:
    """Return whether a mount was there only for removed files. C(values) are the remaining arguments, or the values of the remaining flags."""
    where = where.rstrip("/") or "/"
    covers = any(path == where or path.startswith(where + "/") for path in files)
    return covers and where not in SHARED_MOUNTS and not any(where + "/" in value + "/" for value in values)


def _remove_mounts(document: YamlText, expected: Any, container: Tuple, changes: List[Change],
                   argv: List[str]) -> List[str]:
    """Remove the mounts of files that no flag uses any more, and the volumes that then have no mount; return what was removed."""
    notes = []
    for index, mount in enumerate(_volumes(document, container + ("volumeMounts",))):
        if not is_unused(str(mount.get("mountPath", "")), removed_files(changes), argv):
            continue
        name = mount.get("name")
        document.remove(container + ("volumeMounts", index))
        _at(expected, container)["volumeMounts"].remove(mount)
        notes.append("volume mount {0} ({1})".format(name, mount.get("mountPath")))
        if _mounted(expected, name):
            continue
        for position, volume in enumerate(_volumes(document, ("spec", "volumes"))):
            if volume.get("name") == name and volume in expected["spec"]["volumes"]:
                document.remove(("spec", "volumes", position))
                expected["spec"]["volumes"].remove(volume)
                notes.append("volume {0}".format(name))
    return notes


def _volumes(document: YamlText, path: Tuple) -> List[Dict[str, Any]]:
    """Return a list of mounts or volumes. Raises BadManifest."""
    items = document.get(path) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadManifest("{0} is not a list of mappings".format(path[-1]))
    return items


def _add_mounts(document: YamlText, expected: Any, container: Tuple, back: Mounts) -> None:
    """Add the mounts and volumes of C(back), except those whose path or name is in use."""
    for path, items, key in ((container + ("volumeMounts",), back.mounts, "mountPath"), (("spec", "volumes"), back.volumes, "name")):
        there = [item.get(key) for item in _volumes(document, path)]
        new = [item for item in items if item.get(key) not in there]
        if not there and new:
            document.add_key(path[:-1], path[-1], new)
            _at(expected, path[:-1])[path[-1]] = new
            continue
        for item in new:
            document.append(path, item)
            _at(expected, path).append(item)


def _mounted(data: Any, volume: Any) -> bool:
    spec = data["spec"]
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    return any(mount.get("name") == volume for c in containers for mount in c.get("volumeMounts") or [])
