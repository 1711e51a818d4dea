# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first stage of a leader migration (KEP-2436).

In this stage, kube-controller-manager runs its in-tree cloud loops only while it holds a second Lease. The external controller can then
take them over: they never have two owners, and the gap is at most one Lease duration.

Pure; runs on the Ansible controller. The later stages need no plan of their own. From 1.31 on, kube-controller-manager has no such loops, so there is
nothing to migrate.
"""

from __future__ import annotations

import base64
from typing import Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostAnswer, HostSteps
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import (
    hands_over, in_tree_provider, is_external, leader_migration_changes,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import control_plane as _control_plane, draft, inventory
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

COMPONENT = "kube-controller-manager"

#: Path on every control plane. kubeadm mounts this whole folder into kube-controller-manager.
CONFIG = "/etc/kubernetes/pki/outoftree-ccm-leader-migration.yaml"

#: The loops that leave kube-controller-manager, by their names since 1.28. A LeaderMigrationConfiguration must name them, because the built-in one still has
#: the older names, of which only the last one works.
CONTROLLERS = ("node-route-controller", "service-lb-controller", "cloud-node-lifecycle-controller")


def configuration(lease: str) -> str:
    """Return the LeaderMigrationConfiguration for kube-controller-manager and the external controller."""
    lines = ["# Created by outoftree.ccm for a leader migration.", "apiVersion: controllermanager.config.k8s.io/v1",
             "kind: LeaderMigrationConfiguration", "leaderName: " + lease, "controllerLeaders:"]
    for name in CONTROLLERS:
        lines += ["- name: " + name, '  component: "*"']
    return "\n".join(lines + [""])


def make_leader_migration_plan(detected: Dict[str, HostAnswer], cluster: ClusterFacts, control_plane: List[str],
                               lease: str) -> Plan:
    """Return the plan of the first stage, in the shape of make_plan."""
    plan = draft.empty()
    version = versions.parse(cluster["version"])
    if version is None or not versions.supported(version) or version >= versions.IN_TREE_GONE:
        plan["problems"].append(refusal(cluster["version"]))
        return draft.finish(plan)
    sorted_facts = host_facts.sorted_out(detected)
    known = inventory.with_versions(host_facts.usable(sorted_facts), cluster)
    unseen = {host: facts for host, facts in sorted_facts.items() if host not in known}
    inventory.check(plan, known, cluster, control_plane, unseen)
    for host in control_plane:
        if host not in known:
            continue
        facts = known[host]
        plan["problems"] += ["{0}: {1}".format(host, problem) for problem in facts["problems"]]
        steps: HostSteps = {"control_plane": [], "kubelet": None}
        plan["hosts"][host], plan["nodes"][host] = steps, facts["node_name"]
        if facts["service"]:
            plan["problems"].append("{0}: {1} never ran the loops of an in-tree provider, so there is nothing to hand over. Run "
                                    "site.yml instead".format(host, facts["service"]["name"]))
            continue
        flags = find_flags(facts["components"][COMPONENT]["flags"] if COMPONENT in facts["components"] else [])
        if not hands_over(flags) and is_external(flags):
            plan["warnings"].append("{0}: {1} is already external, so there is nothing to hand over".format(host, COMPONENT))
            continue
        if not in_tree_provider(flags):
            plan["warnings"].append("{0}: {1} has no in-tree provider, so it runs no cloud loops and hands over only the "
                                    "Lease".format(host, COMPONENT))
        _control_plane.plan_control_plane(plan, steps, host, facts, version, (COMPONENT,), leader_migration_changes(CONFIG))
        for step in steps["control_plane"]:
            if step["files"]:
                text = configuration(lease)
                step["files"].insert(0, {"path": CONFIG, "content": base64.b64encode(text.encode()).decode(), "sha256": ""})
    return draft.finish(plan)


def refusal(version: str) -> str:
    """Return why this release has no leader migration, and what to do instead."""
    parsed = versions.parse(version)
    if parsed is None or not versions.supported(parsed):
        return "the cluster runs Kubernetes {0}, but this collection supports {1} to {2}. Use a release that supports your version".format(
            version, *map(versions.show, versions.SUPPORTED))
    return ("the cluster runs Kubernetes {0}, but leader migration is for {1} to {2}. From {3} on, kube-controller-manager has no "
            "in-tree cloud loops, so there is nothing to hand over. Run site.yml instead".format(
                version, versions.show(versions.SUPPORTED[0]),
                versions.show((versions.IN_TREE_GONE[0], versions.IN_TREE_GONE[1] - 1)), versions.show(versions.IN_TREE_GONE)))
