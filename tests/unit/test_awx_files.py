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


#: The types of questions that AWX knows, and the type of their defaults.
KINDS = {
    "text": str,
    "textarea": str,
    "password": str,
    "multiplechoice": str,
    "multiselect": str,
    "integer": int,
    "float": float,
}


def refusals(survey: dict[str, Any]) -> list[str]:
    """Return why AWX's API would refuse a survey, by the rules of JobTemplateSurveySpec in awx/api/views."""
    fields = {"name": str, "description": str, "spec": list}
    found = [name for name, kind in fields.items() if not isinstance(survey.get(name), kind)]
    found += [] if survey.get("spec") else ["no questions"]
    names = [question.get("variable") for question in survey.get("spec") or []]
    found += ["a variable twice"] if len(set(names)) < len(names) else []
    return found + [problem for question in survey.get("spec") or [] for problem in refusals_of(question)]


def refusals_of(question: dict[str, Any]) -> list[str]:
    fields = {"type": str, "question_name": str, "variable": str, "required": bool}
    found = [name for name, kind in fields.items() if not isinstance(question.get(name), kind)]
    if question.get("type") not in KINDS:
        return [*found, "unknown type"]
    default, choices = question.get("default", ""), question.get("choices")
    if default != "" and not isinstance(default, KINDS[question["type"]]):
        found.append("default")
    found += [limit for limit in ("min", "max") if not isinstance(question.get(limit), (int, type(None)))]
    if question["type"] in ("multiplechoice", "multiselect"):
        if choices is None:
            return [*found, "no choices"]
        chosen = default.splitlines()
        found += ["a default that is no choice"] if any(text not in choices for text in chosen) else []
        found += ["two defaults"] if question["type"] == "multiplechoice" and len(chosen) > 1 else []
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("survey-*.json")), ids=lambda path: path.stem)
def test_awx_takes_each_survey(path: Path) -> None:
    assert refusals(json.loads(path.read_text())) == []


QUESTION = {"type": "multiplechoice", "question_name": "Q", "variable": "v", "required": False, "choices": ["a", "b"]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"required": "no"}, "required"),
        ({"type": "bool"}, "unknown type"),
        ({"type": "integer", "default": "3"}, "default"),
        ({"type": "text", "default": True}, "default"),
        ({"default": "c"}, "a default that is no choice"),
        ({"default": "a\nb"}, "two defaults"),
        ({"choices": None}, "no choices"),
        ({"max": "10"}, "max"),
    ],
)
def test_what_awx_refuses_is_noticed(change: dict[str, Any], problem: str) -> None:
    survey = {"name": "", "description": "", "spec": [QUESTION | change]}
    assert problem in refusals(survey)
    assert "a variable twice" in refusals(survey | {"spec": [QUESTION, QUESTION]})
    assert refusals({"name": "", "description": "", "spec": [QUESTION]}) == []
