# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What flags a component should have after the migration, and the difference to the flags it has.

Pure: a table of rules over flag occurrences. It knows Kubernetes versions (through _versions) but neither files nor
their formats; the manifest, kubeadm and kubelet editors ask it.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils import _versions
from ansible_collections.outoftree.ccm.plugins.module_utils._flags import Flag, without_list_items

EXTERNAL = "external"
REMOVED_PLUGIN = "PersistentVolumeLabel"


class Change(NamedTuple):
    """One flag that changes. C(then) is None when the flag goes; C(flag) is None when it is new."""

    name: str
    flag: Optional[Flag]
    then: Optional[str]
    why: str
    risk: str

    @property
    def now(self) -> Optional[str]:
        return None if self.flag is None else self.flag.value


def _why(component: str, name: str, version: Tuple[int, int], value: Optional[str] = None) -> str:
    text = _versions.reason(component, name, value)
    fatal = _versions.risk_of_keeping(component, name, version, value)
    return "{0}; {1}".format(text, fatal) if text and fatal else text or fatal


def control_plane_changes(component: str, flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    """Return what to change in the flags of kube-apiserver or kube-controller-manager, in their order."""
    if component == "kube-apiserver":
        return _apiserver(flags, version)
    if component == "kube-controller-manager":
        return _controller_manager(flags, version)
    return []


def _apiserver(flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    changes = []
    for flag in flags:
        if flag.name in ("cloud-provider", "cloud-config"):
            changes.append(Change(flag.name, flag, None, _why("kube-apiserver", flag.name, version), ""))
        elif flag.name in ("enable-admission-plugins", "disable-admission-plugins"):
            then = without_list_items(flag.value, (REMOVED_PLUGIN,))
            if then != flag.value and REMOVED_PLUGIN in flag.value:
                why = _why("kube-apiserver", flag.name, version, REMOVED_PLUGIN)
                changes.append(Change(flag.name, flag, then or None, why, ""))
    return changes


def _controller_manager(flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    component = "kube-controller-manager"
    changes = []
    providers = [flag for flag in flags if flag.name == "cloud-provider"]
    for flag in flags:
        if flag.name in ("cloud-config", "external-cloud-volume-plugin"):
            why = _why(component, flag.name, version) or "the external controller reads the cloud's configuration now"
            changes.append(Change(flag.name, flag, None, why, ""))
    if version >= _versions.IN_TREE_GONE:
        for flag in providers:
            if flag.value != EXTERNAL:
                why = _why(component, "cloud-provider", version, "in-tree") if flag.value else \
                    "an empty value says nothing, in-tree providers are gone (KEP-2395)"
                changes.append(Change("cloud-provider", flag, None, why, ""))
        return changes
    why = "the in-tree cloud loops must stop before the external controller runs them"
    if not providers:
        changes.append(Change("cloud-provider", None, EXTERNAL, why, ""))
    elif any(flag.value != EXTERNAL for flag in providers):
        changes += [Change("cloud-provider", flag, None, "the last flag counts", "") for flag in providers[:-1]]
        if providers[-1].value != EXTERNAL:
            changes.append(Change("cloud-provider", providers[-1], EXTERNAL, why, ""))
    return changes


def flags_after(flags: List[Flag], changes: List[Change]) -> List[Tuple[str, str]]:
    """Return the (name, value) pairs of managed flags once the changes are made: what the new process must show."""
    by_index: Dict[int, Change] = {change.flag.index: change for change in changes if change.flag is not None}
    result = []
    for flag in flags:
        change = by_index.get(flag.index)
        value = flag.value if change is None else change.then
        if value is not None:
            result.append((flag.name, value))
    result += [(change.name, change.then) for change in changes if change.flag is None and change.then is not None]
    return result
