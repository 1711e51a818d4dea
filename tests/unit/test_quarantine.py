# SPDX-License-Identifier: Apache-2.0
"""A test in quarantine runs and is reported, its result decides nothing, and it may stay for at most 14 days."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tests import quarantine
from tests.quarantine import Entry

TODAY = datetime.date(2026, 11, 25)
ROOM = "tests/test_room.py"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / ROOM).write_text("class TestIt:\n    def test_inside(self): ...\nasync def test_outside(): ...\n")
    return tmp_path


def entry(test: str = f"{ROOM}::test_outside", days: int = 0) -> Entry:
    return Entry(TODAY - datetime.timedelta(days), test, "of luck")


def test_a_line_has_a_day_a_test_and_a_reason():
    lines = ["# a comment", "", "2026-11-20 tests/test_a.py::test_b[x]  waits for a clock, issue 32\n"]
    assert quarantine.parse(lines) == [
        Entry(datetime.date(2026, 11, 20), "tests/test_a.py::test_b[x]", "waits for a clock, issue 32\n")
    ]


@pytest.mark.parametrize("line", ["2026-11-20 tests/test_a.py::test_b", "yesterday a b c", "2026-13-01 a b c", "x"])
def test_any_other_line_is_an_error(line: str):
    with pytest.raises(ValueError):
        quarantine.parse([line])


@pytest.mark.parametrize(
    ("node_id", "belongs"),
    [
        ("tests/test_a.py::test_b", True),
        ("tests/test_a.py::test_b[north]", True),
        ("tests/test_a.py::test_b_and_more", False),
        ("tests/test_a.py::test_c", False),
    ],
)
def test_a_name_stands_for_the_test_with_all_its_parameters(node_id: str, belongs: bool):
    assert (quarantine.entry_of(node_id, [entry("tests/test_a.py::test_b")]) is not None) is belongs


def test_one_of_the_parameters_can_be_named():
    entries = [entry("tests/test_a.py::test_b[north]")]
    assert quarantine.entry_of("tests/test_a.py::test_b[north]", entries) is entries[0]
    assert quarantine.entry_of("tests/test_a.py::test_b[south]", entries) is None


@pytest.mark.parametrize("test", ["test_outside", "TestIt::test_inside", "test_outside[any]"])
@pytest.mark.parametrize("days", [0, 14])
def test_an_entry_stays_for_fourteen_days(root: Path, test: str, days: int):
    assert quarantine.problems([entry(f"{ROOM}::{test}", days)], TODAY, root) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (entry(days=15), "14 days at most"),
        (entry(days=-1), "in the future"),
        (entry(f"{ROOM}::test_out"), "no such test"),
        (entry(f"{ROOM}"), "no such test"),
        (entry("tests/test_gone.py::test_outside"), "no such test"),
    ],
)
def test_what_a_person_has_to_do_is_reported(root: Path, wrong: Entry, message: str):
    (problem,) = quarantine.problems([wrong], TODAY, root)
    assert message in problem and wrong.test in problem


def test_lint_fails_for_a_list_with_a_problem(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(quarantine, "ROOT", tmp_path)
    monkeypatch.setattr(quarantine, "LIST", tmp_path / "quarantine.txt")
    (tmp_path / "quarantine.txt").write_text("2020-01-01 tests/test_gone.py::test_x of luck\n")
    assert quarantine.main() == 1
    assert "no such test" in capsys.readouterr().out
    (tmp_path / "quarantine.txt").write_text("# nothing\n")
    assert quarantine.main() == 0


CONFTEST = """
import datetime, pathlib
from tests import quarantine
quarantine.LIST = pathlib.Path(__file__).with_name("quarantine.txt")
from tests.conftest import *
"""
TESTS = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("no server")

def test_unlucky():
    assert False, "the clock went on"

def test_lucky():
    pass

def test_without_its_server(broken):
    pass

def test_other():
    assert {good}
"""


@pytest.mark.parametrize("good", [True, False])
def test_it_runs_and_decides_nothing(pytester: pytest.Pytester, good: bool):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS.format(good=good))
    names = ("unlucky", "lucky", "without_its_server")
    pytester.path.joinpath("quarantine.txt").write_text(
        "".join(f"{TODAY} test_it.py::test_{name} of luck\n" for name in names)
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    done = pytester.runpytest_inprocess("-q", "-rxX", f"--junitxml={pytester.path}/a.xml")
    assert (done.ret == pytest.ExitCode.OK) is good
    done.assert_outcomes(xfailed=2, xpassed=1, passed=int(good), failed=int(not good))
    done.stdout.fnmatch_lines(["*test_unlucky*in quarantine since 2026-11-25: of luck*"])
    assert pytester.path.joinpath("a.xml").read_text().count('name="quarantine" value="2026-11-25"') == 3
