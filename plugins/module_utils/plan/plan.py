# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner: computes every edit from the detected state and the target, before the first edit is made.

Pure, controller side. It takes the results of ccm_component_flags_info (by inventory host) and ccm_cluster_info, and returns plain
data. Preflight prints it, check mode shows it, and the roles carry it out step by step. Nothing is decided later.
"""

from __future__ import annotations

import base64
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import (
    kubeadm, kubelet as _kubelet, manifest, patches, rancher, unit as _unit, unit_edits,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit import PACKAGE_DIRECTORIES, Sources, UnitRefused
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import render, shell
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts, HostSteps, KubeletFacts, StepFile, UnitFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import (
    Change, Target, control_plane_changes, flags_after, hands_over, in_tree_provider,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import (
    adoption, baseline, cloud_loops, drift, gates, grouping, image_pulls, inventory, lint, new_nodes, old_config, places,
    reregister as _reregister, serving, takeover as _takeover, volumes,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.report import report, table

KUBEADM_CONFIG = "configmap:kube-system/kubeadm-config"

#: The order in which a control plane's components are changed. The one that others depend on comes last.
COMPONENTS = ("kube-controller-manager", "kube-apiserver")

RISKS = {
    "kube-apiserver": "restarts: this node's API server is unavailable for some seconds; restored if it does not become healthy",
    "kube-controller-manager": "restarts: another instance leads, or this one after some seconds; restored if it does not become healthy",
    "kubelet": "restarts: running Pods stay; restored if it does not become healthy",
    "kubeadm-config": "none now: the next kubeadm upgrade reads it",
    "k3s": "restarts k3s, and on a server its API server and etcd member; running Pods stay; restored if it does not become healthy",
    "rke2": "restarts RKE2, and on a server its API server and etcd member; running Pods stay; restored if it does not become healthy",
    "servicelb": "Services of type LoadBalancer lose their ServiceLB addresses and get addresses from the cloud",
    "node": "new Pods wait some seconds; running Pods stay (the taint is NoSchedule)",
}


_SHELL = ("{0} starts it with a shell ({1}), and this collection does not edit flags inside a shell command. Edit them by hand, or "
          "replace the shell command with the program and its arguments")


def make_plan(detected: Dict[str, Dict[str, Any]], cluster: Dict[str, Any], control_plane: List[str],
              adopt: bool = True, excluded_hosts: Iterable[str] = (), takeover: bool = False,
              cluster_name: str = "", port: int = 10258, reregister: bool = False,
              names: Optional[Dict[str, List[str]]] = None, volumes_ignore: Iterable[str] = (),
              runtime_name: Optional[str] = None, serving_csr: bool = False, cluster_cidr: Optional[str] = None) -> Dict[str, Any]:
    """Return the plan; see the filter's documentation for its shape. The migration must not start if C(problems) is not empty."""
    found = host_facts.sorted_out(detected)
    known = host_facts.usable(found)
    unseen = {host: facts for host, facts in found.items() if host not in known}
    plan = empty()
    version = versions.parse(cluster["version"])
    if version is None or not versions.supported(version):
        plan["problems"].append(
            "the cluster runs Kubernetes {0}, but this collection supports {1} to {2}. Use a release that supports your version"
            .format(cluster["version"], *map(versions.show, versions.SUPPORTED)))
        return finish(plan)
    again = _reregister.agents(known, cluster)
    nodes = {node["name"]: node for node in cluster["nodes"]}
    away = [host for host, name in again.items() if reregister and name not in nodes]
    known = inventory.with_versions(known, cluster)
    inventory.check(plan, known, cluster, control_plane, unseen, list(excluded_hosts), away)
    for host, facts in known.items():
        plan["nodes"][host] = facts["node_name"]
        steps: HostSteps = {"control_plane": [], "kubelet": None}
        plan["hosts"][host] = steps
        for problem in facts["problems"]:
            plan["problems"].append("{0}: {1}".format(host, problem))
        plan["notes"] += ["{0}: {1}".format(host, notice) for notice in facts["notices"]]
        if facts["service"]:
            _plan_rancher(plan, steps, host, facts, version)
            continue
        if host in control_plane:
            plan_control_plane(plan, steps, host, facts, version)
            _plan_patches(plan, steps, host, facts, version)
            gates.check_scheduler(plan, host, facts, version)
        else:
            for component in COMPONENTS:
                plan["problems"] += drift.undefined(host, facts, component, version, control_plane_changes,
                                                    "The host is not in the group kube_control_plane: add it")
        if facts["kubelet"].get("unit_files"):
            _plan_kubelet(plan, steps, host, facts, version)
    _plan_kubeadm_config(plan, cluster, version)
    _plan_nodes(plan, cluster, adopt, again, reregister)
    adoption.check(plan, known, cluster)
    for host, facts in known.items():
        baseline.check(plan, host, facts, nodes)
        places.check(plan, host, facts)
        places.check_units(plan, host, facts)
    inventory.check_claims(plan, cluster, control_plane, names or {})
    _takeover.check(plan, cluster, takeover, cluster_name, port)
    _takeover.check_hosts(plan, known, cluster)
    notes, warnings = serving.predict(known, cluster["serving"], runtime_name, serving_csr)
    plan["notes"] += notes
    plan["warnings"] += warnings
    plan["warnings"] += lint.preview(known, cluster, version)
    image_pulls.check(plan, known, cluster)
    cloud_loops.check(plan, known, cluster, control_plane, cloud_loops.New(cluster_name, cluster_cidr))
    volumes.check(plan, cluster, list(volumes_ignore))
    old_config.check(plan, known)
    plan["new_nodes"] = new_nodes.instructions({facts["layout"] for facts in known.values()}, cluster)
    return finish(plan)


def empty() -> Dict[str, Any]:
    """Return a plan with nothing in it yet."""
    return {"go": False, "problems": [], "warnings": [], "notes": [], "edits": [], "hosts": {}, "nodes": {},
            "volumes": [], "kubeadm_config": None, "adopt": [], "reregister": [], "node_only": False, "new_nodes": [], "takeover": [],
            "way_back": {"remove": False, "resume": [], "paused": []}}


def finish(plan: Dict[str, Any]) -> Dict[str, Any]:
    """Add the verdict, the message about the problems, the table and the report."""
    plan["go"] = not plan["problems"]
    plan["message"] = grouping.few(plan["problems"])
    plan["table"] = table(plan)
    plan["report"] = report(plan)
    return plan


def _edit(plan: Dict[str, Any], host: str, component: str, file: str, flag: str, now: Optional[str], then: Optional[str], why: str, risk: str) -> None:
    plan["edits"].append({"host": host, "component": component, "file": file, "flag": flag, "now": now, "then": then,
                          "why": why, "risk": risk})


def _encode(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode("ascii")


# -- control plane ----------------------------------------------------------------------------------------------------


def plan_control_plane(plan: Dict[str, Any], steps: HostSteps, host: str, facts: HostFacts,
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
            plan[kind].append("{0}: {1}".format(host, reason))
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


def _plan_manifest(plan: Dict[str, Any], steps: HostSteps, host: str, facts: HostFacts, component: str,
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
    # The kubelet applies a changed manifest by itself, so only an earlier run that was killed before its gate explains a difference.
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
        _edit(plan, host, component, path, "--" + change.name, change.now, change.then, why, RISKS[component])
    if not changes and running == wanted:
        return
    if not changes:
        if running is None and not ours:
            plan["problems"].append("{0}: {1} does not run, although {2} exists. Fix it first".format(host, component, path))
            return
        plan["warnings"].append("{0}: {1} does not yet run with the flags in {2}. The run waits for it".format(host, component, path))
    steps["control_plane"].append({
        "component": component, "files": [{"path": path, "content": _encode(after), "sha256": entry["sha256"]}] if changes else [],
        "flags": wanted, "flags_before": written, "restart": False, "service": {}})


def _warn_of_two_owners(plan: Dict[str, Any], host: str, component: str, flags: List[Any], version: Tuple[int, int]) -> None:
    provider = in_tree_provider(flags)
    if component == "kube-controller-manager" and version < versions.IN_TREE_GONE and provider and not hands_over(flags):
        plan["warnings"].append(
            "{0}: kube-controller-manager runs the cloud loops of the in-tree {1}. Until it is changed, Services and routes have two "
            "owners, or none for some seconds. The playbook leader_migration avoids this".format(host, provider))


def _plan_unit(plan: Dict[str, Any], steps: HostSteps, host: str, facts: HostFacts, component: str,
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
    found = _unit.occurrences(line)
    written = [render(flag.name, flag.value) for flag in _unit.flags(line)]
    if shell(word.value for word in line.unit.exec_words):
        plan["problems"] += drift.undefined(host, facts, component, version, target, _SHELL.format(
            line.unit.exec_path, shell(word.value for word in line.unit.exec_words)))
        return
    problem = _drift_of_unit(host, component, process, facts, unit, written)
    if problem:
        plan["problems"].append(problem)
        return
    if target is control_plane_changes:
        _warn_of_two_owners(plan, host, component, _unit.flags(line), version)
    spans: Dict[str, Any] = {}
    try:
        _unit.refuse_unreadable(line)
        changes = target(component, _unit.flags(line), version)
        paths = [_edit_unit(spans, line, sources, change, unit["unit"]) for change in changes]
        edited = unit_edits.proven(sources, spans, [
            unit_edits.Planned(found[change.flag.index] if change.flag else None, change.name, change.then) for change in changes])
        again = target(component, _unit.flags(edited.command_line()), version)
        if again:
            raise UnitRefused("--{0} would still change from {1} to {2} after the edit".format(again[0].name, again[0].now, again[0].then))
    except UnitRefused as exc:
        plan["problems"].append("{0}: the flags of {1} cannot be changed: {2}. Then run again".format(host, component, exc))
        return
    for change, path in zip(changes, paths):
        _edit(plan, host, component, path, "--" + change.name, change.now, change.then, change.why, RISKS[component])
    wanted = [render(flag.name, flag.value) for flag in _unit.flags(edited.command_line())]
    if not spans and running is None:
        plan["problems"].append("{0}: {1} does not run, although {2} exists. Fix it first".format(host, component, unit["unit"]))
    elif spans or running != wanted:
        if not spans:
            _edit(plan, host, component, "(the running process)", "--cloud-provider", " ".join(running or []) or None,
                  " ".join(wanted), "its files already have the flag, but it was not restarted", RISKS[component])
        steps["control_plane"].append({
            "component": component, "files": _unit_files(facts, edited, spans), "flags": wanted, "flags_before": written,
            "restart": not spans, "service": {"unit": unit["unit"]}})


def _edit_unit(spans: Dict[str, Any], line: _unit.CommandLine, sources: Sources, change: Change, name: str) -> str:
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


def _plan_patches(plan: Dict[str, Any], steps: HostSteps, host: str, facts: HostFacts,
                  version: Tuple[int, int]) -> None:
    """Plan the patches that kubeadm would apply to the next manifests. They need no restart."""
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
            _edit(plan, host, "kubeadm-patches", path, "--" + change.name, change.now, change.then,
                  "the next kubeadm upgrade would bring it back; " + change.why, RISKS["kubeadm-config"])
        if changes:
            files.append({"path": path, "content": _encode(after), "sha256": facts["files"][path]["sha256"]})
    if files:
        steps["control_plane"].append({"component": "kubeadm-patches", "files": files, "flags": [], "flags_before": [],
                                       "restart": False, "service": {}})


# -- kubelet ----------------------------------------------------------------------------------------------------------


def _plan_kubelet(plan: Dict[str, Any], steps: HostSteps, host: str, facts: HostFacts,
                  cluster_version: Tuple[int, int]) -> None:
    kubelet = facts["kubelet"]
    version = versions.parse(kubelet["version"]) or cluster_version
    try:
        sources = _unit.sources(facts["files"], kubelet)
        edit = _kubelet.plan(sources, version)
        written = [render(flag.name, flag.value) for flag in _unit.flags(sources.command_line())]
    except UnitRefused as exc:
        plan["problems"].append("{0}: the kubelet's flags cannot be changed: {1}".format(host, exc))
        return
    problem = _drift_of_unit(host, "kubelet", kubelet if kubelet["pid"] else None, facts, kubelet, written)
    if problem:
        plan["problems"].append(problem)
        return
    gates.check_kubelet(plan, host, facts, version)
    for item in kubelet["unread_files"]:
        plan["warnings"].append("{0}: {1} sets {2}, but the kubelet's unit does not read that file".format(
            host, item["path"], item["flag"]))
    for change in edit.changes:
        fatal = versions.risk_of_keeping("kubelet", change.flag, version) if change.flag == "cloud-config" else ""
        why = "{0}; {1}".format(change.why, fatal) if fatal else change.why
        _edit(plan, host, "kubelet", change.path, "--" + change.flag, change.now, change.then, why, RISKS["kubelet"])
    wanted = [render(name, value) for name, value in edit.after]
    restart = not edit.changes and kubelet["flags"] != wanted
    if restart:
        _edit(plan, host, "kubelet", "(the running process)", "--cloud-provider", " ".join(kubelet["flags"]) or None,
              " ".join(wanted), "its files already have the flag, but it was not restarted", RISKS["kubelet"])
    if not edit.changes and not restart:
        return
    inventory.check_name(plan, host, facts)
    files = _unit_files(facts, sources.edited(edit.spans), edit.spans)
    steps["kubelet"] = {"component": "kubelet", "files": files, "flags": wanted, "flags_before": written,
                        "restart": restart, "service": {}}


def _plan_rancher(plan: Dict[str, Any], steps: HostSteps, host: str, facts: HostFacts, cluster_version: Tuple[int, int]) -> None:
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
        risk = RISKS["servicelb" if change.then == "servicelb" else name]
        _edit(plan, host, name, change.path, change.key, change.now, change.then, change.why, risk)
    written = any(host_facts.is_ours(facts, path) for path in service["config_files"])
    restart = not edit.changes and service["stale"] and written
    if restart:
        _edit(plan, host, name, "(the running process)", "restart", None, "restarted",
              "its files already have the flag, but it was not restarted", RISKS[name])
    if edit.changes or restart:
        files: List[StepFile] = [
            {"path": path, "content": _encode(text), "sha256": facts["files"][path]["sha256"]}
            for path, text in sorted(edit.texts.items())]
        steps["kubelet"] = {"component": name, "files": files, "flags": [], "flags_before": [], "restart": restart,
                            "service": {key: value for key, value in service.items() if key in ("unit", "data_directory", "port")}}


def _drift_of_unit(host: str, component: str, process: Optional[drift.Running], facts: HostFacts, unit: Union[UnitFacts, KubeletFacts],
                   written: List[str]) -> str:
    """Return the problem of a unit's process whose flags come from none of its files; '' for one that only was not restarted."""
    paths = [path for path in unit["unit_files"] + unit["environment_files"] if facts["files"][path]["exists"]]
    if process is None or drift.changed_since(process, [facts["files"][path] for path in paths]):
        return ""
    return drift.unexplained(host, component, process, written, paths) or drift.others(host, component, process)


def _unit_files(facts: HostFacts, edited: Sources, paths: Iterable[str]) -> List[StepFile]:
    return [{"path": path, "content": _encode(edited.texts[path] or ""), "sha256": facts["files"][path]["sha256"]}
            for path in sorted(paths)]


# -- the cluster ------------------------------------------------------------------------------------------------------


def _plan_kubeadm_config(plan: Dict[str, Any], cluster: Dict[str, Any], version: Tuple[int, int]) -> None:
    current = cluster["kubeadm_config"]
    if not current["exists"]:
        return
    try:
        after, changes = kubeadm.edit(current["content"], version)
        gates.check_kubeadm(plan, cluster, version)
    except (NotYaml, kubeadm.BadClusterConfiguration, EditRefused) as exc:
        plan["problems"].append("the ConfigMap kube-system/kubeadm-config cannot be edited: ClusterConfiguration: {0}. Fix it "
                                "with 'kubectl -n kube-system edit configmap kubeadm-config'".format(exc))
        return
    for component, change in changes:
        why = "the next kubeadm upgrade creates the manifests from it"
        if change.name == "enable-admission-plugins" and change.then is None:
            why += ", with kubeadm's own list: NodeRestriction"
        _edit(plan, "(cluster)", component, "ConfigMap kube-system/kubeadm-config", change.name, change.now, change.then, why,
              RISKS["kubeadm-config"])
    stored = load(current["content"]).get("apiVersion")
    gone = versions.risk_of_keeping("kubeadm", "apiVersion", version, stored)
    if gone:
        plan["warnings"].append("the ConfigMap kube-system/kubeadm-config is stored as {0}: {1}; {2}".format(
            stored, gone, versions.reason("kubeadm", "apiVersion", stored)))
    if changes:
        plan["kubeadm_config"] = {"path": KUBEADM_CONFIG, "content": _encode(after), "before": _encode(current["content"]),
                                  "sha256": current["sha256"]}


def _plan_nodes(plan: Dict[str, Any], cluster: Dict[str, Any], adopt: bool, again: Dict[str, str], reregister: bool) -> None:
    ours = set(plan["nodes"].values())
    plan["reregister"] = sorted(again) if reregister else []
    plan["apart"] = adoption.known_before(plan, cluster)
    for node in cluster["nodes"]:
        if reregister and node["name"] in again.values():
            _edit(plan, node["name"], "node", "Node/" + node["name"], "providerID", node["provider_id"], "set by the runtime",
                  _reregister.WHY, _reregister.RISK)
        elif node["class"] in ("foreign", "mismatched") and node["name"] not in [plan["nodes"][host] for host in plan["apart"]]:
            plan["warnings"].append("Node {0} is not adopted: {1}{2}".format(
                node["name"], node["reason"], _reregister.remark(node, again.values())))
        elif node["class"] == "unmanaged" and node["name"] in ours and adopt:
            plan["adopt"].append(node["name"])
            _edit(plan, node["name"], "node", "Node/" + node["name"], "providerID", None, "set by the runtime",
                  "the controller initialises only Nodes with the taint, so the Node is tainted again", RISKS["node"])
        elif node["class"] == "uninitialized" and node["name"] in ours:
            plan["adopt"].append(node["name"])
    # As long as Nodes are left to adopt, the runtime runs only its node controller, unless it already runs everything.
    plan["node_only"] = bool(plan["adopt"] or plan["reregister"]) and not cluster["runtime"]["wide"]
