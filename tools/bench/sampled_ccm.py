# SPDX-License-Identifier: Apache-2.0
"""Runs ccm and samples its stack: `python -m tools.bench.sampled_ccm FILE [FLAG ...]`.

Each sample stands for `INTERVAL` seconds of CPU. When ccm ends, the samples are written to FILE
(`profile_rules.Samples`).
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType

import msgspec

INTERVAL = 0.002


def main() -> int:
    file = Path(sys.argv.pop(1))
    stacks: dict[tuple[str, ...], list[float]] = {}

    def sample(_: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            stack.append(frame.f_code.co_filename)
            frame = frame.f_back
        stacks.setdefault(tuple(stack), []).append(time.monotonic())

    from ccm.cli import main as ccm

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        return ccm()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        file.write_bytes(msgspec.json.encode([*stacks.items()]))


if __name__ == "__main__":
    sys.exit(main())
