# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of docs/how-to/awx.md with ansible-runner, as AWX does: from a survey's answers to artifacts.

AWX itself needs a database and images. It runs a job with ansible-runner, takes the data of `set_stats` from the last
event, and passes it to the next job of the workflow as variables.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.packaging import environments

from ..integration.collection.test_layouts import HOSTS, Cluster, cluster

__all__ = ["cluster"]

SURVEYS = environments.REPOSITORY / "docs/how-to/awx"
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
    """The job templates of a project, over the hosts of a cluster."""

    def __init__(self, environment: Path, folder: Path, cluster: Cluster) -> None:
        self._environment, self._folder = environment, folder
        (folder / "project").mkdir(parents=True)
        for book in ("preflight", "verify", "rollback"):
            play = [{"import_playbook": f"outoftree.ccm.{book}"}]
            (folder / "project" / f"{book}.yml").write_text(yaml.safe_dump(play))
        _, inventory, _, values = cluster.arguments({})
        (folder / "inventory").mkdir()
        (folder / "inventory/hosts.ini").write_text(Path(inventory).read_text())
        (folder / "inventory/group_vars").mkdir()
        (folder / "inventory/group_vars/all.yml").write_text(values)
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
    return Jobs(environment, tmp_path / "runner", cluster)


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
