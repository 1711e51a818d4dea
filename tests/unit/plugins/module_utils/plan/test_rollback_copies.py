# SPDX-License-Identifier: Apache-2.0
"""A rollback says which journals come from the cluster, and stops if a person must decide."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback import make_rollback_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.rollback_verdict import judge
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.summary import summarise

PLACE = "Secret kube-system/outoftree-ccm-journal-w-1-0a1b2c3d4e5f"


@pytest.fixture
def planned(host_facts: Any, cluster_facts: Any) -> Any:
    """Return a function that plans the rollback of a host with nothing to restore, with these facts about its journal's copy."""

    def build(source: str, problem: str = "", note: str = "", reported: tuple[str, ...] = ()) -> dict[str, Any]:
        copies = {"hosts": {"w-1": {"source": source, "place": PLACE, "problem": problem, "note": note, "content": "x"}}, "said": list(reported)}
        return make_rollback_plan({"w-1": host_facts("w-1", {})}, cluster_facts(("w-1", "initialized")), [], copies=copies)

    return build


def test_the_plan_the_summary_and_the_last_words_name_the_copy(planned: Any) -> None:
    note = f"journal: copy in {PLACE}, because the journal on the host is missing"
    plan = planned("copy", note=note)
    assert plan["go"] and f"NOTE: w-1: {note}" in plan["table"] and plan["report"]["copies"] == {"w-1": PLACE}
    words = judge(plan, {"w-1": {"node_name": "w-1"}}, ["w-1"])["lines"]
    assert any(f"w-1 (journal: copy in {PLACE})" in line for line in words)
    detected = {"__ccm_install_detected": {"node_name": "w-1"}}
    (entry,) = summarise({"w-1": detected}, plan)
    assert entry["detail"] == f"journal: copy in {PLACE}"
    assert not any("content" in str(line) for line in plan["report"]["copies"].values())


def test_a_newer_copy_is_a_problem_of_the_plan(planned: Any) -> None:
    plan = planned("local", problem="the copy is newer")
    assert not plan["go"] and plan["problems"] == ["w-1: the copy is newer"] and plan["copies"] == {}


def test_a_copy_that_is_not_used_is_a_warning(planned: Any) -> None:
    plan = planned("none", note="its copy cannot be used", reported=("the copies cannot be read",))
    assert plan["go"] and plan["warnings"] == ["w-1: its copy cannot be used", "the copies cannot be read"] and plan["copies"] == {}
    assert "was lost" not in str(judge(plan, {"w-1": {"node_name": "w-1"}}, ["w-1"])["lines"])


def test_without_copies_nothing_is_said(planned: Any) -> None:
    plan = planned("local")
    assert plan["go"] and plan["warnings"] == [] and plan["notes"] == []
