# SPDX-License-Identifier: Apache-2.0
"""Each row of the threat model in SECURITY.md has tests that are marked with its name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)
_MARK = re.compile(r"pytest\.mark\.threat\(\s*\"([a-z-]+)\"")


def rows() -> set[str]:
    return set(_ROW.findall((ROOT / "SECURITY.md").read_text()))


def marks() -> dict[str, list[str]]:
    """Return the files with tests of each row, by row."""
    found: dict[str, list[str]] = {}
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("runtime/examples/**/test_*.py")]:
        for row in _MARK.findall(path.read_text()):
            found.setdefault(row, []).append(str(path.relative_to(ROOT)))
    return found


def test_the_threat_model_has_rows():
    assert len(rows()) >= 12


def test_every_row_has_a_test():
    assert sorted(rows() - marks().keys()) == []


def test_every_mark_names_a_row():
    assert {row: files for row, files in marks().items() if row not in rows()} == {}
