# SPDX-License-Identifier: Apache-2.0
"""The parts of a process's start that integration tests do not cover."""

import subprocess
import sys


def test_a_garbage_collection_does_not_look_at_what_lives_as_long_as_the_process():
    code = """
import contextlib, gc
from ccm.cli import main
with contextlib.suppress(SystemExit):
    main(["--version"])
print(gc.get_freeze_count(), len(gc.get_objects()), sum(each["collections"] for each in gc.get_stats()[1:]))
print(gc.isenabled())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, figures, enabled = run.stdout.splitlines()
    frozen, tracked, collections = map(int, figures.split())
    assert frozen > 20_000 > 2 * tracked and enabled == "True"
    assert collections <= 5, "it looked through what was just imported"
