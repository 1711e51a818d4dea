# SPDX-License-Identifier: Apache-2.0
"""What AWX and log files keep of a run: results that include the contents of files are hidden."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "roles"
#: Modules and filters whose results include the contents of files.
WITH_FILES = ("ccm_component_flags_info", "ccm_cluster_info", "ccm_journal_info", "ccm_journal_copy", "outoftree.ccm.migration_plan",
              "outoftree.ccm.rollback_plan", "outoftree.ccm.leader_migration_plan", "outoftree.ccm.adoption_outlook", "ansible.builtin.slurp")


def tasks() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(ROLES.glob("*/tasks/**/*.yml")):
        for task in yaml.safe_load(path.read_text()) or []:
            yield path.name, task


FOUND = [(name, task) for name, task in tasks() if any(word in str({**task, "name": ""}) for word in WITH_FILES)]


@pytest.mark.parametrize(("file", "task"), FOUND, ids=[f"{name}: {task['name']}" for name, task in FOUND])
def test_a_task_whose_result_has_files_is_hidden(file: str, task: dict[str, Any]) -> None:
    deletes = (task.get("outoftree.ccm.ccm_journal_copy") or {}).get("state") == "absent"
    module = next((value for key, value in task.items() if key.startswith("outoftree.ccm.")), {})
    # Such tasks must not also have no_log, which would hide why a host is unreachable.
    assert deletes or (task.get("no_log") is True) is not (module.get("hide_result") is True)
    assert "_info" not in str(list(task)) or "journal" in str(list(task)) or module.get("hide_result")


def test_no_task_loops_over_the_contents_of_files() -> None:
    """Each result of a loop includes its item."""
    for name, task in tasks():
        assert "control_plane }}" not in str(task.get("loop")) and "files" not in str(task.get("loop")), name
