# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges the end of a rollback: is every host restored, so that the controller may be removed, and what cannot be undone?

Pure; runs on the Ansible controller.
"""

from __future__ import annotations

from typing import Any, Dict, List, TypedDict

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping, unseen_hosts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.cluster_steps import KUBEADM_CONFIG
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback import FLAGS, looked_at
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import RollbackPlan


class RollbackVerdict(TypedDict):
    """Whether every host is restored; judge describes the keys."""

    restored: bool
    complete: bool
    waiting: List[str]
    unrestored: List[str]
    message: List[str]
    lines: List[str]


def judge(plan: RollbackPlan, detected: Dict[str, Any], inventory: List[str], predicted: bool = False) -> RollbackVerdict:
    """Return whether every host is C(restored), by its state after the rollback: only then may the controller be removed.

    C(complete): restored, and nothing was skipped. C(waiting) has sentences about the hosts that keep the controller,
    C(unrestored) one for everything that the rollback skipped. C(predicted): nothing was written (check mode), so the journals are ignored.
    """
    waiting: List[str] = []
    given_up = {(item["host"], item["file"]) for item in plan["unrestored"]}
    sorted_facts = host_facts.sorted_out({host: facts for host, facts in detected.items() if facts is not None})
    for host in inventory:
        facts = sorted_facts.get(host)
        if facts is None:
            waiting.append("{0}: --limit excludes the host".format(host))
        elif not looked_at(facts):
            waiting.append("{0}: could not be inspected again: {1}".format(host, unseen_hosts.reasons({host: facts})[host]))
        elif facts.get("journal_problem"):
            waiting.append("{0}: {1}".format(host, facts["journal_problem"]))
        elif not predicted:
            waiting += ["{0}: {1} is not restored".format(host, path) for path in sorted(facts["journal"])
                        if path != KUBEADM_CONFIG and (host, path) not in given_up]
    unrestored = [("{host}: {file}: {reason}" if item["file"] else "{host}: {reason}").format(**item) for item in plan["unrestored"]]
    return {"restored": not waiting, "complete": not waiting and not unrestored, "waiting": waiting, "unrestored": unrestored,
            "message": grouping.few(waiting or unrestored, "The others are in ccm_install_summary"),
            "lines": _last_words(plan, waiting + unrestored, predicted)}


def _last_words(plan: RollbackPlan, undone: List[str], predicted: bool) -> List[str]:
    """Return, as lines, what was restored and how, what a rollback cannot undo, and which controller runs now."""
    edited = ["{host}: {file}".format(**item) for item in plan["files"] if item["mode"] == FLAGS]
    lines = ["Check mode: nothing was changed. After a rollback, this would be true:"] if predicted else []
    lines += [] if edited or plan["kept"] or undone else ["Every file that the migration changed has its original content again."]
    if edited:
        lines.append("These files were changed after the migration, so the rollback undid only the migration's own changes in them: "
                     + grouping.compact(edited))
    if plan.get("copies"):
        lines.append("These hosts lost their journal, so the rollback used its copy in the cluster: " + grouping.compact(
            ["{0} (journal: copy in {1})".format(host, place) for host, place in sorted(plan["copies"].items())]))
    lines += [("" if " is not restored" in sentence else "Not restored: ") + sentence for sentence in grouping.equal_messages(plan["kept"] + undone)]
    lines.append("Nodes keep their providerID, which Kubernetes does not allow to change or remove. They also keep their addresses and "
                 "their zone, region and type labels. Kubelets without a cloud ignore them.")
    serving = _serving(plan)
    if not (plan["controller"] or plan["files"] or serving):  # an earlier run rolled back, and reported it
        return lines
    if serving:
        return lines + ["Running now: {0}.".format("; ".join(serving))]
    lines.append("At risk now: no cloud-controller-manager runs. Load balancers and routes keep working, but nobody updates them, creates new "
                 "ones, or deletes Nodes whose machines are gone.")
    if plan["held"]:
        lines.append("These Services keep the finalizer service.kubernetes.io/load-balancer-cleanup: {0}. Deleting such a Service hangs until a "
                     "cloud-controller-manager runs again or you remove the finalizer by hand.".format(grouping.compact(plan["held"])))
    return lines


def _serving(plan: RollbackPlan) -> List[str]:
    """Return who serves the cloud's load balancers and Nodes after the rollback."""
    resumed = ["{kind} {namespace}/{name}, which the migration had paused".format(**other) for other in plan["paused"]]
    in_tree = sorted({"kube-controller-manager with the in-tree provider {then}".format(**edit) for edit in plan["edits"]
                      if edit["component"] == "kube-controller-manager" and edit["flag"] == "--cloud-provider"
                      and edit["then"] not in (None, "", "external")})
    return resumed + in_tree + plan["serving"]
