# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cloud-related feature gates in places that this collection does not edit: KubeletConfiguration, kube-scheduler and kube-proxy.

Each gate is a warning that names its place, for kube-scheduler and kube-proxy also the line. Nothing breaks now, but the component would not start
after the next upgrade. A KubeletConfiguration that the kubelet cannot read is a problem. Pure; runs on the Ansible controller.
"""

from __future__ import annotations

from typing import Dict, Iterable, Mapping, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm, manifest, patches, unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Flag
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

SCHEDULER = "kube-scheduler"


def check_kubelet(plan: Plan, host: str, facts: HostFacts, version: Tuple[int, int]) -> None:
    """Warn of gates in the KubeletConfiguration, which belongs to the installer and is not edited. A file that is not YAML, or whose featureGates are not a
    mapping of gates to true or false, is a problem.
    """
    for path in facts["kubelet"]["config_files"]:
        try:
            data = load(manifest.decoded(facts["files"][path]))
        except NotYaml as exc:
            plan["problems"].append("{0}: {1} is not YAML: {2}. The kubelet cannot start with it. Fix it first".format(host, path, exc))
            continue
        gates = data.get("featureGates") if isinstance(data, dict) else None
        if not isinstance(gates, (dict, type(None))) or not all(isinstance(value, bool) for value in (gates or {}).values()):
            plan["problems"].append("{0}: {1} has featureGates that are not a mapping of gates to true or false. The kubelet cannot start with it. "
                                    "Fix it first".format(host, path))
            continue
        _warn_of_kubelet(plan, "{0}: {1}".format(host, path), gates or {}, version,
                         "remove it from the file and from the ConfigMap kube-system/kubelet-config, if there is one")


def _warn_of_kubelet(plan: Plan, where: str, gates: Mapping[str, object], version: Tuple[int, int], what: str) -> None:
    items = ",".join("{0}={1}".format(name, str(value).lower()) for name, value in gates.items())
    for item, fact in versions.dead_gates("kubelet", items, version):
        plan["warnings"].append("{0} has the feature gate {1}: {2}. Before the next upgrade, {3}".format(
            where, item, versions.why("kubelet", "feature-gates", version, fact.value), what))


def check_patch(plan: Plan, host: str, path: str, text: str, version: Tuple[int, int]) -> None:
    """Warn of gates in a patch of kube-scheduler or the KubeletConfiguration, which no run removes, and of names that this collection cannot edit in a patch.

    Raises PatchRefused, NotYaml and BadManifest.
    """
    name = patches.parse_name(path)
    if name is not None and name.component == SCHEDULER:
        _warn_of_flags(plan, host, {path: text}, patches.flags(path, text), version)
    for gates in patches.kubelet_gates(path, text):
        _warn_of_kubelet(plan, "{0}: the kubeadm patch {1}".format(host, path), gates, version,
                         "remove it, because 'kubeadm upgrade node' would write it into the KubeletConfiguration")
    names = patches.unread(path, text)
    if names:
        plan["warnings"].append("{0}: {1} names {2}, and {3}. Check whether the next kubeadm upgrade brings it back, and edit the file by hand".format(
            host, path, ", ".join(names), "kubeadm ignores a file of this name" if name is None else "not where this collection edits it"))


def check_scheduler(plan: Plan, host: str, facts: HostFacts, version: Tuple[int, int]) -> None:
    """Warn of the gates in kube-scheduler's manifest, unit and environment files."""
    for path in facts["manifests"]:
        try:
            text = manifest.decoded(facts["files"][path])
            if manifest.component_name(load(text)) == SCHEDULER:
                _warn_of_flags(plan, host, {path: text}, manifest.read(text, SCHEDULER).flags, version)
        except (NotYaml, manifest.BadManifest):
            continue  # the planner reports a file that is not YAML
    if SCHEDULER in facts["units"]:
        try:
            sources = unit.sources(facts["files"], facts["units"][SCHEDULER])
        except unit.UnitRefused as exc:
            plan["warnings"].append("{0}: {1}: {2}".format(host, SCHEDULER, exc))
            return
        texts = {path: text for path, text in sources.texts.items() if text is not None}
        _warn_of_flags(plan, host, texts, unit.flags(sources.command_line()), version)


def _warn_of_flags(plan: Plan, host: str, texts: Dict[str, str], flags: Iterable[Flag], version: Tuple[int, int]) -> None:
    for flag in flags:
        if flag.name == "feature-gates":
            places = ["{0} line {1}".format(path, number) for path, text in texts.items()
                      for number, line in enumerate(text.splitlines(), 1) if flag.value in line]
            _warn(plan, "{0}: {1}".format(host, (places or sorted(texts))[0]), flag.value, version)


def check_kubeadm(plan: Plan, cluster: ClusterFacts, version: Tuple[int, int]) -> None:
    """Warn of the gates that C(kubeadm upgrade) would write into kube-scheduler's manifest, and of those of kube-proxy."""
    for gate, line in kubeadm.scheduler_gates(cluster["kubeadm_config"]["content"]):
        _warn(plan, "the ConfigMap kube-system/kubeadm-config line {0}".format(line), gate, version)
    _check_kube_proxy(plan, cluster.get("kube_proxy", {}), version)


def _check_kube_proxy(plan: Plan, texts: Dict[str, str], version: Tuple[int, int]) -> None:
    """Warn of the gates in kube-proxy's ConfigMap. kube-proxy knows the same gates as kube-scheduler, and does not start with any other gate."""
    for key, text in texts.items():
        try:
            data = load(text)
        except NotYaml:
            continue  # the ConfigMap also has a kubeconfig, and may have anything
        gates = data.get("featureGates") if isinstance(data, dict) and data.get("kind") == "KubeProxyConfiguration" else None
        for name, value in gates.items() if isinstance(gates, dict) else ():
            line = next((number for number, line in enumerate(text.splitlines(), 1) if str(name) in line), 1)
            _warn(plan, "the ConfigMap kube-system/kube-proxy, {0} line {1},".format(key, line), "{0}={1}".format(name, str(value).lower()), version,
                  "kube-proxy")


def _warn(plan: Plan, where: str, gates: str, version: Tuple[int, int], component: str = SCHEDULER) -> None:
    for item, fact in versions.dead_gates(SCHEDULER, gates, version):
        plan["warnings"].append("{0} gives {1} the feature gate {2}: {3}. Remove it before the next upgrade".format(
            where, component, item.strip(), versions.why(SCHEDULER, "feature-gates", version, fact.value).replace(SCHEDULER, component)))
