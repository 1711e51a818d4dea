# SPDX-License-Identifier: Apache-2.0
"""The last message of a run or a rollback that stops: what happened, what is at risk, and the next command."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles" / "ccm_install"
PROGRAM = Path(os.environ.get("OUTOFTREE_ANSIBLE") or Path(sys.executable).parent) / "ansible-playbook"
VARIABLES = yaml.safe_load((ROLE / "vars/main.yml").read_text())
NEEDED = ("command", "stopped", "in_blocks", "failed", "unknown")
#: The default width of a terminal.
COLUMNS = 80

#: (tasks file, its variables, parts of its message) of each task that stops a run.
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "report/stopped",
        {"__ccm_install_node_only": True},
        [
            "The run was stopped: w-2, w-3 failed (see above). At risk now: The cloud-controller-manager runs only "
            "its node controller: the summary explains what that means.",
            "Completed changes stay active. Next: Fix the cause and run again: the run continues from here:",
            "To undo everything: ",
        ],
    ),
    (
        "report/stopped",
        {"__ccm_install_node_only": False, "hosts": {"w-2": "unreachable", "w-3": "restored", "w-4": "half done"}},
        [
            "At risk now: w-2, w-4: components there may not be healthy. The table above says what is known. No change "
            "was started"
        ],
    ),
    (
        "report/stopped",
        {"__ccm_install_node_only": False, "hosts": {"w-2": "restored", "w-3": "changed", "w-4": "not begun"}},
        [
            "At risk now: nothing that the run knows of. Each host serves, with its old configuration or the new one. "
            "No change was started on other hosts after that. Completed changes stay active."
        ],
    ),
    (
        "report/stopped",
        {"__ccm_install_node_only": True, "hosts": {"w-2": "unreachable", "w-3": "restored"}},
        [
            "At risk now: w-2: components there may not be healthy. The table above says what is known. The "
            "cloud-controller-manager runs only its node controller: the summary explains what that means. "
            "No change was started"
        ],
    ),
    (
        "rollback/stopped",
        {"__ccm_install_left": {"runtime": {"exists": True}}, "hosts": {"w-2": "failed", "w-3": "unreachable"}},
        [
            "At risk now: w-2, w-3: components there may not be healthy. The table above says what is known. The "
            "controller is still installed. Restored files stay restored."
        ],
    ),
    (
        "rollback/stopped",
        {"__ccm_install_left": {"failed": True}},
        [
            "The rollback was stopped: w-2, w-3 failed (see above). At risk now: The run could not check whether the "
            "controller is still installed. Restored files stay restored.",
            "Next: Fix the cause and run again: it continues from here: ",
        ],
    ),
    (
        "rollback/stopped",
        {"__ccm_install_left": {"runtime": {"exists": True}}},
        ["The controller is still installed. Restored files stay restored."],
    ),
    (
        "rollback/stopped",
        {"__ccm_install_left": {"runtime": {"exists": False}}},
        ["The controller is already removed. Restored files stay restored."],
    ),
]


def stop(step: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return a play whose only task is the role's task that stops the run."""
    tasks = yaml.safe_load((ROLE / "tasks" / f"{step}.yml").read_text())
    (task,) = (each for each in tasks if each["name"] == "Stop the run")
    variables = {f"__ccm_install_{name}": VARIABLES[f"__ccm_install_{name}"] for name in NEEDED}
    hosts = [{"host": name, "state": state} for name, state in known.get("hosts", {}).items()]
    variables |= {name: value for name, value in known.items() if name != "hosts"}
    variables["__ccm_install_sum"] = {"named": "w-2, w-3", "hosts": hosts}
    return {"hosts": "all", "gather_facts": False, "vars": variables, "tasks": [task | {"ignore_errors": True}]}


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an inventory whose path has spaces and is too long for one line of a terminal."""
    folder = tmp_path_factory.mktemp("clusters") / "a cluster of ours in the basement" / "behind the second door"
    folder.mkdir(parents=True)
    (folder / "inventory.ini").write_text("here ansible_connection=local\n")
    return folder / "inventory.ini"


def run(inventory: Path, **settings: str) -> list[str]:
    """Run all cases; return the output of each after its heading."""
    book = inventory.with_name("play.json")
    book.write_text(json.dumps([stop(step, known) for step, known, _ in CASES]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "true", **settings}
    environment["COLUMNS"] = str(COLUMNS)
    done = subprocess.run(
        [PROGRAM, "-i", inventory, book], env=environment, cwd=ROOT, text=True, capture_output=True, timeout=280
    )
    shown = re.split(r"^TASK \[Stop the run\].*\n", done.stdout.partition("PLAY RECAP")[0], flags=re.M)[1:]
    assert len(shown) == len(CASES), done.stdout + done.stderr
    return shown


@pytest.mark.timeout(300)
@pytest.mark.parametrize("callback", ["outoftree.ccm.grouped", "ansible.builtin.default"])
def test_a_tired_person_reads_it_on_a_terminal(inventory: Path, callback: str) -> None:
    for (_, _, parts), shown in zip(CASES, run(inventory, ANSIBLE_STDOUT_CALLBACK=callback), strict=True):
        # Newer releases of ansible-core may print the message as an error first, wrapped at another width: skip that.
        lines = f"\n{shown}".partition("\nfatal: ")[2].splitlines()
        *again, command = (line for line in lines if "ansible-playbook" in line)
        assert shlex.split(command) == ["ansible-playbook", "-i", str(inventory), "outoftree.ccm.rollback"]
        assert [line.replace(".site", ".rollback") for line in again] in ([], [command])
        assert [line for line in lines if line not in (*again, command) and len(line) > COLUMNS] == []
        text = " ".join(" ".join(lines).split())
        assert all(part in text for part in parts), shown


@pytest.mark.timeout(300)
def test_programs_read_it_in_one_line(inventory: Path) -> None:
    shown = run(inventory, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default", ANSIBLE_CALLBACK_RESULT_FORMAT="json")
    for (_, _, parts), text in zip(CASES, shown, strict=True):
        message = re.search(r'"msg": (".*")', text)
        assert message is not None, text
        said = json.loads(message[1])
        assert "\n" not in said and said.endswith("outoftree.ccm.rollback")
        assert all(part in said.replace(" | ", " ") for part in parts), said
