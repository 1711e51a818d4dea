# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the migration handles another cloud-controller-manager: it refuses to start, or pauses and replaces that controller. Pure;
runs on the Ansible controller.

Two leading controllers would fight over Nodes, routes and load balancers. If both controllers share a Lease and use different ports, the new
controller starts beside the old one, and leads when the old one stops. Otherwise the old one must stop first.
"""

from __future__ import annotations

from typing import Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import NotYaml, load
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, others
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts, ControllerLease, OtherController, RuntimeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.health import parse_time
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.others import PAUSED
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import PausedWorkload, Plan, WayBack

RISK = ("load balancers, routes and Nodes stay as they are; no controller changes them for the seconds until the new one leads; the old "
        "one resumes if the new one does not become healthy")


def check(plan: Plan, cluster: ClusterFacts, adopt: bool, cluster_name: str, port: int) -> None:
    """Add the problems that prevent a rollout, and what to do with other controllers.

    In the plan, C(takeover) has the workloads to pause, and whether each hands over by the Lease. C(way_back) says what happens if the new
    controller does not become healthy.
    """
    own = cluster["lease"]["namespace"], cluster["lease"]["name"]
    if cluster["taken"]:
        plan["problems"].append(
            "{0} were not created by this collection. A rollout would overwrite them, and a rollback would remove them. Set "
            "ccm_runtime_name to an unused name, such as outoftree-ccm".format(", ".join(cluster["taken"])))
    for other in cluster["others"]:
        if not other["active"]:
            continue
        if not adopt:
            plan["problems"].append(_refusal(other))
            continue
        if cluster_name and other["cluster_name"] != cluster_name:
            plan["problems"].append(
                "{0} runs with --cluster-name={1}, but ccm_runtime_cluster_name is {2}. The new controller would not find its load "
                "balancers and routes, and would create new ones with other addresses. Set ccm_runtime_cluster_name: {1}".format(
                    _called(other), other["cluster_name"], cluster_name))
        same = (other["lease"].get("namespace"), other["lease"].get("name")) == own
        handover = same and other["port"] != port
        pause = _named(other)
        pause["handover"] = handover
        plan["takeover"].append(pause)
        if other.get("keeper"):
            plan["warnings"].append("{0}: {1} may start it again while the new controller runs. Suspend that tool before the run".format(
                _called(other), other["keeper"]))
        deployment = other["kind"] == "Deployment"
        plan["edits"].append({
            "host": "(cluster)", "component": "takeover", "file": _called(other), "risk": RISK,
            "flag": "replicas" if deployment else "nodeSelector", "now": str(other["pods"]) if deployment else None,
            "then": "0" if deployment else PAUSED + "=true",
            "why": "two cloud-controller-managers would fight; the old one is paused, not deleted, so that a rollback can resume it. " + (
                "Both use the Lease {0}/{1}: the new one waits until the old one stops".format(*own) if handover
                else "It uses {0}: it stops before the new one starts".format(_apart(other, port if same else 0)))})
    plan["way_back"] = _way_back(plan["takeover"], cluster)
    explained = any((item["lease"].get("namespace"), item["lease"].get("name")) == own for item in cluster["others"])
    if not cluster["runtime"]["exists"] and cluster["lease"]["held"] and not explained:
        plan["problems"].append(
            "another cloud-controller-manager runs: {0} holds the Lease {1}/{2}, but it belongs to no known Deployment or DaemonSet. "
            "Two controllers would fight. Stop it, then run again".format(cluster["lease"]["holder"], *own))
    _check_leases(plan, cluster)


def _check_leases(plan: Plan, cluster: ClusterFacts) -> None:
    """Add a problem for each Lease that an unknown controller holds: neither the workloads of the cluster nor the hosts' files show it."""
    for lease in cluster.get("leases", []):
        plan["problems"].append(
            "another cloud-controller-manager runs: {0} holds the Lease {1}/{2}, but it belongs to no known Deployment or DaemonSet. Two "
            "controllers would fight. Stop it on the host that its holder's name begins with, then run again. If it is not a "
            "cloud-controller-manager, add {1}/{2} to ccm_install_ignore".format(
                host_facts.readable(lease["holder"]), lease["namespace"], lease["name"]))


def check_hosts(plan: Plan, known: Dict[str, HostFacts], cluster: ClusterFacts) -> None:
    """Add a problem for each cloud-controller-manager that a host itself starts, because it may use another Lease, or none.

    A static Pod with a name that other programs have, too, is only a warning.
    """
    for host, facts in known.items():
        for path in facts["manifests"]:
            try:
                pod = others.static_pod(load(manifest.decoded(facts["files"][path])))
            except NotYaml:
                continue  # the planner reports it
            if pod is None or pod["name"] in cluster.get("ignored", []):
                continue
            text = host_facts.readable("{0}: {1} starts another cloud-controller-manager as a static Pod ({2}, {3})".format(
                host, path, pod["name"], pod["image"]))
            if pod["certain"]:
                plan["problems"].append(
                    "{0}. Two controllers would fight, whatever its Lease is. Move the file out of the folder on every host, then run again. If it is not a "
                    "cloud-controller-manager, add {1} to ccm_install_ignore".format(text, host_facts.readable(pod["name"])))
            else:
                plan["warnings"].append("{0}, judging by its name. If it is one, move the file out of the folder before the run".format(text))
        for unit in facts.get("other_units", []):
            plan["problems"].append("{0}: the unit {1} runs another cloud-controller-manager. Two controllers would fight, whatever its Lease is. Stop "
                                    "and disable it on every host, then run again".format(host, host_facts.readable(unit)))


def _way_back(takeover: List[PausedWorkload], cluster: ClusterFacts) -> WayBack:
    """Return C(resume): the workloads to resume, C(remove): whether to remove the new controller first, C(paused): the workloads that
    stay paused.

    An earlier run that was killed may have paused workloads. They resume only if the new controller never led. If it led, it is in use.
    """
    paused = [_named(other) for other in cluster["others"] if other["paused"]]
    never_led = _never_led(cluster["runtime"], cluster["lease"])
    resume = takeover + (paused if never_led else [])
    return {"remove": never_led and bool(resume), "resume": resume, "paused": [] if never_led else paused}


def _never_led(runtime: RuntimeFacts, lease: ControllerLease) -> bool:
    """Return whether nobody renewed the Lease since the DaemonSet was created, or there is no DaemonSet."""
    renewed, created = parse_time(lease["renewed"]), parse_time(runtime["created"])
    return not runtime["exists"] or renewed is None or created is not None and renewed < created


def _named(other: OtherController) -> PausedWorkload:
    return {"kind": other["kind"], "namespace": other["namespace"], "name": other["name"]}


def _called(other: OtherController) -> str:
    return "{kind} {namespace}/{name}".format(**other)


def _apart(other: OtherController, port: int) -> str:
    """Return, as a part of a sentence, what keeps another controller from running beside the new one: C(port), which both
    need on the same nodes, or, if C(port) is 0, another Lease or none."""
    if port:
        return "the port {0} on its nodes (with another ccm_runtime_secure_port, the new one could wait beside it)".format(port)
    return "the Lease {namespace}/{name}".format(**other["lease"]) if other["lease"] else "no Lease"


def _refusal(other: OtherController) -> str:
    lease = "no Lease"
    if other["lease"]:
        lease = "the Lease {namespace}/{name}".format(**other["lease"])
        lease += ", held by {0}".format(other["holder"]) if other["holder"] else ", which nobody holds"
    return ("another cloud-controller-manager runs: {0} ({1}, {2}). Two controllers would fight. Set ccm_install_takeover: adopt to pause "
            "it and take over its load balancers with their addresses; rollback.yml resumes it. If it is not a cloud-controller-manager, "
            "add it to ccm_install_ignore".format(_called(other), other["image"], lease))
