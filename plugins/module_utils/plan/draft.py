# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers that make a plan: the empty plan, a row of its table, the files of a step, and the verdict.

The planners of the migration, of the rollback and of the leader migration use them. Pure; runs on the Ansible
controller.
"""

from __future__ import annotations

import base64
from typing import Iterable, List, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.edit.unit import Sources
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts, StepFile
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.report import report, table
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

RISKS = {
    "kube-apiserver": "restarts: this node's API server is unavailable for some seconds; restored if it does not become healthy",
    "kube-controller-manager": "restarts: another instance leads, or this one after some seconds; restored if it does not become healthy",
    "kubelet": "restarts: running Pods stay; restored if it does not become healthy",
    "kubeadm-config": "none now: the next kubeadm upgrade reads it",
    "k3s": "restarts k3s, and on a server its API server and etcd member; running Pods stay; restored if it does not become healthy",
    "rke2": "restarts RKE2, and on a server its API server and etcd member; running Pods stay; restored if it does not become healthy",
    "servicelb": "Services of type LoadBalancer lose their ServiceLB addresses and get addresses from the cloud",
    "node": "new Pods wait some seconds; running Pods stay (the taint is NoSchedule)",
}


def empty() -> Plan:
    """Return a plan with nothing in it yet."""
    return {"go": False, "problems": [], "warnings": [], "notes": [], "edits": [], "hosts": {}, "nodes": {},
            "volumes": [], "kubeadm_config": None, "adopt": [], "reregister": [], "node_only": False, "new_nodes": [], "takeover": [],
            "way_back": {"remove": False, "resume": [], "paused": []}}


def finish(plan: Plan) -> Plan:
    """Add the verdict, the message about the problems, the table and the report to the plan, and return it."""
    plan["go"] = not plan["problems"]
    plan["message"] = grouping.few(plan["problems"])
    plan["table"] = table(plan)
    plan["report"] = report(plan)
    return plan


def edit(plan: Plan, host: str, component: str, file: str, flag: str, now: Optional[str], then: Optional[str], why: str, risk: str) -> None:
    """Add an edit to the plan."""
    plan["edits"].append({"host": host, "component": component, "file": file, "flag": flag, "now": now, "then": then,
                          "why": why, "risk": risk})


def encoded(text: str) -> str:
    """Return a text in base64, as the content of a step's file. Bytes that are not UTF-8 stay unchanged."""
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode("ascii")


def unit_files(facts: HostFacts, edited: Sources, paths: Iterable[str]) -> List[StepFile]:
    """Return the edited files of a unit, as a step has them."""
    return [{"path": path, "content": encoded(edited.texts[path] or ""), "sha256": facts["files"][path]["sha256"]}
            for path in sorted(paths)]
