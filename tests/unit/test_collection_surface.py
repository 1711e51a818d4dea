# SPDX-License-Identifier: Apache-2.0
"""What users of the collection have to learn: options, entry points of roles, playbooks. No number may rise.

Everything that a user can set or call must be documented, tested and kept from then on. A new option needs a reason
that no existing one covers. Raise a bound only together with that reason, in the body of the commit.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROLES = sorted(path.parents[1] for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
MOST_OPTIONS = 72
MOST_PLAYBOOKS = 8
#: `remove` is for users who rolled the runtime out with the role alone.
ENTRY_POINTS = {"ccm_install": {"main"}, "ccm_runtime": {"main", "remove"}}
FORMER: dict[str, str] = runpy.run_path(str(ROOT / "plugins/filter/former_variables.py"))["FORMER"]


def specs(role: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return found


def test_there_are_no_more_options_and_playbooks_than_before() -> None:
    options = {name for role in ROLES for entry in specs(role).values() for name in entry.get("options") or {}}
    assert len(options) <= MOST_OPTIONS
    assert len(list(ROOT.glob("playbooks/*.yml"))) <= MOST_PLAYBOOKS


def test_only_entry_points_of_users_are_documented_and_steps_are_in_folders() -> None:
    """`ansible-doc` must not show steps: a step is safe only in the order of the playbooks."""
    assert {role.name: set(specs(role)) for role in ROLES} == ENTRY_POINTS
    beside = {role.name: {path.stem for path in (role / "tasks").glob("*.yml")} for role in ROLES}
    assert beside == ENTRY_POINTS


def test_every_step_that_a_playbook_or_another_step_names_exists_and_none_is_left_over() -> None:
    steps = {role.name: {str(p.relative_to(role / "tasks")) for p in (role / "tasks").rglob("*.yml")} for role in ROLES}
    used = {role.name: {f"{entry}.yml" for entry in ENTRY_POINTS[role.name]} for role in ROLES}
    for book in ROOT.glob("playbooks/*.yml"):
        for name, step in re.findall(r"name: outoftree\.ccm\.(\w+)\n +tasks_from: (\S+)", book.read_text()):
            used[name].add(f"{step}.yml")
    for role in ROLES:
        for path in (role / "tasks").rglob("*.yml"):
            used[role.name] |= set(re.findall(r"(?:import|include)_tasks: (\S+)", path.read_text()))
            used[role.name] |= set(re.findall(r"^ +file: (\S+\.yml)$", path.read_text(), re.M))
    assert used == steps


def described() -> dict[str, list[str]]:
    return {
        name: option["description"]
        for role in ROLES
        for entry in specs(role).values()
        for name, option in (entry.get("options") or {}).items()
    }


@pytest.mark.parametrize("name", described())
def test_the_last_sentence_of_an_option_argues_it(name: str) -> None:
    """The sentence says when to set the option, and what the default is for. docs/reference/variables.md shows the
    sentence as a column."""
    reason = described()[name][-1]
    assert re.match(r"Set it\b.*\b(default|It is (off|empty))\b", reason), reason


def test_each_former_variable_is_read_and_none_is_an_option() -> None:
    readers = {role: [role / "defaults/main.yml", *(role / "vars").rglob("*.yml")] for role in ROLES}
    text = "\n".join(path.read_text() for paths in readers.values() for path in paths)
    for name, advice in FORMER.items():
        assert re.search(rf"(?<!_)\b{name} \| default\(", text), f"nothing reads {name} any more"
        assert name not in described()
        assert advice.startswith("nothing: ") or re.search(r"\bccm_\w+", advice)[0] in described()


def test_the_page_of_variables_argues_every_playbook() -> None:
    page = (ROOT / "docs/reference/variables.md").read_text()
    named = re.findall(r"^\| `outoftree\.ccm\.(\w+)` \| \w.{20,} \| (?:yes|no|files only) \|$", page, re.M)
    assert sorted(named) == sorted(path.stem for path in ROOT.glob("playbooks/*.yml"))
