# SPDX-License-Identifier: Apache-2.0
"""`make bench`, `make bench BENCH="nodes handover"`: run, print the table, write the page."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import aiohttp

from bed.errors import BedError
from bed.progress import Progress
from tests.integration.cluster import ApiServer, MissingBinaries

from . import page, sides, table
from .cluster import Cluster
from .scenarios import BENCHES
from .stage import Bench

#: The default range of node ports is too small for 5,000 Services.
NODE_PORTS = "--service-node-port-range=20000-32767"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("bench", nargs="*", help=f"of {', '.join(BENCHES)}; all by default")
    parser.add_argument("--page", action="store_true", help="only write docs/performance.md, from the stored figures")
    options = parser.parse_args()
    if unknown := [name for name in options.bench if name not in BENCHES]:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(BENCHES)}")
    failed: list[str] = []
    try:
        if not options.page:
            failed = asyncio.run(run(options.bench or list(BENCHES)))
    except (sides.BenchError, BedError, MissingBinaries) as error:
        print(f"make bench: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 1  # SIGTERM; all processes of the bench have been stopped
    page.write()
    if failed:
        print(f"make bench: failed, so the page shows their earlier figures: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


async def run(wanted: list[str]) -> list[str]:
    """Run benches; return the names of those that failed. Each bench stores its raw figures when it ends, so that a
    failure loses only the figures of that bench."""
    began, failed = time.monotonic(), []
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def say(text: str) -> None:
        print(f"{datetime.datetime.now():%H:%M:%S} {text}", flush=True)

    progress = Progress()
    with tempfile.TemporaryDirectory(prefix="ccm-bench-api-") as folder:
        peer, ours = sides.peer(progress), sides.ours()
        server = ApiServer(Path(folder), flags=[NODE_PORTS])
        cluster = Cluster(server)
        try:
            bench = Bench(cluster, peer, ours, say)
            machine = {**sides.machine(), "Kubernetes": await cluster.kubernetes()}
            results: dict[str, list[dict[str, Any]]] = {}
            for name in wanted:
                say(f"{name}: {(BENCHES[name].__doc__ or '').splitlines()[0]}")
                load = os.getloadavg()[0]
                try:
                    results[name] = [found async for found in BENCHES[name](bench)]
                except (sides.BenchError, aiohttp.ClientError, OSError, ExceptionGroup) as error:
                    say(f"{name} failed: {error}")
                    traceback.print_exception(error)
                    failed.append(name)
                    continue
                page.keep(name, results[name], machine, load)
        finally:
            await cluster.close()
            server.close()
    print()
    print(table.plain(table.rows(results)))
    print(f"\n{time.monotonic() - began:.0f} s in all; raw figures in build/bench/")
    return failed


if __name__ == "__main__":
    sys.exit(main())
