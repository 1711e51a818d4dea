# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The linter: which cloud flags, gates, admission plugins and objects stop which component at which Kubernetes minor.

It judges the settings of hosts and of the cluster for an upgrade, with or without a cloud-controller-manager, and decides nothing about
a migration. Pure; runs on the Ansible controller. The facts are those of versions.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, TypedDict

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm, manifest, patches, rancher, unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, unseen, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import FileFacts, HostAnswer, HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping, volumes

CONFIG_MAP = "configmap:kube-system/kubeadm-config"
#: The component of a finding about volumes.
VOLUMES = "volumes"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
#: Keys of k3s and RKE2 with arguments of a component.
RANCHER_KEYS = {"{0}-arg".format(name): name for name in COMPONENTS + ("kubelet",)}
#: Now: the component of this or the next minor does not start, or a CSI driver is not registered where Pods use its volumes.
#: Later: the component of a later minor does not start. Unused: the component ignores the setting. All other findings about volumes are unused.
NOW, LATER, UNUSED = "now", "later", "unused"
#: Maximum number of findings, and of characters, that a condition quotes, because `kubectl` shows it on one line.
QUOTED, CONDITION = 3, 1500
#: The levels in SARIF.
SARIF_LEVELS = {NOW: "error", LATER: "warning", UNUSED: "note"}


class Setting(NamedTuple):
    """A flag (or field) of a component with its value, and where it is given. C(line) is 0 if it is unknown."""

    host: str
    component: str
    file: str
    line: int
    flag: str
    value: str


class Finding(TypedDict):
    """A setting or an object that the linter reports; lint describes the keys."""

    host: str
    component: str
    file: str
    line: int
    flag: str
    item: str
    level: str
    stops_in: Optional[str]
    reason: str
    fix: str


class Condition(TypedDict):
    """The condition of Kubernetes about whether the components of the next minor start; `text` begins its message."""

    status: str
    reason: str
    text: str


class Lint(TypedDict):
    """The linter's result."""

    version: str
    newest: str
    findings: List[Finding]
    unread: List[str]
    ok: bool
    lines: List[str]
    condition: Condition


def lint(detected: Dict[str, HostAnswer], cluster: ClusterFacts) -> Lint:
    """Return C(findings), C(unread) (what could not be read, with the reason), C(ok) and C(lines) for people.

    A finding has C(host), C(component), C(file), C(line), C(flag), C(item), C(level), C(stops_in), C(reason) and C(fix). C(stops_in) is the minor from which on
    the component does not start, None if it always starts. A finding about volumes has the component C(volumes), an object as C(file), the in-tree plug-in as
    C(flag) and its CSI driver as C(item). C(ok) is false if a finding has the level now, or if something could not be read. C(condition) says whether the
    components of the next minor start, for a condition in the cluster.
    """
    sorted_facts = host_facts.sorted_out(detected)
    known = host_facts.usable(sorted_facts)
    unread = ["{0}: {1}".format(host, unseen.reason(facts)) for host, facts in sorted_facts.items() if host not in known]
    version = versions.parse(cluster["version"]) or versions.SUPPORTED[0]
    settings: List[Setting] = []
    for host, facts in known.items():
        settings += _of_host(host, facts, unread)
    settings += _of_kubeadm(cluster, unread)
    findings = [finding for item in settings for finding in _judged(item, version)]
    findings += _of_volumes(cluster, unread)
    findings.sort(key=lambda item: ((NOW, LATER, UNUSED).index(item["level"]), item["stops_in"] or "", item["host"], item["file"]))
    ok = not unread and not any(finding["level"] == NOW for finding in findings)
    return {"version": versions.show(version), "newest": versions.show(versions.SUPPORTED[1]), "findings": findings, "unread": unread,
            "ok": ok, "lines": _lines(findings, unread, version), "condition": _condition(findings, unread, version)}


def preview(known: Dict[str, HostFacts], cluster: ClusterFacts, version: versions.Version) -> List[str]:
    """Return a sentence for each setting with which a component of this or the next minor does not start, and that no run removes.

    Settings that concern clouds are not among them: the planner edits them, or reports why it does not.
    """
    unread: List[str] = []  # the planner reports what it cannot read
    settings = [item for host, facts in known.items() for item in _of_host(host, facts, unread)] + list(_of_kubeadm(cluster, unread))
    findings = [finding for item in settings for finding in _judged(item, version)]
    return ["{0}: {1}, before the upgrade to {2}".format(_where(finding), _sentence(finding), finding["stops_in"]) for finding in findings
            if finding["level"] == NOW and not versions.concerns_clouds(finding["flag"].lstrip("-"), finding["item"])]


def sarif(result: Lint) -> Dict[str, Any]:
    """Return the result of lint as SARIF 2.1.0, which code scanners read. A file's host is a part of its URI."""
    rules = {_rule(finding): finding["reason"] for finding in result["findings"]}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "outoftree.ccm.lint", "rules": [
                {"id": rule, "shortDescription": {"text": reason}} for rule, reason in sorted(rules.items())]}},
            "results": [_sarif_result(finding) for finding in result["findings"]],
        }],
    }


def _sarif_result(finding: Finding) -> Dict[str, Any]:
    uri = "{0}/{1}".format(finding["host"] or "cluster", finding["file"].lstrip("/"))
    location: Dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if finding["line"]:
        location["region"] = {"startLine": finding["line"]}
    return {"ruleId": _rule(finding), "level": SARIF_LEVELS[finding["level"]], "message": {"text": _sentence(finding)},
            "locations": [{"physicalLocation": location}]}


def _rule(finding: Finding) -> str:
    return "/".join(part for part in (finding["component"], finding["flag"].lstrip("-"), finding["item"].partition("=")[0]) if part)


# -- settings ---------------------------------------------------------------------------------------------------------


def _of_host(host: str, facts: HostFacts, unread: List[str]) -> Iterator[Setting]:
    for path in facts["manifests"]:
        try:
            text = manifest.decoded(facts["files"][path])
            name = manifest.component_name(load(text))
            if name in COMPONENTS:
                yield from _placed(host, name, {path: text}, find_flags(manifest.read(text, name).argv, versions.flags_of(name)))
        except (NotYaml, manifest.BadManifest) as exc:
            unread.append("{0}: {1}: {2}".format(host, path, exc))
    described: List[Tuple[str, Any]] = list(facts["units"].items()) + [("kubelet", facts["kubelet"])]
    for name, description in [item for item in described if item[1].get("unit_files")]:
        try:
            sources = unit.sources(facts["files"], description)
            texts = {path: text for path, text in sources.texts.items() if text is not None}
            yield from _placed(host, name, texts, unit.flags(sources.command_line(), versions.flags_of(name)))
        except unit.UnitRefused as exc:
            unread.append("{0}: {1}: {2}".format(host, name, exc))
    for path in facts["kubelet"].get("config_files", []):
        yield from _of_kubelet_configuration(host, path, facts["files"][path], unread)
    for path in facts["patches"]:
        yield from _of_patch(host, path, facts["files"][path], unread)
    yield from _of_rancher(host, facts, unread)


def _placed(host: str, component: str, texts: Dict[str, str], flags: Iterable[Any]) -> Iterator[Setting]:
    for flag in flags:
        file, line = _place(texts, flag.name, flag.value)
        yield Setting(host, component, file, line, "--" + flag.name, flag.value)


def _place(texts: Dict[str, str], name: str, value: str) -> Tuple[str, int]:
    """Return the file and the line that most likely set a flag: the last line with its name and value, else the last line with its name. If no line
    has the name, return the first file, or '' if there is none, and line 0.
    """
    lines = [(path, number, line) for path, text in texts.items() for number, line in enumerate(text.splitlines(), 1)
             if name in line.replace("_", "-") and not line.lstrip().startswith("#")]
    exact = [item for item in lines if value in item[2]]
    path, number, unused = (exact or lines or [(sorted(texts)[0] if texts else "", 0, "")])[-1]
    return path, number


def _of_kubelet_configuration(host: str, path: str, entry: FileFacts, unread: List[str]) -> Iterator[Setting]:
    try:
        text = manifest.decoded(entry)
        data = load(text)
    except NotYaml as exc:
        unread.append("{0}: {1}: {2}".format(host, path, exc))
        return
    gates = data.get("featureGates") if isinstance(data, dict) else None
    yield from _of_gates(host, path, text, gates if isinstance(gates, dict) else {})


def _of_gates(host: str, path: str, text: str, gates: Mapping[str, object]) -> Iterator[Setting]:
    for name, value in gates.items():
        if isinstance(value, bool):
            unused, line = _place({path: text}, str(name), str(value).lower())
            yield Setting(host, "kubelet", path, line, "feature-gates", "{0}={1}".format(name, str(value).lower()))


def _of_patch(host: str, path: str, entry: FileFacts, unread: List[str]) -> Iterator[Setting]:
    try:
        name = patches.parse_name(path)
        text = manifest.decoded(entry)
        flags, gates = patches.flags(path, text), patches.kubelet_gates(path, text)
    except (patches.PatchRefused, manifest.BadManifest, NotYaml) as exc:
        unread.append("{0}: {1}: {2}".format(host, path, exc))
        return
    yield from _placed(host, name.component if name else "", {path: text}, flags)
    for data in gates:
        yield from _of_gates(host, path, text, data)
    names = patches.unread(path, text)
    if names:
        unread.append("{0}: {1} names {2}, and not as a component's arguments or gates".format(host, path, ", ".join(names)))


def _of_rancher(host: str, facts: HostFacts, unread: List[str]) -> Iterator[Setting]:
    service = facts["service"]
    if not service:
        return
    try:
        files: List[Tuple[str, Optional[str]]] = [(path, rancher.decoded(path, facts["files"][path])) for path in service["config_files"]]
        texts = {path: text for path, text in files if text is not None}
        for key, component in RANCHER_KEYS.items():
            values = rancher.values(service["name"], files, service["arguments"], key)
            arguments = [value if value.startswith("--") else "--" + value for value in values]
            yield from _placed(host, component, texts or {service["unit"]: ""}, find_flags(arguments, versions.flags_of(component)))
    except rancher.RancherRefused as exc:
        unread.append("{0}: {1}".format(host, exc))


def _of_kubeadm(cluster: ClusterFacts, unread: List[str]) -> Iterator[Setting]:
    config = cluster.get("kubeadm_config") or {}
    text = config.get("content", "") if config.get("exists") else ""
    if not text:
        return
    try:
        flags = kubeadm.all_flags(text)
        gates = kubeadm.scheduler_gates(text)
        api = str(load(text).get("apiVersion", ""))
    except (NotYaml, kubeadm.BadClusterConfiguration, EditRefused) as exc:
        unread.append("{0}: {1}".format(CONFIG_MAP, exc))
        return
    for component, known_flags in flags.items():
        known = versions.flags_of(component)
        yield from _placed("", component, {CONFIG_MAP: text}, [flag for flag in known_flags if flag.name in known])
    for value, line in gates:
        yield Setting("", "kube-scheduler", CONFIG_MAP, line, "--feature-gates", value)
    yield Setting("", "kubeadm", CONFIG_MAP, _place({CONFIG_MAP: text}, "apiVersion", api)[1], "apiVersion", api)


def _of_volumes(cluster: ClusterFacts, unread: List[str]) -> Iterator[Finding]:
    """Yield a finding for each in-tree plug-in of volumes whose CSI driver is not installed, or not registered where Pods use its volumes."""
    volumes_ = cluster.get("volumes") or {}
    unread += ["{0}: the kubeconfig's user may not list them".format(kind) for kind in volumes_.get("unread", [])]
    for row in volumes.rows(volumes_, set()):
        classes = ["StorageClass/" + item["name"] for item in row["storage_classes"]]
        objects = ["Pod/" + name for name in row["others_pods"]] + ["PersistentVolume/" + name for name in row["persistent_volumes"]] + classes
        objects += [name.replace(" ", "/") for name in row["inline"]] + ["Pod/" + name for name in row["pods"]]
        where = grouping.compact(row["others_without"])
        if row["others_without"]:
            reason = "Pods use them on {0}, where {1} is not registered".format(where, row["driver"] or "no driver")
        elif row["installed"] is False:
            reason = "no running Pod uses them" if not row["nodes"] else "their driver is registered, but has no CSIDriver"
        else:
            continue
        yield {"host": "", "component": VOLUMES, "file": objects[0], "line": 0, "flag": row["source"], "item": row["driver"],
               "level": NOW if row["others_without"] and row["driver"] else UNUSED, "stops_in": None, "reason": reason,
               "fix": ("install {0}{1}".format(row["driver"], " on " + where if where else "") if row["driver"] else "delete them")}


# -- findings ---------------------------------------------------------------------------------------------------------


def _judged(setting: Setting, version: versions.Version) -> Iterator[Finding]:
    by_item: Dict[str, List[versions.Fact]] = {}
    for item, fact in versions.about(setting.component, setting.flag.lstrip("-"), setting.value):
        by_item.setdefault(item, []).append(fact)
    for item, facts in by_item.items():
        fatal = [(fact.fatal_in, fact) for fact in facts if fact.fatal_in is not None]
        ignored = [(None, fact) for fact in facts if fact.no_effect_in is not None and fact.no_effect_in <= version]
        for stops, fact in sorted(fatal, key=lambda pair: pair[0])[:1] or ignored[:1]:
            yield _finding(setting, item, version, stops, fact.reason)


def _finding(setting: Setting, item: str, version: versions.Version, stops: Optional[versions.Version], reason: str) -> Finding:
    level = UNUSED if stops is None else NOW if stops <= (version[0], version[1] + 1) else LATER
    finding: Finding = {
        "host": setting.host, "component": setting.component, "file": setting.file, "line": setting.line, "flag": setting.flag, "item": item,
        "level": level, "stops_in": None if stops is None else versions.show(stops), "reason": reason, "fix": ""}
    finding["fix"] = _fix(finding)
    return finding


def _fix(finding: Finding) -> str:
    what = finding["item"] if finding["item"] and finding["flag"].lstrip("-") != "cloud-provider" else finding["flag"]
    if finding["flag"] == "apiVersion":
        return "convert it with 'kubeadm config migrate'"
    if finding["file"] == CONFIG_MAP:
        return "remove {0}, because the next 'kubeadm upgrade' writes it into the manifest".format(what)
    if finding["component"] == "kubelet" and finding["flag"] == "--cloud-provider":
        return "set it to external, with a cloud-controller-manager in the cluster"
    return "remove {0}".format(what)


def _sentence(finding: Finding) -> str:
    if finding["component"] == VOLUMES:
        driver = "the CSI driver {0}".format(finding["item"]) if finding["item"] else "a CSI driver, which does not exist"
        return "volumes of {0} need {1}: {2}. To fix it, {3}".format(finding["flag"], driver, finding["reason"], finding["fix"])
    what = "{0} {1}".format(finding["flag"], finding["item"]) if finding["item"] else finding["flag"]
    effect = "{0} of {1} does not start with {2}".format(finding["component"], finding["stops_in"], what) if finding["stops_in"] else \
        "{0} ignores {1}".format(finding["component"], what)
    return "{0}: {1}. To fix it, {2}".format(effect, finding["reason"], finding["fix"])


def _where(finding: Finding) -> str:
    return ":".join(part for part in (finding["host"], finding["file"], str(finding["line"] or "")) if part)


def _lines(findings: List[Finding], unread: List[str], version: versions.Version) -> List[str]:
    lines = []
    for finding in findings:
        lines.append("{0:6} {1}".format(finding["level"], _where(finding)))
        lines.append("       " + _sentence(finding))
    lines += ["unread {0}".format(text) for text in unread]
    flags = [finding for finding in findings if finding["component"] != VOLUMES]
    count = {level: sum(finding["level"] == level for finding in flags) for level in (NOW, LATER, UNUSED)}
    summary = "Kubernetes {0}, checked up to {1}. Findings: {2} fatal in this minor or the next, {3} fatal in a later one, {4} without effect" \
        .format(versions.show(version), versions.show(versions.SUPPORTED[1]), count[NOW], count[LATER], count[UNUSED])
    if len(flags) < len(findings):
        summary += ", {0} kind(s) of volumes have no driver".format(len(findings) - len(flags))
    return lines + [summary + (", {0} could not be read".format(len(unread)) if unread else "")]


# -- the condition in the cluster -------------------------------------------------------------------------------------


def _condition(findings: List[Finding], unread: List[str], version: versions.Version) -> Condition:
    """Return the condition about the next minor. It is True only if nothing stops a component, everything was read, and the facts of that minor are known."""
    following = (version[0], version[1] + 1)
    blocking = ["{0}: {1}".format(_where(finding), _sentence(finding)) for finding in findings if finding["level"] == NOW]
    later = sum(finding["level"] == LATER for finding in findings)
    if blocking:
        status, reason, texts = "False", "Blocked", blocking
    elif unread:
        # Only names: a parser's message may quote a line, and everybody who may read namespaces can read the condition.
        names = sorted({text.partition(": ")[0] for text in unread})
        status, reason, texts = "Unknown", "NotRead", ["{0} could not be read, and outoftree.ccm.lint says why".format(grouping.compact(names))]
    elif following > versions.SUPPORTED[1]:
        known = "this release of outoftree.ccm knows Kubernetes up to {0}. Update it".format(versions.show(versions.SUPPORTED[1]))
        status, reason, texts = "Unknown", "NextMinorNotKnown", [known]
    else:
        status, reason = "True", "NothingFound"
        texts = ["no component stops" + (". Findings for a later minor: {0}".format(later) if later else "")]
    text = "{0} to {1}: {2}".format(versions.show(version), versions.show(following), _quoted(texts))
    return {"status": status, "reason": reason, "text": text}


def _quoted(texts: List[str]) -> str:
    """Return the first texts as one line, and how many more there are. Each text is cut to its share, because hosts write them."""
    room = CONDITION // QUOTED
    lines = [" ".join(host_facts.readable(text).split()) for text in texts[:QUOTED]]
    parts = [line if len(line) <= room else line[:room - 3] + "..." for line in lines]
    return "; ".join(parts + (["and {0} more: outoftree.ccm.lint lists them".format(len(texts) - QUOTED)] if len(texts) > QUOTED else []))
