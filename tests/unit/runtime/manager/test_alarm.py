# SPDX-License-Identifier: Apache-2.0
"""The alarm interrupts a turn of the event loop. The tests use subprocesses, because pytest-timeout uses SIGALRM."""

import subprocess
import sys

import pytest

#: An endless turn of the event loop. A timer of the loop would exit with another status than the alarm.
BUSY = """
import asyncio, os, sys
from ccm.manager.alarm import set_alarm

def spin():
    while True:
        pass

async def main():
    asyncio.get_running_loop().call_later(0.05, os._exit, 3)
    set_alarm(0.1, lambda: os._exit(7))
    spin()

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""
#: Two alarms ring, a third is cancelled.
SEVERAL = """
import time
from ccm.manager.alarm import set_alarm

told = []
set_alarm(0.2, lambda: told.append("late"))
set_alarm(0.1, lambda: told.append("early"))
set_alarm(0.15, lambda: told.append("cancelled"))()
end = time.monotonic() + 50
while len(told) < 2 and time.monotonic() < end:
    time.sleep(0.01)
print(*told)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_turn_of_the_event_loop_is_interrupted(loop):
    done = subprocess.run([sys.executable, "-c", BUSY, loop], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 7, done.stderr


def test_each_alarm_rings_when_it_is_due():
    done = subprocess.run([sys.executable, "-c", SEVERAL], capture_output=True, text=True, timeout=280, check=False)
    assert done.stdout.split() == ["early", "late"], done.stderr
