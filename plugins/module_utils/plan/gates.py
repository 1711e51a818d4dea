# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cloud-related feature gates in places that this collection does not edit: KubeletConfiguration and kube-scheduler.

They are warnings with file and line. Nothing breaks now, but the component would not start after the next upgrade. Pure, controller side.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm, manifest, unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Flag
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts

SCHEDULER = "kube-scheduler"


def check_kubelet(plan: Dict[str, Any], host: str, facts: HostFacts, version: Tuple[int, int]) -> None:
    """Warn of gates in the KubeletConfiguration, which belongs to the installer and is not edited."""
    for path in facts["kubelet"]["config_files"]:
        try:
            data = load(manifest.decoded(facts["files"][path]))
        except NotYaml as exc:
            plan["problems"].append("{0}: {1} is not YAML: {2}. The kubelet cannot start with it. Fix it first".format(host, path, exc))
            continue
        gates = data.get("featureGates") if isinstance(data, dict) else None
        items = ",".join("{0}={1}".format(name, str(value).lower()) for name, value in (gates or {}).items())
        for item, fact in versions.dead_gates("kubelet", items, version):
            plan["warnings"].append("{0}: {1} has the feature gate {2}: {3}. Before the next upgrade, remove it from the file and from "
                                    "the ConfigMap kube-system/kubelet-config, if there is one".format(
                                        host, path, item, versions.why("kubelet", "feature-gates", version, fact.value)))


def check_scheduler(plan: Dict[str, Any], host: str, facts: HostFacts, version: Tuple[int, int]) -> None:
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


def _warn_of_flags(plan: Dict[str, Any], host: str, texts: Dict[str, str], flags: Iterable[Flag], version: Tuple[int, int]) -> None:
    for flag in flags:
        if flag.name == "feature-gates":
            places = ["{0} line {1}".format(path, number) for path, text in texts.items()
                      for number, line in enumerate(text.splitlines(), 1) if flag.value in line]
            _warn(plan, "{0}: {1}".format(host, (places or sorted(texts))[0]), flag.value, version)


def check_scheduler_of_kubeadm(plan: Dict[str, Any], text: str, version: Tuple[int, int]) -> None:
    """Warn of the gates that C(kubeadm upgrade) would write into kube-scheduler's manifest."""
    for gate, line in kubeadm.scheduler_gates(text):
        _warn(plan, "the ConfigMap kube-system/kubeadm-config line {0}".format(line), gate, version)


def _warn(plan: Dict[str, Any], where: str, gates: str, version: Tuple[int, int]) -> None:
    for item, fact in versions.dead_gates(SCHEDULER, gates, version):
        plan["warnings"].append("{0} gives kube-scheduler the feature gate {1}: {2}. Remove it before the next upgrade".format(
            where, item.strip(), versions.why(SCHEDULER, "feature-gates", version, fact.value)))
