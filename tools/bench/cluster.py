# SPDX-License-Identifier: Apache-2.0
"""The API server of a run: filling it, emptying it, and watching it cheaply."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import aiohttp
import msgspec

from tests.integration.cluster import ApiServer

from . import measure, objects
from .sides import BenchError, Process

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
EVENTS = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = "cloud-controller-manager"
WRITERS = 24


class Cluster:
    """One kube-apiserver, without a client library. `request`, and what is built on it, raises BenchError for an answer
    that is an error, except for a 404 to a DELETE."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.kubeconfig = server.kubeconfig()
        tls = ssl.create_default_context(cafile=str(server.ca_file))
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            headers={"Authorization": f"Bearer {server.token}"},
            timeout=aiohttp.ClientTimeout(total=120),
            read_bufsize=2**20,
        )

    async def close(self) -> None:
        await self.session.close()

    async def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        data = msgspec.json.encode(body) if body is not None else None
        async with self.session.request(
            method, self.server.url + path, data=data, headers={"Content-Type": kind}
        ) as answer:
            text = await answer.read()
            if answer.status >= 300 and not (method == "DELETE" and answer.status == 404):
                raise BenchError(f"{method} {path}: {answer.status} {text[:300].decode(errors='replace')}")
            return msgspec.json.decode(text) if text else None

    async def create(self, path: str, bodies: Iterable[Any]) -> None:
        await self._many(lambda body: self.request("POST", path, body), bodies)

    async def version(self, path: str) -> str:
        """Return the current resourceVersion: a watch from it sees all later changes."""
        listed = await self.request("GET", f"{path}?limit=1")
        return str(listed["metadata"]["resourceVersion"])

    async def clear(self) -> None:
        """Remove what runs leave: Services, Nodes, Events, the Lease."""
        services = (await self.request("GET", SERVICES))["items"]
        names = [item["metadata"]["name"] for item in services if item["metadata"]["name"].startswith("bench-")]
        await self._many(self._remove_service, names)
        await self.request("DELETE", f"{LEASES}/{LEASE}")
        await self.request("DELETE", NODES)
        await self.request("DELETE", EVENTS)

    async def _remove_service(self, name: str) -> None:
        merge = "application/merge-patch+json"
        await self.request("PATCH", f"{SERVICES}/{name}", {"metadata": {"finalizers": None}}, merge)
        await self.request("DELETE", f"{SERVICES}/{name}")

    async def _many(self, work: Callable[[Any], Any], items: Iterable[Any]) -> None:
        waiting = iter(items)

        async def worker() -> None:
            for item in waiting:
                await work(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(worker())

    async def writes(self) -> dict[str, int]:
        async with self.session.get(self.server.url + "/metrics") as answer:
            return measure.api_writes(await answer.text())

    async def events(self) -> int:
        """Return the number of Events."""
        listed = await self.request("GET", f"{EVENTS}?limit=1")
        return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))

    def usage(self) -> measure.Usage:
        """Return the usage of kube-apiserver and etcd together."""
        parts = [measure.usage(self.server.pid(name)) for name in ("kube-apiserver", "etcd")]
        return measure.Usage(sum(part.cpu for part in parts), sum(part.peak for part in parts))

    async def kubernetes(self) -> str:
        """Return the version of Kubernetes."""
        return str((await self.request("GET", "/version"))["gitVersion"])

    # --- watching --------------------------------------------------------------------------------------------------

    async def frames(self, path: str, resource_version: str, wire: str) -> AsyncIterator[bytes]:
        """Yield the encoded objects of a watch, as they come."""
        accept = wire if wire == "application/json" else f"{wire};stream=watch"
        url = f"{self.server.url}{path}{'&' if '?' in path else '?'}watch=true&resourceVersion={resource_version}"
        limits = aiohttp.ClientTimeout(total=None)
        async with self.session.get(url, headers={"Accept": accept}, timeout=limits) as answer:
            if answer.status != 200:
                raise BenchError(f"watch of {path}: {answer.status} {await answer.text()}")
            split = split_lines if wire == "application/json" else split_frames
            async for frame in split(answer.content.iter_any()):
                yield frame

    async def until(
        self,
        path: str,
        resource_version: str,
        wire: str,
        wanted: Iterable[str],
        done: Callable[[bytes], bool],
        process: Process,
        patience: float,
    ) -> float:
        """Watch until all `wanted` objects are `done`; return that moment in monotonic seconds.

        Raises BenchError after `patience` seconds, or when the process ends.
        """
        left = set(wanted)
        watchdog = asyncio.create_task(self._watch_over(process))
        try:
            async with asyncio.timeout(patience):
                follow = asyncio.create_task(self._follow(path, resource_version, wire, left, done))
                try:
                    await asyncio.wait({follow, watchdog}, return_when=asyncio.FIRST_COMPLETED)
                    if watchdog.done():
                        await watchdog
                    return await follow
                finally:
                    follow.cancel()
        except TimeoutError:
            raise BenchError(f"{len(left)} objects are not done after {patience:g} s, such as {min(left)}") from None
        finally:
            watchdog.cancel()

    async def _follow(
        self, path: str, resource_version: str, wire: str, left: set[str], done: Callable[[bytes], bool]
    ) -> float:
        while True:
            async with contextlib.aclosing(self.frames(path, resource_version, wire)) as frames:
                async for frame in frames:
                    if done(frame):
                        left.discard(objects.object_name(frame))
                        if not left:
                            return time.monotonic()
            # The API server ends a watch that reads too slowly: list all objects again, and watch from there.
            resource_version = "0"

    async def _watch_over(self, process: Process) -> None:
        while True:
            process.check()
            await asyncio.sleep(0.5)

    async def next_leader(self) -> float:
        """Wait until the Lease has another holder than now; return that moment in monotonic seconds."""
        listed = await self.request("GET", LEASES)
        before = {"", *(item["spec"].get("holderIdentity") or "" for item in listed["items"])}
        path, version = f"{LEASES}?fieldSelector=metadata.name%3D{LEASE}", listed["metadata"]["resourceVersion"]
        async with contextlib.aclosing(self.frames(path, version, "application/json")) as frames:
            async for frame in frames:
                if (msgspec.json.decode(frame)["object"]["spec"].get("holderIdentity") or "") not in before:
                    return time.monotonic()
        raise BenchError("the API server ended the watch of the Lease")


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the objects of a watch in JSON: one a line."""
    pending = b""
    async for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


async def split_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the objects of a watch in protobuf: four bytes of length precede each one."""
    pending = bytearray()
    async for chunk in chunks:
        pending += chunk
        start = 0
        while len(pending) - start >= 4:
            (length,) = struct.unpack_from(">I", pending, start)
            if len(pending) - start - 4 < length:
                break
            yield bytes(pending[start + 4 : start + 4 + length])
            start += 4 + length
        del pending[:start]
