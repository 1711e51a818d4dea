# SPDX-License-Identifier: Apache-2.0
"""An upgrade, seen from the cluster: a process of the last release and one of this release have the same flags,
configuration and Lease, and lead in turn. The process that takes over finds everything in its desired state, and
writes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm.engine.objects import Node, Service
from ccm_simcloud.testing import Simulator
from tests import last_release

from .conftest import StartCcm
from .support import NODES, SERVICES, Ccm, eventually, get_lease, get_node, initialised, node_body, set_ready
from .test_lifecycle import delete_instance
from .test_services_and_routes import balancers, served, service_body, writes

FAST = {"node_monitor_period": "200ms", "node_deletion_min_age": "0s", "leader_elect_retry_period": "500ms"}
SERVED = 5


class Upgrade:
    """Starts processes of both releases. `old_runtime`: the folder of the last release's runtime."""

    def __init__(
        self, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, old_runtime: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.kube, self.cloud, self._start, self._old, self._patch = kube, cloud, start_ccm, old_runtime, patch
        self._anchors = self._joined = 0

    def old(self) -> Ccm:
        with self._patch.context() as patch:
            patch.setenv("PYTHONPATH", str(self._old))
            return self._start(**FAST)

    def new(self) -> Ccm:
        return self._start(**FAST)

    async def stands_by(self, process: Ccm) -> Ccm:
        async def is_ready() -> bool:
            return (await process.get("/readyz"))[0] == 200

        await eventually(is_ready)
        assert "leading; controllers" not in process.text
        return process

    async def joined(self, *names: str) -> None:
        for name in names:
            self._joined += 1
            address = f"10.0.0.{self._joined}"
            self.cloud.add_instance(name, addresses=[{"type": "InternalIP", "address": address}])
            await self.kube.create(NODES, node_body(name, number=self._joined))
            await set_ready(self.kube, name, "True")
        await eventually(lambda: initialised(self.kube, *names))

    async def versions(self) -> dict[str, str]:
        """Return the resourceVersion of each Node and Service, without anchors."""
        nodes, _ = await self.kube.list(NODES, Node)
        services, _ = await self.kube.list(SERVICES, Service)
        every = [item.metadata for item in (*nodes, *services)]
        return {each.name: each.resource_version for each in every if not each.name.startswith("anchor")}

    async def follows(self, nodes: int) -> bool:
        """Return whether there are `nodes` routes, and each load balancer has `nodes` targets."""
        targets = {len(each.targets) for each in balancers(self.cloud)}
        return len(self.cloud.project().routes.rows) == nodes and targets == {nodes}

    async def has_looked(self, leader: Ccm) -> None:
        """Wait until the leader has looked at everything: it serves a Service that is newer than all others."""
        await leader.leading()
        self._anchors += 1
        name = f"anchor-{self._anchors}"
        await self.kube.create(SERVICES, service_body(name, 9000 + self._anchors))
        await eventually(lambda: served(self.kube, name))

    def written(self, since: int) -> list[str]:
        """Return the writes to the cloud since this entry of its journal, without logins and those for anchors, one of
        which was created since."""
        anchors = {each.id for each in balancers(self.cloud) if each.ports[0].port >= 9000}
        entries = [each for each in self.cloud.journal() if each.write and each.sequence > since]
        own = [each for each in entries if not anchors & set(each.path.split("/"))]
        created = [each for each in own if each.operation == "load_balancers.create"]
        rest = [each.operation for each in own if each not in created and not each.operation.startswith("tokens.")]
        return rest + ["load_balancers.create"] * (len(created) - 1)  # one is the anchor's


@pytest.fixture
def upgrade(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Upgrade:
    return Upgrade(kube, cloud, start_ccm, last_release.runtime(tmp_path / "last-release"), monkeypatch)


async def test_releases_lead_in_turn_and_write_nothing(upgrade: Upgrade, kube: KubeClient, cloud: Simulator) -> None:
    leader = upgrade.old()
    await leader.leading()
    await upgrade.joined("first-0", "first-1", "first-2")
    for number in range(SERVED):
        await kube.create(SERVICES, service_body(f"still-{number}", 8000 + number))
    for number in range(SERVED):
        await eventually(lambda number=number: served(kube, f"still-{number}"))
    await eventually(lambda: upgrade.follows(3))
    for next_one in (upgrade.new, upgrade.old, upgrade.new):
        standby = await upgrade.stands_by(next_one())
        before, since = await upgrade.versions(), cloud.journal()[-1].sequence
        holder = (await get_lease(kube)).spec.holder_identity
        await leader.stop()
        await upgrade.has_looked(standby)
        assert (await get_lease(kube)).spec.holder_identity != holder
        assert await upgrade.versions() == before
        assert upgrade.written(since) == []
        leader = standby


async def test_a_standby_of_the_last_release_leaves_everything_to_the_new_leader(
    upgrade: Upgrade, kube: KubeClient, cloud: Simulator
) -> None:
    new = upgrade.new()
    await new.leading()
    old = await upgrade.stands_by(upgrade.old())
    await upgrade.joined("first-0", "first-1", "first-2", "first-3")
    await kube.create(SERVICES, service_body("web"))
    await eventually(lambda: served(kube, "web"))
    await eventually(lambda: upgrade.follows(4))
    written = writes(cloud)
    delete_instance(cloud, "first-0")
    await set_ready(kube, "first-0", "Unknown")

    async def is_gone() -> bool:
        return await get_node(kube, "first-0") is None

    await eventually(is_gone)

    async def is_followed() -> bool:  # the cloud itself took the machine out of the targets
        return writes(cloud) > written

    await eventually(is_followed)
    await eventually(lambda: upgrade.follows(3))
    annotations: dict[str, Any] = dict((await get_lease(kube)).metadata.annotations)
    assert annotations.get("ccm.outoftree.dev/node-deletions")
    assert "leading; controllers" not in old.text and old.process.poll() is None
    # The way back: the last release counts the new one's deletion, and serves what the new one created.
    await new.stop()
    before, since = await upgrade.versions(), cloud.journal()[-1].sequence
    await upgrade.has_looked(old)
    assert await upgrade.versions() == before and upgrade.written(since) == []
    await upgrade.joined("late-0")
    await kube.delete(f"{SERVICES}/web")

    async def has_no_web() -> bool:
        return all(each.ports[0].port >= 9000 for each in balancers(cloud))

    await eventually(has_no_web)
    assert "Traceback" not in old.text + new.text
