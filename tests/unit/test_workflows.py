# SPDX-License-Identifier: Apache-2.0
"""The workflows of .github run existing commands, on the versions that the project supports (see also
`make actionlint`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.packaging import environments

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))


def read(path: Path) -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    return workflow


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_are_those_of_the_makefile(path: Path):
    used = {target for step in steps(path) for target in re.findall(r"^make ([a-z0-9-]+)", step.get("run", ""), re.M)}
    assert used <= TARGETS
    for file in {word for step in steps(path) for word in re.findall(r"-m (tools\.[\w.]+)", step.get("run", ""))}:
        assert (ROOT / f"{file.replace('.', '/')}.py").exists()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_only_and_a_job_says_what_else_it_needs(path: Path):
    assert read(path)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_value_of_an_event_becomes_a_part_of_a_script(path: Path):
    """A title or a branch's name may contain a command: workflows pass it as a variable, never as script text."""
    for step in steps(path):
        inside = re.findall(r"\$\{\{\s*([^}]*?)\s*\}\}", step.get("run", ""))
        assert [value for value in inside if not value.startswith("matrix.")] == []


def test_every_supported_ansible_core_is_tested():
    job = read(ROOT / ".github/workflows/test.yml")["jobs"]["sanity"]
    assert job["strategy"]["matrix"]["core"] == list(environments.CORES)
    (pythons,) = [step["with"]["python-version"].split() for step in job["steps"] if "python" in step.get("uses", "")]
    assert all(set(supported) & set(pythons) for supported in environments.CORES.values())


def test_only_the_release_publishes_and_only_after_the_check():
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            rights = job.get("permissions", {})
            if path.stem == "release" and name != "check":
                assert job["environment"] == "release" and job["needs"] in ("check", ["image", "pypi", "galaxy"])
            elif path.stem != "docs":
                assert not [right for right, level in rights.items() if level == "write"], (path.stem, name)
