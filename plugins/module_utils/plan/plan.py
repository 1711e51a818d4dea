# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner: computes every edit from the detected state and the target, before the first edit is made.

Pure; runs on the Ansible controller. It takes the results of ccm_component_flags_info (by inventory host) and ccm_cluster_info, and returns plain
data. Preflight prints it, check mode shows it, and the roles carry it out step by step. Later, a run may only leave hosts out. The steps are made by
control_plane, kubelets and cluster_steps, and takeover plans what to pause. Most other modules here only add problems, warnings and notes.
"""

from __future__ import annotations

from typing import Dict, List, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostAnswer, HostFacts, HostSteps
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import control_plane_changes
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import (
    adoption, baseline, cloud_loops, clouds, cluster_steps, control_plane as _control_plane, draft, drift, gates, image_pulls, inventory, kubelets,
    lint, new_nodes, old_config, places, reregister as _reregister, serving, takeover as _takeover, volumes,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Choices, NewController, Plan


def make_plan(detected: Dict[str, HostAnswer], cluster: ClusterFacts, control_plane: List[str],
              names: Optional[Dict[str, List[str]]] = None, choices: Choices = Choices(),
              controller: NewController = NewController()) -> Plan:
    """Return the plan; see the filter's documentation for its shape. The migration must not start if C(problems) is not empty.

    C(names): the inventory's names and addresses of each host.
    """
    answers = host_facts.sorted_out(detected)
    known = host_facts.usable(answers)
    unseen = {host: answer for host, answer in answers.items() if host not in known}
    plan = draft.empty()
    version = versions.parse(cluster["version"])
    if version is None or not versions.supported(version):
        plan["problems"].append(
            "the cluster runs Kubernetes {0}, but this collection supports {1} to {2}. Use a release that supports your version"
            .format(cluster["version"], *map(versions.show, versions.SUPPORTED)))
        return draft.finish(plan)
    again = _reregister.agents(known, cluster)
    nodes = {node["name"]: node for node in cluster["nodes"]}
    away = [host for host, name in again.items() if choices.reregister and name not in nodes]
    known = inventory.with_versions(known, cluster)
    inventory.check(plan, known, cluster, control_plane, unseen, list(choices.excluded_hosts), away)
    for host, facts in known.items():
        _plan_host(plan, host, facts, host in control_plane, version)
    cluster_steps.plan_kubeadm_config(plan, cluster, version)
    cluster_steps.plan_nodes(plan, cluster, choices.adopt, again, choices.reregister)
    adoption.check(plan, known, cluster)
    for host, facts in known.items():
        baseline.check(plan, host, facts, nodes)
        places.check(plan, host, facts)
        places.check_units(plan, host, facts)
    inventory.check_claims(plan, cluster, control_plane, names or {})
    _takeover.check(plan, cluster, choices.takeover, controller.cluster_name, controller.port)
    _takeover.check_hosts(plan, known, cluster)
    notes, warnings = serving.predict(known, cluster["serving"], controller.account, controller.approves)
    plan["notes"] += notes
    plan["warnings"] += warnings
    plan["warnings"] += lint.preview(known, cluster, version)
    image_pulls.check(plan, known, cluster)
    cloud_loops.check(plan, known, cluster, control_plane, controller)
    volumes.check(plan, cluster, list(choices.volumes_ignore))
    clouds.check(plan, cluster, controller.clouds)
    old_config.check(plan, known)
    plan["new_nodes"] = new_nodes.instructions({facts["layout"] for facts in known.values()}, cluster)
    return draft.finish(plan)


def _plan_host(plan: Plan, host: str, facts: HostFacts, control_plane: bool, version: versions.Version) -> None:
    """Plan the steps of one host in order."""
    plan["nodes"][host] = facts["node_name"]
    steps: HostSteps = {"control_plane": [], "kubelet": None}
    plan["hosts"][host] = steps
    plan["problems"] += ["{0}: {1}".format(host, problem) for problem in facts["problems"]]
    plan["notes"] += ["{0}: {1}".format(host, notice) for notice in facts["notices"]]
    if facts["service"]:
        kubelets.plan_rancher(plan, steps, host, facts, version)
        return
    if control_plane:
        _control_plane.plan_control_plane(plan, steps, host, facts, version)
        _control_plane.plan_patches(plan, steps, host, facts, version)
        gates.check_scheduler(plan, host, facts, version)
    else:
        for component in _control_plane.COMPONENTS:
            plan["problems"] += drift.undefined(host, facts, component, version, control_plane_changes,
                                                "The host is not in the group kube_control_plane: add it")
    if facts["kubelet"].get("unit_files"):
        kubelets.plan_kubelet(plan, steps, host, facts, version)
