# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a migration changes in the cluster itself: kubeadm's configuration, and the Nodes to adopt. Pure; runs on the Ansible controller."""

from __future__ import annotations

from typing import Dict, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.nodes import EMBEDDED
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import adoption, clouds, draft, gates, reregister as _reregister
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

#: The ConfigMap of kubeadm, as a step and a journal name it.
KUBEADM_CONFIG = "configmap:kube-system/kubeadm-config"


def plan_kubeadm_config(plan: Plan, cluster: ClusterFacts, version: Tuple[int, int]) -> None:
    """Plan the edit of the ClusterConfiguration, from which the next kubeadm upgrade creates the manifests."""
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
        draft.edit(plan, "(cluster)", component, "ConfigMap kube-system/kubeadm-config", change.name, change.now, change.then, why,
                   draft.RISKS["kubeadm-config"])
    stored = load(current["content"]).get("apiVersion")
    gone = versions.risk_of_keeping("kubeadm", "apiVersion", version, stored)
    if gone:
        plan["warnings"].append("the ConfigMap kube-system/kubeadm-config is stored as {0}: {1}; {2}".format(
            stored, gone, versions.reason("kubeadm", "apiVersion", stored)))
    if changes:
        plan["kubeadm_config"] = {"path": KUBEADM_CONFIG, "content": draft.encoded(after), "before": draft.encoded(current["content"]),
                                  "sha256": current["sha256"]}


def plan_nodes(plan: Plan, cluster: ClusterFacts, adopt: bool, again: Dict[str, str], reregister: bool) -> None:
    """Plan which Nodes are adopted, and which agents register again. C(again) are their Nodes' names, by host."""
    ours = set(plan["nodes"].values())
    plan["reregister"] = sorted(again) if reregister else []
    plan["apart"] = adoption.known_before(plan, cluster)
    for node in cluster["nodes"]:
        if reregister and node["name"] in again.values():
            draft.edit(plan, node["name"], "node", "Node/" + node["name"], "providerID", node["provider_id"], "set by the runtime",
                       _reregister.WHY, _reregister.RISK)
        elif node["class"] == "foreign" and clouds.beside(cluster) and not node["provider_id"].startswith(EMBEDDED):
            continue  # clouds.check names it: it may be the other controller's
        elif node["class"] in ("foreign", "mismatched") and node["name"] not in [plan["nodes"][host] for host in plan["apart"]]:
            plan["warnings"].append("Node {0} is not adopted: {1}{2}".format(
                node["name"], node["reason"], _reregister.remark(node, again.values())))
        elif node["class"] == "unmanaged" and node["name"] in ours and adopt:
            plan["adopt"].append(node["name"])
            draft.edit(plan, node["name"], "node", "Node/" + node["name"], "providerID", None, "set by the runtime",
                       "the controller initialises only Nodes with the taint, so the Node is tainted again", draft.RISKS["node"])
        elif node["class"] == "uninitialized" and node["name"] in ours:
            plan["adopt"].append(node["name"])
    # As long as Nodes are left to adopt, the runtime runs only its node controller, unless it already runs everything.
    plan["node_only"] = bool(plan["adopt"] or plan["reregister"]) and not cluster["runtime"]["wide"]
