# SPDX-License-Identifier: Apache-2.0
"""How a process starts, where integration tests do not cover it."""

import subprocess
import sys


def test_a_garbage_collection_does_not_look_at_what_lives_as_long_as_the_process():
    code = """
import gc
from ccm.manager import process
async def run(options):
    return gc.get_freeze_count()
process.run = run
print(process.start(None), len(gc.get_objects()))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    frozen, tracked = map(int, run.stdout.split())
    assert frozen > 20_000 > 10 * tracked
