# SPDX-License-Identifier: Apache-2.0
"""The watchdog of the conformance kit notices a provider that blocks the event loop, and not a busy machine."""

from __future__ import annotations

import asyncio
import time

import pytest

from ccm.conformance import watchdog
from ccm.conformance.trial import Failed


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(watchdog, "STANDSTILL", 0.3)


def block() -> None:
    time.sleep(30.0)


async def test_a_loop_that_waits_is_not_blocked():
    """On a busy machine, the process may get no processor for seconds while the loop waits. Then the watchdog's timer
    is late; here, it never fires."""
    with watchdog.Watchdog() as watch:
        watch._timer.cancel()
        await asyncio.sleep(1.0)
    assert watch.blocked == ""


async def test_a_call_that_blocks_is_named_and_interrupted():
    with watchdog.Watchdog() as watch, pytest.raises(Failed, match="blocks the event loop"):
        block()
    assert "block (" in watch.blocked
