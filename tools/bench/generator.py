# SPDX-License-Identifier: Apache-2.0
"""The raw generator: sends the two writes of an initialisation for every Node, and does nothing else.

Runs as a separate process, like the measured programs: `python -m tools.bench.generator KUBECONFIG CONCURRENCY FILE`,
where FILE has the requests of each Node (`wire.Request`, MessagePack). Prints the seconds from the first request to the
last answer, and the seconds of CPU of that time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from ccm.engine.kubeconfig import load

from .wire import Request


async def run(kubeconfig: str, concurrency: int, nodes: list[list[Request]]) -> tuple[float, float]:
    access = load(kubeconfig, "")
    connector = aiohttp.TCPConnector(limit=0, ssl=await access.tls())
    headers = dict(await access.headers())
    async with aiohttp.ClientSession(access.server, headers=headers, connector=connector) as session:

        async def worker() -> None:
            while nodes:
                for request in nodes.pop():
                    how = {"Accept": request.accept, "Content-Type": request.content}
                    async with session.request(request.method, request.path, data=request.body, headers=how) as answer:
                        text = await answer.read()
                        if answer.status != 200:
                            raise SystemExit(f"{request.path}: {answer.status} {text.decode(errors='replace')}")

        started, computed = time.monotonic(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
        return time.monotonic() - started, time.process_time() - computed


def main() -> None:
    kubeconfig, concurrency, file = sys.argv[1:]
    nodes = msgspec.msgpack.decode(Path(file).read_bytes(), type=list[list[Request]])
    print(*uvloop.run(run(kubeconfig, int(concurrency), nodes)))


if __name__ == "__main__":
    main()
