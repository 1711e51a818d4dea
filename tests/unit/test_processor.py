# SPDX-License-Identifier: Apache-2.0
"""The seconds of the processor that a test costs are those of its processes, too, ended or not."""

from __future__ import annotations

import subprocess
import sys

from tests import processor


def stat(number: int, parent: int, name: str = "etcd", user: int = 0, system: int = 0, waited: int = 0) -> str:
    before = f"S {parent} 1 1 0 -1 4194560 100 0 0 0"
    return f"{number} ({name}) {before} {user} {system} {waited} 0 20 0 1 0 100"


def test_descendants_are_counted_with_what_they_waited_for():
    lines = [
        stat(10, 1, user=999),
        stat(11, 10, user=1, system=2, waited=4),
        stat(12, 11, "a) b (c", user=8),
        stat(13, 1, user=999),
    ]
    assert processor.below(10, lines) == 15


def test_without_children_nothing_is_counted():
    assert processor.below(10, [stat(10, 1, user=5), stat(11, 1, user=5)]) == 0


BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(flush=True); input()"


def test_a_process_counts_while_it_runs_and_afterwards():
    before = processor.used()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert processor.used() - before > 0.25
        process.communicate(b"\n")
    assert processor.used() - before > 0.25
