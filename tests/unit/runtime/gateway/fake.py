# SPDX-License-Identifier: Apache-2.0
"""A provider that answers as a test scripts it and records its calls."""

from __future__ import annotations

import asyncio
from typing import Any

from ccm.cloud import Cloud, Instance, InstanceRef, Limits, NotFound, Page, ProviderConfig

from .virtual import now


def machine(name: str, provider_id: str | None = None) -> Instance:
    return Instance(provider_id or f"fake://{name}", name)


class FakeInstances:
    """`pages`: Page or exception by token. `single`: Instance or exception by name. `latency`: seconds of each call."""

    def __init__(self, *instances: Instance, latency: float = 0.0) -> None:
        self.pages: dict[str | None, Any] = {None: Page(instances)}
        self.single: dict[str, Any] = {instance.name: instance for instance in instances}
        self.latency = latency
        #: (virtual time, what) of each call, "list" for a first page.
        self.calls: list[tuple[float, str]] = []

    async def list_page(self, token: str | None) -> Page:
        return await self._answer("list" if token is None else f"list {token}", self.pages.get(token))

    async def get(self, ref: InstanceRef) -> Instance:
        missing = NotFound(f"no {ref.node_name}")
        return await self._answer(f"get {ref.node_name}", self.single.get(ref.node_name, missing))

    def owns(self, provider_id: str) -> bool:
        return provider_id.startswith("fake://") or not provider_id

    async def _answer(self, what: str, answer: Any) -> Any:
        self.calls.append((now(), what))
        await asyncio.sleep(self.latency)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def count(self, what: str) -> int:
        return sum(1 for _, call in self.calls if call.startswith(what))


class FakeCloud(Cloud):
    name = "fake"

    def __init__(self, instances: FakeInstances | None = None, limits: Limits | None = None) -> None:
        super().__init__(ProviderConfig())
        self.instances = instances
        self.limits = limits or Limits(calls_per_second=1e6, burst=10**6)
