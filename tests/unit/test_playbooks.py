# SPDX-License-Identifier: Apache-2.0
"""All playbooks refuse tags that would skip their tasks; their plays name their strategy; lists keep their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
PLAYBOOKS = sorted(REPOSITORY.glob("playbooks/*.yml"))
PROGRAM = Path(os.environ.get("OUTOFTREE_ANSIBLE") or Path(sys.executable).parent) / "ansible-playbook"
NAMES = [path.stem for path in PLAYBOOKS]


def plays(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text())
    return [play for play in found if "hosts" in play]


@pytest.mark.parametrize("path", PLAYBOOKS, ids=NAMES)
def test_every_play_names_its_strategy(path: Path) -> None:
    """With `free`, a task that runs once for a batch would run on each host, before the other hosts are done."""
    assert all(play.get("strategy") == "linear" for play in plays(path))


#: Ansible makes sets of both lists in these filters, so the result has another order in each run.
UNORDERED = re.compile(r"\|\s*(?:difference|intersect|union|symmetric_difference)\s*\(")


@pytest.mark.parametrize("folder", ["playbooks", "roles", "docs/inventories"])
def test_no_list_has_another_order_in_each_run(folder: str) -> None:
    """An order that changes would restart Pods without a reason, or begin a migration with another worker."""
    found = [
        f"{path.relative_to(REPOSITORY)}: {' '.join(expression.split())}"
        for path in sorted((REPOSITORY / folder).rglob("*.yml"))
        for expression in re.findall(r"{{.*?}}|{%.*?%}", path.read_text(), re.DOTALL)
        if UNORDERED.search(expression) and not re.search(r"\|\s*(?:sort|length)\b", expression)
    ]
    assert found == [], "use select('in', ...) or reject('in', ...), or sort the result"


def ansible(tmp_path: Path, book: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    inventory = tmp_path / "hosts"
    inventory.write_text("[kube_control_plane]\ncp-1 ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return subprocess.run(
        [PROGRAM, "-i", inventory, REPOSITORY / "playbooks" / f"{book}.yml", *arguments],
        env=environment | {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "COLUMNS": "1000"},
        cwd=tmp_path, text=True, capture_output=True, timeout=280,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    output = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0 and "Traceback" not in output, output
    assert "Nothing was changed or checked" in output and all(word in output for word in words), output
    assert "TASK" not in done.stdout


@pytest.mark.parametrize("book", NAMES)
def test_every_playbook_refuses_an_unknown_tag_also_if_what_always_runs_is_skipped(tmp_path: Path, book: str) -> None:
    words = ["stage1, stage2, stage3"] if book == "leader_migration" else ["run it without --tags"]
    refused(ansible(tmp_path, book, "--tags", "quick", "--skip-tags", "always"), "no tag quick", *words)


def test_skipped_tags_are_refused_and_a_limit_without_localhost_does_not_skip_the_check(tmp_path: Path) -> None:
    refused(ansible(tmp_path, "preflight", "--skip-tags", "all", "--limit", "cp-1"), "--skip-tags all")


def test_the_stages_of_a_leader_migration_are_tags_of_all_that_it_imports(tmp_path: Path) -> None:
    done = ansible(tmp_path, "leader_migration", "--tags", "stage2", "--list-tasks")
    assert done.returncode == 0 and "stage2" in done.stdout, done.stderr


def test_a_run_without_tags_is_not_refused(tmp_path: Path) -> None:
    done = ansible(tmp_path, "site", "--list-hosts")
    assert done.returncode == 0, done.stderr
