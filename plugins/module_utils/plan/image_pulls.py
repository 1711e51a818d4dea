# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Private images that only the kubelet's own credentials can pull. A run that removes the gate C(GATE) ends these credentials. Pure.

Running Pods stay, so nobody notices before a Pod is scheduled again.
"""

from __future__ import annotations

from typing import Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest, unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import image_pulls, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.image_pulls import GATE
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

FLAG = "image-credential-provider-config"


def check(plan: Plan, known: Dict[str, HostFacts], cluster: ClusterFacts) -> None:
    """Add a problem or a warning for each kubelet that has such credentials and no plug-in.

    It is a problem if the run removes the gate, and Pods have such images or may have some because Pods cannot be listed.
    """
    for host, facts in known.items():
        version = versions.parse(facts["kubelet"].get("version", "")) or versions.parse(cluster["version"]) or versions.SUPPORTED[1]
        registries = image_pulls.built_in(version)
        if facts["service"] or not registries:
            continue
        by_flag = any(_is_off(flag.partition("=")[2]) for flag in facts["kubelet"].get("flags", []) if flag.startswith("--feature-gates="))
        if not by_flag and not _off_in_files(facts) or _has_plugin(facts):
            continue
        images = [image for image in cluster.get("images") or [] if any(image_pulls.of_registry(image, item) for item in registries)]
        ends = by_flag and bool(versions.dead_gates("kubelet", GATE + "=false", version))
        stops = ends and (images or cluster.get("images") is None)
        (plan["problems"] if stops else plan["warnings"]).append(
            "{0}: its kubelet pulls private images of {1} with credentials of its own, because {2} is false. {3}. {4}. Before, {5} on the hosts, and "
            "set --image-credential-provider-bin-dir and --{6}. If no image needs credentials, remove the gate first".format(
                host, " and ".join(item.name for item in registries), GATE,
                "The run removes that gate" if ends else "They end with the upgrade to {0}".format(versions.show(
                    min(item.gone_in for item in registries))),
                _described(images, cluster), " and ".join("install " + item.plugin for item in registries), FLAG))


def _described(images: List[str], cluster: ClusterFacts) -> str:
    if cluster.get("images") is None:
        return "The kubeconfig's user may not list Pods, so it is unknown which of them have such images"
    return "Pods without imagePullSecrets have {0}".format(grouping.sample(images, "such image(s)") if images else "no such image now")


def _is_off(gates: str) -> bool:
    return any(versions.gate(item) == (GATE, True) for item in gates.split(","))


def _off_in_files(facts: HostFacts) -> bool:
    for path in facts["kubelet"].get("config_files", []):
        try:
            data = load(manifest.decoded(facts["files"][path]))
        except NotYaml:
            continue  # the planner reports it
        gates = data.get("featureGates") if isinstance(data, dict) else None
        if isinstance(gates, dict) and gates.get(GATE) is False:
            return True
    return False


def _has_plugin(facts: HostFacts) -> bool:
    try:
        return bool(unit.flags(unit.sources(facts["files"], facts["kubelet"]).command_line(), (FLAG,)))
    except unit.UnitRefused:
        return False  # the planner reports it
