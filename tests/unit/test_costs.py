# SPDX-License-Identifier: Apache-2.0
"""`make test-costs` prints a table with the costs of each part and of each file of tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tools import costs, results

HERE = "tests/unit/test_costs.py"


def one(name: str, seconds: float = 1.0, cpu: float | None = 0.25) -> results.Test:
    return results.Test(name, seconds, "passed", cpu=cpu)


def test_the_tests_of_a_file_are_one_row():
    tests = [one("tests.unit.test_costs::test_a"), one("tests.unit.test_costs.TestB::test_b", 2.0), one("molecule")]
    assert costs.rows_of("unit", tests) == [
        {"part": "unit", "file": HERE, "tests": 2, "seconds": 3.0, "cpu": 0.5},
        {"part": "unit", "file": "molecule", "tests": 1, "seconds": 1.0, "cpu": 0.25},
    ]


def test_commits_count_that_changed_the_product_too():
    both, tests, role = ["test_a.py", "plugins/modules/m.py"], ["test_a.py"], ["roles/r", "test_b.py"]
    commits = [[path.replace("test_", "tests/unit/test_") for path in paths] for paths in (both, tests, role)]
    assert costs.found("".join("\0\n\n" + "\n".join(paths) + "\n" for paths in commits)) == {
        "tests/unit/test_a.py": 1,
        "tests/unit/test_b.py": 1,
    }


def test_parts_stand_before_their_files_and_the_most_expensive_first():
    def row(part: str, file: str, cpu: float) -> costs.Row:
        return {"part": part, "file": file, "tests": 1, "seconds": 10.0, "cpu": cpu}

    rows = [row("lint", "", 5), row("unit", "a.py", 1), row("unit", "b.py", 12), row("unit", "", 13)]
    made = costs.completed(rows, {"a.py": 3}, {"b.py": "c.py"}, [row("unit", "a.py", 4)])
    assert [(each["part"], each["file"]) for each in made] == [
        ("unit", ""), ("unit", "b.py"), ("unit", "a.py"), ("lint", "")
    ]  # fmt: skip
    assert [(each["waiting"], each["commits"], each["before"]) for each in made] == [
        (0.0, None, None), (0.0, 0, None), (9.0, 3, 4), (5.0, None, None)
    ]  # fmt: skip
    assert costs.table(made).splitlines()[2:4] == [
        "   10.0     12.0              0.0      1        0    b.py (c.py)",
        "   10.0      1.0     4.0      9.0      1        3    a.py",
    ]


CASE = '<testcase classname="tests.unit.test_costs" name="test_x" time="2.5">{}</testcase>'
CPU = '<properties><property name="cpu" value="1.5"/></properties>'


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write results of the part `unit`; return the test's folder, which has them in `results`."""
    monkeypatch.setattr(costs, "RESULTS", tmp_path / "results")
    folder = tmp_path / "results" / "unit"
    folder.mkdir(parents=True)
    (folder / "part.json").write_text(json.dumps({"part": "unit", "seconds": 9.0, "cpu": 8.0}))
    (folder / "unit.xml").write_text(f"<testsuites>{CASE.format(CPU)}</testsuites>")
    return tmp_path


def test_a_table_is_kept_and_the_next_one_is_compared_with_it(ran: Path, capsys: pytest.CaptureFixture[str]):
    assert costs.main(["--keep", str(ran / "kept")]) == 0
    (kept,) = (ran / "kept").iterdir()
    assert [(row["file"], row["seconds"], row["cpu"]) for row in json.loads(kept.read_text())] == [
        ("", 9.0, 8.0), (HERE, 2.5, 1.5)
    ]  # fmt: skip
    capsys.readouterr()
    (ran / "results" / "unit" / "unit.xml").write_text(f"<testsuites>{CASE.format('')}</testsuites>")
    assert costs.main(["--keep", str(ran / "kept")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split()[:4] == ["2.5", "0.0", "1.5", "2.5"] and last.endswith(HERE)


def test_without_results_the_message_says_what_to_run(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(costs, "RESULTS", tmp_path)
    assert costs.main(["--keep", str(tmp_path)]) == 1
    assert "run `make test` first" in capsys.readouterr().err


def test_what_guards_the_same_is_noted_for_files_that_are_there():
    notes = yaml.safe_load((costs.ROOT / "tools/costs.yml").read_text())
    assert [path for path in notes if not (costs.ROOT / path).is_file()] == []


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("tests.unit.test_costs::test_a", "pytest -q tests/unit/test_costs.py::test_a"),
        ("tests.unit.test_costs.TestB::test_b", "pytest -q tests/unit/test_costs.py::TestB::test_b"),
        ("tests.unit.test_costs::test_a[x y]", "pytest -q 'tests/unit/test_costs.py::test_a[x y]'"),
        ("molecule", "make molecule"),
    ],
)
def test_a_test_has_a_command_that_runs_it_alone(name: str, command: str):
    assert one(name).command.removeprefix("build/venv/bin/") == command


def test_the_command_of_a_failed_test_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert results.read(write(tmp_path, CASE.format("<failure/>")))[0].node_id == f"{HERE}::test_x"


def write(folder: Path, cases: str) -> Path:
    path = folder / "a.xml"
    path.write_text(f"<testsuites>{cases}</testsuites>")
    return path
