# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kube-controller-manager's in-tree cloud loops do now, compared with what the new controller will do. Pure; runs on the Ansible controller.

takeover compares C(--cluster-name) of the other controllers.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm, manifest, unit
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import cloud_controllers, effective, is_true
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import EXTERNAL
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import NewController, Plan

COMPONENT = "kube-controller-manager"
NAMES = ("cloud-provider", "controllers", "cidr-allocator-type", "allocate-node-cidrs", "cluster-name", "cluster-cidr", "configure-cloud-routes")

#: From this release on, kube-controller-manager starts only with RangeAllocator, so no running process has another allocator.
REFUSED: versions.Version = (1, 32)

#: In-tree providers of supported releases whose route controller creates routes.
WITH_ROUTES = ("azure", "gce")


def check(plan: Plan, known: Dict[str, HostFacts], cluster: ClusterFacts, control_plane: Iterable[str], new: NewController) -> None:
    """Add problems for loops that would stop or work differently, and warnings for loops that would start."""
    version = versions.parse(cluster["version"]) or versions.SUPPORTED[1]
    for host in control_plane:
        flags = _flags(known[host]) if host in known else {}
        if not flags:
            continue
        if version < REFUSED and _needs_a_cloud(flags):
            plan["problems"].append("{0}: {1}".format(host, _allocator(flags["cidr-allocator-type"])))
        provider = flags.get("cloud-provider", "")
        if version < versions.IN_TREE_GONE and provider not in ("", EXTERNAL):
            plan["problems"] += ["{0}: {1}".format(host, text) for text in _differences(flags, provider, bool(cluster["services"]), new)]
            off = [item for item in cloud_controllers(flags.get("controllers", "")) if item.startswith("-")]
            if off:
                plan["warnings"].append("{0}: kube-controller-manager runs with --controllers={1}, so these cloud loops are off. The new controller "
                                        "runs them, unless ccm_runtime_controllers has the same items".format(host, ",".join(off)))
    if version < REFUSED and _needs_a_cloud(_of_kubeadm(cluster)):
        plan["problems"].append("the ConfigMap kube-system/kubeadm-config: {0}".format(
            _allocator(_of_kubeadm(cluster)["cidr-allocator-type"])))


def _flags(facts: HostFacts) -> Dict[str, str]:
    """Return the flags of kube-controller-manager in its manifest or unit; empty if they cannot be read, which the planner reports."""
    for path in facts["manifests"]:
        try:
            text = manifest.decoded(facts["files"][path])
            if manifest.component_name(load(text)) == COMPONENT:
                return effective(manifest.read(text, COMPONENT).argv, NAMES, whole=True)
        except (NotYaml, manifest.BadManifest):
            continue
    if COMPONENT in facts["units"]:
        try:
            line = unit.sources(facts["files"], facts["units"][COMPONENT]).command_line()
        except unit.UnitRefused:
            return {}
        return effective([argument.value for argument in line.arguments], NAMES, whole=True)
    return {}


def _of_kubeadm(cluster: ClusterFacts) -> Dict[str, str]:
    config = cluster.get("kubeadm_config") or {}
    try:
        flags = kubeadm.all_flags(config["content"]) if config.get("exists") else {}
    except (NotYaml, kubeadm.BadClusterConfiguration, EditRefused):
        return {}
    # kubeadm itself adds --allocate-node-cidrs if there is a pod subnet.
    return dict([("allocate-node-cidrs", "true")], **{flag.name: flag.value for flag in flags.get(COMPONENT, [])})


def _needs_a_cloud(flags: Dict[str, str]) -> bool:
    """Return whether the allocator of pod CIDRs needs an in-tree provider, so that the process stops without one as soon as it leads."""
    controllers = flags.get("controllers", "*").split(",")
    return flags.get("cidr-allocator-type", "RangeAllocator") not in ("", "RangeAllocator") and is_true(flags.get("allocate-node-cidrs", "false")) \
        and not {"-nodeipam", "-node-ipam-controller"}.intersection(controllers)


def _allocator(kind: str) -> str:
    return ("kube-controller-manager assigns pod CIDRs with --cidr-allocator-type={0}, which needs the in-tree provider: without it, the process stops "
            "as soon as it leads. Set --cidr-allocator-type=RangeAllocator, or set --allocate-node-cidrs=false and name node-ipam-controller in "
            "ccm_runtime_controllers, then run again".format(kind))


def _differences(flags: Dict[str, str], provider: str, services: bool, new: NewController) -> List[str]:
    """Return problems about what the new controller would do differently from the in-tree loops."""
    name, differences = flags.get("cluster-name", "kubernetes"), []
    ranges = _routes(flags, provider)
    if (services or ranges) and new.cluster_name and name != new.cluster_name:
        differences.append("kube-controller-manager runs with --cluster-name={0}, but ccm_runtime_cluster_name is {1}. The new controller would not find its "
                           "load balancers and routes, and would create new ones with other addresses. Set ccm_runtime_cluster_name: {0}".format(
                               name, new.cluster_name))
    if ranges and new.cluster_cidr is not None and _ranges(new.cluster_cidr) != _ranges(ranges):
        differences.append("kube-controller-manager creates routes for --cluster-cidr={0}, but the new controller {1}. New Nodes would get no routes. Set "
                           "ccm_runtime_cluster_cidr: {0}. If the Pod network needs no routes of the cloud, set --configure-cloud-routes=false for "
                           "kube-controller-manager first".format(
                               ranges, "creates them for " + new.cluster_cidr if new.cluster_cidr else "creates none"))
    return differences


def _routes(flags: Dict[str, str], provider: str) -> str:
    """Return the ranges for which the in-tree route controller creates routes, '' if it creates none (startRouteController of 1.30)."""
    off = {"-route", "-node-route-controller"}.intersection(flags.get("controllers", "*").split(","))
    runs = is_true(flags.get("allocate-node-cidrs", "false")) and is_true(flags.get("configure-cloud-routes", "true")) and not off
    return flags.get("cluster-cidr", "") if runs and provider in WITH_ROUTES else ""


def _ranges(text: str) -> Tuple[str, ...]:
    return tuple(sorted(item.strip() for item in text.split(",") if item.strip()))
