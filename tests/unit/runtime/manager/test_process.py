# SPDX-License-Identifier: Apache-2.0
"""The parts of a process's start that integration tests do not cover."""

import asyncio
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
