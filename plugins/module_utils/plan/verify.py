# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of verify.yml: is the migration complete, according to the hosts and the cluster?

Pure; runs on the Ansible controller. The checks judge effects (running processes, Nodes, addresses), not only files.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, TypedDict

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import health as health_facts, host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import BalancedService, ClusterFacts, HealthFacts, NodeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostAnswer, HostFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import columns, grouping, old_config, serving
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Check, Edit, Plan

#: The part of a leader's identity after the name of its host.
_SUFFIX = re.compile(r"_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
#: The file of a plan's row if only the process must change.
PROCESS = "(the running process)"
#: With more Nodes than this, those that are initialised share one line.
MANY = 12

#: What is at risk while a check fails.
RISKS = {
    "hosts": "nobody knows what runs on such a host, or whether it runs",
    "flags": "with such a file, a component may fail to start, or may act for the cloud beside the controller",
    "kubelets": "if a kubelet without the flag registers its Node again, no controller initialises it",
    "kubeadm-config": "the next kubeadm upgrade brings the old flags back",
    "nodes": "a Node that is not initialized gets no address, zone, route or load balancer from the cloud",
    "deletions": "a Node whose machine is gone stays, and so do its Pods and volumes",
    "runtime": "while no controller works, new Nodes wait, and load balancers and routes stay as they are",
    "serving-certs": "kubectl logs and exec, and metrics, may fail for a kubelet without such a certificate",
    "services": "nobody outside of the cluster reaches a Service without an address",
}


class Verification(TypedDict):
    """The verdict of a verification. C(message) has the failures as lines of the message that ends a run. C(risk) says what is at
    risk now."""

    ok: bool
    checks: List[Check]
    failures: List[str]
    message: List[str]
    risk: str
    notes: List[str]
    lines: List[str]


def verify(detected: Dict[str, HostAnswer], cluster: ClusterFacts, health: HealthFacts,
           control_plane: List[str], names: Optional[Dict[str, List[str]]] = None, controller: str = "") -> Verification:
    """Return {ok, checks: [{name, ok, detail}], failures, message, risk, notes, lines}. Every check runs, even if others fail.

    C(controller) is the name of a vendor's controller, for the message about what it does not report.
    """
    plan = make_plan(detected, cluster, control_plane, names=names)
    known = host_facts.usable(host_facts.sorted_out(detected))  # the plan reports the others as problems
    checks: List[Check] = []
    message: List[str] = []

    def check(name: str, failures: List[str], good: str, of: str = "hosts") -> None:
        grouped = grouping.equal_messages(failures, of)
        checks.append({"name": name, "ok": not failures, "detail": "; ".join(grouped) or good})
        message.extend("{0}: {1}".format(name, text) for text in grouped)

    check("hosts", plan["problems"], "{0} host(s) were inspected".format(len(known)))
    # The plan reports a host whose kubelet does not run. The missing flags of that kubelet have the same cause, so they are not reported again.
    stopped = {host for host, facts in known.items() if any(text.startswith("the kubelet does not run") for text in facts["problems"])}
    check("flags", ["{0}: {1}".format(edit["host"], _still(edit)) for edit in plan["edits"]
                    if edit["component"] != "node" and edit["host"] != "(cluster)" and not (edit["file"] == PROCESS and edit["host"] in stopped)],
          "no file sets a flag that should not be there")
    check("kubelets", ["{0}: runs with {1}".format(host, " ".join(_cloud_flags(facts)) or "no cloud flag")
                       for host, facts in sorted(known.items())
                       # The kubelet of k3s and RKE2 is part of their process. The check 'flags' judges their files and start time.
                       if host not in stopped and not facts["service"] and set(_cloud_flags(facts)) != {"--cloud-provider=external"}],
          "every running kubelet has --cloud-provider=external")
    check("kubeadm-config", ["{component} {flag}".format(**edit) for edit in plan["edits"] if edit["host"] == "(cluster)"],
          "agrees with the manifests" if cluster["kubeadm_config"]["exists"] else "does not exist (no kubeadm)")
    check("nodes", ["{0}: {1}, because {2}{3}".format(node["name"], node["class"], node["reason"], _way_out(node, plan))
                    for node in cluster["nodes"] if node["class"] != "initialized"]
          + ["{0}: no IP address".format(node["name"]) for node in cluster["nodes"]
             if node["class"] == "initialized" and not any(a["type"].endswith("IP") for a in node["addresses"])],
          "{0} Node(s) are initialised{1}".format(
              len(cluster["nodes"]), "" if cluster["compared"]["done"] else " (not compared with the cloud: {0})".format(
                  cluster["compared"]["reason"])), "Nodes")
    held = ["{0}: the controller keeps it: {1}".format(node["name"], health["held"][node["uid"]])
            for node in cluster["nodes"] if not node["ready"] and node["uid"] in health.get("held", {})]
    if held:
        check("deletions", held, "", "Nodes")
    check("runtime", health["reasons"], "{0} of {1} Pods Ready, led by {2}{3}".format(
        health["daemonset"]["ready"], health["daemonset"]["desired"], _SUFFIX.sub("", health["lease"]["holder"]),
        "; not checked, because {0} does not report it: {1}".format(controller or "the controller", ", ".join(health["unjudged"]))
        if health["unjudged"] else ""))
    served = [host for host, facts in known.items() if serving.bootstraps(facts)]
    if served:
        check("serving-certs", serving.without_certificate(known, cluster["nodes"], cluster["serving"]),
              "{0} kubelet(s) serve a certificate from the cluster with every address of their Node".format(len(served)))
    check("services", ["{namespace}/{name}: no external address".format(**service)
                       for service in health_facts.without_address(cluster["services"])],
          _good_services(cluster["services"]), "Services")
    width = max(len(item["name"]) for item in checks)
    lines = ["{0}  {1}  {2}".format("ok  " if item["ok"] else "FAIL", item["name"].ljust(width), item["detail"])
             for item in checks]
    notes = grouping.equal_messages(old_config.notes(known))
    lines += ["note  " + text for text in notes]
    failures = ["{name}: {detail}".format(**item) for item in checks if not item["ok"]]
    risk = "; ".join(RISKS[item["name"]] for item in checks if not item["ok"])
    return {"ok": not failures, "checks": checks, "failures": failures, "message": grouping.cut(message), "risk": risk, "notes": notes, "lines": lines}


def _good_services(services: List[BalancedService]) -> str:
    ours = sum(service["ours"] for service in services)
    others = ", {0} belong(s) to other controllers by their class".format(len(services) - ours) if ours < len(services) else ""
    return "{0} Service(s) of type LoadBalancer have addresses{1}".format(ours, others)


def _still(edit: Edit) -> str:
    """Return which flag the migration would set or change in a file, and how the file sets the flag now; or why a process must restart."""
    if edit["file"] == PROCESS:
        return "{component}: {why}".format(**edit)
    if edit["now"] is None:
        return "{file} does not set {flag}={then}".format(**edit)
    return "{file} still sets {flag}={0}".format(edit["now"] or "''", **edit)


def _cloud_flags(facts: HostFacts) -> List[str]:
    return [flag for flag in facts["kubelet"].get("flags", []) if flag.startswith("--cloud-")]


def _way_out(node: NodeFacts, plan: Plan) -> str:
    """Return the end of a sentence about a Node that joined without the flag: what to do. Return '' for the other
    classes, whose reason already says it."""
    if node["class"] != "unmanaged":
        return ""
    if node["name"] not in plan["nodes"].values():
        return (". No host of the inventory is this Node. Add its host to the inventory (group kube_node) and run site.yml again. "
                "preflight.yml shows how new nodes join with the flag")
    return ". Run site.yml again to give its kubelet the flag and the Node its providerID. Nothing else changes"


def nodes_table(nodes: List[NodeFacts]) -> List[str]:
    """Return a table of the Nodes with what the cloud gave each of them, as lines of text.

    The columns for zone, region and type are left out if no Node has a value. If rows are wider than 80 columns, all of them are broken at the same
    cell. If there are many Nodes, those that are initialised share one line, and at most MANY of the others have a row.
    """
    done = [node["name"] for node in nodes if node["class"] == "initialized"]
    if len(nodes) > MANY:
        rest = nodes_table([node for node in nodes if node["class"] != "initialized"][:MANY]) if len(done) < len(nodes) else []
        return rest + ["{0} of {1} Nodes are initialised{2}".format(len(done), len(nodes), ": " + grouping.compact(done) if done else "")]
    head = ["NODE", "CLASS", "PROVIDER ID", "ADDRESSES", "ZONE", "REGION", "TYPE"]
    rows = [[node["name"], node["class"], node["provider_id"] or "-",
             ",".join(a["address"] for a in node["addresses"] if a["type"].endswith("IP")) or "-",
             node["zone"] or "-", node["region"] or "-", node["instance_type"] or "-"] for node in nodes]
    shown = [i for i in range(len(head)) if i < 4 or any(row[i] != "-" for row in rows)]
    widths = [max(len(row[i]) for row in rows + [head]) for i in shown]
    parts = columns.parts(widths)
    return ["  " * (number > 0) + "  ".join(row[shown[i]].ljust(widths[i]) for i in part).rstrip()
            for row in [head] + rows for number, part in enumerate(parts)]
