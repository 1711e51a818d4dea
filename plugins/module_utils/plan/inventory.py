# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the inventory with the cluster: does every host have a Node, and can this cluster be migrated at all?

Pure; runs on the Ansible controller. It adds problems, warnings and C(unseen) to the plan.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Set

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions as _versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts, NodeSelector
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostAnswer, HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping, unseen_hosts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

#: A kubelet may be this many minor releases older than its API server, and never newer (version skew policy).
SKEW = 3

#: Parts of the API server's version that identify a managed service.
MANAGED_VERSIONS = (("-eks-", "EKS"), ("-gke.", "GKE"))


def with_versions(detected: Dict[str, HostFacts], cluster: ClusterFacts) -> Dict[str, HostFacts]:
    """Return the hosts' facts with the version that each kubelet reports on its Node. It takes precedence over the host's own answer."""
    reported = {node["name"]: node.get("kubelet_version", "") for node in cluster["nodes"]}
    completed = {}
    for host, facts in detected.items():
        completed[host] = facts
        if reported.get(facts["node_name"]):
            completed[host] = facts.copy()
            completed[host]["kubelet"] = facts["kubelet"].copy()
            completed[host]["kubelet"]["version"] = reported[facts["node_name"]]
    return completed


def check_claims(plan: Plan, cluster: ClusterFacts, control_plane: List[str], names: Dict[str, List[str]]) -> None:
    """Refuse to change a Node only because a worker claims to be that Node.

    A compromised worker could otherwise have another host's Node tainted, or drained and deleted. C(names) are the inventory's names
    and addresses by host.
    """
    nodes = {node["name"]: node for node in cluster["nodes"]}
    for host, name in plan["nodes"].items():
        changed = name in plan["adopt"] or host in plan["reregister"]
        if host in control_plane or not changed or host_facts.proven(name, nodes.get(name), names.get(host) or [host]):
            continue
        plan["problems"].append(
            "{0}: the host claims to be the Node {1}, which the run would change, but nothing else confirms it: the inventory has neither "
            "that name nor an address of that Node for this host. If it is correct, set ccm_install_node_name for this host".format(
                host, name))


def check(plan: Plan, detected: Dict[str, HostFacts], cluster: ClusterFacts, control_plane: List[str],
          unseen: Optional[Dict[str, HostAnswer]] = None, excluded_hosts: Sequence[str] = (), away: Sequence[str] = ()) -> None:
    """Add the problems that prevent the migration, and warnings for the operator.

    C(unseen): the answers of hosts that could not be inspected. C(excluded_hosts): hosts that C(--limit) excludes. C(away): hosts
    without a Node that will register one.
    """
    _check_managed(plan, cluster)
    _check_selector(plan, cluster.get("node_selector"))
    unseen = unseen or {}
    plan["unseen"] = unseen_hosts.reasons(unseen)
    plan["problems"] += unseen_hosts.problems(plan["unseen"], control_plane)
    if excluded_hosts:
        plan["warnings"].append("--limit excludes {0} host(s), which are neither inspected nor changed: {1}".format(
            len(excluded_hosts), grouping.compact(sorted(excluded_hosts, key=grouping.in_order))))
    _check_excluded(plan, detected, cluster, [host for host in control_plane if host in excluded_hosts])
    strange = _check_nodes(plan, {host: facts for host, facts in detected.items() if host not in away}, cluster, {*unseen, *excluded_hosts})
    if not strange:
        _check_control_plane(plan, detected, cluster, control_plane, {*unseen, *excluded_hosts})
    _check_versions(plan, detected, cluster, control_plane)


def _check_excluded(plan: Plan, detected: Dict[str, HostFacts], cluster: ClusterFacts, excluded_hosts: List[str]) -> None:
    """Refuse to start the external controller while excluded control planes may still run the cloud's loops in kube-controller-manager."""
    version = _versions.parse(cluster["version"])
    managers = [facts["components"].get("kube-controller-manager") for facts in detected.values()]
    flags = [flag for running in managers if running for flag in running["flags"]]
    if excluded_hosts and version is not None and version < _versions.IN_TREE_GONE and any(
            flag.startswith("--cloud-provider=") and not flag.endswith("=") for flag in flags):
        plan["problems"].append(
            "--limit excludes the control plane(s) {0}. Up to 1.30, kube-controller-manager there may run the cloud loops of an in-tree "
            "provider, and two controllers would change the same load balancers and routes. Run without --limit, or include the whole "
            "group kube_control_plane".format(", ".join(sorted(excluded_hosts))))


def _check_managed(plan: Plan, cluster: ClusterFacts) -> None:
    signs = ["the API server is {0} ({1})".format(cluster["version"], service)
             for mark, service in MANAGED_VERSIONS if mark in cluster["version"]]
    signs += ["Node {0} belongs to {1}".format(node["name"], node["managed_by"])
              for node in cluster["nodes"] if node["managed_by"]]
    if signs:
        plan["problems"].append(
            "this is a managed cluster: {0}. The service runs its control plane and its own cloud-controller-manager, so there is "
            "nothing to migrate. This collection is for clusters whose control planes you run yourself".format(signs[0]))


def _check_selector(plan: Plan, selector: Optional[NodeSelector]) -> None:
    """Refuse a cluster in which no node would run the controller, such as one whose installer set no labels."""
    if selector and selector.get("labels") and not selector["nodes"]:
        labels = " ".join("{0}={1}".format(name, value) for name, value in sorted(selector["labels"].items()))
        plan["problems"].append(
            "no Node has the labels {0}, so no node would run the controller. Set them on the control planes with 'kubectl label node NAME "
            "{0}', or choose other labels with ccm_runtime_node_selector".format(labels))


def _check_nodes(plan: Plan, detected: Dict[str, HostFacts], cluster: ClusterFacts, unknown: Set[str]) -> bool:
    """Add problems and warnings about the hosts' Nodes; return whether the cluster was refused as the wrong one, so that other checks make no sense."""
    names = {node["name"] for node in cluster["nodes"]}
    seen: Dict[str, str] = {}
    strange = _check_cluster(plan, [facts["node_name"] for facts in detected.values() if facts["node_name"]], names)
    for host, facts in detected.items():
        name = facts["node_name"]
        if name and name not in names and not strange:
            plan["problems"].append(
                "{0}: its kubelet should register as {1}, but the cluster has no such Node (it has {2}). {3}".format(
                    host, name, grouping.sample(sorted(names), "Nodes"), _way_to_name(facts)))
        if name and name in seen:
            plan["problems"].append("{0} and {1} are the same Node {2}. Remove one of them from the inventory"
                                    .format(seen[name], host, name))
        seen[name] = host
    if not strange:
        plan["warnings"] += ["Node {0} is not in the inventory, so the run does not change its kubelet".format(name)
                             for name in sorted(names - set(seen) - unknown)]
    return strange


def _way_to_name(facts: HostFacts) -> str:
    """Return the advice for a host whose assumed Node does not exist.

    If its kubelet would register under exactly the assumed name when it restarts, its own setting must change: with C(ccm_install_node_name) alone, it would
    register a second Node. Otherwise that variable is set.
    """
    registers = facts.get("registers")
    if registers is None or registers["metadata"] or registers["name"] != facts["node_name"]:
        return "Set ccm_install_node_name for this host"
    return "If its Node has another name, write that name into {0}, because the kubelet takes its name from {1} when it restarts, and would " \
        "register a second Node".format(_name_setting(facts), registers["setting"])


def _name_setting(facts: HostFacts) -> str:
    service = facts["service"]
    return "node-name in {0}".format(service["config_files"][0]) if service else "--hostname-override"


def check_name(plan: Plan, host: str, facts: HostFacts) -> None:
    """Refuse to restart a kubelet that would then register under another name than that of its Node."""
    registers = facts.get("registers")
    if registers and facts["node_name"] and registers["name"] != facts["node_name"]:
        plan["problems"].append(
            "{0}: its Node is {1}, but its kubelet would register a second Node as {2} when it restarts with an external cloud ({3}). Set "
            "{4}={1}, then run again".format(host, facts["node_name"], registers["name"], registers["setting"], _name_setting(facts)))


def _check_cluster(plan: Plan, ours: List[str], names: Set[str]) -> bool:
    """Refuse a cluster that has none of the hosts' Nodes; return whether it was refused. A single host may just have another name."""
    if len(ours) < 2 or names.intersection(ours):
        return False
    plan["problems"].append(
        "none of the {0} hosts' names is a Node of this cluster: wrong kubeconfig? Their kubelets should register as {1}, but the cluster "
        "has {2}. If it is the right cluster, set ccm_install_node_name for each host".format(
            len(ours), grouping.compact(sorted(ours, key=grouping.in_order)), grouping.sample(sorted(names), "Nodes")))
    return True


def _check_control_plane(plan: Plan, detected: Dict[str, HostFacts], cluster: ClusterFacts,
                         control_plane: List[str], unknown: Set[str]) -> None:
    for host in control_plane:
        facts = detected.get(host)
        if facts is None:
            continue
        service = facts["service"]
        if service and not service["server"]:
            plan["problems"].append("{0}: is in kube_control_plane but runs {1}, an agent. Move it to kube_node"
                                    .format(host, service["unit"]))
        elif not service and facts["kubelet"].get("unit_files") and not facts["manifests"] and not facts["units"]:
            plan["problems"].append(
                "{0}: is in kube_control_plane but has neither static Pod manifests in {1} nor a unit kube-apiserver.service. "
                "If it is a worker, move it to kube_node. Otherwise this release does not support its layout".format(
                    host, facts["kubelet"]["static_pod_path"]))
    ours = {detected[host]["node_name"] for host in control_plane if host in detected}
    for node in cluster["nodes"]:
        if node["control_plane"] and node["name"] not in ours and not unknown.intersection(control_plane):
            plan["problems"].append(
                "Node {0} is a control plane, but no host of kube_control_plane is that Node. Its API server would keep flags that the "
                "others lose. Add it to the group".format(node["name"]))
        if node["etcd_voter"] is False:
            plan["problems"].append(
                "Node {0} is not a voter of etcd now, and another restart could lose the quorum. Wait until it votes, or fix it".format(
                    node["name"]))
    for host, facts in detected.items():
        if facts["service"] and facts["service"]["server"] and host not in control_plane:
            plan["problems"].append("{0}: runs {1}, a server, but is not in kube_control_plane. All servers need the same "
                                    "configuration. Add it to the group".format(host, facts["service"]["unit"]))


def _check_versions(plan: Plan, detected: Dict[str, HostFacts], cluster: ClusterFacts,
                    control_plane: List[str]) -> None:
    newest = _versions.parse(cluster["version"])
    hosts_by_version: Dict[str, Dict[_versions.Version, List[str]]] = {}
    for host, facts in detected.items():
        kubelet = _versions.parse(facts["kubelet"].get("version", ""))
        if kubelet is not None and not _versions.supported(kubelet):
            plan["problems"].append("{0}: its kubelet is {1}, but this collection supports {2} to {3}".format(
                host, facts["kubelet"]["version"], *map(_versions.show, _versions.SUPPORTED)))
        elif kubelet is not None and newest is not None and not (newest[0], newest[1] - SKEW) <= kubelet <= newest:
            plan["problems"].append(
                "{0}: its kubelet is {1} and the API server is {2}. Kubernetes supports kubelets that are not newer than the API server "
                "and at most {3} minor releases older. Finish the upgrade, then run again".format(
                    host, facts["kubelet"]["version"], cluster["version"], SKEW))
        if host in control_plane:
            for component, version in component_versions(facts).items():
                hosts_by_version.setdefault(component, {}).setdefault(version, []).append(host)
    for component, versions in sorted(hosts_by_version.items()):
        if len(versions) > 1:
            listed = ["{0} on {1}".format(_versions.show(version), " and ".join(hosts)) for version, hosts in sorted(versions.items())]
            plan["problems"].append("the control planes run different versions of {0}: {1}. Finish the upgrade, then run again"
                                    .format(component, ", ".join(listed)))


def component_versions(facts: HostFacts) -> Dict[str, _versions.Version]:
    """Return the (major, minor) of each control-plane component of a host, from its manifest's image, or else from its process."""
    versions: Dict[str, _versions.Version] = {}
    for component, running in facts["components"].items():
        version = _versions.parse(running.get("version", ""))
        if version is not None:
            versions[component] = version
    for path in facts["manifests"]:
        try:
            name, image = manifest.image_of(load(manifest.decoded(facts["files"][path])))
        except NotYaml:
            continue
        version = _versions.of_image(image)
        if name and version is not None:
            versions[name] = version
    return versions
