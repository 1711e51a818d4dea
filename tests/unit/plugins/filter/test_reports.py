# SPDX-License-Identifier: Apache-2.0
"""The filters of reports and batches pass on what the pure modules need."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.outoftree.ccm.plugins.filter.run_report import run_report
from ansible_collections.outoftree.ccm.plugins.filter.worker_batches import worker_batches

PLAN: dict[str, Any] = {"report": {"go": True, "edits": [], "problems": [], "warnings": [], "notes": []}}
SUMMARY = {"ok": True, "seconds": 3.0, "hosts": [], "failed": [], "advice": ["a"], "lines": ["table"]}


def test_json_has_the_plan_the_request_and_the_outcome() -> None:
    first = json.loads(run_report(PLAN, "r.json", approved_by="Alice"))
    assert first["go"] and first["request"]["approved_by"] == "Alice" and first["outcome"] == {}
    last = json.loads(run_report(PLAN, "r.json", summary=SUMMARY, verified={"ok": True, "checks": [{"name": "n"}]}))
    assert last["outcome"] == {"ok": True, "seconds": 3.0, "hosts": [], "failed": [], "lines": ["a"], "checks": [{"name": "n"}]}


def test_a_run_without_a_verification_or_with_a_failed_host_is_not_complete() -> None:
    assert "is not complete" in run_report(PLAN, "r.html", summary=SUMMARY)
    assert "is not complete" in run_report(PLAN, "r.html", summary={**SUMMARY, "ok": False}, verified={"ok": True})
    assert "is complete" in run_report(PLAN, "r.md", summary=SUMMARY, verified={"ok": True})


def test_the_title_is_the_playbooks() -> None:
    assert run_report(PLAN, "r.md", title="Rollback").startswith("# Rollback\n")
    assert "<title>Migration to an external cloud-controller-manager</title>" in run_report(PLAN, "r.htm")


def test_batches_are_judged_and_announced() -> None:
    assert worker_batches([1, "10%"], 50, [5.0]) == {
        "problems": [], "longest": 4020, "line": "Worker 1 of 50 (batch 1 of 11)"}
    assert worker_batches([1]) == {"problems": [], "longest": 4020, "line": ""}
    found = worker_batches(0, 50, [5.0], pause=-1, command="x", timeout=0)
    assert len(found["problems"]) == 4 and (found["line"], found["longest"]) == ("", 0)
