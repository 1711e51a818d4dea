# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first stage of a leader migration (KEP-2436): kube-controller-manager runs its in-tree cloud loops only while it
holds a second Lease, so that they can be handed over to the external controller with neither a gap nor two owners.

Pure, controller side; the later stages need no plan of their own. It is pointless from 1.31 on, where
kube-controller-manager has no such loops.
"""

from __future__ import annotations

import base64
from typing import Any, Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostSteps
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import (
    hands_over, in_tree_provider, is_external, leader_migration_changes,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import inventory, plan as _plan

COMPONENT = "kube-controller-manager"

#: On every control plane. The folder is the one of which kubeadm mounts the whole into kube-controller-manager.
CONFIG = "/etc/kubernetes/pki/outoftree-ccm-leader-migration.yaml"

#: The loops that leave kube-controller-manager, as it calls them since 1.28. Its built-in list has names from before, which
#: match none but the last.
CONTROLLERS = ("node-route-controller", "service-lb-controller", "cloud-node-lifecycle-controller")


def configuration(lease: str) -> str:
    """Return the LeaderMigrationConfiguration for both sides."""
    lines = ["# Made by outoftree.ccm for the time of a leader migration.", "apiVersion: controllermanager.config.k8s.io/v1",
             "kind: LeaderMigrationConfiguration", "leaderName: " + lease, "controllerLeaders:"]
    for name in CONTROLLERS:
        lines += ["- name: " + name, '  component: "*"']
    return "\n".join(lines + [""])


def make_leader_migration_plan(detected: Dict[str, Dict[str, Any]], cluster: Dict[str, Any], control_plane: List[str],
                               lease: str) -> Dict[str, Any]:
    """Return the plan of the first stage, in the shape of make_plan."""
    plan = _plan.empty()
    version = versions.parse(cluster["version"])
    if version is None or not versions.supported(version) or version >= versions.IN_TREE_GONE:
        plan["problems"].append(refusal(cluster["version"]))
        return _plan.finish(plan)
    found = host_facts.sorted_out(detected)
    known = inventory.with_versions(host_facts.usable(found), cluster)
    unseen = {host: facts for host, facts in found.items() if host not in known}
    inventory.check(plan, known, cluster, control_plane, unseen)
    for host in control_plane:
        if host not in known:
            continue
        facts = known[host]
        plan["problems"] += ["{0}: {1}".format(host, problem) for problem in facts["problems"]]
        steps: HostSteps = {"control_plane": [], "kubelet": None}
        plan["hosts"][host], plan["nodes"][host] = steps, facts["node_name"]
        if facts["service"]:
            plan["problems"].append("{0}: {1} never ran the loops of an in-tree provider, so there is nothing to hand over: run "
                                    "site.yml".format(host, facts["service"]["name"]))
            continue
        flags = find_flags(facts["components"][COMPONENT]["flags"] if COMPONENT in facts["components"] else [])
        if not hands_over(flags) and is_external(flags):
            plan["warnings"].append("{0}: {1} is external already, there is nothing to hand over".format(host, COMPONENT))
            continue
        if not in_tree_provider(flags):
            plan["warnings"].append("{0}: {1} names no in-tree provider, so that it runs no cloud loop: it will hand over nothing "
                                    "but the Lease".format(host, COMPONENT))
        _plan.plan_control_plane(plan, steps, host, facts, version, (COMPONENT,), leader_migration_changes(CONFIG))
        for step in steps["control_plane"]:
            if step["files"]:
                text = configuration(lease)
                step["files"].insert(0, {"path": CONFIG, "content": base64.b64encode(text.encode()).decode(), "sha256": ""})
    return _plan.finish(plan)


def refusal(version: str) -> str:
    """Say why there is no leader migration at a release."""
    return ("the cluster runs Kubernetes {0}, and leader migration is for {1} to {2}: from {3} on kube-controller-manager has no "
            "in-tree cloud loops, so there is nothing to hand over and no gap to avoid. Run site.yml".format(
                version, versions.show(versions.SUPPORTED[0]),
                versions.show((versions.IN_TREE_GONE[0], versions.IN_TREE_GONE[1] - 1)), versions.show(versions.IN_TREE_GONE)))
