# SPDX-License-Identifier: Apache-2.0
"""The sequence diagrams (walks) of docs/architecture.md, and its table of whom the controllers believe, agree with the
code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALKS = re.findall(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", PAGE, re.M | re.S)
NAMES = ["node", "service", "host-forward", "host-back"]

#: Folders with the files that a walk names: the runtime, the collection's code, and its role.
FOLDERS = (ROOT / "runtime/ccm", ROOT / "plugins", ROOT / "roles/ccm_install")

#: Folders of plugins: a task refers to a plugin by the name of the plugin's file.
PLUGINS = ("modules/", "action/", "filter/")


def participants(walk: str) -> dict[str, str]:
    return dict(re.findall(r"participant (\w+) as (\S+\.(?:py|yml))$", walk, re.M))


def text_of(name: str) -> str:
    return next(folder / name for folder in FOLDERS if (folder / name).is_file()).read_text()


def arrows(kind: str, words: str) -> list[tuple[str, str, str]]:
    """Return (file where it starts, file where it ends, word) of each arrow of this kind between two files."""
    found = []
    for walk in WALKS:
        files = participants(walk)
        for caller, callee, text in re.findall(rf"(\w+){kind}(\w+): (.*)", walk):
            if caller in files and callee in files:
                found += [(files[caller], files[callee], name) for name in re.findall(words, text)]
    return found


def calls() -> list[tuple[str, str, str]]:
    return arrows("->>", r"(\w+)\(")


def variables() -> list[tuple[str, str, str]]:
    return arrows("-->>", r"(__ccm_\w+)")


@pytest.mark.parametrize(("caller", "callee", "name"), calls())
def test_an_arrow_is_a_call(caller: str, callee: str, name: str):
    if callee.startswith(PLUGINS) and Path(callee).stem == name:
        assert f"outoftree.ccm.{name}" in text_of(caller), f"{caller} does not use it"
        return
    assert re.search(rf"def {name}\(", text_of(callee)), f"{callee} has no {name}"
    if not name.startswith("_"):  # handlers and workers are passed as values, not called by name
        assert re.search(rf"[._]?{name}\(|_call\(", text_of(caller)), f"{caller} does not call it"


@pytest.mark.parametrize(("writer", "reader", "name"), variables())
def test_a_dashed_arrow_is_a_variable_of_both(writer: str, reader: str, name: str):
    assert re.search(rf"(register: {name}$|^ *{name}:)", text_of(writer), re.M), f"{writer} does not set it"
    assert name in text_of(reader), f"{reader} does not read it"


@pytest.mark.parametrize("walk", WALKS, ids=NAMES)
def test_every_participant_is_a_file_or_outside(walk: str):
    names = re.findall(r"participant \w+ as (.+)$", walk, re.M)
    files = participants(walk).values()
    assert len(files) >= 8 and all(any((folder / name).is_file() for folder in FOLDERS) for name in files)
    assert {*names} - {*files} <= {"API server", "the provider"}


def test_each_answer_to_whom_the_controllers_believe_names_its_files():
    section = PAGE.partition("### Whom the controllers believe\n")[2].partition("\n### ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.endswith(".py` |")]
    assert len(rows) == 8
    files = {path.name for path in (ROOT / "runtime" / "ccm" / "controllers").rglob("*.py")}
    for row in rows:
        assert row[2].strip() and row[3].strip() and row[4].strip()
        named = set(re.findall(r"`(\w+\.py)`", row[5]))
        assert named and named <= files


@pytest.mark.parametrize("walk", WALKS[2:], ids=NAMES[2:])
def test_a_hosts_facts_pass_through_few_rooms(walk: str):
    rooms = {Path(name).parent for name in participants(walk).values()}
    assert len(rooms) <= 12


def test_there_are_four_walks():
    assert len(WALKS) == len(NAMES) and len(calls()) >= 38 and len(variables()) >= 8


@pytest.mark.parametrize("walk", WALKS, ids=NAMES)
def test_mermaid_can_draw_it(walk: str):
    """In Mermaid, a semicolon ends a statement, and `#` starts the code of a character."""
    assert not [line for line in walk.splitlines() if re.search("[;#]", line)]
