# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans which of the kubelet's arguments change, and in which of its files.

Pure and stdlib-only: text in, spans out. The module unit knows how a unit builds a command line. This module knows which files survive the installer's next
upgrade.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit, unit_edits
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit import (
    PACKAGE_DIRECTORIES, CommandLine, Occurrence, Sources, UnitRefused, occurrences,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit_edits import Planned
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Span, render
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import EXTERNAL, about_value, gate_changes

#: Variables to which the new flag may be added, best first. Their files survive when the installer upgrades.
PREFERRED_VARIABLES = ("KUBELET_KUBEADM_ARGS", "KUBELET_CLOUDPROVIDER", "KUBELET_EXTRA_ARGS", "KUBELET_ARGS")


class KubeletChange(NamedTuple):
    """One flag that changes in one file. C(now) is None if it is new, C(then) is None if it is removed."""

    path: str
    flag: str
    now: Optional[str]
    then: Optional[str]
    why: str


class Edit(NamedTuple):
    """An edit of the kubelet's files. C(spans): replacements by file. C(after): the managed flags of the command line after the edit. C(planned): what the edit
    must do to each flag, for the proof.
    """

    spans: Dict[str, List[Span]]
    changes: List[KubeletChange]
    after: List[Tuple[str, str]]
    planned: List[Planned]


def describe(flags: List[Occurrence]) -> str:
    """Return every place that sets a flag, for messages about flags that are set twice."""
    return " and ".join("{0} ({1})".format(item.path, render(item.name, item.value)) for item in flags)


def plan(sources: Sources, version: Tuple[int, int]) -> Edit:
    """Return the edits after which C(--cloud-provider=external) is the only cloud flag, and no cloud-related gate stops this release or the next.

    A new flag goes to a file that survives upgrades. The edited files are read again: they must give exactly the planned flags, and a second plan
    for them must be empty. Raises UnitRefused.
    """
    edit = _plan(sources, version)
    edited = unit_edits.proven(sources, edit.spans, edit.planned)
    again = _plan(edited, version).changes if edit.changes else []
    if again:
        raise UnitRefused("{0}: --{1} would still change from {2} to {3} after the edit. Write each flag once, as one word --flag=value".format(
            again[0].path, again[0].flag, again[0].now, again[0].then))
    return edit._replace(after=[(item.name, item.value) for item in occurrences(edited.command_line())])


def _plan(sources: Sources, version: Tuple[int, int]) -> Edit:
    line = sources.command_line()
    unit.refuse_unreadable(line)
    flags = occurrences(line)
    edit = Edit({}, [], [], [])
    _plan_provider(edit, line, flags, sources)
    for change in gate_changes("kubelet", unit.flags(line), version):
        item = flags[change.flag.index]
        if change.then is None:
            _remove(edit, line, item, sources, change.why)
        else:
            _replace(edit, line, item, change.then, change.why)
    return edit


def _plan_provider(edit: Edit, line: CommandLine, flags: List[Occurrence], sources: Sources) -> None:
    providers = [item for item in flags if item.name == "cloud-provider"]
    in_tree = sorted({item.value for item in providers if item.value not in ("", EXTERNAL)})
    if len(in_tree) > 1:
        raise UnitRefused(
            "it has two different providers: {0}. This does not show in which cloud the node runs. Remove the wrong "
            "one by hand, then run again".format(describe(providers)))
    conflict = ""
    if len({item.path for item in providers}) > 1 and len({item.value for item in providers}) > 1:
        conflict = "it is set twice, and the last one counts: {0}".format(describe(providers))
    for item in flags:
        if item.name == "cloud-config":
            _remove(edit, line, item, sources, "the external controller reads the cloud's configuration, not the kubelet")
    if providers and all(item.value == EXTERNAL for item in providers):
        return
    # A flag that is the value of ${NAME} can be replaced, but not removed.
    single = [item.parts[0].variable for item in providers if item.parts[0].variable in line.single]
    target = single[0] if single else _target(line)
    why = conflict or "the kubelet must leave addresses, providerID and the taint to the external controller"
    keep = next((item for item in providers if item.parts[0].variable == target), None)
    for item in providers:
        if item is not keep:
            _remove(edit, line, item, sources,
                    about_value(item.value, conflict or "an in-tree value that would override or repeat the new one"))
    if keep is None:
        _insert(edit, line, target, sources, why)
    elif keep.value != EXTERNAL:
        _replace(edit, line, keep, EXTERNAL, about_value(keep.value, why))


def _target(line: CommandLine) -> str:
    """Return the variable that gets the new flag, '' if ExecStart itself gets it. Raises UnitRefused."""
    for name in PREFERRED_VARIABLES:
        if name in line.variables and not line.variables[name].path.startswith(PACKAGE_DIRECTORIES):
            return name
        if name in line.unset and _file_for(line, name):
            return name
    # The variables of an operator's own unit may have any name, such as KUBELET_OPTS.
    last = unit_edits.last_variable(line)
    if last or line.unit.exec_path and not line.unit.exec_path.startswith(PACKAGE_DIRECTORIES):
        return last
    if line.single:
        raise UnitRefused(
            "its unit ({0}) has ${{{1}}} in ExecStart, whose value is exactly one argument, so --cloud-provider=external cannot be added to it. "
            "Write ${1} there, in a drop-in of the unit if {0} belongs to a package, then run again".format(line.unit.exec_path, line.single[-1]))
    raise UnitRefused(
        "its unit ({0}) uses none of {1} from a separate file, so there is no place for --cloud-provider=external that "
        "survives an upgrade. Add 'EnvironmentFile=-/etc/default/kubelet' and $KUBELET_EXTRA_ARGS to a drop-in "
        "of kubelet.service, then run again".format(line.unit.exec_path or "unknown", ", ".join(PREFERRED_VARIABLES)))


def _file_for(line: CommandLine, variable: str) -> str:
    """Return the environment file for an unset variable, '' if the unit reads none for it."""
    marks = {
        "KUBELET_KUBEADM_ARGS": ("kubeadm-flags.env",),
        "KUBELET_CLOUDPROVIDER": ("kubelet.env",),
        "KUBELET_EXTRA_ARGS": ("/etc/default/kubelet", "/etc/sysconfig/kubelet", "kubelet.env"),
        "KUBELET_ARGS": ("/etc/default/kubelet", "/etc/sysconfig/kubelet", "kubelet.env", "/kubelet"),
    }
    for mark in marks[variable]:
        for path in line.unit.environment_files:
            if path.endswith(mark) and "*" not in path:
                return path
    return ""


def _refuse_package(path: str, item: Occurrence) -> None:
    if path.startswith(PACKAGE_DIRECTORIES):
        raise UnitRefused(
            "{0} sets {1}, but that file belongs to a package. Override it with a drop-in under "
            "/etc/systemd/system/kubelet.service.d, then run again".format(path, render(item.name, item.value)))


def _replace(edit: Edit, line: CommandLine, item: Occurrence, value: str, why: str) -> None:
    path = unit_edits.replace(edit.spans, line, item, value)
    _refuse_package(path, item)
    edit.changes.append(KubeletChange(path, item.name, item.value, value, why))
    edit.planned.append(Planned(item, item.name, value))


def _remove(edit: Edit, line: CommandLine, item: Occurrence, sources: Sources, why: str) -> None:
    for part in item.parts:
        _refuse_package(part.path, item)
    unit_edits.remove(edit.spans, line, item, sources.texts)
    edit.changes.append(KubeletChange(item.parts[0].path, item.name, item.value, None, why))
    edit.planned.append(Planned(item, item.name, None))


def _insert(edit: Edit, line: CommandLine, target: str, sources: Sources, why: str) -> None:
    """Add the flag to the variable C(target), or to ExecStart if that is ''. If nothing sets the variable yet, add it to its environment file."""
    flag = render("cloud-provider", EXTERNAL)
    if target == "" or target in line.variables:
        path = unit_edits.append(edit.spans, line, target, flag)
    else:
        path = _file_for(line, target)
        unit_edits.new_variable(edit.spans, sources, path, target, flag)
    edit.changes.append(KubeletChange(path, "cloud-provider", None, EXTERNAL, why))
    edit.planned.append(Planned(None, "cloud-provider", EXTERNAL))
