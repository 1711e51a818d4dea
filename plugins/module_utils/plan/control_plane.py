# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a control plane: its static Pods or units in their order, and the patches that kubeadm would apply to the next manifests.

Pure; runs on the Ansible controller.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import compare, manifest, patches, unit as _unit, unit_edits
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit import PACKAGE_DIRECTORIES, Sources, UnitRefused
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Flag, render, shell
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts, HostSteps, StepFile, UnitFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import (
    Change, Target, control_plane_changes, flags_after, hands_over, in_tree_provider,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import draft, drift, gates
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

#: The order in which a control plane's components are changed. The one that others depend on comes last.
COMPONENTS = ("kube-controller-manager", "kube-apiserver")

_SHELL = ("{0} starts it with a shell ({1}), and this collection does not edit flags inside a shell command. Edit them by hand, or "
          "replace the shell command with the program and its arguments")


def plan_control_plane(plan: Plan, steps: HostSteps, host: str, facts: HostFacts,
                       cluster_version: Tuple[int, int], components: Tuple[str, ...] = COMPONENTS,
                       target: Target = control_plane_changes) -> None:
    """Plan the components of a control plane in their order."""
    manifests: Dict[str, List[str]] = {}
    for path in facts["manifests"]:
        try:
            text = manifest.decoded(facts["files"][path])
            name = manifest.component_name(load(text))
        except NotYaml as exc:
            kind, reason = manifest.unreadable(path, facts["files"][path], exc)
            (plan["problems"] if kind == "problems" else plan["notes"]).append("{0}: {1}".format(host, reason))
            continue
        if name:
            manifests.setdefault(name, []).append(path)
    for component in components:
        paths = manifests.get(component, [])
        unit = facts["units"].get(component)
        if len(paths) + bool(unit) > 1:
            places = paths + (["the unit " + unit["unit"]] if unit else [])
            plan["problems"].append("{0}: {1} is defined by {2}, and all of them run. Remove the one that is not in use. Keep copies "
                                    "outside of the folder, because the kubelet reads every file there".format(
                                        host, component, " and ".join(places)))
        elif paths:
            _plan_manifest(plan, steps, host, facts, component, paths[0], cluster_version, target)
        elif unit:
            _plan_unit(plan, steps, host, facts, component, unit, cluster_version, target)
        else:
            plan["problems"] += drift.undefined(
                host, facts, component, cluster_version, target,
                "Neither a manifest in {0} with a container of that name nor a unit {1}.service starts it, so there is no file to edit. "
                "Change by hand what starts it, and restart it".format(facts["kubelet"]["static_pod_path"], component))


def _plan_manifest(plan: Plan, steps: HostSteps, host: str, facts: HostFacts, component: str,
                   path: str, cluster_version: Tuple[int, int], target: Target) -> None:
    entry = facts["files"][path]
    before = manifest.decoded(entry)
    try:
        parsed = manifest.read(before, component)
        version = versions.of_image(parsed.image) or cluster_version
        if shell(parsed.argv):
            plan["problems"] += drift.undefined(host, facts, component, version, target, _SHELL.format(path, shell(parsed.argv)))
            return
        after, changes, notes = manifest.edit(before, component, version, target)
        again = manifest.edit(after, component, version, target)[1]
        if again:
            raise EditRefused("--{0} would still change from {1} to {2} after the edit".format(again[0].name, again[0].now, again[0].then))
    except (manifest.BadManifest, EditRefused) as exc:
        plan["problems"].append("{0}: cannot edit {1}: {2}. Edit it by hand, then run again".format(host, path, exc))
        return
    written = [render(flag.name, flag.value) for flag in parsed.flags]
    wanted = [render(name, value) for name, value in flags_after(parsed.flags, changes)]
    process = facts["components"].get(component)
    # The kubelet applies a changed manifest by itself. A difference is explained if an earlier run wrote the manifest after the process was started.
    ours = host_facts.is_ours(facts, path)
    if process and not (ours and drift.changed_since(process, [entry])):
        problem = drift.unexplained(host, component, process, written, [path]) or drift.others(host, component, process, parsed.argv)
        if problem:
            plan["problems"].append(problem)
            return
    running = process["flags"] if process else None
    if target is control_plane_changes:
        _warn_of_two_owners(plan, host, component, parsed.flags, version)
    for change in changes:
        why = "{0} (with {1})".format(change.why, " and ".join(notes)) if notes and change.name == "cloud-config" else change.why
        draft.edit(plan, host, component, path, "--" + change.name, change.now, change.then, why, draft.RISKS[component])
    if not changes and running == wanted:
        return
    if not changes:
        if running is None and not ours:
            plan["problems"].append("{0}: {1} does not run, although {2} exists. Fix it first".format(host, component, path))
            return
        plan["warnings"].append("{0}: {1} does not yet run with the flags in {2}. The run waits for it".format(host, component, path))
    steps["control_plane"].append({
        "component": component, "files": [{"path": path, "content": draft.encoded(after), "sha256": entry["sha256"]}] if changes else [],
        "flags": wanted, "flags_before": written, "restart": False, "service": {}})


def _warn_of_two_owners(plan: Plan, host: str, component: str, flags: List[Flag], version: Tuple[int, int]) -> None:
    provider = in_tree_provider(flags)
    if component == "kube-controller-manager" and version < versions.IN_TREE_GONE and provider and not hands_over(flags):
        plan["warnings"].append(
            "{0}: kube-controller-manager runs the cloud loops of the in-tree {1}. Until it is changed, Services and routes have two "
            "owners, or none for some seconds. The playbook leader_migration avoids this".format(host, provider))


def _plan_unit(plan: Plan, steps: HostSteps, host: str, facts: HostFacts, component: str,
               unit: UnitFacts, cluster_version: Tuple[int, int], target: Target) -> None:
    """Plan a component that systemd runs, with its flags in the unit or in environment files."""
    try:
        sources = _unit.sources(facts["files"], unit)
    except UnitRefused as exc:
        plan["problems"].append("{0}: {1}: {2}".format(host, component, exc))
        return
    line = sources.command_line()
    process = facts["components"].get(component)
    running = process["flags"] if process else None
    version = versions.parse(host_facts.version_of(facts, component)) or cluster_version
    flags = _unit.occurrences(line)
    written = [render(flag.name, flag.value) for flag in _unit.flags(line)]
    if shell(word.value for word in line.unit.exec_words):
        plan["problems"] += drift.undefined(host, facts, component, version, target, _SHELL.format(
            line.unit.exec_path, shell(word.value for word in line.unit.exec_words)))
        return
    problem = drift.of_unit(host, component, process, facts, unit, written, line)
    if problem:
        plan["problems"].append(problem)
        return
    plan["warnings"] += ["{0}: {1}".format(host, text) for text in compare.ignored(sources)]
    if target is control_plane_changes:
        _warn_of_two_owners(plan, host, component, _unit.flags(line), version)
    spans: unit_edits.Spans = {}
    try:
        _unit.refuse_unreadable(line)
        changes = target(component, _unit.flags(line), version)
        paths = [_edit_unit(spans, line, sources, change, unit["unit"]) for change in changes]
        edited = unit_edits.proven(sources, spans, [
            unit_edits.Planned(flags[change.flag.index] if change.flag else None, change.name, change.then) for change in changes])
        again = target(component, _unit.flags(edited.command_line()), version)
        if again:
            raise UnitRefused("--{0} would still change from {1} to {2} after the edit".format(again[0].name, again[0].now, again[0].then))
    except UnitRefused as exc:
        plan["problems"].append("{0}: the flags of {1} cannot be changed: {2}. Then run again".format(host, component, exc))
        return
    for change, path in zip(changes, paths):
        draft.edit(plan, host, component, path, "--" + change.name, change.now, change.then, change.why, draft.RISKS[component])
    wanted = [render(flag.name, flag.value) for flag in _unit.flags(edited.command_line())]
    if not spans and running is None:
        plan["problems"].append("{0}: {1} does not run, although {2} exists. Fix it first".format(host, component, unit["unit"]))
    elif spans or running != wanted:
        if not spans:
            draft.edit(plan, host, component, "(the running process)", "--cloud-provider", " ".join(running or []) or None,
                       " ".join(wanted), "its files already have the flag, but it was not restarted", draft.RISKS[component])
        steps["control_plane"].append({
            "component": component, "files": draft.unit_files(facts, edited, spans), "flags": wanted, "flags_before": written,
            "restart": not spans, "service": {"unit": unit["unit"]}})


def _edit_unit(spans: unit_edits.Spans, line: _unit.CommandLine, sources: Sources, change: Change, name: str) -> str:
    """Add the edit of one flag to C(spans); return the path of its file. Raises UnitRefused."""
    item = _unit.occurrences(line)[change.flag.index] if change.flag else None
    if item is None:
        path = unit_edits.append(spans, line, unit_edits.last_variable(line), render(change.name, change.then or ""))
    elif change.then is None:
        path = item.parts[0].path
        unit_edits.remove(spans, line, item, sources.texts)
    else:
        path = unit_edits.replace(spans, line, item, change.then)
    if path.startswith(PACKAGE_DIRECTORIES):
        raise UnitRefused("{0} sets --{1}, but that file belongs to a package. Override it with a drop-in under "
                          "/etc/systemd/system/{2}.d".format(path, change.name, name))
    return path


def plan_patches(plan: Plan, steps: HostSteps, host: str, facts: HostFacts, version: Tuple[int, int]) -> None:
    """Plan the edits of kubeadm's patch files, which the next C(kubeadm upgrade) would apply. They need no restart."""
    files: List[StepFile] = []
    for path in facts["patches"]:
        try:
            before = manifest.decoded(facts["files"][path])
            after, changes = patches.edit(path, before, version)
            gates.check_patch(plan, host, path, after, version)
        except (patches.PatchRefused, manifest.BadManifest, EditRefused, NotYaml) as exc:
            plan["problems"].append("{0}: the kubeadm patch {1} cannot be edited: {2}".format(host, path, exc))
            continue
        for change in changes:
            draft.edit(plan, host, "kubeadm-patches", path, "--" + change.name, change.now, change.then,
                       "the next kubeadm upgrade would bring it back; " + change.why, draft.RISKS["kubeadm-config"])
        if changes:
            files.append({"path": path, "content": draft.encoded(after), "sha256": facts["files"][path]["sha256"]})
    if files:
        steps["control_plane"].append({"component": "kubeadm-patches", "files": files, "flags": [], "flags_before": [],
                                       "restart": False, "service": {}})
