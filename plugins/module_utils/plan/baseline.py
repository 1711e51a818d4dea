# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before any change, checks that the health gates would pass.

A component that fails its probe now would also fail it after the change, and the run would then undo a correct change. So preflight
reports an unhealthy component as a problem, with the probe's own message. If the run does not change the component, that is a warning.

Pure; runs on the Ansible controller. It only adds problems and warnings to the plan.
"""

from __future__ import annotations

from typing import Dict

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import NodeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan


def check(plan: Plan, host: str, facts: HostFacts, nodes: Dict[str, NodeFacts]) -> None:
    """Add what a host's failed probes mean to the plan. C(nodes): the cluster's Nodes by name."""
    steps = plan["hosts"][host]
    # A step without files and restart only waits for a component that an earlier run left starting. It may still be unhealthy.
    replaced = {step["component"] for step in [*steps["control_plane"], steps["kubelet"]] if step and (step["files"] or step["restart"])}
    probes = {name: running.get("health", "") for name, running in facts["components"].items()}
    probes["kubelet"] = facts["kubelet"].get("health", "")
    if facts["service"]:
        probes = {facts["service"]["name"]: facts["service"].get("health", "")}
    for component, ill in sorted(probes.items()):
        if ill and component in replaced:
            plan["problems"].append(
                "{0}: {1} is not healthy: {2}. The same check runs after the change and would fail, so the run would undo the change. Fix "
                "{1} on that host, then run again".format(host, component, ill))
        elif ill:
            plan["warnings"].append("{0}: {1} is not healthy: {2}. The run does not change it".format(host, component, ill))
    node = nodes.get(facts["node_name"])
    if steps["kubelet"] and steps["kubelet"]["component"] in replaced and node and not node.get("ready", True):
        plan["problems"].append(
            "{0}: the Node {1} is not Ready ({2}). After the restart of its kubelet, the run would wait for it in vain. Investigate it "
            "('kubectl describe node {1}'), then run again".format(host, node["name"], node.get("ready_reason") or "no status yet"))
