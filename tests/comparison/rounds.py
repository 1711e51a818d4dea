# SPDX-License-Identifier: Apache-2.0
"""A table of Services that two controllers serve, one after the other: the results, and functions that wait for all.

First the vendor's controller serves them, and ours takes them over and deletes them; then the other way round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.engine.client import KubeClient

from ..integration.runtime.support import SERVICES, eventually
from .belongings import Belongings


@dataclass(frozen=True)
class Seen:
    """The result of one round over a table. `created`, `taken`: what Services had after their creation and after
    the takeover, by name. `writes`: the writing calls of the takeover. `left`: what stayed in the cloud at the end."""

    created: Mapping[str, Belongings]
    taken: Mapping[str, Belongings]
    writes: Counter[str]
    left: Counter[str]


@dataclass(frozen=True)
class Rounds:
    """Both rounds. `theirs`: created by the vendor's controller, taken over and deleted by ours. `ours`: vice versa."""

    theirs: Seen
    ours: Seen

    def taken_by(self, who: str) -> Seen:
        """Return the round in which `who` ("ours" or "theirs") takes over."""
        return self.theirs if who == "ours" else self.ours


async def bodies(kube: KubeClient) -> list[dict[str, Any]]:
    """Return all Services that the tests created."""
    found = (await kube.get(SERVICES, dict))["items"]
    return [each for each in found if each["metadata"]["name"] != "kubernetes"]


async def served(kube: KubeClient, names: Collection[str], seconds: float) -> None:
    async def all_served() -> bool:
        found = {each["metadata"]["name"]: each for each in await bodies(kube)}
        return all(found[name]["status"]["loadBalancer"].get("ingress") for name in names)

    await eventually(all_served, seconds, f"served: {', '.join(names)}")


async def delete(kube: KubeClient, names: Collection[str], seconds: float) -> None:
    """Delete Services, and wait until all of them are gone."""
    for name in names:
        await kube.delete(f"{SERVICES}/{name}")

    async def gone() -> bool:
        return not {each["metadata"]["name"] for each in await bodies(kube)} & set(names)

    await eventually(gone, seconds, "all Services are gone")
