# SPDX-License-Identifier: Apache-2.0
"""Run parts of the tests, show progress, and sum up: what ran, what was skipped and why, and the slowest tests.

    python -m tools.run [--first PART,...] [--timed PART,...] [--patient PART,...] [--then PART,...]
                        [--keep-going] [--one-at-a-time]

A part is a target of the Makefile. Parts of --first run before all others. Parts of --timed run one after the other:
they wait more than they compute, and their tests fail when they get no CPU for seconds. Parts of --patient run
one after the other beside the timed ones, at a low priority: they compute, and take the time that is left. When the
timed parts have ended, patient parts run two at a time. Parts of --then follow the patient ones, and run one after the
other, as the timed parts do.

Each part runs as `make PART RESULTS=FOLDER`; its pytest runs write their results (JUnit XML) there. A test with real
servers that fails gets a second try (tests/conftest.py says which); the summary names it. All that a part
prints is in build/results/PART.log; the end of it is shown when the part fails.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.results import ROOT, Test, read

RESULTS = ROOT / "build" / "results"
SIGN_OF_LIFE = 30.0  # seconds
#: Seconds that an interrupted part has to end the processes, containers and files that it made.
PATIENCE = 90.0
SHOWN = 80  # lines of a failed part's output
#: The niceness of patient parts. It is not the lowest priority: tests would time out while other parts use both cores.
NICE = "10"
ERROR_LINES = 30  # in the summary; a reader may have only the end of a long log
_ERROR = re.compile(r"fatal: \[|\[ERROR\]|^E   |^\w*Error: |: error: ")
_PERCENT = re.compile(rb"\[ *(\d+)%\]")


@dataclass
class Part:
    """A target of the Makefile, from its start to its results."""

    name: str
    patient: bool = False
    status: int | None = None
    seconds: float = 0.0
    #: Seconds of CPU of the part and its children; containers do not count.
    computed: float = 0.0
    tests: list[Test] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _started: float = 0.0

    @property
    def log(self) -> Path:
        return RESULTS / f"{self.name}.log"

    @property
    def folder(self) -> Path:
        return RESULTS / self.name

    def start(self, make: Sequence[str]) -> None:
        """Start the part in a session of its own, so that an interrupt reaches all of its processes."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        # This make gets the variables of the outer make's command line, but not its flags.
        environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
        command = [*(("nice", "-n", NICE) if self.patient else ()), *make, self.name, f"RESULTS={self.folder}"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._started = time.monotonic()
        if self.patient:
            # With autogroups, Linux shares the processor between sessions, and `nice` counts only within a session.
            with contextlib.suppress(OSError):
                Path(f"/proc/{self._process.pid}/autogroup").write_text(NICE)

    def running(self) -> bool:
        """Return whether the part still runs. When it has ended, this has set its status and read its results."""
        if self._process is None or self.status is not None:
            return False
        self.seconds = time.monotonic() - self._started
        ended, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if not ended:
            return True
        self.status = self._process.returncode = os.waitstatus_to_exitcode(status)
        self.computed = used.ru_utime + used.ru_stime
        self._collect()
        return False

    def interrupt(self) -> None:
        """Interrupt the part as Ctrl-C does, and kill what has not ended after PATIENCE."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.seconds = time.monotonic() - self._started
        self.status = self._process.wait() or 1

    def _collect(self) -> None:
        for path in sorted(self.folder.glob("*.xml")):
            try:
                self.tests += read(path)
            except ET.ParseError:
                self.status = self.status or 1
        # A part without tests counts as one test, and a failure outside of all tests as one more failed test.
        if not self.tests or (self.status and not self.count("failed")):
            reason = last_error(self.log.read_text(errors="replace")) if self.status else ""
            self.tests.append(Test(self.name, self.seconds, "failed" if self.status else "passed", reason))
        figures = {"part": self.name, "seconds": round(self.seconds, 1), "cpu": round(self.computed, 1)}
        (self.folder / "part.json").write_text(json.dumps(figures))  # for tools/costs.py

    def count(self, outcome: str) -> int:
        return sum(test.outcome == outcome for test in self.tests)

    def progress(self) -> str:
        """Return the part's name, and the percentage that its log shows, if any."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 4096))
            found = _PERCENT.findall(log.read())
            if found:
                return f"{self.name} {int(found[-1])} %"
        return self.name

    def end_of_output(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-SHOWN:])


def following(lane: list[Part], waiting: Sequence[list[Part]]) -> Part | None:
    """Remove the next part from a lane (parts that run one after the other) and return it, or None. An empty lane takes
    a patient part of another lane, so that no processor is idle.
    """
    source = lane or next((other for other in waiting if other and other[0].patient), None)
    return source.pop(0) if source else None


def last_error(output: str) -> str:
    """Return the last error in a program's output, from Ansible's task on if one is near; "" if no line looks like one.
    """
    plain = re.sub(r"\x1b\[[\d;]*m", "", output)
    lines = [re.sub(r"^ *│ ?", "", line) for line in plain.splitlines()]  # molecule's frame
    errors = [number for number, line in enumerate(lines) if _ERROR.search(line)]
    if not errors:
        return ""
    tasks = [number for number, line in enumerate(lines[: errors[-1]]) if "TASK [" in line]
    first = tasks[-1] if tasks and errors[-1] - tasks[-1] <= ERROR_LINES // 2 else errors[-1]
    return "\n".join(lines[first : first + ERROR_LINES])


class Session:
    """All parts of one run, and what is printed about them."""

    def __init__(
        self, first: Sequence[Part], beside: Sequence[Sequence[Part]], make: Sequence[str], keep_going: bool
    ) -> None:
        self.parts = [*first, *itertools.chain(*beside)]
        self._first, self._beside = first, beside
        self._make, self._keep_going = make, keep_going
        self._started = time.monotonic()
        self._done = 0

    @property
    def failed(self) -> list[Part]:
        return [part for part in self.parts if part.status]

    def run(self) -> None:
        """Run the first parts to their end, then the others side by side. Stop at a failure, unless told to go on."""
        self.say(f"{len(self.parts)} parts; what they print: {os.path.relpath(RESULTS, ROOT)}/PART.log")
        for lanes in ([self._first], self._beside):
            self._run(lanes)
            if self.failed and not self._keep_going:
                return

    def _run(self, lanes: Sequence[Sequence[Part]]) -> None:
        waiting = [list(lane) for lane in lanes]
        running: list[Part | None] = [None] * len(waiting)
        told = time.monotonic()
        try:
            while any(waiting) or any(running):
                for number, lane in enumerate(waiting):
                    part = running[number]
                    if part is not None and not part.running():
                        running[number] = None
                        self._ended(part)
                        if part.status and not self._keep_going:
                            return
                    if running[number] is None and (part := following(lane, waiting)) is not None:
                        running[number] = part
                        part.start(self._make)
                        self.say(f"{part.name} starts")
                if time.monotonic() - told >= SIGN_OF_LIFE:
                    told = time.monotonic()
                    self.say("running: " + ", ".join(part.progress() for part in running if part))
                time.sleep(0.2)
        finally:
            for part in filter(None, running):
                self.say(f"{part.name} is interrupted")
                part.interrupt()

    def _ended(self, part: Part) -> None:
        self._done += 1
        result = f"FAILED (exit status {part.status})" if part.status else "ok"
        self.say(f"{part.name}: {result}, {part.seconds:.0f} s")
        if part.status:
            print(f"--- the end of {os.path.relpath(part.log, ROOT)}\n{part.end_of_output()}\n---", flush=True)

    def say(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        print(f"[{self._done}/{len(self.parts)} done, {minutes:02}:{seconds:02}] {text}", flush=True)


def summary(parts: Sequence[Part], seconds: float, elsewhere: Iterable[str] = ()) -> str:
    """Return the summary as text for people; programs may read its last line, too."""
    width = max(len(part.name) for part in parts)
    lines = ["", f"{'part':{width}}  seconds    CPU  passed  failed  skipped"]
    for part in parts:
        if part.tests:
            counts = [part.count(outcome) for outcome in ("passed", "failed", "skipped")]
            times = f"{part.seconds:7.0f}  {part.computed:5.0f}"
            lines.append(f"{part.name:{width}}  {times}  {counts[0]:6}  {counts[1]:6}  {counts[2]:7}")
        else:
            lines.append(f"{part.name:{width}}  {'not run' if part.status is None else 'interrupted'}")
    tests = [test for part in parts for test in part.tests]
    skipped = [test for test in tests if test.outcome == "skipped" and not test.quarantine]
    if skipped:
        lines += ["", "Skipped:", *(f"  {test.name}: {test.reason}" for test in skipped)]
    unchecked = [test for test in tests if test.unchecked]
    if unchecked:
        lines += ["", "Not checked:", *(f"  {test.name}: {test.unchecked}" for test in unchecked)]
    slowest = sorted((test for test in tests if "::" in test.name), key=lambda test: -test.seconds)[:10]
    if slowest:
        lines += ["", "The slowest tests:", *(f"  {test.seconds:6.1f} s  {test.name}" for test in slowest)]
    late = [test for test in tests if test.outcome == "passed" and test.tries > 1]
    if late:
        lines += ["", "Failed at first, and passed on the second try. Each is a bug of the test or of the code:"]
        lines += [f"  {test.name}" for test in late]
    quarantined = [test for test in tests if test.quarantine]
    if quarantined:
        lines += ["", "In quarantine (tests/quarantine.txt), and no reason to stop:"]
        lines += [f"  {test.name}: {'failed' if test.reason else test.outcome}" for test in quarantined]
    failed = [test for test in tests if test.outcome == "failed"]
    if failed:
        lines += ["", "Failed:"]
        for test in failed:
            lines += [f"  {test.name}", f"    alone: {test.command}"]
            lines += (f"    | {line}".rstrip() for line in test.reason.splitlines())
    lines += ["", *(f"Not in this run: {text}" for text in elsewhere), f"{seconds / 60:.1f} minutes"]
    lines.append(f"{sum(test.outcome == 'passed' for test in tests)} passed, {len(failed)} failed")
    return "\n".join(lines)


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main(arguments: Sequence[str] | None = None, make: Sequence[str] = ("make",)) -> int:
    """Return 0 if all that ran passed and nothing was left out, 1 if not, 130 after an interrupt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", metavar="PART,...", type=names, default=[])
    parser.add_argument("--timed", metavar="PART,...", type=names, default=[])
    parser.add_argument("--patient", metavar="PART,...", type=names, default=[])
    parser.add_argument(
        "--then", metavar="PART,...", type=names, default=[], help="after the patient ones, at full speed"
    )
    parser.add_argument("--keep-going", action="store_true", help="run all parts, whatever fails")
    parser.add_argument("--one-at-a-time", action="store_true", help="for a machine with one core, or a busy one")
    parser.add_argument("--elsewhere", metavar="TEXT", action="append", default=[], help="what other commands run")
    asked = parser.parse_args(arguments)
    first, timed, then = (list(map(Part, parts)) for parts in (asked.first, asked.timed, asked.then))
    patient = [Part(name, patient=not asked.one_at_a_time) for name in asked.patient]
    beside = [[*patient, *timed, *then]] if asked.one_at_a_time else [timed, [*patient, *then]]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell makes programs in the background ignore SIGINT, and parts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    session = Session(first, beside, make, asked.keep_going)
    code = 0
    try:
        session.run()
    except KeyboardInterrupt:
        code = 130
    print(summary(session.parts, time.monotonic() - started, asked.elsewhere), flush=True)
    return code or (1 if session.failed else 0)


if __name__ == "__main__":
    sys.exit(main())
