# SPDX-License-Identifier: Apache-2.0
"""The parts of a process's start that integration tests do not cover."""

import asyncio
import signal
import subprocess
import sys

import pytest
import uvloop

from ccm.manager import process

CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x564de4c2bed0>; the handler is closed"


@pytest.mark.parametrize(
    ("error", "logged"), [(RuntimeError(CLOSED), False), (RuntimeError("else"), True), (OSError(CLOSED), True)]
)
def test_an_answer_on_a_closed_connection_is_no_error(error, logged, caplog, monkeypatch):
    """uvloop wrote such a traceback into the log of a process that lost its Lease."""

    async def live(options):
        context = {"message": "Fatal error on SSL protocol", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    monkeypatch.setattr(process, "_live", live)
    assert uvloop.run(process.run(None)) == 0
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.exc_info[1] for record in errors] == [error] * logged


def test_a_cancellation_that_nobody_asked_for_ends_the_process_with_an_error(caplog, monkeypatch):
    async def live(options):
        asyncio.get_running_loop().call_soon((gone := asyncio.get_running_loop().create_future()).cancel)
        await gone

    monkeypatch.setattr(process, "_live", live)
    assert asyncio.run(process.run(None)) == 1
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


def test_a_crash_in_compiled_code_leaves_a_traceback():
    code = """
import os, signal
from ccm.manager import process
process.run = lambda options: os.kill(os.getpid(), signal.SIGSEGV)
process.start(None)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGSEGV and "Fatal Python error: Segmentation fault" in run.stderr


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
