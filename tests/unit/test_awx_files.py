# SPDX-License-Identifier: Apache-2.0
"""The surveys, job templates and the workflow of docs/how-to/awx agree with the roles and playbooks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/how-to/awx"
sys.path.append(str(ROOT / "tools/docs"))

import awx_files  # noqa: E402

TASKS = yaml.safe_load((FOLDER / "workflow.yml").read_text())[0]


def options() -> dict[str, dict[str, Any]]:
    paths = ROOT.glob("roles/*/meta/argument_specs.yml")
    specs = [yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"] for path in paths]
    return {name: option for each in specs for name, option in each.items()}


def test_no_survey_is_stale() -> None:
    there = {path.name: path.read_text() for path in FOLDER.glob("survey-*.json")}
    assert there == awx_files.texts(), "run `python tools/docs/awx_files.py`"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("survey-*.json")), ids=lambda path: path.stem)
def test_each_question_is_a_variable_with_its_default_and_choices(path: Path) -> None:
    survey = json.loads(path.read_text())
    assert survey["spec"]
    for question in survey["spec"]:
        option = options()[question["variable"]]
        kinds = {"integer": "int", "multiplechoice": option["type"], "text": option["type"]}
        assert kinds[question["type"]] == option["type"]
        expected = ["true", "false"] if option["type"] == "bool" else option.get("choices", [])
        assert question["choices"] == [choice for choice in expected if choice]
        assert str(question["default"]).lower() == str(option.get("default", "")).lower()
        assert not question["choices"] or question["default"] in question["choices"]
        assert question["question_name"] and question["question_description"]


def test_each_job_is_a_playbook_and_each_survey_belongs_to_a_job() -> None:
    books = {path.stem for path in ROOT.glob("playbooks/*.yml")}
    assert set(TASKS["vars"]["books"]) <= books
    surveys = {path.stem.removeprefix("survey-") for path in FOLDER.glob("survey-*.json")}
    assert set(TASKS["vars"]["surveys"]) == surveys <= set(TASKS["vars"]["books"])


def test_the_workflow_leads_from_the_plan_over_an_approval_to_a_rollback() -> None:
    (workflow,) = [task["awx.awx.workflow_job_template"] for task in TASKS["tasks"] if "workflow" in task["name"]]
    nodes = {node["identifier"]: node for node in workflow["workflow_nodes"]}
    jobs = [node["unified_job_template"]["name"].removeprefix("{{ prefix }}") for node in nodes.values()
            if node["unified_job_template"]["type"] == "job_template"]  # fmt: skip
    assert set(jobs) <= set(TASKS["vars"]["books"])
    edges = {
        (name, kind, target["identifier"])
        for name, node in nodes.items()
        for kind, targets in (node.get("related") or {}).items()
        for target in targets
    }
    assert {target for _, _, target in edges} == set(nodes) - {"preflight"}
    assert ("preflight", "success_nodes", "approval") in edges and ("approval", "success_nodes", "site") in edges
    assert ("approve-rollback", "success_nodes", "rollback") in edges
    failing = {name for name, kind, target in edges if (kind, target) == ("failure_nodes", "approve-rollback")}
    assert failing == {"site", "verify"}
