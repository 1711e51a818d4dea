# SPDX-License-Identifier: Apache-2.0
"""Programs are in tools/, their tests in tests/tools, and docs/architecture.md has a row for each folder."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SECTION = (ROOT / "docs/architecture.md").read_text().partition("## Tools and tests\n")[2].partition("\n## ")[0]
ROWS = "\n".join(re.findall(r"^\| (.*?) \|", _SECTION, re.MULTILINE))


def folders(top: str) -> set[str]:
    """Return the folders that contain sources. A folder without sources may be left over from an earlier commit."""
    return {
        f"{top}/{folder.name}"
        for folder in (ROOT / top).iterdir()
        if any("__pycache__" not in path.parts for path in folder.rglob("*.py"))
    }


def test_each_folder_has_a_row():
    assert set(re.findall(r"`((?:tests|tools)/\w+)`", ROWS)) == folders("tools") | folders("tests")


def test_no_test_is_among_the_programs():
    """No command would run such a test."""
    assert [path for path in (ROOT / "tools").rglob("*.py") if re.fullmatch(r"test_.*|conftest", path.stem)] == []


def test_the_product_knows_neither():
    for top in ("runtime/ccm", "runtime/simcloud", "suite", "plugins"):
        for path in (ROOT / top).rglob("*.py"):
            assert not re.search(r"^\s*(?:from|import) (?:tests|tools)\b", path.read_text(), re.MULTILINE), path
