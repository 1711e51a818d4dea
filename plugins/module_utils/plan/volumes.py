# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volumes of in-tree cloud plug-ins: is their CSI driver on each Node that the run restarts? Pure; runs on the Ansible controller.

Every supported release mounts and unmounts such volumes through their CSI driver (KEP-625). A Pod may still run with a volume that an older
kubelet mounted. A kubelet that starts without the driver can neither unmount that volume nor mount it again.
"""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence, Set

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts, StorageClass, VolumeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan, VolumeRow


def check(plan: Plan, cluster: ClusterFacts, ignored: Sequence[str] = ()) -> None:
    """Add C(volumes) to the plan, a note about each kind of volume, and what is wrong with its driver.

    C(ignored) are CSI drivers that need not be registered: a problem with one becomes a warning.
    """
    volumes: VolumeFacts = cluster.get("volumes") or {}
    plan["volumes"] = rows(volumes, _restarted(plan))
    for row in plan["volumes"]:
        plan["notes"].append("{0}: {1}{2}".format(_heading(row), _what(row), _served(row)))
        problem = _restarts(row)
        if problem and row["driver"] not in ignored:
            plan["problems"].append("{0}. Install the driver on {1}, then run again. If it need not be there, add {2} to "
                                    "ccm_install_ignore".format(problem, _nodes(row["restarted_without"]), row["driver"]))
        elif problem:
            plan["warnings"].append(problem + ". ccm_install_ignore accepts this")
        plan["warnings"] += shortcomings(row)
    if volumes.get("unread"):
        plan["notes"].append("volumes of in-tree plug-ins were not checked completely, because the kubeconfig's user may not list {0}. Grant "
                             "the right to list them in the whole cluster, then run again".format(", ".join(volumes["unread"])))


def _restarted(plan: Plan) -> Set[str]:
    """Return the Nodes whose kubelet the run restarts."""
    return {plan["nodes"][host] for host, steps in plan["hosts"].items() if steps["kubelet"] or host in plan["reregister"]}


def rows(facts: VolumeFacts, restarted: Set[str]) -> List[VolumeRow]:
    """Return one row for each in-tree plug-in that the cluster uses.

    C(facts) is C(volumes) of M(outoftree.ccm.ccm_cluster_info). A row has C(source), C(driver), C(storage_classes) as there, C(persistent_volumes),
    C(inline) and C(pods) as names, and C(installed): whether there is a CSIDriver, None if that is unknown. C(nodes) are the Nodes with Pods
    that use such volumes, C(restarted_without) and C(others_without) those of them without the driver: restarted by the run, or not.
    C(restarted_pods) and C(others_pods) are the Pods on them. C(idle_without) are restarted Nodes without the driver and without such Pods.
    """
    result: List[VolumeRow] = []
    unread = facts.get("unread", [])
    for volume in versions.IN_TREE_VOLUMES if facts else ():
        pods = [pod for pod in facts.get("pods", []) if volume.source in pod["sources"]]
        nodes = sorted({pod["node"] for pod in pods if pod["node"]}, key=grouping.in_order)
        known = "csinodes.storage.k8s.io" not in unread
        bare = [node for node in sorted(restarted.union(nodes), key=grouping.in_order)
                if known and volume.driver not in facts["nodes"].get(node, [])]
        without = [node for node in bare if node in nodes]
        ours, others = [node for node in without if node in restarted], [node for node in without if node not in restarted]
        row: VolumeRow = {
            "source": volume.source,
            "driver": volume.driver,
            "persistent_volumes": _names(facts.get("persistent", []), volume.source, "{name}"),
            "storage_classes": [item for item in facts.get("classes", []) if item["source"] == volume.source],
            "inline": _names(facts.get("inline", []), volume.source, "{kind} {namespace}/{name}"),
            "pods": ["{namespace}/{name}".format(**pod) for pod in pods],
            "installed": _installed(facts, volume.driver),
            "nodes": nodes,
            "idle_without": [node for node in bare if node not in nodes],
            "restarted_without": ours,
            "restarted_pods": ["{namespace}/{name}".format(**pod) for pod in pods if pod["node"] in ours],
            "others_without": others,
            "others_pods": ["{namespace}/{name}".format(**pod) for pod in pods if pod["node"] in others],
        }
        if row["persistent_volumes"] or row["storage_classes"] or row["inline"] or row["pods"]:
            result.append(row)
    return result


def _names(items: Sequence[Mapping[str, object]], source: str, form: str) -> List[str]:
    return sorted((form.format(**item) for item in items if item["source"] == source), key=grouping.in_order)


def _installed(facts: VolumeFacts, driver: str) -> Optional[bool]:
    return None if "csidrivers.storage.k8s.io" in facts.get("unread", []) else driver in facts["drivers"]


# -- text -------------------------------------------------------------------------------------------------------------


def _heading(row: VolumeRow) -> str:
    return "volumes of {0}{1}".format(row["source"], ", which need the CSI driver " + row["driver"] if row["driver"] else "")


def _what(row: VolumeRow) -> str:
    """Return which objects have such volumes."""
    parts = []
    for kind, names in (("PersistentVolume", row["persistent_volumes"]), ("StorageClass", list(map(_class, row["storage_classes"])))):
        if names:
            plural = kind if len(names) == 1 else "{0} {1}{2}".format(len(names), kind, "es" if kind.endswith("s") else "s")
            parts.append("{0} {1}".format(plural, grouping.compact(names)))
    if row["inline"]:
        parts.append("inline in " + grouping.compact(row["inline"]))
    if row["pods"]:
        parts.append("used by {0} Pod(s) on {1} Node(s)".format(len(row["pods"]), len(row["nodes"])))
    return "; ".join(parts)


def _class(item: StorageClass) -> str:
    return "{0} ({1}{2} claim(s))".format(item["name"], "default, " if item["default"] else "", item["claims"])


def _served(row: VolumeRow) -> str:
    """Return what is known of the driver; '' if nothing is known, or if a warning or a problem says it."""
    if not row["installed"] or row["restarted_without"] or row["others_without"]:
        return ""
    idle = ". It is not registered on {0}, where no Pod uses them".format(_nodes(row["idle_without"])) if row["idle_without"] else ""
    return ". The driver is installed{0}{1}".format(", and registered on all of these Nodes" if row["nodes"] else "", idle)


def _nodes(names: List[str]) -> str:
    return ("Node " if len(names) == 1 else "the Nodes ") + grouping.compact(names)


def _restarts(row: VolumeRow) -> str:
    """Return what the restart of Nodes without the driver would do; '' if there are none, or if no driver exists."""
    names = row["restarted_without"]
    if not names or not row["driver"]:
        return ""
    return ("the run restarts the kubelet on {0}, where Pods use volumes of {1}, but the CSI driver {2} is {3} there (CSINode). The kubelet "
            "could then neither unmount these volumes nor mount them again: {4}".format(
                _nodes(names), row["source"], row["driver"],
                "not registered" if row["installed"] is not False else "not installed, and not registered", grouping.compact(row["restarted_pods"])))


def shortcomings(row: VolumeRow) -> List[str]:
    """Return, as warnings, what is wrong with the driver apart from the restart."""
    if not row["driver"]:
        return ["{0}: no release that this collection supports serves them, and no CSI driver does. Delete what you no longer need: {1}".format(
            _heading(row), _what(row))]
    if row["others_without"]:
        return ["{0}: the driver is not registered on {1} (CSINode), where Pods use them. The run does not restart the kubelet there, but it "
                "can neither unmount these volumes nor mount them again. Install the driver there: {2}".format(
                    _heading(row), _nodes(row["others_without"]), grouping.compact(row["others_pods"]))]
    if row["installed"] is False and not row["restarted_without"]:
        return ["{0}: there is no such CSIDriver. {1}".format(
            _heading(row), "The driver is registered where Pods use them, so apply its manifests again" if row["nodes"] else
            "No running Pod uses them, but no new Pod can, and no volume can be created. Install the driver, or delete what you no longer need")]
    return []
