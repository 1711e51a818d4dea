# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollback's planner: computes from the journals and the hosts what to restore in each file, before anything is removed.

The plan has the shape of the forward plan (plan), so that table, report, check mode, roles and summary are the same. If nobody else
changed a file after the migration, the rollback restores its original bytes; otherwise only its flags (undo). A file that cannot be
restored is a problem of the plan, or a warning with C(force). Pure; runs on the Ansible controller.
"""

from __future__ import annotations

import base64
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest, patches, rancher, unit as _unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import render
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import (
    BaselineFacts, HostAnswer, HostFacts, HostSteps, JournalFacts, KubeletFacts, Step, StepFile, UnitFacts,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import (
    draft, inventory as _inventory, places, undo, unseen_hosts,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.cluster_steps import KUBEADM_CONFIG
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import JournalCopies, RollbackPlan

#: The order in which a control plane's components are restored.
ORDER = ("kubeadm-patches", "kube-controller-manager", "kube-apiserver")
#: Components that are the node's kubelet or run it. They are restored last.
KUBELETS = ("kubelet", "k3s", "rke2")

BYTES, FLAGS, DONE = "bytes", "flags", "done"
WHY = {
    BYTES: "bytes: nobody else changed the file after the migration, so its original bytes are restored",
    FLAGS: "flags: the file was changed after the migration, so only the migration's own changes are undone",
}
EXTERNAL = "--cloud-provider=external"


class Restored(NamedTuple):
    """The restored state of a file. C(after) is None if the file is removed. C(mode) is BYTES, FLAGS, or DONE if nothing is left to do."""

    path: str
    mode: str
    before: Optional[str]
    after: Optional[str]
    kept: List[str]


def make_rollback_plan(detected: Dict[str, HostAnswer], cluster: ClusterFacts, control_plane: List[str],
                       excluded_hosts: Iterable[str] = (), force: bool = False, copies: Optional[JournalCopies] = None) -> RollbackPlan:
    """Return the plan; see the filter's documentation for its shape. The rollback must not start if C(problems) is not empty.

    With C(force), what cannot be restored is a warning in place of a problem. C(copies) is the result of ccm_journal_copy. The
    facts of a host that lost its journal already have the journal of its copy.
    """
    plan = _empty(cluster)
    sorted_facts = host_facts.sorted_out(detected)
    unseen = {host: facts for host, facts in sorted_facts.items() if not looked_at(facts)}
    known = _inventory.with_versions(host_facts.usable({host: facts for host, facts in sorted_facts.items() if host not in unseen}), cluster)
    _hosts(plan, known, unseen, sorted(excluded_hosts), cluster, control_plane)
    _copies(plan, copies or {})
    version = versions.parse(cluster["version"]) or versions.SUPPORTED[1]
    begun = plan["controller"] or any(facts["journal"] for facts in known.values())
    for host, facts in known.items():
        plan["nodes"][host] = facts["node_name"]
        plan["hosts"][host] = _steps(plan, host, facts, version, force)
        places.check(plan, host, facts, lasting=False)
        if begun and not plan["paused"]:
            _check_accounted(plan, host, facts, force)
    _plan_kubeadm_config(plan, known, cluster, control_plane, version, force)
    plan["warnings"] += plan["kept"]
    draft.finish(plan)
    report = plan["report"]
    report["files"], report["unrestored"], report["copies"] = plan["files"], plan["unrestored"], plan["copies"]
    return plan


def looked_at(facts: HostAnswer) -> bool:
    """Return whether enough is known of a host. If its kubelet does not run, its Node's name is unknown, but only a host with a journal needs one."""
    return "node_name" in facts and bool(
        facts["node_name"] or facts.get("kubelet") and not facts["journal"] and not facts.get("journal_problem"))


def _empty(cluster: ClusterFacts) -> RollbackPlan:
    """Return a plan without hosts: only what concerns the cluster, such as whether the controller is removed."""
    runtime = cluster["runtime"]
    return {
        **draft.empty(),
        "files": [], "unrestored": [], "kept": [], "forget": [], "copies": {},
        "nothing": "Nothing to restore: no journal lists a changed file.",
        # Leftovers of an interrupted rollout or removal are removed, too, because they contain the cloud's credentials.
        "controller": bool(runtime["managed"] if runtime["exists"] else runtime.get("leftovers")),
        "serving": _serving(cluster),
        "paused": [other for other in cluster["others"] if other.get("paused")],
        "tainted": [node["name"] for node in cluster["nodes"] if node.get("uninitialized")],
        "held": ["{namespace}/{name}".format(**service) for service in cluster["services"] if service.get("finalizer")],
    }


def _serving(cluster: ClusterFacts) -> List[str]:
    """Return the cloud-controller-managers that run now and that the rollback leaves alone."""
    runtime = cluster["runtime"]
    own = ["the one that this collection did not install"] if runtime["exists"] and not runtime["managed"] else []
    return own + ["{kind} {namespace}/{name}".format(**other) for other in cluster["others"] if other.get("active")]


def _hosts(plan: RollbackPlan, detected: Dict[str, HostFacts], unseen: Dict[str, HostAnswer], excluded_hosts: List[str],
           cluster: ClusterFacts, control_plane: List[str]) -> None:
    """Report the hosts that could not be inspected or are excluded, the problems of the others, and the Nodes that are not in the inventory."""
    plan["problems"] += unseen_hosts.rollback_problems(unseen_hosts.reasons(unseen), control_plane)
    for host in excluded_hosts:
        plan["warnings"].append("{0}: --limit excludes the host, which is not restored, so the controller stays".format(host))
    for host, facts in detected.items():
        wrong = facts.get("journal_problem") or ""
        if wrong:
            plan["problems"].append("{0}: {1}".format(host, wrong))
        plan["warnings"] += ["{0}: {1}".format(host, problem) for problem in facts["problems"] if problem != wrong]
    known = {facts["node_name"] for facts in detected.values()} | set(unseen) | set(excluded_hosts)
    plan["warnings"] += ["Node {0} is not in the inventory, so the run cannot check whether its kubelet needs the controller".format(node["name"])
                         for node in cluster["nodes"] if node["name"] not in known and plan["controller"]]


def _copies(plan: RollbackPlan, copies: JournalCopies) -> None:
    """Report the journals that are read from their copies in the cluster, and those about which a person must decide."""
    for host, item in copies.get("hosts", {}).items():
        if item["problem"]:
            plan["problems"].append("{0}: {1}".format(host, item["problem"]))
        elif item["source"] == "copy":
            plan["copies"][host] = item["place"]
            plan["notes"].append("{0}: {1}".format(host, item["note"]))
        elif item["note"]:
            plan["warnings"].append("{0}: {1}".format(host, item["note"]))
    plan["warnings"] += copies.get("said", [])


# -- files ------------------------------------------------------------------------------------------------------------


def decoded(content: str) -> str:
    """Return the text of a content in base64. Bytes that are not UTF-8 stay unchanged, as in draft.encoded."""
    return base64.b64decode(content).decode("utf-8", "surrogateescape")


def _steps(plan: RollbackPlan, host: str, facts: HostFacts, cluster_version: Tuple[int, int], force: bool) -> HostSteps:
    """Return the steps of a host: one for each component with a file in the journal that can be restored."""
    by_component: Dict[str, List[Restored]] = {}
    for path, entry in sorted(facts["journal"].items()):
        if path == KUBEADM_CONFIG:
            continue
        restored = _restore(plan, host, facts, path, entry, cluster_version, force)
        if restored is not None:
            by_component.setdefault(entry["component"], []).append(restored)
    steps: HostSteps = {"control_plane": [], "kubelet": None}
    for component in [name for name in ORDER + KUBELETS if name in by_component]:
        step = _step(plan, host, facts, component, by_component[component])
        if component in KUBELETS:
            steps["kubelet"] = step
        else:
            steps["control_plane"].append(step)
    return steps


def _restore(plan: RollbackPlan, host: str, facts: HostFacts, path: str, entry: JournalFacts,
             cluster_version: Tuple[int, int], force: bool) -> Optional[Restored]:
    """Return how to restore one file, None if it cannot be restored. Add the file, and what is wrong with it, to the
    plan."""
    file = facts["files"][path]
    now = decoded(file["content"]) if file["exists"] else None
    component = entry["component"]
    unknown = entry.get("problem") or file["problem"] or ("" if entry.get("baselines") else "the journal does not have its original")
    kind = None
    try:
        if unknown:
            raise undo.CannotUndo(unknown)
        kind = _kind(facts, path, entry)
        restored = restore(kind, path, entry["baselines"], now, file["sha256"], _version(facts, component, now, cluster_version))
    except undo.CannotUndo as exc:
        reason = "{0}: {1} cannot be restored: {2}".format(host, path, exc)
        if not force:
            plan["problems"].append("{0}. Restore it by hand, or set ccm_install_rollback_force: {1}".format(
                reason, "the file then stays as it is" if unknown else
                "the rollback then replaces it with its original and keeps a copy"))
            return None
        if unknown:
            plan["unrestored"].append({"host": host, "file": path, "reason": str(exc)})
            plan["warnings"].append(reason + ". It stays as it is")
            return None
        plan["warnings"].append(reason + ". The rollback replaces it with its original and keeps a copy")
        restored = _replaced(kind, path, entry["baselines"], now, _version(facts, component, now, cluster_version))
    plan["kept"] += ["{0}: {1}: {2}".format(host, path, sentence) for sentence in restored.kept]
    plan["files"].append({"host": host, "file": path, "component": component, "mode": restored.mode})
    _rows(plan, host, component, kind, restored)
    return restored


def restore(kind: Optional[undo.Kind], path: str, baselines: List[BaselineFacts], now: Optional[str], sha256: str,
            version: Tuple[int, int]) -> Restored:
    """Return the restored state of a file: undo its baselines, the newest first. C(sha256) is that of the current file. Raises CannotUndo."""
    mode, after = DONE, now
    kept: List[str] = []
    for baseline in baselines:
        original = decoded(baseline["original"]) if baseline["existed"] else None
        if sha256 == baseline["sha256"]:
            continue
        if sha256 in baseline["written_sha256"] and not _fatal(kind, original, after, version):
            after, sha256, mode = original, baseline["sha256"], BYTES if mode == DONE else mode
        elif after is None:
            return Restored(path, mode, now, None, kept + ["it was removed after the migration and stays removed"])
        elif not baseline["copied"] or kind is None:
            raise undo.CannotUndo("it was changed after the migration, and {0}".format(
                "the journal has no copy of what the migration wrote" if kind else "flags in a file of this kind cannot be told apart"))
        else:
            undone = undo.undo(kind, original or "", decoded(baseline["written"]), after, version)
            mode = FLAGS if undone.text != after else mode
            after, sha256 = undone.text, "(edited)"
            kept += undone.kept
    return Restored(path, mode, now, after, kept)


def _replaced(kind: Optional[undo.Kind], path: str, baselines: List[BaselineFacts], now: Optional[str], version: Tuple[int, int]) -> Restored:
    """Return the restored state of a file whose current content is discarded: the newest baseline's original, without the changes of earlier
    runs, if those can be undone in it."""
    newest, earlier = baselines[0], baselines[1:]
    original = decoded(newest["original"]) if newest["existed"] else None
    try:
        restored = restore(kind, path, earlier, original, newest["sha256"], version)
    except undo.CannotUndo:
        restored = Restored(path, BYTES, now, original, [])
    # The host's journal has the newest original itself (BYTES). Any other text must be in the step (FLAGS).
    if restored.after in (None, original):
        return Restored(path, BYTES, now, original, [])
    return Restored(path, FLAGS, now, restored.after, restored.kept)


def _fatal(kind: Optional[undo.Kind], original: Optional[str], now: Optional[str], version: Tuple[int, int]) -> bool:
    """Return whether a file's original has a flag with which this release does not start, and that the current file does not have."""
    if kind is None or original is None:
        return False
    try:
        return any(versions.fatal(component, flag.name, item, version)
                   for component, flags in kind.flags(original).items() for flag in flags if flag not in kind.flags(now or "").get(component, [])
                   for item in (flag.value.split(",") if flag.name in undo.LISTS else [flag.value]))
    except ValueError:
        return False


def _kind(facts: HostFacts, path: str, entry: JournalFacts) -> Optional[undo.Kind]:
    component = entry["component"]
    if component in ("k3s", "rke2"):
        return undo.Rancher(component)
    if component == "kubeadm-patches":
        name = patches.parse_name(path)
        return undo.Patch(name.component) if name and name.kind != "json" else None
    unit = _unit_of(facts, component)
    if unit:
        return undo.Unit(component, path, _sources(facts, unit, {}))
    return undo.Manifest(component) if path in facts["manifests"] else None


def _unit_of(facts: HostFacts, component: str) -> Optional[Union[UnitFacts, KubeletFacts]]:
    if component == "kubelet":
        return facts["kubelet"] if facts["kubelet"].get("unit_files") else None
    return facts["units"].get(component)


def _running(facts: HostFacts, component: str) -> Optional[List[str]]:
    """Return the managed flags that a component runs with; None, or [] for the kubelet, if it does not run."""
    if component == "kubelet":
        return facts["kubelet"].get("flags")
    return facts["components"][component]["flags"] if component in facts["components"] else None


def _sources(facts: HostFacts, unit: Union[UnitFacts, KubeletFacts], texts: Dict[str, Optional[str]]) -> _unit.Sources:
    paths = unit["unit_files"] + unit["environment_files"]
    there = {path: decoded(facts["files"][path]["content"]) if facts["files"][path]["exists"] else None for path in paths}
    return _unit.Sources(tuple(unit["unit_files"]), tuple(unit["environment_files"]), {**there, **texts})


def _version(facts: HostFacts, component: str, text: Optional[str], cluster_version: Tuple[int, int]) -> Tuple[int, int]:
    """Return the release that will read a file: that of the manifest's image, else of the running program, else of the cluster."""
    if component in KUBELETS:
        return versions.parse(facts["kubelet"].get("version", "")) or cluster_version
    try:
        image = manifest.image_of(load(text or ""))[1]
    except NotYaml:
        image = ""
    return versions.of_image(image) or versions.parse(host_facts.version_of(facts, component)) or cluster_version


# -- steps ------------------------------------------------------------------------------------------------------------


def _step(plan: RollbackPlan, host: str, facts: HostFacts, component: str, restored: List[Restored]) -> Step:
    """Return a step in the form of the forward plan. Original bytes come from the host's own journal, not from the plan."""
    files: List[StepFile] = []
    for item in restored:
        files.append({"path": item.path, "sha256": facts["files"][item.path]["sha256"]})
        if item.mode == FLAGS:
            files[-1]["content"] = draft.encoded(item.after or "")
        elif item.mode == DONE:
            files[-1]["keep"] = True
    after = _flags(facts, component, {item.path: item.after for item in restored})
    running = _running(facts, component)
    if all(item.mode == DONE for item in restored) and (
            facts["service"].get("stale") if component in ("k3s", "rke2") else running is not None and running != after):
        draft.edit(plan, host, component, "(the running process)", "--cloud-provider", " ".join(running or []) or None, " ".join(after) or None,
                   "its files are restored, but it was not restarted", draft.RISKS[component])
    service = facts["journal"][restored[0].path].get("service") or {}
    return {"component": component, "state": "restored", "files": files, "flags": after, "flags_before": _flags(facts, component, {}),
            "restart": False, "service": {key: service[key] for key in ("unit", "data_directory") if service.get(key)}}


def _flags(facts: HostFacts, component: str, texts: Dict[str, Optional[str]]) -> List[str]:
    """Return the managed flags that a component's files give it, with some texts replaced; [] if no file defines the
    component. Its process must show these flags."""
    unit = _unit_of(facts, component)
    if unit:
        return [render(flag.name, flag.value) for flag in _unit.flags(_sources(facts, unit, texts).command_line())]
    for path in facts["manifests"]:
        text = texts.get(path, decoded(facts["files"][path]["content"])) or ""
        try:
            if manifest.component_name(load(text)) == component:
                return [render(flag.name, flag.value) for flag in manifest.read(text, component).flags]
        except ValueError:
            continue  # not a manifest of a component
    return []


def _rows(plan: RollbackPlan, host: str, component: str, kind: Optional[undo.Kind], restored: Restored) -> None:
    """Add a row to the table for each flag that changes in a file, or one for the file."""
    if restored.mode == DONE:
        return
    risk = draft.RISKS.get("kubeadm-config" if component == "kubeadm-patches" else component, "")
    rows = _changed(kind, restored)
    for flag, now, then in rows or [("(the file)", "as the migration left it", None if restored.after is None else "as it was before")]:
        draft.edit(plan, host, component, restored.path, flag, now, then, WHY[restored.mode], risk)


def _changed(kind: Optional[undo.Kind], restored: Restored) -> List[Tuple[str, Optional[str], Optional[str]]]:
    try:
        old, new = ({} if kind is None else kind.flags(text or "") for text in (restored.before, restored.after))
    except ValueError:
        return []
    rows: List[Tuple[str, Optional[str], Optional[str]]] = []
    for part in dict.fromkeys([*old, *new]):
        before, after = old.get(part, []), new.get(part, [])
        for name in dict.fromkeys(flag.name for flag in before + after):
            now, then = ([flag.value for flag in flags if flag.name == name] for flags in (before, after))
            if now != then:
                rows.append(("--" + name, " ".join(now) if now else None, " ".join(then) if then else None))
    return rows


# -- hosts without a journal, and the cluster ---------------------------------------------------------------------------


def _check_accounted(plan: RollbackPlan, host: str, facts: HostFacts, force: bool) -> None:
    """Report a kubelet with --cloud-provider=external if the journal has no file of the kubelet. After the rollback, no controller would serve its Node."""
    if any(entry["component"] in KUBELETS for entry in facts["journal"].values()) or facts.get("journal_problem"):
        return
    if facts["service"]:
        texts = [(path, decoded(facts["files"][path]["content"]) if facts["files"][path]["exists"] else None)
                 for path in facts["service"]["config_files"]]
        external = rancher.is_external(facts["service"]["name"], texts, facts["service"]["arguments"])
    else:
        external = EXTERNAL in facts["kubelet"].get("flags", []) + _flags(facts, "kubelet", {})
    if not external:
        return
    reason = "its kubelet has {0}, but the journal on this host has no record of it: the journal was lost, or the Node joined " \
        "with the flag".format(EXTERNAL)
    if force:
        plan["unrestored"].append({"host": host, "file": "", "reason": reason})
        plan["warnings"].append("{0}: {1}. The kubelet stays as it is, and no controller initialises its Node any more".format(host, reason))
    else:
        plan["problems"].append(
            "{0}: {1}. After the rollback, no controller would initialise its Node. Restore the journal, remove the flag from its file by "
            "hand, or set ccm_install_rollback_force to leave the kubelet as it is".format(host, reason))


def _plan_kubeadm_config(plan: RollbackPlan, detected: Dict[str, HostFacts], cluster: ClusterFacts, control_plane: List[str],
                         version: Tuple[int, int], force: bool) -> None:
    """Plan the ConfigMap from the journal of one control plane. Each of them recorded it. A journal that lost the original is not used."""
    known = {host: detected[host]["journal"][KUBEADM_CONFIG] for host in control_plane
             if host in detected and KUBEADM_CONFIG in detected[host]["journal"]}
    plan["forget"] = sorted(known)
    current = cluster["kubeadm_config"]
    whole = [entry for entry in known.values() if entry.get("baselines")]
    if not known or not current["exists"]:
        return
    place = "ConfigMap kube-system/kubeadm-config"
    # Prefer a journal in which this collection wrote the current text.
    whole.sort(key=lambda entry: current["sha256"] not in entry["baselines"][0]["written_sha256"])
    try:
        if not whole:
            raise undo.CannotUndo(next(iter(known.values())).get("problem") or "no journal has its original")
        kind = undo.ClusterConfiguration("kubeadm")
        restored = restore(kind, place, whole[0]["baselines"], current["content"], current["sha256"], version)
    except undo.CannotUndo as exc:
        reason = "the {0} cannot be restored: {1}".format(place, exc)
        if force:
            plan["unrestored"].append({"host": "(cluster)", "file": place, "reason": str(exc)})
            plan["warnings"].append(reason + ". It stays as it is")
        else:
            plan["problems"].append(reason + ". Edit it with 'kubectl -n kube-system edit configmap kubeadm-config', or set "
                                             "ccm_install_rollback_force to leave it as it is")
        return
    plan["kept"] += ["{0}: {1}".format(place, sentence) for sentence in restored.kept]
    plan["files"].append({"host": "(cluster)", "file": place, "component": "kubeadm-config", "mode": restored.mode})
    _rows(plan, "(cluster)", "kubeadm-config", kind, restored._replace(path=place))
    if restored.mode != DONE:
        plan["kubeadm_config"] = {"path": KUBEADM_CONFIG, "content": draft.encoded(restored.after or ""), "sha256": current["sha256"]}
