# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner: what was found on the hosts and in the cluster + the target = every edit, before the first one is made.

Pure, controller side. Input are the results of ccm_component_flags_info (by inventory host) and ccm_cluster_info; output
is plain data that preflight prints, check mode shows and the roles carry out step by step. Nothing is decided later.
"""

from __future__ import annotations

import base64
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils import _kubeadm, _kubelet, _manifest, _versions
from ansible_collections.outoftree.ccm.plugins.module_utils._flags import render
from ansible_collections.outoftree.ccm.plugins.module_utils._target import flags_after
from ansible_collections.outoftree.ccm.plugins.module_utils._unit import Sources, UnitRefused
from ansible_collections.outoftree.ccm.plugins.module_utils._yamltext import EditRefused, NotYaml, load

KUBEADM_CONFIG = "configmap:kube-system/kubeadm-config"

#: The order in which a control plane's components are changed: the one that others depend on goes last.
COMPONENTS = ("kube-controller-manager", "kube-apiserver")

RISKS = {
    "kube-apiserver": "restarts: this node's API server is away for some seconds; put back if it does not come up",
    "kube-controller-manager": "restarts: another instance, or this one after some seconds, leads; put back if it does not come up",
    "kubelet": "restarts: running Pods stay; put back if it does not come up",
    "kubeadm-config": "none now: read at the next kubeadm upgrade",
    "node": "new Pods wait some seconds; running Pods stay (the taint is NoSchedule)",
}

COLUMNS = ("host", "component", "file", "flag", "now", "then")


def make_plan(detected: Dict[str, Dict[str, Any]], cluster: Dict[str, Any], control_plane: List[str],
              adopt: bool = True) -> Dict[str, Any]:
    """Return the plan; see the filter's documentation for its shape. C(problems) not empty means: do not begin."""
    plan: Dict[str, Any] = {"go": False, "problems": [], "warnings": [], "edits": [], "hosts": {}, "nodes": {},
                            "kubeadm_config": None, "adopt": [], "narrow": False}
    version = _versions.parse(cluster["version"])
    if version is None or not _versions.supported(version):
        plan["problems"].append(
            "the cluster runs Kubernetes {0}, and this collection knows {1} to {2}: use a release of it that knows yours"
            .format(cluster["version"], *map(_versions.show, _versions.SUPPORTED)))
        return _finish(plan)
    _check_hosts(plan, detected, cluster, control_plane)
    for host, facts in detected.items():
        plan["nodes"][host] = facts["node_name"]
        steps: Dict[str, Any] = {"control_plane": [], "kubelet": None}
        plan["hosts"][host] = steps
        for problem in facts["problems"]:
            plan["problems"].append("{0}: {1}".format(host, problem))
        if host in control_plane:
            _plan_control_plane(plan, steps, host, facts, version)
        if facts["kubelet"].get("unit_files"):
            _plan_kubelet(plan, steps, host, facts, version)
    _plan_kubeadm_config(plan, cluster, version)
    _plan_nodes(plan, cluster, adopt)
    _check_runtime(plan, cluster)
    return _finish(plan)


def _finish(plan: Dict[str, Any]) -> Dict[str, Any]:
    plan["go"] = not plan["problems"]
    plan["table"] = table(plan)
    return plan


def _edit(plan: Dict[str, Any], host: str, component: str, file: str, flag: str, now: Optional[str],
          then: Optional[str], why: str, risk: str) -> None:
    plan["edits"].append({"host": host, "component": component, "file": file, "flag": flag, "now": now, "then": then,
                          "why": why, "risk": risk})


def _text(entry: Dict[str, Any]) -> str:
    return base64.b64decode(entry["content"]).decode("utf-8")


def _encode(text: str) -> str:
    return base64.b64encode(text.encode("utf-8")).decode("ascii")


# -- the inventory against the cluster --------------------------------------------------------------------------------


def _check_hosts(plan: Dict[str, Any], detected: Dict[str, Dict[str, Any]], cluster: Dict[str, Any],
                 control_plane: List[str]) -> None:
    names = {node["name"] for node in cluster["nodes"]}
    seen: Dict[str, str] = {}
    for host, facts in detected.items():
        name = facts["node_name"]
        if name and name not in names:
            plan["problems"].append(
                "{0}: its kubelet should register as {1}, and the cluster has no such Node (it has {2}): set "
                "ccm_install_node_name for this host".format(host, name, ", ".join(sorted(names)) or "none"))
        if name and name in seen:
            plan["problems"].append("{0} and {1} are the same Node {2}: remove one of them from the inventory"
                                    .format(seen[name], host, name))
        seen[name] = host
        version = _versions.parse(facts["kubelet"].get("version", ""))
        if version is not None and not _versions.supported(version):
            plan["problems"].append("{0}: its kubelet is {1}, and this collection knows {2} to {3}".format(
                host, facts["kubelet"]["version"], *map(_versions.show, _versions.SUPPORTED)))
    for host in control_plane:
        if host in detected and detected[host]["kubelet"].get("unit_files") and not detected[host]["manifests"]:
            plan["problems"].append(
                "{0}: is in kube_control_plane but has no static Pod manifests in {1}: move it to kube_node, or this is a "
                "layout this release does not edit".format(host, detected[host]["kubelet"]["static_pod_path"]))
    for name in sorted(names - set(seen)):
        plan["warnings"].append("Node {0} is not in the inventory: its kubelet is not changed".format(name))


# -- control plane ----------------------------------------------------------------------------------------------------


def _plan_control_plane(plan: Dict[str, Any], steps: Dict[str, Any], host: str, facts: Dict[str, Any],
                        cluster_version: Tuple[int, int]) -> None:
    manifests: Dict[str, List[str]] = {}
    for path in facts["manifests"]:
        try:
            text = _text(facts["files"][path])
            name = _manifest.component_name(load(text))
        except (NotYaml, UnicodeDecodeError) as exc:
            plan["problems"].append("{0}: {1} is not YAML: {2}. Mend it, or move it out of the folder (the kubelet reads every "
                                    "file there)".format(host, path, exc))
            continue
        if name:
            manifests.setdefault(name, []).append(path)
    for component in COMPONENTS:
        paths = manifests.get(component, [])
        if len(paths) > 1:
            plan["problems"].append("{0}: {1} is defined by {2}, and the kubelet reads them all: move the copies out of the "
                                    "folder".format(host, component, " and ".join(paths)))
        elif paths:
            _plan_manifest(plan, steps, host, facts, component, paths[0], cluster_version)


def _plan_manifest(plan: Dict[str, Any], steps: Dict[str, Any], host: str, facts: Dict[str, Any], component: str,
                   path: str, cluster_version: Tuple[int, int]) -> None:
    entry = facts["files"][path]
    before = _text(entry)
    try:
        parsed = _manifest.read(before, component)
        version = _versions.parse(parsed.image.split("@", 1)[0].rsplit(":", 1)[-1]) or cluster_version
        after, changes, notes = _manifest.edit(before, component, version)
    except (_manifest.BadManifest, EditRefused) as exc:
        plan["problems"].append("{0}: cannot edit {1}: {2}. Edit it by hand, then run again".format(host, path, exc))
        return
    wanted = [render(name, value) for name, value in flags_after(parsed.flags, changes)]
    running = facts["components"].get(component, {}).get("flags")
    for change in changes:
        why = "{0} (with {1})".format(change.why, " and ".join(notes)) if notes and change.name == "cloud-config" else change.why
        _edit(plan, host, component, path, "--" + change.name, change.now, change.then, why, RISKS[component])
    if not changes and running == wanted:
        return
    if not changes:
        # A run that was ended between writing the file and its gate leaves a component that is just starting.
        ours = facts["journal"].get(path, {}).get("state") == "written"
        if running is None and not ours:
            plan["problems"].append("{0}: {1} does not run, although {2} is there: mend it first".format(host, component, path))
            return
        plan["warnings"].append("{0}: {1} does not yet run with the flags in {2}: it is waited for".format(host, component, path))
    steps["control_plane"].append({
        "component": component,
        "files": [{"path": path, "content": _encode(after), "sha256": entry["sha256"]}] if changes else [],
        "flags": wanted,
        "flags_before": [render(flag.name, flag.value) for flag in parsed.flags] if changes else running or [],
        "restart": False,
    })


# -- kubelet ----------------------------------------------------------------------------------------------------------


def _plan_kubelet(plan: Dict[str, Any], steps: Dict[str, Any], host: str, facts: Dict[str, Any],
                  cluster_version: Tuple[int, int]) -> None:
    kubelet = facts["kubelet"]
    version = _versions.parse(kubelet["version"]) or cluster_version
    sources = _sources(facts, kubelet)
    try:
        edit = _kubelet.plan(sources, version)
    except UnitRefused as exc:
        plan["problems"].append("{0}: the kubelet's flags cannot be changed: {1}".format(host, exc))
        return
    for item in kubelet["unread_files"]:
        plan["warnings"].append("{0}: {1} sets {2}, but the kubelet's unit does not read that file".format(
            host, item["path"], item["flag"]))
    for change in edit.changes:
        fatal = _versions.risk_of_keeping("kubelet", change.flag, version) if change.flag == "cloud-config" else ""
        why = "{0}; {1}".format(change.why, fatal) if fatal else change.why
        _edit(plan, host, "kubelet", change.path, "--" + change.flag, change.now, change.then, why, RISKS["kubelet"])
    wanted = [render(name, value) for name, value in edit.after]
    restart = not edit.changes and kubelet["flags"] != wanted
    if restart:
        _edit(plan, host, "kubelet", "(the running process)", "--cloud-provider", " ".join(kubelet["flags"]) or None,
              " ".join(wanted), "its files say so, but it was not restarted since", RISKS["kubelet"])
    if not edit.changes and not restart:
        return
    files = _unit_files(facts, sources.edited(edit.spans), edit.spans)
    steps["kubelet"] = {"component": "kubelet", "files": files, "flags": wanted, "flags_before": kubelet["flags"],
                        "restart": restart}


def _sources(facts: Dict[str, Any], unit: Dict[str, Any]) -> Sources:
    """Return what makes a unit's command line, from what was detected of it."""
    paths = unit["unit_files"] + unit["environment_files"]
    texts = {path: _text(facts["files"][path]) if facts["files"][path]["exists"] else None for path in paths}
    return Sources(tuple(unit["unit_files"]), tuple(unit["environment_files"]), texts)


def _unit_files(facts: Dict[str, Any], edited: Sources, paths: Iterable[str]) -> List[Dict[str, str]]:
    return [{"path": path, "content": _encode(edited.texts[path] or ""), "sha256": facts["files"][path]["sha256"]}
            for path in sorted(paths)]


# -- the cluster ------------------------------------------------------------------------------------------------------


def _plan_kubeadm_config(plan: Dict[str, Any], cluster: Dict[str, Any], version: Tuple[int, int]) -> None:
    current = cluster["kubeadm_config"]
    if not current["exists"]:
        return
    try:
        after, changes = _kubeadm.edit(current["content"], version)
    except (NotYaml, _kubeadm.BadClusterConfiguration, EditRefused) as exc:
        plan["problems"].append("the ConfigMap kube-system/kubeadm-config cannot be edited: ClusterConfiguration: {0}. Mend it "
                                "with 'kubectl -n kube-system edit configmap kubeadm-config'".format(exc))
        return
    for component, change in changes:
        _edit(plan, "(cluster)", component, "ConfigMap kube-system/kubeadm-config", change.name, change.now, change.then,
              "the next kubeadm upgrade makes the manifests from it", RISKS["kubeadm-config"])
    if changes:
        plan["kubeadm_config"] = {"path": KUBEADM_CONFIG, "content": _encode(after), "before": _encode(current["content"]),
                                  "sha256": current["sha256"]}


def _plan_nodes(plan: Dict[str, Any], cluster: Dict[str, Any], adopt: bool) -> None:
    ours = set(plan["nodes"].values())
    for node in cluster["nodes"]:
        if node["class"] in ("foreign", "mismatched"):
            plan["warnings"].append("Node {0} is left alone: {1}".format(node["name"], node["reason"]))
        elif node["class"] == "unmanaged" and node["name"] in ours and adopt:
            plan["adopt"].append(node["name"])
            _edit(plan, node["name"], "node", "Node/" + node["name"], "providerID", None, "set by the runtime",
                  "a registered Node is initialised only while it has the taint: it is tainted again", RISKS["node"])
        elif node["class"] == "uninitialized" and node["name"] in ours:
            plan["adopt"].append(node["name"])
    # While work is left the runtime runs its node controller alone, unless it already runs everything.
    plan["narrow"] = bool(plan["adopt"]) and not cluster["runtime"]["wide"]


def _check_runtime(plan: Dict[str, Any], cluster: Dict[str, Any]) -> None:
    runtime = cluster["runtime"]
    if runtime["exists"] and not runtime["managed"]:
        plan["problems"].append(
            "the DaemonSet kube-system/{0} was not made by this collection: it would be overwritten. Remove it (load "
            "balancers stay), or set ccm_runtime_adopt_daemonset to take it over".format(runtime["name"]))
    elif not runtime["exists"] and cluster["lease"]["held"]:
        plan["problems"].append(
            "another cloud-controller-manager runs: {0} holds the Lease kube-system/{1}. Two of them would fight: scale it to 0, "
            "then run again".format(cluster["lease"]["holder"], runtime["name"]))


# -- for people -------------------------------------------------------------------------------------------------------


def _cell(value: Optional[str], absent: str) -> str:
    if value is None:
        return absent
    return "''" if value == "" else str(value)


def table(plan: Dict[str, Any]) -> List[str]:
    """Return the plan as lines of text: a row for each edit, the reasons and risks they name, then what else to know."""
    lines: List[str] = []
    reasons: List[str] = []
    risks: List[str] = []
    rows = [[name.upper() for name in COLUMNS] + ["WHY", "RISK"]]
    for edit in plan["edits"]:
        for text, known in ((edit["why"], reasons), (edit["risk"], risks)):
            if text not in known:
                known.append(text)
        rows.append([edit["host"], edit["component"], edit["file"], edit["flag"], _cell(edit["now"], "-"),
                     _cell(edit["then"], "(removed)"), str(reasons.index(edit["why"]) + 1), _letter(risks.index(edit["risk"]))])
    if plan["edits"]:
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows] + [""]
        lines += ["why {0}: {1}".format(number, text) for number, text in enumerate(reasons, 1)]
        lines += ["risk {0}: {1}".format(_letter(number), text) for number, text in enumerate(risks)]
    else:
        lines.append("Nothing to change: every file and every Node is as it should be.")
    lines += ["WARNING: " + text for text in plan["warnings"]]
    lines += ["PROBLEM: " + text for text in plan["problems"]]
    lines.append("{0}: {1} edit(s), {2} warning(s), {3} problem(s)".format(
        "NO-GO" if plan["problems"] else "GO", len(plan["edits"]), len(plan["warnings"]), len(plan["problems"])))
    return lines


def _letter(index: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[index]
