# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cloud says about the Nodes once the new controller can ask it, and before a kubelet is restarted. Pure; runs on the Ansible controller.

A kubelet with C(--cloud-provider=external) whose Node has no instance would wait for the controller whenever it registers again. So a host
whose Node will not be adopted is not changed.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Dict, List, Sequence, TypedDict, cast

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts, NodeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping, summary
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

#: The first minor whose kube-proxy ends itself when its Node's primary address changes (kubernetes/kubernetes#138183).
PROXY_ENDS = (1, 37)

#: Maximum number of Nodes that are listed one by one.
LISTED = 12


class Outlook(TypedDict):
    """What follows from the cloud's answers. The function C(outlook) describes the keys."""

    lines: List[str]
    hosts: Dict[str, str]
    problems: List[str]
    stop: bool
    adopted: List[str]


def outlook(plan: Plan, cluster: ClusterFacts, control_plane: Sequence[str], workers: int, limit: Any) -> Outlook:
    """Return what follows from the cloud's answers.

    C(lines) say which Node will be adopted as which instance, with warnings. C(hosts) has the reason for each host whose Node will not be
    adopted, and C(problems) are messages about them. C(stop): whether the run must stop, because it cannot leave these hosts out: one of them
    is a control plane, or they and the hosts that are left out already are more than C(limit) allows. C(adopted) are the names of the Nodes
    that will be adopted.

    If the Nodes could not be compared with the cloud, C(lines) say so, no host is left out, and C(adopted) are all Nodes that the plan adopts.
    """
    if not cluster["compared"]["done"]:
        return {"lines": ["The Nodes could not be compared with the cloud: {0}. The run continues, and adopts them at its end".format(
            cluster["compared"]["reason"])], "hosts": {}, "problems": [], "stop": False, "adopted": list(plan["adopt"])}
    known = {node["name"]: node for node in cluster["nodes"]}
    apart = not_adopted(plan, cluster)
    gone = {plan["nodes"][host] for host in apart}
    adopted = [known[name] for name in plan["adopt"] if name in known and name not in gone and known[name]["class"] not in ("foreign", "mismatched")]
    stop = any(host in control_plane for host in apart) or \
        bool(apart) and len({*apart, *plan.get("left_out", {})}) > summary.allowed(limit, workers)
    return {"lines": _lines(adopted) + warnings(plan, cluster), "hosts": apart, "stop": stop,
            "problems": grouping.few(problems(apart), "The hosts are those above"),
            "adopted": [node["name"] for node in adopted]}


def problems(apart: Dict[str, str]) -> List[str]:
    return ["{0}: {1}".format(host, why) for host, why in apart.items()]


def not_adopted(plan: Plan, cluster: ClusterFacts) -> Dict[str, str]:
    """Return the hosts that the run would change although their Nodes will not be adopted, each with the reason."""
    known = {node["name"]: node for node in cluster["nodes"]}
    return {host: "its Node {0} will not be adopted: {1}".format(name, host_facts.readable(known[name]["reason"]))
            for host, name in plan["nodes"].items() if name in known and _concerned(plan, host, name, known[name])}


def known_before(plan: Plan, cluster: ClusterFacts) -> Dict[str, str]:
    """Return the hosts of C(not_adopted) whose reason is certain before the rollout, so that the run can stop before it changes anything.

    If the cloud was asked, these are all hosts of C(not_adopted). Otherwise they are the hosts of C(not_adopted) whose Node has the providerID of another such
    host's Node. A host whose Node shares a providerID only with a Node outside the inventory is not among them: either of the two Nodes may be wrong.
    """
    apart = not_adopted(plan, cluster)
    if cluster["compared"]["done"]:
        return apart
    identities = {node["name"]: node["provider_id"] for node in cluster["nodes"]}
    ours = [identities[plan["nodes"][host]] for host in apart]
    return {host: why for host, why in apart.items() if ours.count(identities[plan["nodes"][host]]) > 1}


def _concerned(plan: Plan, host: str, name: str, node: NodeFacts) -> bool:
    """Return whether the run would change a host or adopt its Node, although the Node's class is C(mismatched) or C(foreign).

    A Node that is C(foreign) counts only if it would be adopted. The plan's warnings or notes name the others.
    """
    steps = plan["hosts"].get(host)
    return node["class"] == "mismatched" and bool(steps and steps["kubelet"] or name in plan["adopt"]) or node["class"] == "foreign" and name in plan["adopt"]


def _lines(nodes: Sequence[NodeFacts]) -> List[str]:
    """Return lines that say which Node will be adopted as which instance: at most C(LISTED) Nodes by name, the number of the others, and the
    Nodes whose instance is not known yet.
    """
    known = [(node["name"], node.get("instance") or "") for node in nodes]
    named = [(name, instance) for name, instance in known if instance]
    lines = ["Node {0} will be adopted as {1}".format(name, host_facts.readable(instance)) for name, instance in named[:LISTED]]
    if len(named) > LISTED:
        lines.append("and {0} more Nodes, each as the instance of its name or providerID".format(len(named) - LISTED))
    open_ = [name for name, instance in known if not instance]
    if open_:
        lines.append("The cloud cannot say yet which instances these Nodes are: {0}".format(grouping.compact(sorted(open_, key=grouping.in_order))))
    return lines


def warnings(plan: Plan, cluster: ClusterFacts) -> List[str]:
    """Return a warning about the Nodes whose primary address the controller will change, if the cloud was asked.

    A kubelet with C(--node-ip) keeps its address: it reports the address to the controller, but only once its cloud is external.
    """
    version = versions.parse(cluster["version"])
    nodes = [node for node in cluster["nodes"] if node["name"] in plan["adopt"] and node["name"] not in plan.get("node_ips", ())]
    moves = {node["name"]: (node.get("primary") or [], node.get("primary_after") or []) for node in nodes}
    changed = [name for name, (now, then) in moves.items() if now and then and now != then]
    if not changed:
        return []
    names = sorted(changed, key=grouping.in_order)
    first = " ({0}: {1} becomes {2})".format(names[0], *(", ".join(addresses) for addresses in moves[names[0]]))
    ends = "" if version is None or version < PROXY_ENDS else \
        "kube-proxy ends itself then, and its container starts again; its rules stay. "
    return ["the primary address of {0} Node(s) will change when the controller initialises them: {1}{2}. {3}The API server reaches their "
            "kubelets at the new address. To keep an address that the cloud also has, set --node-ip for the kubelet".format(
                len(names), grouping.compact(names), first, ends)]


def check(plan: Plan, known: Dict[str, HostFacts], cluster: ClusterFacts) -> None:
    """Store which kubelets keep their address, and, if the controller already runs, warn of Nodes whose address will change.

    Add a problem for each host in C(apart), whose Node certainly will not be adopted.
    """
    plan["node_ips"] = with_node_ip(known)
    plan["warnings"] += warnings(plan, cluster)
    plan["problems"] += problems(plan["apart"])


def with_node_ip(hosts: Dict[str, HostFacts]) -> List[str]:
    """Return the Nodes whose kubelets have node-ip in one of their files."""
    return [facts["node_name"] for facts in hosts.values()
            if any(re.search(r"node-ip\b", base64.b64decode(facts["files"][path]["content"]).decode("utf-8", "replace"))
                   for path in facts["kubelet"].get("unit_files", []) + facts["kubelet"].get("environment_files", [])
                   + facts["service"].get("config_files", []) if path in facts["files"])]


def without(plan: Plan, hosts: Dict[str, str]) -> Plan:
    """Return the plan without the steps of these hosts. C(left_out) has them, each with the reason."""
    names = {plan["nodes"][host] for host in hosts if host in plan["nodes"]}
    left = cast(Plan, dict(plan))
    left["left_out"] = {**plan.get("left_out", {}), **hosts}
    left["adopt"] = [name for name in plan["adopt"] if name not in names]
    left["edits"] = [edit for edit in plan["edits"] if edit["host"] not in hosts and edit["host"] not in names]
    left["hosts"] = dict(plan["hosts"])
    for host in hosts:
        left["hosts"][host] = {"control_plane": [], "kubelet": None}
    return left
