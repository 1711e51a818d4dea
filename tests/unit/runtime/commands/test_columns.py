# SPDX-License-Identifier: Apache-2.0
"""Answers on a terminal of 80 columns: lines break between words, and rows stay readable. Pipes get lines unchanged."""

from __future__ import annotations

import pytest

from ccm.commands.asking import answers, asking

LONG = "the cloud lists no instance named 'worker-1', and one whose name is similar: give the Node and it the same name"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("CHECK  STATE  WHAT", ["CHECK  STATE  WHAT"]),
        (
            f"nodes  FAIL  {LONG}",
            [
                "nodes  FAIL  the cloud lists no instance named 'worker-1', and one whose name is",
                "             similar: give the Node and it the same name",
            ],
        ),
        (
            f"  {LONG}",
            [
                "  the cloud lists no instance named 'worker-1', and one whose name is similar:",
                "    give the Node and it the same name",
            ],
        ),
        # The last cell starts beyond the middle, so its next lines start at the left.
        (
            f"blocked  ip-10-0-0-1.eu-central-1.compute.internal  {LONG[:50]}",
            [
                "blocked  ip-10-0-0-1.eu-central-1.compute.internal  the cloud lists no instance",
                "  named 'worker-1', and",
            ],
        ),
        ("x" * 100, ["x" * 100]),
        ("", [""]),
    ],
)
def test_a_line_fits_eighty_columns(line: str, expected: list[str]):
    assert answers.fitted([line], 80) == expected


def test_lines_are_broken_for_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("COLUMNS", "80")
    asking.show([f"nodes  FAIL  {LONG}"])
    assert capsys.readouterr().out == f"nodes  FAIL  {LONG}\n"
    monkeypatch.setattr(asking.sys.stdout, "isatty", lambda: True, raising=False)
    asking.show([f"nodes  FAIL  {LONG}"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
