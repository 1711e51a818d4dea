# SPDX-License-Identifier: Apache-2.0
"""The API server's own limit: sends the two patches of an initialisation for every Node, and does nothing else.

A process of its own, as the sides are: `python -m tests.bench.generator KUBECONFIG CONCURRENCY FILE`, where a line
of FILE is [name, status patch, node patch]. Prints the seconds from the first request to the last answer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from ccm.engine.client import MERGE_PATCH, METADATA_ONLY
from ccm.engine.kubeconfig import load


async def run(kubeconfig: str, concurrency: int, patches: list[tuple[str, bytes, bytes]]) -> float:
    access = load(kubeconfig, "")
    headers = dict(await access.headers()) | {"Accept": METADATA_ONLY, "Content-Type": MERGE_PATCH}
    connector = aiohttp.TCPConnector(limit=0, ssl=await access.tls())
    async with aiohttp.ClientSession(access.server, headers=headers, connector=connector) as session:

        async def send(path: str, body: bytes) -> None:
            async with session.patch(path, data=body) as answer:
                text = await answer.read()
                if answer.status != 200:
                    raise SystemExit(f"{path}: {answer.status} {text.decode(errors='replace')}")

        async def worker() -> None:
            while patches:
                name, status, node = patches.pop()
                await send(f"/api/v1/nodes/{name}/status", status)
                await send(f"/api/v1/nodes/{name}", node)

        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
        return time.monotonic() - started


def main() -> None:
    kubeconfig, concurrency, file = sys.argv[1:]
    patches = []
    for line in Path(file).read_bytes().splitlines():
        name, status, node = msgspec.json.decode(line, type=tuple[str, msgspec.Raw, msgspec.Raw])
        patches.append((name, bytes(status), bytes(node)))
    print(uvloop.run(run(kubeconfig, int(concurrency), patches)))


if __name__ == "__main__":
    main()
