# SPDX-License-Identifier: Apache-2.0
"""The plan as a table for people, and as data without the contents of files."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.report import report, table
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Report


def edit(host: str = "cp-1", now: str | None = "aws", then: str | None = "external", why: str = "because", risk: str = "none") -> dict[str, Any]:
    return {"host": host, "component": "kubelet", "file": "/f", "flag": "--cloud-provider", "now": now, "then": then, "why": why, "risk": risk}


def plan(*edits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"go": True, "problems": [], "warnings": [], "notes": [], "edits": list(edits), **more}


def rows(*edits: dict[str, Any]) -> list[list[str]]:
    lines = table(plan(*edits))
    return [line.split() for line in lines[1:lines.index("")]]


def test_each_edit_is_a_row_and_its_columns_stand_below_each_other() -> None:
    lines = table(plan(edit("a-long-name"), edit("b", then="x" * 30)))
    starts = {line.index("kubelet") for line in lines[1:3]} | {lines[0].index("COMPONENT")}
    assert starts == {len("a-long-name") + 2}
    assert len({line.rindex(" ") for line in lines[1:3]}) == 1


@pytest.mark.parametrize(("now", "then", "cells"), [
    (None, "external", ["-", "external"]), ("aws", None, ["aws", "(removed)"]), ("", "external", ["''", "external"]),
])
def test_a_value_that_is_not_there_is_shown(now: str | None, then: str | None, cells: list[str]) -> None:
    assert rows(edit(now=now, then=then))[0][4:6] == cells


def test_reasons_have_numbers_and_risks_have_letters() -> None:
    edits = [edit(why="w1", risk="r1"), edit(why="w2", risk="r1"), edit(why="w1", risk="r2")]
    assert [row[-2:] for row in rows(*edits)] == [["1", "a"], ["2", "a"], ["1", "b"]]
    assert table(plan(*edits))[5:9] == ["why 1: w1", "why 2: w2", "risk a: r1", "risk b: r2"]


def test_a_plan_without_edits_says_so_in_its_own_words_where_it_has_any() -> None:
    assert len(table(plan())) == 2 and "othing" in table(plan())[0]
    assert table(plan(nothing="all is well"))[0] == "all is well"
    assert "all is well" not in "".join(table(plan(edit(), nothing="all is well")))


@pytest.mark.parametrize(("problems", "verdict"), [([], "GO: 1 edit"), (["odd"], "NO-GO: 1 edit")])
def test_the_last_line_is_the_verdict(problems: list[str], verdict: str) -> None:
    lines = table(plan(edit(), problems=problems, warnings=["w"], notes=["n"]))
    assert lines[-1].startswith(verdict)
    assert [line for line in lines if line.endswith((": w", ": n", ": odd"))] == ["NOTE: n", "WARNING: w", *(f"PROBLEM: {text}" for text in problems)]


def test_the_data_holds_no_contents_of_files() -> None:
    made = plan(edit(), **{key: [] for key in Report.__required_keys__ if key not in ("go", "edits")}, hosts={"a": "secret"})
    assert set(report(made)) == Report.__required_keys__
