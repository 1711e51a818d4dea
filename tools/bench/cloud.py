# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud as a separate process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.ports import free_port

from .sides import BenchError, Process, Side

PROJECT, TOKEN, REGION = "bench", "bench-token", "north"
#: The beginning of every load balancer's address: a search for these bytes finds the address in an encoded object.
ADDRESSES = "198.18"
LATENCY = 0.05


class Call(msgspec.Struct):
    """One entry of the simulator's journal."""

    time: float
    operation: str
    write: bool
    status: int
    duration: float


class _Journal(msgspec.Struct):
    items: list[Call]


@dataclass
class Cloud:
    """A running simulator."""

    process: Process
    url: str
    session: aiohttp.ClientSession

    @classmethod
    async def start(
        cls, side: Side, folder: Path, instances: Sequence[str], limits: dict[str, Any], timing: dict[str, float]
    ) -> Cloud:
        """Start `ccm sim` with these instances. `side`: our runtime, which has that command. Each instance has an
        InternalIP, and every call takes LATENCY seconds.
        """
        seeds = [
            {
                "name": name,
                "type": "sim.small",
                "zone": f"{REGION}-{'abc'[number % 3]}",
                "addresses": [{"type": "InternalIP", "address": internal_ip(number)}],
            }
            for number, name in enumerate(instances)
        ]
        config = {
            "projects": [
                {
                    "name": PROJECT,
                    "token": TOKEN,
                    "region": REGION,
                    "load_balancer_addresses": f"{ADDRESSES}.0.0/16",
                    "instances": seeds,
                }
            ],
            "limits": {"page_size": 1000, **limits},
            "timing": {"latency": LATENCY, **timing},
        }
        file, port = folder / "cloud.yaml", free_port()
        file.write_bytes(msgspec.json.encode(config))  # JSON is YAML, and quick to read
        command = [*side.command, "sim", f"--listen=127.0.0.1:{port}", f"--config={file}", "--log-level=warning"]
        process = Process(command, folder / "cloud.log", side.environment)
        cloud = cls(process, f"http://127.0.0.1:{port}", aiohttp.ClientSession())
        deadline = time.monotonic() + 60
        while not await cloud._answers():
            process.check()
            if time.monotonic() > deadline:
                raise BenchError("the simulated cloud did not start within 60 s")
            await asyncio.sleep(0.05)
        return cloud

    async def _answers(self) -> bool:
        try:
            async with self.session.get(f"{self.url}/healthz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def close(self) -> None:
        await self.session.close()
        await self.process.stop()

    def conf(self, **more: Any) -> str:
        """Return a cloud.conf that both measured programs read. `more`: settings that only our runtime knows."""
        return msgspec.yaml.encode({"endpoint": self.url, "project": PROJECT, "token": TOKEN, **more}).decode()

    async def provider_ids(self) -> dict[str, str]:
        """Return the providerIDs of all instances, by name."""
        found: dict[str, str] = {}
        token: str | None = ""
        while token is not None:
            path = f"/v1/projects/{PROJECT}/instances?page_size=1000" + (f"&page_token={token}" if token else "")
            page = await self._get(path, TOKEN)
            found |= {row["name"]: f"sim://{row['region']}/{row['id']}" for row in page["items"]}
            token = page["next_page_token"]
        return found

    async def forget(self) -> None:
        """Clear the journal: calls count from now on."""
        async with self.session.delete(f"{self.url}/admin/journal") as answer:
            answer.raise_for_status()

    async def calls(self) -> list[Call]:
        async with self.session.get(f"{self.url}/admin/journal") as answer:
            answer.raise_for_status()
            return msgspec.json.decode(await answer.read(), type=_Journal).items

    async def count(self) -> int:
        return int((await self._get("/admin/journal/summary"))["calls"])

    async def quiet(self, seconds: float, patience: float) -> None:
        """Wait until the cloud has had no call for `seconds`. Raises BenchError after `patience` seconds."""
        deadline = time.monotonic() + patience
        before, since = await self.count(), time.monotonic()
        while time.monotonic() - since < seconds:
            if time.monotonic() > deadline:
                raise BenchError(f"the cloud is still being called after {patience:g} s")
            await asyncio.sleep(min(0.5, seconds / 4))
            if (now := await self.count()) != before:
                before, since = now, time.monotonic()

    async def _get(self, path: str, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.get(self.url + path, headers=headers) as answer:
            answer.raise_for_status()
            return await answer.json()


def internal_ip(number: int) -> str:
    return f"10.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def summary(calls: Sequence[Call]) -> dict[str, Any]:
    """Return the figures of a journal."""
    operations: dict[str, int] = {}
    for call in calls:
        operations[call.operation] = operations.get(call.operation, 0) + 1
    return {
        "cloud_calls": len(calls),
        "cloud_refused": sum(call.status == 429 for call in calls),
        "cloud_writes": sum(call.write and not call.operation.startswith("tokens.") for call in calls),
        "cloud_operations": dict(sorted(operations.items())),
    }
