# SPDX-License-Identifier: Apache-2.0
"""The result that a run passes to the next job of a workflow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.filter.run_outcome import run_outcome

EDIT = {"host": "w-1", "component": "kubelet", "file": "/etc/default/kubelet", "flag": "--cloud-provider", "now": None, "then": "external",
        "why": "the kubelet waits for the controller", "risk": "it restarts"}
REPORT: dict[str, Any] = {"go": True, "edits": [EDIT], "problems": [], "warnings": ["w"], "notes": []}
ENTRY = {"host": "w-1", "state": "changed", "edits": 1, "planned": 1, "seconds": 3.0, "detail": ""}
SUMMARY: dict[str, Any] = {"ok": True, "seconds": 9.0, "hosts": [ENTRY], "failed": [], "advice": []}
GOOD = {"ok": True, "checks": [{"name": "nodes", "ok": True, "detail": "2 Node(s)"}]}
BAD = {"ok": False, "checks": [{"name": "nodes", "ok": False, "detail": "w-1 is unmanaged"}]}
TRAFFIC = {"ok": False, "message": ["outside: no answer [security-group]"], "checks": [
    {"name": "outside", "state": "failed", "detail": "no answer", "cause": "security-group"}]}


def plan(**report: Any) -> dict[str, Any]:
    return {"report": {**REPORT, **report}}


@pytest.mark.parametrize(("made", "parts", "verdict"), [
    (plan(), {}, "go"),
    (plan(go=False, problems=["w-1: no Node"]), {}, "no-go"),
    (plan(), {"summary": SUMMARY, "verified": GOOD}, "complete"),
    (plan(), {"summary": SUMMARY}, "not complete"),
    (plan(), {"summary": SUMMARY, "verified": BAD}, "not complete"),
    (plan(), {"summary": {**SUMMARY, "ok": False, "failed": ["w-1"]}, "verified": GOOD}, "not complete"),
    (plan(), {"summary": SUMMARY, "verified": GOOD, "traffic": TRAFFIC}, "not complete"),
    ({}, {"verified": GOOD}, "passed"),
    ({}, {"verified": BAD}, "failed"),
    ({}, {"traffic": TRAFFIC}, "failed"),
])
def test_the_verdict_says_how_far_the_run_came_and_how_it_went(made: dict[str, Any], parts: dict[str, Any], verdict: str) -> None:
    result = run_outcome(made, **parts)
    assert result["verdict"] == verdict
    assert result["ok"] is (verdict in ("go", "complete", "passed"))
    json.dumps(result)


def test_changes_problems_and_counts_are_there() -> None:
    failed = {**ENTRY, "state": "failed", "edits": 0, "detail": "did not start"}
    result = run_outcome(plan(), summary={**SUMMARY, "ok": False, "failed": ["w-1"], "hosts": [failed], "advice": ["Run again"]}, verified=BAD)
    assert result["changes"] == ["w-1: kubelet /etc/default/kubelet: --cloud-provider - -> external"]
    assert result["problems"] == ["w-1: failed: did not start", "nodes: w-1 is unmanaged"]
    assert result["counts"] == {"edits": 1, "done": 0, "hosts": {"failed": 1}, "problems": 2, "warnings": 1}
    assert result["next"] == ["Run again"] and result["report"].startswith("# Migration") and "did not start" in result["report"]
    assert run_outcome({}, traffic=TRAFFIC)["problems"] == ["outside: no answer [security-group]"]


@pytest.mark.parametrize(("verified", "done"), [(GOOD, 3), (BAD, 1), ({}, 1)])
def test_edits_of_nodes_and_of_the_cluster_are_done_when_the_verification_passes(verified: dict[str, Any], done: int) -> None:
    edits = [EDIT, {**EDIT, "host": "w-1", "component": "node"}, {**EDIT, "host": "(cluster)", "component": "kubeadm-config"}]
    assert run_outcome(plan(edits=edits), summary=SUMMARY, verified=verified)["counts"]["done"] == done


def test_it_is_bounded() -> None:
    edits = [{**EDIT, "host": "host{0}x".format(number), "file": "/f{0}".format(number)} for number in range(2000)]
    result = run_outcome(plan(edits=edits, go=False, problems=["a{0} b{0} c{0}: d{0}".format(number) for number in range(2000)]))
    assert len(result["changes"]) == 50 and result["changes"][-1] == "and 1951 more"
    assert len(result["problems"]) <= 50 and len(result["report"]) <= 50000 and result["counts"]["edits"] == 2000


def test_a_failed_check_alone_says_what_is_at_risk_and_what_to_do() -> None:
    assert run_outcome({}, verified={**BAD, "risk": "a Node waits"})["next"] == [
        "At risk now: a Node waits.", "Fix what is named, then run outoftree.ccm.verify."]
    assert run_outcome({}, verified={**GOOD, "risk": ""})["next"] == []
    assert run_outcome({}, traffic={**TRAFFIC, "advice": "Open the port."})["next"] == ["Open the port.", "Then run outoftree.ccm.verify_active again."]


def test_an_empty_value_is_not_an_absent_one() -> None:
    (change,) = run_outcome(plan(edits=[{**EDIT, "now": "", "then": None}]))["changes"]
    assert change.endswith("--cloud-provider '' -> -")


def test_another_value_than_a_plan_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="needs the result of migration_plan"):
        run_outcome("go")
