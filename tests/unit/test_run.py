# SPDX-License-Identifier: Apache-2.0
"""`make test` runs its parts in parallel, stops at the first failure, and prints a summary."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration import conftest
from tools import run
from tools.results import ROOT

#: Replaces make: each target is a script in a file with the target's name.
MAKE = """
import pathlib, runpy, sys
target, results = sys.argv[1], pathlib.Path(sys.argv[2].removeprefix("RESULTS="))
runpy.run_path(str(pathlib.Path(sys.argv[0]).with_name(target)), {"results": results})
"""
CASE = '<testcase classname="tests.test_it" name="{name}" time="{seconds}">{inside}</testcase>'


class Parts:
    """Targets of the replaced make. `run` returns the exit status and the lines that it printed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        (folder / "make").write_text(MAKE)

    def add(self, name: str, script: str = "", cases: str = "") -> None:
        written = f"(results / 'a.xml').write_text({f'<testsuites>{cases}</testsuites>'!r})\n" if cases else ""
        (self.folder / name).write_text(written + script)

    def run(self, *arguments: str) -> tuple[int, list[str]]:
        status = run.main(arguments, make=(sys.executable, str(self.folder / "make")))
        return status, self._capsys.readouterr().out.splitlines()


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Parts:
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run, "PATIENCE", 120.0)
    return Parts(tmp_path, capsys)


def case(name: str, seconds: float = 0.1, inside: str = "") -> str:
    return CASE.format(name=name, seconds=seconds, inside=inside)


def test_all_tests_are_counted_and_a_part_without_tests_is_one(parts: Parts):
    parts.add("images")
    parts.add("unit", cases=case("one") + case("two"))
    parts.add("integration", cases=case("three"))
    status, said = parts.run("--first", "images", "--timed", "integration", "--patient", "unit")
    assert (status, said[-1]) == (0, "4 passed, 0 failed")
    rows = {line.split()[0]: line.split()[3:] for line in said if line.startswith(("images ", "unit ", "integration "))}
    assert rows == {"images": ["1", "0", "0"], "unit": ["2", "0", "0"], "integration": ["1", "0", "0"]}


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["terminal", "background"])
def test_the_first_failure_ends_what_runs_beside_it_and_starts_nothing_more(parts: Parts, handler: Any):
    signal.signal(signal.SIGINT, handler)  # a shell ignores it for what runs in the background
    started, cleaned = parts.folder / "started", parts.folder / "cleaned"
    wait = f"""import pathlib, time
try:
    pathlib.Path({str(started)!r}).touch()
    while True:  # a signal just before a long sleep would wait for its end
        time.sleep(0.05)
finally:
    pathlib.Path({str(cleaned)!r}).touch()
"""
    fail = f"""import pathlib, time
while not pathlib.Path({str(started)!r}).exists():
    time.sleep(0.01)
print('what is wrong')
raise SystemExit(2)
"""
    parts.add("integration", wait)
    parts.add("molecule", "raise SystemExit('never')")
    parts.add("unit", fail, case("good") + case("bad", inside='<failure message="x"/>'))
    status, said = parts.run("--timed", "integration,molecule", "--patient", "unit")
    assert (status, said[-1]) == (1, "1 passed, 1 failed")
    assert "what is wrong" in said and "  tests.test_it::bad" in said
    assert cleaned.exists()
    assert "integration  interrupted" in said and "molecule     not run" in said


def test_nothing_else_starts_after_a_failure_of_the_first_parts(parts: Parts):
    parts.add("images", "raise SystemExit(1)")
    parts.add("unit")
    assert parts.run("--first", "images", "--patient", "unit")[1][-1] == "0 passed, 1 failed"


def test_all_parts_run_when_asked_to_keep_going(parts: Parts):
    parts.add("images", "raise SystemExit(1)")
    parts.add("lint", "raise SystemExit(1)")
    parts.add("unit", cases=case("one"))
    status, said = parts.run("--keep-going", "--first", "images", "--patient", "lint,unit")
    assert (status, said[-1]) == (1, "1 passed, 2 failed")


def test_a_failure_outside_of_all_tests_is_one(parts: Parts):
    parts.add("unit", "raise SystemExit(3)", case("one"))
    status, said = parts.run("--patient", "unit")
    assert (status, said[-1]) == (1, "1 passed, 1 failed")


def test_results_that_cannot_be_read_are_a_failure(parts: Parts):
    parts.add("unit", "(results / 'a.xml').write_text('<testsuites>')")
    assert parts.run("--patient", "unit")[1][-1] == "0 passed, 1 failed"


#: A part with three tests: one fails at the first try, one never fails, and one always fails unless `good`.
TRIED = """
import pathlib, subprocess, sys
folder = pathlib.Path(__file__).parent / "tried"
folder.mkdir()
(folder / "test_tried.py").write_text({tests!r})
(folder / "pytest.ini").write_text("[pytest]\\nasyncio_default_fixture_loop_scope = function")
options = [f"--junitxml={{results}}/a.xml", "--reruns=1", "--rootdir", str(folder), "-c", str(folder / "pytest.ini")]
raise SystemExit(subprocess.run([sys.executable, "-m", "pytest", "-q", *options, str(folder)]).returncode)
"""
TESTS = """
import pathlib

def test_late():
    mark = pathlib.Path(__file__).with_name("mark")
    was_there = mark.exists()
    mark.touch()
    assert was_there

def test_good():
    pass

def test_bad():
    assert {good}
"""


@pytest.mark.parametrize(("good", "end"), [(True, "3 passed, 0 failed"), (False, "2 passed, 1 failed")])
def test_a_test_that_passes_on_its_second_try_is_named(parts: Parts, good: bool, end: str):
    parts.add("integration", TRIED.format(tests=TESTS.format(good=good)))
    status, said = parts.run("--timed", "integration")
    assert (status, said[-1]) == (0 if good else 1, end)
    (heading,) = (number for number, line in enumerate(said) if line.startswith("Failed at first, and passed"))
    assert said[heading + 1].endswith("test_tried::test_late") and not said[heading + 2]
    failed = said[said.index("Failed:") :] if "Failed:" in said else []
    assert any(line.endswith("test_tried::test_bad") for line in failed) is not good


def test_a_failed_test_comes_with_the_command_that_runs_it_alone(parts: Parts):
    failed = case("test_x[a b]", inside="<failure/>").replace("tests.test_it", "tests.unit.test_run")
    parts.add("unit", "raise SystemExit(1)", failed)
    parts.add("lint", "raise SystemExit(1)")
    said = parts.run("--keep-going", "--patient", "unit,lint")[1]
    start = said.index("Failed:")
    assert said[start + 1 : start + 5] == [
        "  tests.unit.test_run::test_x[a b]",
        "    alone: build/venv/bin/pytest -q 'tests/unit/test_run.py::test_x[a b]'",
        "  lint",
        "    alone: make lint",
    ]


#: Output of ansible-playbook with the frame and the colours that molecule adds.
FRAMED = """
  \033[2m│\033[0m TASK [Read the manifest] ***
  \033[2m\033[32m│\033[0m \033[0;32mok: [one][0m
  \033[2m│\033[0m TASK [Check the message] ***
  \033[2m\033[31m│\033[0m \033[0;31mfatal: [one]: FAILED! => {\033[0m
  \033[2m\033[31m│\033[0m \033[0;31m    "assertion": "broken.restored"\033[0m
SCENARIO RECAP
"""


@pytest.mark.parametrize(
    ("output", "first", "last"),
    [
        (FRAMED, "TASK [Check the message] ***", "SCENARIO RECAP"),
        (
            "a\nmake[1]: x.py:3: error: no such name\nmake: *** [lint] Error 2",
            "make[1]: x.py:3: error: no such name",
            "make: *** [lint] Error 2",
        ),
        ("all is well", "", ""),
    ],
    ids=["ansible", "compiler", "none"],
)
def test_the_summary_has_the_last_error_of_a_part_without_tests(parts: Parts, output: str, first: str, last: str):
    parts.add("molecule", f"print({output!r}, flush=True)\nraise SystemExit(1)")
    said = parts.run("--timed", "molecule")[1]
    reason = [line.removeprefix("    | ") for line in said if line.startswith("    | ")]
    assert (reason[:1], reason[-1:]) == ([first] * bool(first), [last] * bool(last))


def test_a_test_in_quarantine_is_named_and_decides_nothing(parts: Parts):
    since = '<properties><property name="quarantine" value="2026-11-25"/></properties>'
    parts.add("unit", cases=case("bad", inside=since + '<skipped message="of luck"/>') + case("good", inside=since))
    status, said = parts.run("--patient", "unit")
    assert (status, said[-1]) == (0, "1 passed, 0 failed")
    start = next(number for number, line in enumerate(said) if line.startswith("In quarantine"))
    assert said[start + 1 : start + 3] == ["  tests.test_it::bad: failed", "  tests.test_it::good: passed"]
    assert "Skipped:" not in said


def test_what_a_test_leaves_unchecked_is_told_in_one_line(parts: Parts):
    named = '<properties><property name="unchecked" value="3 of 5 rows: too new"/></properties>'
    parts.add("integration", cases=case("rows", inside=named) + case("other"))
    status, said = parts.run("--timed", "integration")
    assert (status, said[-1]) == (0, "2 passed, 0 failed")
    assert said[said.index("Not checked:") + 1 :][:2] == ["  tests.test_it::rows: 3 of 5 rows: too new", ""]


def test_programs_that_make_starts_are_compiled_once_whatever_the_machine_prefers(tmp_path: Path):
    (tmp_path / "Makefile").write_text(f"include {ROOT}/Makefile\nshow:\n\t@env\n")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["make", "-f", str(tmp_path / "Makefile"), "show"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    shown = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert shown["PYTHONPYCACHEPREFIX"] and "PYTHONDONTWRITEBYTECODE" not in shown


def test_a_part_leaves_its_figures_for_the_table_of_costs(parts: Parts):
    parts.add("unit", cases=case("one"))
    parts.run("--patient", "unit")
    figures = json.loads((parts.folder / "results" / "unit" / "part.json").read_text())
    assert figures["part"] == "unit" and set(figures) == {"part", "seconds", "cpu"}


def test_reasons_of_skips_and_the_slowest_tests_are_told(parts: Parts):
    skipped = case("away", inside='<skipped message="no such program here"/>')
    parts.add("unit", cases=skipped + "".join(case(f"number-{n}", n) for n in range(12)))
    said = parts.run("--patient", "unit", "--elsewhere", "make test-all: more")[1]
    assert "  tests.test_it::away: no such program here" in said
    slow = [line for line in said if " s  tests.test_it::number-" in line]
    assert [line.rpartition("-")[2] for line in slow] == [str(n) for n in range(11, 1, -1)]
    assert "Not in this run: make test-all: more" in said
    assert said[-1] == "12 passed, 0 failed"


def test_timed_and_patient_parts_run_side_by_side_unless_the_machine_is_too_small(parts: Parts):
    for name, seconds in (("unit", 120), ("integration", 120), ("alone", 1), ("lonely", 1)):
        look = f"import pathlib, time\nhere, end = pathlib.Path(__file__).parent, time.monotonic() + {seconds}\n"
        look += f"kind = '*.{seconds}'\n(here / '{name}.{seconds}').touch()\n"
        look += "while len(list(here.glob(kind))) < 2 and time.monotonic() < end: time.sleep(0.1)\n"
        parts.add(name, look + "raise SystemExit(len(list(here.glob(kind))) < 2)")
    assert parts.run("--timed", "integration", "--patient", "unit")[0] == 0
    said = parts.run("--timed", "alone", "--patient", "lonely", "--one-at-a-time", "--keep-going")[1]
    assert said[-1] == "1 passed, 1 failed"


def test_what_follows_the_patient_parts_runs_beside_the_timed_ones_with_the_same_share(parts: Parts):
    wait = "import os, pathlib, time\nhere, end = pathlib.Path(__file__).parent, time.monotonic() + 120\n"
    wait += "(here / '{name}').with_suffix('.nice').write_text(str(os.nice(0)))\n"
    wait += "while not (here / '{other}.nice').exists() and time.monotonic() < end: time.sleep(0.1)\n"
    for name, other in (("molecule", "long"), ("sequences", "sequences"), ("long", "molecule")):
        parts.add(name, wait.format(name=name, other=other))
    assert parts.run("--timed", "molecule", "--patient", "sequences", "--then", "long")[0] == 0
    own = os.nice(0)
    niceness = [int((parts.folder / f"{name}.nice").read_text()) for name in ("molecule", "sequences", "long")]
    assert niceness == [own, min(19, own + int(run.NICE)), own]


def test_patient_parts_run_two_at_a_time_when_the_timed_ones_have_ended(parts: Parts):
    parts.add("timed")
    meet = "import pathlib, time\nhere, end = pathlib.Path(__file__).parent, time.monotonic() + 120\n"
    meet += "pathlib.Path(__file__ + '.here').touch()\n"
    meet += "while not (here / '{other}.here').exists() and time.monotonic() < end: time.sleep(0.1)\n"
    meet += "raise SystemExit(not (here / '{other}.here').exists())"
    for name, other in (("lint", "unit"), ("unit", "lint")):
        parts.add(name, meet.format(other=other))
    status, said = parts.run("--timed", "timed", "--patient", "lint,unit", "--then", "long", "--keep-going")
    assert said[-1] == "3 passed, 1 failed" and status == 1  # there is no part `long`, and the test did not run earlier
    assert [line.split()[-2] for line in said if line.endswith(" starts")][-1] == "long"


def test_what_is_long_exists():
    """Each name in LONGEST is that of a test file, and each in MARKED_LONG that of a file or a test. One that was
    renamed since runs last in `make test`, or runs there although it is long."""
    folder = run.ROOT / "tests" / "integration"
    clouds, soak = run.ROOT / "tests" / "clouds", run.ROOT / "tests" / "soak"
    files = [path for room in (folder, clouds, soak) for path in room.rglob("test_*.py")]
    stems = {path.stem for path in files}
    tests = {
        name for path in files for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert set(conftest.LONGEST) <= stems
    assert {name.rpartition("/")[2] for name in conftest.MARKED_LONG} <= stems | tests
