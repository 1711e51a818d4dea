# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags that a component should have after the migration, and how they differ from its current flags.

Pure: rules over occurrences of flags. It knows Kubernetes versions (through versions), but neither files nor their formats.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Flag, cloud_controllers, is_true, managed, unquoted, without_list_items

EXTERNAL = "external"
REMOVED_PLUGIN = "PersistentVolumeLabel"
ADMISSION_LISTS = ("enable-admission-plugins", "disable-admission-plugins")


MIGRATION_FLAGS = ("enable-leader-migration", "leader-migration-config")

#: A flag of the in-tree provider GCE. kube-apiserver had it, too.
GCE_RANGES = "cloud-provider-gce-lb-src-cidrs"

#: Flags of kube-controller-manager that only its cloud loops read. They are removed with the loops.
LOOP_FLAGS = ("concurrent-service-syncs", GCE_RANGES)


class _Change(NamedTuple):
    name: str
    flag: Optional[Flag]
    then: Optional[str]
    why: str
    risk: str


class Change(_Change):
    """One flag that changes. C(then) is None if the flag is removed; C(flag) is None if it is new.

    Raises ValueError if nothing would change: the edit would never settle, because each further plan would contain the same change.
    """

    __slots__ = ()

    def __new__(cls, name: str, flag: Optional[Flag], then: Optional[str], why: str, risk: str) -> "Change":
        if then == (None if flag is None else flag.value):
            raise ValueError("--{0} would be changed from {1!r} to the same value".format(name, then))
        return super().__new__(cls, name, flag, then, why, risk)

    @property
    def now(self) -> Optional[str]:
        return None if self.flag is None else self.flag.value


#: A function that returns the changes in the flags of a component at a release.
Target = Callable[[str, List[Flag], Tuple[int, int]], List[Change]]


def control_plane_changes(component: str, flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    """Return the changes in the flags of kube-apiserver or kube-controller-manager, in the order of the flags.

    New flags come last. Only items are removed from a list. A list flag without any item left is removed, except C(--controllers), which means
    all controllers if it is missing.
    """
    changes = gate_changes(component, flags, version)
    if component == "kube-apiserver":
        changes += _apiserver(flags, version)
    elif component == "kube-controller-manager":
        changes += _controller_manager(flags, version)
    new = [change for change in changes if change.flag is None]
    return sorted((change for change in changes if change.flag is not None), key=lambda change: change.flag.index) + new


def gate_changes(component: str, flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    """Return the changes in --feature-gates: cloud-related gates that are fatal now or at the next release are removed."""
    changes = []
    for flag in flags:
        dead = versions.dead_gates(component, flag.value, version) if flag.name == "feature-gates" else []
        if dead:
            then = without_list_items(flag.value, [item for item, unused in dead])
            why = " and ".join("{0}: {1}".format(item, versions.why(component, flag.name, version, fact.value))
                               for item, fact in dead)
            changes.append(Change(flag.name, flag, then or None, why, ""))
    return changes


def about_value(value: str, why: str) -> str:
    """Return the reason C(why), with information about the in-tree provider C(value); without it if no such provider is known."""
    about = versions.about_provider(value)
    return "{0}; {1}".format(why, about) if about else why


def _apiserver(flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    changes = []
    for flag in flags:
        if flag.name in ("cloud-provider", "cloud-config", GCE_RANGES):
            why = versions.why("kube-apiserver", flag.name, version)
            changes.append(Change(flag.name, flag, None, about_value(flag.value, why), ""))
        elif flag.name in ADMISSION_LISTS:
            if REMOVED_PLUGIN in [unquoted(item) for item in flag.value.split(",")]:
                then = without_list_items(flag.value, (REMOVED_PLUGIN,))
                why = versions.why("kube-apiserver", flag.name, version, REMOVED_PLUGIN)
                changes.append(Change(flag.name, flag, then or None, why, ""))
    return changes


def _controller_manager(flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    component = "kube-controller-manager"
    changes = []
    providers = [flag for flag in flags if flag.name == "cloud-provider"]
    for flag in flags:
        if flag.name in ("cloud-config", "external-cloud-volume-plugin"):
            why = versions.reason(component, flag.name) if version >= versions.IN_TREE_GONE else \
                "the external controller reads the cloud's configuration now"
            changes.append(Change(flag.name, flag, None, why, ""))
        elif flag.name in MIGRATION_FLAGS:
            why = versions.reason(component, flag.name) if version >= versions.IN_TREE_GONE else \
                "without cloud loops it must leave the migration Lease to the external controller (KEP-2436)"
            changes.append(Change(flag.name, flag, None, why, ""))
        elif flag.name in LOOP_FLAGS:
            changes.append(Change(flag.name, flag, None, versions.why(component, flag.name, version), ""))
    if version >= versions.IN_TREE_GONE:
        changes += _without_cloud_controllers(component, flags, version)
        for flag in providers:
            if flag.value != EXTERNAL:
                why = versions.why(component, "cloud-provider", version, "in-tree") if flag.value else \
                    "an empty value has no effect, because in-tree providers are gone (KEP-2395)"
                changes.append(Change("cloud-provider", flag, None, about_value(flag.value, why), ""))
        return changes
    why = "the in-tree cloud loops must stop before the external controller runs them"
    if not providers:
        changes.append(Change("cloud-provider", None, EXTERNAL, why, ""))
    elif any(flag.value != EXTERNAL for flag in providers):
        changes += [Change("cloud-provider", flag, None, "the last flag counts", "") for flag in providers[:-1]]
        if providers[-1].value != EXTERNAL:
            last = providers[-1]
            changes.append(Change("cloud-provider", last, EXTERNAL, about_value(last.value, why), ""))
    return changes


def _without_cloud_controllers(component: str, flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    """Return the changes in --controllers. A list with no other items becomes an empty list, because without the flag, all controllers would run."""
    changes = []
    for flag in flags:
        items = cloud_controllers(flag.value) if flag.name == "controllers" else []
        if items:
            why = versions.why(component, flag.name, version, unquoted(items[0]).lstrip("-"))
            changes.append(Change(flag.name, flag, without_list_items(flag.value, items), why, ""))
    return changes


def in_tree_provider(flags: List[Flag]) -> str:
    """Return the in-tree provider whose loops kube-controller-manager runs according to its flags, '' if it runs none."""
    return "" if is_external(flags) else _provider(flags)


def is_external(flags: List[Flag]) -> bool:
    return _provider(flags) == EXTERNAL


def _provider(flags: List[Flag]) -> str:
    return next((flag.value for flag in reversed(flags) if flag.name == "cloud-provider"), "")


def hands_over(flags: List[Flag]) -> bool:
    """Return whether kube-controller-manager runs its cloud loops only while it holds the migration Lease."""
    return is_true(next((flag.value for flag in reversed(flags) if flag.name == MIGRATION_FLAGS[0]), "false"))


def leader_migration_changes(config: str) -> Target:
    """Return the Target for the stage before control_plane_changes, in which kube-controller-manager becomes able to hand
    over its loops.

    C(config) is the path of the LeaderMigrationConfiguration. A component that already hands over keeps its own configuration.
    """
    why = "its cloud loops run only while it holds the migration Lease, so that they can be handed over (KEP-2436)"

    def changes(component: str, flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
        if component != "kube-controller-manager" or hands_over(flags):
            return []
        old = [Change(flag.name, flag, None, "the last flag counts", "") for flag in flags if flag.name in MIGRATION_FLAGS]
        return old + [Change(name, None, value, why, "") for name, value in zip(MIGRATION_FLAGS, ("true", config))]

    return changes


def flags_after(flags: List[Flag], changes: List[Change], whole: bool = False) -> List[Tuple[str, str]]:
    """Return the (name, value) pairs of managed flags after the changes, which the new process must have.

    C(whole): also a C(--controllers) that names no cloud controller.
    """
    by_index: Dict[int, Change] = {change.flag.index: change for change in changes if change.flag is not None}
    result = []
    for flag in flags:
        change = by_index.get(flag.index)
        value = flag.value if change is None else change.then
        if value is not None and (whole or flag.name != "controllers" or managed(flag.name, value)):
            result.append((flag.name, value))
    result += [(change.name, change.then) for change in changes if change.flag is None and change.then is not None]
    return result
