# SPDX-License-Identifier: Apache-2.0
"""The plan as lines for people, and as data that does not include the contents of files."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.report import report, table
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Report


def edit(host: str = "cp-1", now: str | None = "aws", then: str | None = "external", why: str = "because", risk: str = "none") -> dict[str, Any]:
    return {"host": host, "component": "kubelet", "file": "/f", "flag": "--cloud-provider", "now": now, "then": then, "why": why, "risk": risk}


def plan(*edits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"go": True, "problems": [], "warnings": [], "notes": [], "edits": list(edits), **more}


def test_edits_of_one_file_stand_below_it_as_in_a_diff() -> None:
    edits = [edit(), edit(now=None), edit(then=None), edit("cp-2", now="", then=None)]
    assert table(plan(*edits))[:8] == [
        "cp-1: kubelet, /f (risk a)",
        "  - --cloud-provider=aws",
        "  + --cloud-provider=external  (why 1)",
        "  + --cloud-provider=external  (why 1)",
        "  - --cloud-provider=aws  (why 1)",
        "cp-2: kubelet, /f (risk a)",
        "  - --cloud-provider=''  (why 1)",
        "",
    ]


def test_what_is_no_flag_is_written_as_in_yaml() -> None:
    made = {**edit(now=None, then="set by the runtime"), "component": "node", "file": "Node/cp-1", "flag": "providerID"}
    assert table(plan(made))[:2] == ["cp-1: node, Node/cp-1 (risk a)", "  + providerID: set by the runtime  (why 1)"]


def test_equal_edits_of_many_hosts_stand_once_and_their_names_below() -> None:
    lines = table(plan(*(edit("w-{}".format(number), then=None) for number in range(1, 7)), edit()))
    assert lines[:2] == ["6 hosts (1): kubelet, /f (risk a)", "  - --cloud-provider=aws  (why 1)"]
    assert "hosts 1: w-1...w-6" in lines and lines[2].startswith("cp-1: ")


def test_reasons_have_numbers_and_risks_have_letters() -> None:
    lines = table(plan(edit(why="w1", risk="r1"), edit(why="w2", risk="r1"), edit(why="w1", risk="r2")))
    assert [line for line in lines if "(risk" in line] == ["cp-1: kubelet, /f (risk a)", "cp-1: kubelet, /f (risk b)"]
    assert [line[-7:] for line in lines if "(why" in line] == ["(why 1)", "(why 2)", "(why 1)"]
    start = lines.index("") + 1
    assert lines[start:start + 4] == ["why 1: w1", "why 2: w2", "risk a: r1", "risk b: r2"]


def test_an_edit_of_any_usual_place_fits_eighty_columns() -> None:
    """Ansible indents the text of a message by eight columns."""
    path = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
    made = {**edit("kubeadm-cp-1", "openstack", None), "file": path}
    made["component"] = "kube-controller-manager"
    assert max(len(line) for line in table(plan(made))[1:3]) <= 72


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
