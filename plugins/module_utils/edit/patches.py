# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits kubeadm's patches: files on a host that change the manifests of C(kubeadm upgrade), and may bring flags back.

A name such as C(kube-apiserver0+merge.yaml) has the target and the kind of the patch. kubeadm does not store the folder; an operator
passes it at each upgrade. Controller side only (it needs PyYAML). Pure: text in, text out.
"""

from __future__ import annotations

import os
import re
from typing import Any, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, YamlText, independent
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import MANAGED_FLAGS, find_flags, render, split_flag
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Change, control_plane_changes

COMPONENTS = ("kube-apiserver", "kube-controller-manager")


class PatchRefused(ValueError):
    """The patch sets managed flags in a way that cannot be edited; the message says what to do."""


class Name(NamedTuple):
    component: str
    kind: str


def parse_name(path: str) -> Optional[Name]:
    """Return the target and the kind of a patch; None if kubeadm would not apply it to a managed component."""
    match = re.match(r"^(?P<target>[a-z-]+?)(?P<suffix>\d[^+]*|)(\+(?P<kind>strategic|merge|json))?\.(yaml|json)$",
                     os.path.basename(path))
    if match is None or match.group("target") not in COMPONENTS:
        return None
    return Name(match.group("target"), match.group("kind") or "strategic")


def edit(path: str, text: str, version: Tuple[int, int]) -> Tuple[str, List[Change]]:
    """Return the patch without the flags that the manifests lose, and the changes. Raises PatchRefused or EditRefused."""
    name = parse_name(path)
    if name is None or not any(flag in text.replace("_", "-") for flag in MANAGED_FLAGS):
        return text, []
    try:
        document = YamlText(text)
    except NotYaml as exc:
        raise PatchRefused("{0}. It contains a cloud flag. Edit it by hand".format(exc)) from exc
    if name.kind == "json":
        return _edit_operations(document, text, name.component, version)
    if not isinstance(document.data, dict):
        raise PatchRefused("it is not a mapping")
    containers = (document.data.get("spec") or {}).get("containers") or []
    if not any(isinstance(container, dict) and (container.get("command") or container.get("args")) for container in containers):
        return text, []
    try:
        argv = manifest.read(text, name.component).argv
        if not control_plane_changes(name.component, find_flags(argv), version):
            return text, []
        after, changes, unused = manifest.edit(text, name.component, version)
    except manifest.BadManifest as exc:
        raise PatchRefused("{0}. It contains a cloud flag. Edit it by hand".format(exc)) from exc
    return after, changes


def _edit_operations(document: YamlText, text: str, component: str, version: Tuple[int, int]) -> Tuple[str, List[Change]]:
    """Edit a JSON patch (RFC 6902): remove operations that add one of the flags, or shorten their list."""
    if not isinstance(document.data, list):
        raise PatchRefused("it is not a list of operations")
    done: List[Change] = []
    expected: List[Any] = []
    for index, operation in enumerate(document.data):
        value = operation.get("value") if isinstance(operation, dict) else None
        flags = find_flags(value if isinstance(value, list) else [value] if isinstance(value, str) else [])
        changes = [change for change in control_plane_changes(component, flags, version) if change.flag is not None]
        done += changes
        expected.append(independent(operation))
        if not changes:
            continue
        if isinstance(value, list) or split_flag(value or "")[:2] != (changes[0].name, True):
            raise PatchRefused("line {0} sets --{1} among other flags. Edit it by hand".format(document.line((index,)), changes[0].name))
        if changes[0].then is not None:
            new = render(changes[0].name, changes[0].then)
            document.replace((index, "value"), new)
            expected[-1]["value"] = new
        elif operation.get("op") != "add":
            raise PatchRefused("line {0} replaces another flag with --{1}. Edit it by hand".format(
                document.line((index,)), changes[0].name))
        else:
            document.remove((index,))
            expected.pop()
    return (document.render(expected) if done else text), done
