# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of docs/how-to/awx.md with ansible-runner, as AWX does: from a survey's answers to artifacts.

AWX itself needs a database and images. It runs a job with ansible-runner, takes the data of `set_stats` from the last
event, and passes it to the next job of the workflow as variables.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.packaging import environments

from ..integration.collection.test_layouts import HOSTS, Cluster, cluster
from .doubles import Doubles, doubles

__all__ = ["cluster", "doubles"]

SURVEYS = environments.REPOSITORY / "docs/how-to/awx"
TASKS = {task["name"]: task for task in yaml.safe_load((SURVEYS / "workflow.yml").read_text())[0]["tasks"]}
#: Prints the payloads that awxkit's models make of the fields on its standard input, and the edges that they know.
MODELS = """
import json, sys, types
from awxkit.api.pages import JobTemplate, WorkflowJobTemplate, WorkflowJobTemplateNode as Node
given, related = json.load(sys.stdin), types.SimpleNamespace(id=1)
def filled(fields):
    return {name: related if name in given["related"] else value for name, value in fields.items()}
job = dict(JobTemplate.payload(None, **filled(given["job"])))
workflow = dict(WorkflowJobTemplate.payload(None, **filled(given["workflow"])))
nodes = [dict(Node.payload(None, related, related, **each)) for each in given["nodes"]]
edges = [name + "_nodes" for name in ("always", "failure", "success") if hasattr(Node, f"add_{name}_node")]
print(json.dumps({"job": job, "workflow": workflow, "nodes": nodes, "edges": edges}))
"""
#: The type of each key in the page's table.
KEYS = {"verdict": str, "ok": bool, "counts": dict, "changes": list, "problems": list, "next": list, "report": str}


def answers(book: str) -> dict[str, Any]:
    """Return AWX's variables for a survey with unchanged defaults: numbers as numbers, everything else as text."""
    path = SURVEYS / f"survey-{book}.json"
    questions = json.loads(path.read_text())["spec"] if path.exists() else []
    return {
        each["variable"]: int(each["default"]) if each["type"] == "integer" else str(each["default"])
        for each in questions
    }


class Jobs:
    """The job templates of a project. `inventory` has the texts of the inventory's files by their paths."""

    def __init__(self, environment: Path, folder: Path, inventory: dict[str, str]) -> None:
        self._environment, self._folder = environment, folder
        files = {f"inventory/{path}": text for path, text in inventory.items()}
        for book in ("preflight", "site", "verify", "rollback"):
            files[f"project/{book}.yml"] = yaml.safe_dump([{"import_playbook": f"outoftree.ccm.{book}"}])
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        (folder / "env").mkdir()

    def run(self, book: str, artifacts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Run a job; return how it ended, and its artifacts."""
        (self._folder / "env/extravars").write_text(json.dumps(answers(book) | artifacts))
        done = subprocess.run(
            [self._environment / "bin/ansible-runner", "run", self._folder, "-p", f"{book}.yml", "--ident", book],
            env=environments.variables(self._environment)
            | {"ANSIBLE_COLLECTIONS_PATH": str(environments.BUILD / "collections"), "HOME": str(self._folder)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        events = [json.loads(path.read_text()) for path in self._folder.glob(f"artifacts/{book}/job_events/*.json")]
        (stats,) = (event for event in events if event["event"] == "playbook_on_stats")
        assert "Traceback" not in done.stdout + done.stderr, done.stdout
        return (self._folder / f"artifacts/{book}/status").read_text(), stats["event_data"].get("artifact_data", {})


@pytest.fixture
def jobs(environment: Path, cluster: Cluster, tmp_path: Path) -> Jobs:
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    cluster.add("kubeadm-worker", HOSTS["kubeadm-worker"])
    _, inventory, _, values = cluster.arguments({})
    return Jobs(
        environment, tmp_path / "runner", {"hosts.ini": Path(inventory).read_text(), "group_vars/all.yml": values}
    )


def test_each_job_hands_on_what_the_page_says_also_when_it_fails(jobs: Jobs) -> None:
    status, found = jobs.run("preflight", {})
    assert status == "successful" and found["outoftree_ccm"]["verdict"] == "go"
    assert {name: type(value) for name, value in found["outoftree_ccm"].items()} == KEYS
    assert len(found["outoftree_ccm"]["changes"]) == found["outoftree_ccm"]["counts"]["edits"] > 0
    # The next job of the workflow gets the artifacts as variables, and replaces them.
    status, found = jobs.run("verify", found)
    assert status == "failed" and found["outoftree_ccm"]["verdict"] == "failed"
    assert not found["outoftree_ccm"]["ok"] and found["outoftree_ccm"]["problems"]
    assert "not installed" in found["outoftree_ccm"]["report"]
    status, found = jobs.run("rollback", found)
    assert status == "successful" and found["outoftree_ccm"]["ok"]


async def test_the_job_site_migrates_and_the_next_job_finds_everything_in_order(
    environment: Path, doubles: Doubles, tmp_path: Path
) -> None:
    jobs = Jobs(environment, tmp_path / "runner", {"hosts.json": doubles.inventory.read_text()})
    status, found = await asyncio.to_thread(jobs.run, "site", {})
    result = found["outoftree_ccm"]
    assert status == "successful" and result["verdict"] == "complete" and result["ok"], result
    assert {name: type(value) for name, value in result.items()} == KEYS
    assert result["counts"]["done"] == result["counts"]["edits"] > 0 and result["changes"]
    status, found = await asyncio.to_thread(jobs.run, "verify", found)
    assert status == "successful" and found["outoftree_ccm"]["verdict"] == "passed", found


def test_awxs_own_models_take_every_field_of_the_templates_and_of_the_workflow(environment: Path) -> None:
    job = dict(TASKS["Create the job templates"]["awx.awx.job_template"])
    workflow = dict(TASKS["Create the workflow"]["awx.awx.workflow_job_template"])
    nodes = [{"identifier": node["identifier"]} for node in workflow["workflow_nodes"]]
    related = ("inventory", "project", "organization", "execution_environment")
    given = {"job": job, "workflow": workflow, "nodes": nodes, "related": related}
    program = [environment / "bin/python", "-c", MODELS]
    done = subprocess.run(program, input=json.dumps(given), capture_output=True, text=True, check=True)
    made = json.loads(done.stdout)
    # AWX has separate endpoints for credentials, surveys and nodes. A job template has its project's organization.
    assert set(job) - set(made["job"]) == {"credentials", "survey_spec", "organization"}
    assert set(workflow) - set(made["workflow"]) == {"survey_spec", "workflow_nodes"}
    assert [node["identifier"] for node in made["nodes"]] == [node["identifier"] for node in nodes]
    kinds = {kind for node in workflow["workflow_nodes"] for kind in node.get("related") or {}}
    assert kinds <= set(made["edges"])
