# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the flags in static Pod manifests of control-plane components, and edits them without reformatting the file.

Controller side only (it needs PyYAML). Pure: text in, text out.
"""

from __future__ import annotations

import base64
from typing import Any, Dict, List, NamedTuple, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, NotYaml, YamlText, independent
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Flag, find_flags, render
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import FileFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Change, Target, control_plane_changes

#: Paths that kubeadm mounts for other purposes. Their volumes stay even if a removed flag has a path below them.
SHARED_MOUNTS = frozenset((
    "/", "/etc", "/etc/kubernetes", "/etc/kubernetes/pki", "/etc/pki", "/etc/ssl", "/etc/ssl/certs",
    "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
    "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf",
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec",
))


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
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        if name in names:
            return name
    return ""


def image_of(data: Any) -> Tuple[str, str]:
    """Return the component that a static Pod runs and the image of its container; ('', '') if it is something else."""
    name = component_name(data)
    images = [container.get("image") for container in data["spec"]["containers"] if container.get("name") == name] if name else []
    return name, str(images[0] or "") if images else ""


def decoded(entry: FileFacts) -> str:
    """Return the text of a YAML file as detection reports it. Raises NotYaml with the line."""
    content = base64.b64decode(entry["content"])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise NotYaml("line {0}: the byte 0x{1:x} is not UTF-8".format(content.count(b"\n", 0, exc.start) + 1, content[exc.start])) from exc


def _container(document: YamlText, component: str) -> Tuple:
    containers = document.get(("spec", "containers"))
    if not isinstance(containers, list):
        raise BadManifest("it has no spec.containers list")
    for index, container in enumerate(containers):
        if isinstance(container, dict) and container.get("name") == component:
            return ("spec", "containers", index)
    raise BadManifest("it has no container named {0}".format(component))


def _arguments(document: YamlText, container: Tuple) -> List[Tuple[Tuple, str]]:
    """Return (path, argument) of command and args, because real manifests have flags in both."""
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
        return Mounts(document.get(_container(document, component) + ("volumeMounts",)) or [], document.get(("spec", "volumes")) or [])

    old, new = listed(before), listed(after)
    return Mounts([item for item in old.mounts if item not in new.mounts], [item for item in old.volumes if item not in new.volumes])


def edit(text: str, component: str, version: Tuple[int, int], target: Target = control_plane_changes,
         back: Mounts = Mounts([], [])) -> Tuple[str, List[Change], List[str]]:
    """Return the edited manifest, the changed flags, and notes about mounts and volumes that are removed with them.

    C(back): mounts and volumes that are restored together with a cloud config. Raises NotYaml, BadManifest or EditRefused.
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
    notes = _remove_mounts(document, expected, container, changes, [v for v in new_argv.values() if v is not None])
    if any(change.name == "cloud-config" and change.then for change in changes):
        _add_mounts(document, expected, container, back)
    return document.render(expected), changes, notes


def _at(data: Any, path: Tuple) -> Any:
    for step in path:
        data = data[step]
    return data


def _remove_mounts(document: YamlText, expected: Any, container: Tuple, changes: List[Change],
                   argv: List[str]) -> List[str]:
    """Remove the volume of a cloud config that no flag uses any more; return what was removed."""
    notes = []
    for path in sorted({c.now for c in changes if c.name == "cloud-config" and c.then is None and c.now}):
        mounts = document.get(container + ("volumeMounts",)) or []
        for index, mount in enumerate(mounts):
            where = str(mount.get("mountPath", "")).rstrip("/") or "/"
            covers = path == where or path.startswith(where + "/")
            needed = any(where + "/" in value + "/" for value in argv)
            if not covers or where in SHARED_MOUNTS or needed:
                continue
            name = mount.get("name")
            document.remove(container + ("volumeMounts", index))
            _at(expected, container)["volumeMounts"].remove(mount)
            notes.append("volume mount {0} ({1})".format(name, where))
            if not _mounted(expected, name):
                for position, volume in enumerate(document.get(("spec", "volumes")) or []):
                    if volume.get("name") == name:
                        document.remove(("spec", "volumes", position))
                        expected["spec"]["volumes"].remove(volume)
                        notes.append("volume {0}".format(name))
    return notes


def _add_mounts(document: YamlText, expected: Any, container: Tuple, back: Mounts) -> None:
    """Add missing mounts and volumes, except for paths and names that are used again."""
    for path, items, key in ((container + ("volumeMounts",), back.mounts, "mountPath"), (("spec", "volumes"), back.volumes, "name")):
        there = [item.get(key) for item in document.get(path) or []]
        for item in items:
            if item.get(key) not in there:
                if not there:
                    raise EditRefused("it no longer has a list {0} to which {1} could be restored".format(path[-1], item.get("name")))
                document.append(path, item)
                _at(expected, path).append(item)


def _mounted(data: Any, volume: Any) -> bool:
    spec = data["spec"]
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    return any(mount.get("name") == volume for c in containers for mount in c.get("volumeMounts") or [])
