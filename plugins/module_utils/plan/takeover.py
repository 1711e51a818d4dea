# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of another cloud-controller-manager: refused, or paused so that ours takes its place. Pure, controller side.

Two that lead would fight over Nodes, routes and load balancers. With one Lease the new one is brought up beside the old one,
and leads once that is stopped; with two Leases nothing but stopping the old one first keeps them apart.
"""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.others import PAUSED

RISK = ("load balancers, routes and Nodes stay as they are; nobody changes them for the seconds until the new one leads; the old "
        "one runs again if that does not come up")


def check(plan: Dict[str, Any], cluster: Dict[str, Any], adopt: bool, cluster_name: str, port: int) -> None:
    """Add what stands in the way of a rollout, and C(takeover): the workloads to pause, and whether each hands over by the Lease."""
    own = cluster["lease"]["namespace"], cluster["lease"]["name"]
    if cluster["taken"]:
        plan["problems"].append(
            "{0} were not made by this collection: a rollout would overwrite them, and a rollback remove them. Set ccm_runtime_name "
            "to a name that is free, such as outoftree-ccm".format(", ".join(cluster["taken"])))
    for other in cluster["others"]:
        if not other["active"]:
            continue
        if not adopt:
            plan["problems"].append(_refusal(other))
            continue
        if cluster_name and other["cluster_name"] != cluster_name:
            plan["problems"].append(
                "{0} runs with --cluster-name={1}, and ccm_runtime_cluster_name is {2}: its load balancers and routes would not be "
                "found, and new ones with other addresses be made. Set ccm_runtime_cluster_name: {1}".format(
                    _called(other), other["cluster_name"], cluster_name))
        same = (other["lease"].get("namespace"), other["lease"].get("name")) == own
        handover = same and other["port"] != port
        plan["takeover"].append({"kind": other["kind"], "namespace": other["namespace"], "name": other["name"], "handover": handover})
        deployment = other["kind"] == "Deployment"
        plan["edits"].append({
            "host": "(cluster)", "component": "takeover", "file": _called(other), "risk": RISK,
            "flag": "replicas" if deployment else "nodeSelector", "now": str(other["pods"]) if deployment else None,
            "then": "0" if deployment else PAUSED + "=true",
            "why": "two cloud-controller-managers would fight; it is kept, for the way back. " + (
                "The Lease {0}/{1} is both's: the new one waits beside it, and leads after it".format(*own) if handover
                else "It has {0}: it is stopped before the new one begins".format(_apart(other, port if same else 0)))})
    explained = any((item["lease"].get("namespace"), item["lease"].get("name")) == own for item in cluster["others"])
    if not cluster["runtime"]["exists"] and cluster["lease"]["held"] and not explained:
        plan["problems"].append(
            "another cloud-controller-manager runs: {0} holds the Lease {1}/{2}, and no Deployment or DaemonSet was found that would "
            "be it. Two of them would fight: stop it, then run again".format(cluster["lease"]["holder"], *own))


def _called(other: Dict[str, Any]) -> str:
    return "{kind} {namespace}/{name}".format(**other)


def _apart(other: Dict[str, Any], port: int) -> str:
    """Return why it cannot run beside the new one: their Leases, or the same port of the same nodes."""
    if port:
        return "the port {0} on its nodes (with another ccm_runtime_secure_port the new one would wait beside it)".format(port)
    return "the Lease {namespace}/{name}".format(**other["lease"]) if other["lease"] else "no Lease"


def _refusal(other: Dict[str, Any]) -> str:
    lease = "no Lease"
    if other["lease"]:
        lease = "the Lease {namespace}/{name}".format(**other["lease"])
        lease += ", held by {0}".format(other["holder"]) if other["holder"] else ", which nobody holds"
    return ("another cloud-controller-manager runs: {0} ({1}, {2}). Two of them would fight. With ccm_install_takeover: adopt it is "
            "paused, its load balancers are taken over with their addresses, and rollback.yml lets it run again. If it is none, name "
            "it in ccm_install_takeover_ignore".format(_called(other), other["image"], lease))
