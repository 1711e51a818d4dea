# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The step of a host's kubelet, or of the k3s or RKE2 that runs it. Pure; runs on the Ansible controller."""

from __future__ import annotations

from typing import List, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import compare, kubelet as _kubelet, rancher, unit as _unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit import UnitRefused
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import render
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts, HostSteps, StepFile
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import draft, drift, gates, inventory
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan


def plan_kubelet(plan: Plan, steps: HostSteps, host: str, facts: HostFacts, cluster_version: Tuple[int, int]) -> None:
    """Plan a kubelet that systemd runs: the files that survive an upgrade, and one restart."""
    kubelet = facts["kubelet"]
    version = versions.parse(kubelet["version"]) or cluster_version
    try:
        sources = _unit.sources(facts["files"], kubelet)
        edit = _kubelet.plan(sources, version)
        written = [render(flag.name, flag.value) for flag in _unit.flags(sources.command_line())]
    except UnitRefused as exc:
        plan["problems"].append("{0}: the kubelet's flags cannot be changed: {1}".format(host, exc))
        return
    problem = drift.of_unit(host, "kubelet", kubelet if kubelet["pid"] else None, facts, kubelet, written, sources.command_line())
    if problem:
        plan["problems"].append(problem)
        return
    gates.check_kubelet(plan, host, facts, version)
    for item in kubelet["unread_files"]:
        plan["warnings"].append("{0}: {1} sets {2}, but the kubelet's unit does not read that file".format(
            host, item["path"], item["flag"]))
    plan["warnings"] += ["{0}: {1}".format(host, text) for text in compare.ignored(sources)]
    for change in edit.changes:
        fatal = versions.risk_of_keeping("kubelet", change.flag, version) if change.flag == "cloud-config" else ""
        why = "{0}; {1}".format(change.why, fatal) if fatal else change.why
        draft.edit(plan, host, "kubelet", change.path, "--" + change.flag, change.now, change.then, why, draft.RISKS["kubelet"])
    wanted = [render(name, value) for name, value in edit.after]
    restart = not edit.changes and kubelet["flags"] != wanted
    if restart:
        draft.edit(plan, host, "kubelet", "(the running process)", "--cloud-provider", " ".join(kubelet["flags"]) or None,
                   " ".join(wanted), "its files already have the flag, but it was not restarted", draft.RISKS["kubelet"])
    if not edit.changes and not restart:
        return
    inventory.check_name(plan, host, facts)
    files = draft.unit_files(facts, sources.edited(edit.spans), edit.spans)
    steps["kubelet"] = {"component": "kubelet", "files": files, "flags": wanted, "flags_before": written,
                        "restart": restart, "service": {}}


def plan_rancher(plan: Plan, steps: HostSteps, host: str, facts: HostFacts, cluster_version: Tuple[int, int]) -> None:
    """Plan a host of k3s or RKE2: its configuration files, and one restart of its service."""
    service = facts["service"]
    name = service["name"]
    version = versions.parse(facts["kubelet"]["version"]) or cluster_version
    try:
        texts = [(path, rancher.decoded(path, facts["files"][path])) for path in service["config_files"]]
        edit = rancher.plan(name, service["server"], texts, service["arguments"], version, service.get("environment"), facts["node_name"],
                            facts.get("registers"))
    except rancher.RancherRefused as exc:
        plan["problems"].append("{0}: the configuration of {1} cannot be changed: {2}".format(host, name, exc))
        return
    for change in edit.changes:
        risk = draft.RISKS["servicelb" if change.then == "servicelb" else name]
        draft.edit(plan, host, name, change.path, change.key, change.now, change.then, change.why, risk)
    written = any(host_facts.is_ours(facts, path) for path in service["config_files"])
    restart = not edit.changes and service["stale"] and written
    if restart:
        draft.edit(plan, host, name, "(the running process)", "restart", None, "restarted",
                   "its files already have the flag, but it was not restarted", draft.RISKS[name])
    if edit.changes or restart:
        files: List[StepFile] = [
            {"path": path, "content": draft.encoded(text), "sha256": facts["files"][path]["sha256"]}
            for path, text in sorted(edit.texts.items())]
        steps["kubelet"] = {"component": name, "files": files, "flags": [], "flags_before": [], "restart": restart,
                            "service": {key: value for key, value in service.items() if key in ("unit", "data_directory", "port")}}
