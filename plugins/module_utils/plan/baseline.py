# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Would the gates pass before anything is changed? A component that fails its probe now would fail it after its change, too.

Its change would be put back and called broken. So it is a problem of preflight, with the probe's own words.

Pure, controller side. It only adds problems and warnings to the plan.
"""

from __future__ import annotations

from typing import Any, Dict

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts


def check(plan: Dict[str, Any], host: str, facts: HostFacts, nodes: Dict[str, Dict[str, Any]]) -> None:
    """Judge what a host's probes said. C(nodes) are the cluster's, by name."""
    steps = plan["hosts"][host]
    # A step without files and restart waits for what a run of ours has left starting: it may be ill still.
    replaced = {step["component"] for step in [*steps["control_plane"], steps["kubelet"]] if step and (step["files"] or step["restart"])}
    probes = {name: running.get("health", "") for name, running in facts["components"].items()}
    probes["kubelet"] = facts["kubelet"].get("health", "")
    if facts["service"]:
        probes = {facts["service"]["name"]: facts["service"].get("health", "")}
    for component, ill in sorted(probes.items()):
        if ill and component in replaced:
            plan["problems"].append(
                "{0}: {1} is not healthy: {2}. The same is asked after a change, so its change would be put back. Look at it on that "
                "host, then run again".format(host, component, ill))
        elif ill:
            plan["warnings"].append("{0}: {1} is not healthy: {2}. Nothing of it is changed".format(host, component, ill))
    node = nodes.get(facts["node_name"], {})
    if steps["kubelet"] and steps["kubelet"]["component"] in replaced and not node.get("ready", True):
        plan["problems"].append(
            "{0}: the Node {1} is not Ready ({2}). After its restart the run waits until it is. Look at it ('kubectl describe node {1}'), "
            "then run again".format(host, node["name"], node.get("ready_reason") or "no status yet"))
