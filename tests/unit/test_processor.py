# SPDX-License-Identifier: Apache-2.0
"""A test's CPU seconds include those of its child processes, whether they have ended or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import processor


class Proc:
    """A folder in the form of /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, number: int, *threads: str, name: str = "etcd", ticks: tuple[int, ...] = (0, 0, 0, 0)) -> None:
        """Add a process. `threads`: the children of each thread. `ticks`: user time, system time, and both times of
children that ended."""
        for thread, children in enumerate(threads):
            task = self.folder / str(number) / "task" / str(number + thread)
            task.mkdir(parents=True)
            (task / "children").write_text(children)
        before = "S 1 1 1 0 -1 4194560 100 0 0 0"
        (self.folder / str(number) / "stat").write_text(f"{number} ({name}) {before} {' '.join(map(str, ticks))} 20 0")

    def below(self, number: int) -> int:
        return processor.below(number, str(self.folder))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_descendants_are_counted_with_what_they_waited_for(proc: Proc):
    proc.add(10, "", "11 ", ticks=(999, 0, 0, 0))
    proc.add(11, "12 14 ", ticks=(1, 2, 4, 0))
    proc.add(12, "", name="a) b (c", ticks=(8, 0, 0, 0))
    proc.add(14, "15 ", "16 ")
    proc.add(16, "", ticks=(0, 16, 0, 0))
    assert proc.below(10) == 31, "15 has ended"


def test_processes_of_others_are_not_even_read(proc: Proc):
    proc.add(10, "11 ")
    proc.add(11, "", ticks=(1, 0, 0, 0))
    (proc.folder / "13" / "stat").mkdir(parents=True)
    assert proc.below(10) == 1


def test_without_children_nothing_is_counted(proc: Proc):
    proc.add(10, "", ticks=(5, 0, 0, 0))
    proc.add(11, "", ticks=(5, 0, 0, 0))
    assert proc.below(10) == 0


BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(flush=True); input()"


def test_a_process_counts_while_it_runs_and_afterwards():
    before = processor.used()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert processor.used() - before > 0.25
        process.communicate(b"\n")
    assert processor.used() - before > 0.25
