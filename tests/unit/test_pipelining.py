# SPDX-License-Identifier: Apache-2.0
"""Tasks that get a kubeconfig are pipelined, so that a killed Ansible leaves none in a file. Tasks on the operator's
machine run as the operator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
#: Hosts to which the roles delegate requests to the API server, and writes of the operator's files.
OPERATORS = {"localhost", "{{ __ccm_install_api_host }}", "{{ __ccm_runtime_api_host }}"}
FILES = sorted([*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("playbooks/*.yml")])


def tasks(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        yield entry
        for part in ("tasks", "block", "rescue", "always"):
            yield from tasks(entry.get(part) or [])


def told(task: dict[str, Any]) -> bool:
    return any(isinstance(options, dict) and "kubeconfig" in options for options in task.values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_a_task_with_a_kubeconfig_is_pipelined(path: Path):
    found = [task for task in tasks(yaml.safe_load(path.read_text())) if told(task)]
    bare = [task["name"] for task in found if (task.get("vars") or {}).get("ansible_pipelining") is not True]
    assert not bare, f"without `vars: ansible_pipelining: true`: {bare}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_a_task_on_the_operators_machine_runs_as_the_operator(path: Path):
    """`ansible_become: true` of an inventory's group `all` also concerns localhost, and overrides `become: false`."""
    for task in tasks(yaml.safe_load(path.read_text())):
        if task.get("delegate_to") in OPERATORS:
            assert (task.get("vars") or {}).get("ansible_become") is False, (
                f"without `ansible_become: false`: {task['name']}"
            )
        assert "become" not in task, f"a variable of the inventory would win: {task['name']}"


def test_there_are_such_tasks():
    assert sum(told(task) for path in FILES for task in tasks(yaml.safe_load(path.read_text()))) > 20


@pytest.mark.threat("worker-sees-no-admin-credentials")
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_tasks_go_to_hosts_that_no_worker_names(path: Path):
    """What a worker returns may set that worker's variables, so no variable of a worker may say where a task runs."""
    for task in tasks(yaml.safe_load(path.read_text())):
        target = task.get("delegate_to", "localhost")
        assert target in OPERATORS or (task.get("delegate_facts") is True and not told(task)), task["name"]
