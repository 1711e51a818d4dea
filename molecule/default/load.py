# SPDX-License-Identifier: Apache-2.0
"""Ask an address again and again, and count what fails: load.py URL RESULT STOP_FILE

Ten requests a second, each on a connection of its own, until STOP_FILE exists, at most for ten minutes. RESULT gets
{"requests": N, "failures": [...], "by_node": {...}}.
"""

from __future__ import annotations

import collections
import json
import sys
import time
import urllib.request
from pathlib import Path

INTERVAL, TIMEOUT, LONGEST = 0.1, 3.0, 600.0


def main(url: str, result: Path, stop: Path) -> None:
    started = time.monotonic()
    requests, failures = 0, []
    by_node: collections.Counter[str] = collections.Counter()
    while not stop.exists() and time.monotonic() - started < LONGEST:
        begun = time.monotonic()
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                by_node[answer.read().decode().rpartition("node=")[2].strip()] += 1
        except OSError as error:
            failures.append(f"{time.strftime('%H:%M:%S')} {error}")
        requests += 1
        time.sleep(max(0.0, INTERVAL - (time.monotonic() - begun)))
    seconds = round(time.monotonic() - started)
    report = {"requests": requests, "seconds": seconds, "failures": failures, "by_node": by_node}
    result.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
