# SPDX-License-Identifier: Apache-2.0
"""The walks that docs/architecture.md draws are what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALKS = re.findall(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", PAGE, re.M | re.S)


def calls() -> list[tuple[str, str, str]]:
    """(file of the caller, file of the callee, name) of each arrow between two files of the runtime."""
    found = []
    for walk in WALKS:
        files = dict(re.findall(r"participant (\w+) as (\S+\.py)$", walk, re.M))
        for caller, callee, text in re.findall(r"(\w+)->>(\w+): (.*)", walk):
            if caller in files and callee in files:
                found += [(files[caller], files[callee], name) for name in re.findall(r"(\w+)\(", text)]
    return found


@pytest.mark.parametrize(("caller", "callee", "name"), calls())
def test_an_arrow_is_a_call(caller: str, callee: str, name: str):
    defined = (ROOT / "runtime" / "ccm" / callee).read_text()
    assert re.search(rf"def {name}\(", defined), f"{callee} has no {name}"
    if not name.startswith("_"):  # handlers and workers are handed over, not called by name
        assert re.search(rf"[._]?{name}\(|_call\(", (ROOT / "runtime" / "ccm" / caller).read_text()), (
            f"{caller} does not call it"
        )


@pytest.mark.parametrize("walk", WALKS, ids=["node", "service"])
def test_every_participant_is_a_file_or_outside(walk: str):
    names = re.findall(r"participant \w+ as (.+)$", walk, re.M)
    files = [name for name in names if name.endswith(".py")]
    assert len(files) >= 8 and all((ROOT / "runtime" / "ccm" / name).is_file() for name in files)
    assert {*names} - {*files} == {"API server", "the provider"}


def test_there_are_two_walks():
    assert len(WALKS) == 2 and len(calls()) >= 20


@pytest.mark.parametrize("walk", WALKS, ids=["node", "service"])
def test_mermaid_can_draw_it(walk: str):
    """To mermaid a semicolon ends a statement, and `#` begins the code of a character."""
    assert not [line for line in walk.splitlines() if re.search("[;#]", line)]
