# SPDX-License-Identifier: Apache-2.0
"""Nodes are deleted when their instances are really gone, and never otherwise; those of stopped ones get a taint."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ccm.controllers.nodes import node_fencing_rules
from ccm.engine.client import KubeClient, NotFoundError
from ccm_simcloud.model import InstancePatch
from ccm_simcloud.testing import Simulator, running_simulator

from .conftest import StartCcm
from .support import NODES, Ccm, event_messages, eventually, expire, get_node, initialised, node_body, set_ready

#: Flags that make the safety rules fast enough for a test.
FAST = {"node_monitor_period": "50ms", "node_deletion_min_age": "0s"}
#: The controller's passes in which no Node may go: ten times as many as two confirmations take.
PASSES = 20


async def cluster_of(kube: KubeClient, cloud: Simulator, prefix: str, count: int = 3) -> list[str]:
    """Create initialised Nodes, all NotReady, with their instances; return their names. The runtime must be running."""
    cloud.add_instances(count, prefix=prefix)
    names = [f"{prefix}{number}" for number in range(count)]
    for name in names:
        await kube.create(NODES, node_body(name))
    await eventually(lambda: initialised(kube, *names))
    return names


def delete_instance(cloud: Simulator, name: str) -> None:
    project = cloud.project()
    project.delete_instance(next(id_ for id_ in project.instances.ids if project.instances.get(id_).name == name))


async def metric(process: Ccm, token: str, name: str) -> float:
    status, text = await process.get("/metrics", token)
    assert status == 200, text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


async def passes(process: Ccm, token: str, number: int) -> None:
    """Wait until the controller has checked all Nodes `number` more times."""
    name = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"
    before = await metric(process, token, name)

    async def passed() -> bool:
        return await metric(process, token, name) >= before + number

    await eventually(passed, what=f"{number} passes")


async def test_L30_a_node_goes_when_its_instance_is_gone(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    ccm = start_ccm(**FAST)
    await ccm.leading()
    names = await cluster_of(kube, cloud, "gone-")
    delete_instance(cloud, names[0])

    async def is_gone() -> bool:
        return await get_node(kube, names[0]) is None

    await eventually(is_gone)
    await eventually(lambda: event_messages(kube, "DeletingNode", names[0]))
    assert await get_node(kube, names[1]) is not None
    assert await get_node(kube, names[2]) is not None


async def test_a_ready_node_stays_whatever_the_cloud_says(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, admin_token: str
):
    ccm = start_ccm(**FAST)
    await ccm.leading()
    names = await cluster_of(kube, cloud, "ready-")
    await set_ready(kube, names[0], "True")
    await passes(ccm, admin_token, PASSES)  # it knows the Node's state now
    delete_instance(cloud, names[0])
    await passes(ccm, admin_token, PASSES)
    assert await get_node(kube, names[0]) is not None


async def test_a_young_node_waits_for_its_age(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    ccm = start_ccm(**FAST | {"node_deletion_min_age": "1h"})
    await ccm.leading()
    names = await cluster_of(kube, cloud, "young-")
    delete_instance(cloud, names[0])
    await ccm.until_logged(r"young-0: instance .* is missing; waiting: the Node is \d+ s old")
    assert await get_node(kube, names[0]) is not None


FAILING: dict[str, dict[str, Any]] = {
    "answers 500": {"action": "status", "status": 500},
    "answers 404 without being asked properly": {"action": "status", "status": 404, "body": "html"},
    "never answers": {"action": "timeout"},
    "hangs up": {"action": "hang_up"},
    "truncates": {"action": "truncate"},
    "lists nothing": {"action": "empty_list"},
    "lists half": {"action": "short_list"},
}


@pytest.mark.parametrize("fault", FAILING.values(), ids=FAILING)
async def test_no_node_goes_while_the_cloud(
    fault: dict[str, Any], kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, admin_token: str
):
    """No Node is deleted, however often the cloud is asked. An Event says why, and a metric counts it."""
    # The limit is short only for the fault without an answer. A busy machine may need seconds for the other answers.
    seconds = 0.5 if fault["action"] == "timeout" else 60
    ccm = start_ccm(conf=cloud.conf(request_timeout=seconds), **FAST)
    await ccm.leading()
    prefix = re.sub(r"\W", "-", str(fault["action"])) + f"{fault.get('status', '')}-"
    names = await cluster_of(kube, cloud, prefix.replace("_", "-"))
    cloud.fault(**fault, match={"operation": "instances.*"})
    # One instance is really gone. Even so, nothing may be concluded from such a cloud.
    delete_instance(cloud, names[0])
    await eventually(lambda: event_messages(kube, "DeletionHeld", names[1]), what="an Event that says why")
    await passes(ccm, admin_token, PASSES)
    assert [name for name in names if await get_node(kube, name) is None] == []
    assert await metric(ccm, admin_token, "ccm_node_deletions_held_total") > 0
    assert await metric(ccm, admin_token, "ccm_node_deletions_total") == 0
    cloud.clear_faults()

    async def is_gone() -> bool:
        return await get_node(kube, names[0]) is None

    await eventually(is_gone, what="the missing one goes once the cloud answers again")
    assert await get_node(kube, names[1]) is not None


async def test_when_too_many_are_missing_and_no_node_is_ready_none_goes(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, admin_token: str
):
    ccm = start_ccm(**FAST)
    await ccm.leading()
    names = await cluster_of(kube, cloud, "mass-", 6)
    # The instances vanish at the same moment, as if another account's credentials were used from now on.
    with cloud.server.world.batch():
        for name in names[:5]:
            delete_instance(cloud, name)
    messages = await eventually(lambda: event_messages(kube, "DeletionHeld", names[0]))
    assert "5 of 6 Nodes" in messages[0] and "--node-deletion-cap" in messages[0]
    await passes(ccm, admin_token, PASSES)
    assert [name for name in names if await get_node(kube, name) is None] == []


@pytest.mark.threat("kubelet-cannot-delete-others")
@pytest.mark.parametrize("ready", ["False", "True"])
async def test_two_invented_nodes_keep_no_other_from_going(
    ready: str, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    """Their providerIDs belong to no instance. Invented Nodes that are not Ready are deleted later; Ready ones stay."""
    ccm = start_ccm(**FAST | {"node_deletion_min_age": "4s"})
    await ccm.leading()
    prefix = f"beside-{ready.lower()}-"
    names = await cluster_of(kube, cloud, prefix, 6)
    for name in names[1:]:
        await set_ready(kube, name, "True")
    await asyncio.sleep(4)
    invented = [f"{prefix}invented-{number}" for number in range(2)]
    for name in invented:
        await kube.create(NODES, node_body(name, tainted=False, providerID=f"sim://north/i-99900000000{name[-1]}"))
        await set_ready(kube, name, ready)
    delete_instance(cloud, names[0])

    async def is_gone() -> bool:
        return await get_node(kube, names[0]) is None

    await eventually(is_gone)
    assert all([await get_node(kube, name) for name in names[1:]])
    assert not await event_messages(kube, "DeletionHeld", names[0])
    if ready == "True":
        await asyncio.sleep(5)
        assert all([await get_node(kube, name) for name in invented])


async def test_a_scale_down_goes_a_few_nodes_at_a_time(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """Of six Nodes to delete, two are deleted in each window. The others get an Event that says so; no alarm is
    raised."""
    ccm = start_ccm(**FAST | {"node_deletion_window": "4s"})
    await ccm.leading()
    names = await cluster_of(kube, cloud, "down-", 10)
    for name in names:
        await set_ready(kube, name, "True")
    # The first two may be deleted while the others still become NotReady. All change at once: otherwise, on a busy
    # machine, the third Node might become NotReady only after the window of the first two.
    began = asyncio.get_running_loop().time()
    with cloud.server.world.batch():
        for name in names[:6]:
            delete_instance(cloud, name)
    await asyncio.gather(*(set_ready(kube, name, "Unknown") for name in names[:6]))

    async def are_gone() -> bool:
        return not any([await get_node(kube, name) for name in names[:6]])

    await eventually(are_gone)
    assert asyncio.get_running_loop().time() - began >= 8
    assert all([await get_node(kube, name) for name in names[6:]])
    waiting = [await event_messages(kube, "DeletionWaits", name) for name in names[:6]]
    # The number of Nodes in an Event depends on how many are NotReady, or deleted, when the Event is written.
    told = [message for messages in waiting for message in messages]
    assert any(re.search(r"at most 2 of \d+ Nodes", message) for message in told), waiting
    assert not any([await event_messages(kube, "DeletionHeld", name) for name in names])


async def test_what_a_killed_leader_deleted_counts_for_its_successor(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    ccm = start_ccm(**FAST)
    await ccm.leading()
    names = await cluster_of(kube, cloud, "killed-", 6)

    def gone(name: str) -> Callable[[], Awaitable[bool]]:
        async def is_gone() -> bool:
            return await get_node(kube, name) is None

        return is_gone

    for name in names[:2]:
        delete_instance(cloud, name)
        await eventually(gone(name))
    ccm.signal(signal.SIGKILL)
    await ccm.wait()
    await expire(kube)
    ccm = start_ccm(**FAST)
    await ccm.leading()
    delete_instance(cloud, names[2])
    messages = await eventually(lambda: event_messages(kube, "DeletionWaits", names[2]))
    assert "2 other Nodes were deleted or go first; at most 2 of" in messages[0] and "within 180 s" in messages[0]
    assert await get_node(kube, names[2]) is not None


async def test_with_the_credentials_of_another_project_no_node_goes(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, admin_token: str
):
    """The cloud answers "not found" for every Node, and its complete listings have only instances of the other
    project."""
    ccm = start_ccm(**FAST)
    await ccm.leading()
    names = await cluster_of(kube, cloud, "mixed-up-", 6)
    for name in names[1:]:
        await set_ready(kube, name, "True")
    await ccm.stop()
    config = {"projects": [{"name": "theirs", "token": "their-token", "region": "north"}]}
    async with running_simulator(config) as other:
        for instance in other.add_instances(6, prefix="before-"):  # numbered as ours are
            other.project().delete_instance(instance.id)
        other.add_instances(6, prefix="theirs-")
        ccm = start_ccm(conf=other.conf(), **FAST)
        await ccm.leading()
        messages = await eventually(lambda: event_messages(kube, "DeletionHeld", names[0]))
        assert "lists the instances of 0 Ready Nodes, but not those of 5 others" in messages[0]
        await passes(ccm, admin_token, PASSES)
        assert await get_node(kube, names[0]) is not None
        assert await metric(ccm, admin_token, "ccm_node_deletions_total") == 0
        assert other.calls("instances.*") > 0


async def test_nodes_that_cannot_be_judged_do_not_keep_others_from_going(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    """Nodes that never had a providerID are kept forever, and do not count as part of a mass deletion."""
    ccm = start_ccm(**FAST)
    await ccm.leading()
    names = await cluster_of(kube, cloud, "judged-")
    for number in range(3):
        await kube.create(NODES, node_body(f"by-hand-{number}", tainted=False))
    await eventually(lambda: event_messages(kube, "DeletionHeld", "by-hand-2"))
    delete_instance(cloud, names[0])

    async def is_gone() -> bool:
        return await get_node(kube, names[0]) is None

    await eventually(is_gone)
    assert all([await get_node(kube, f"by-hand-{number}") for number in range(3)])


async def test_a_shut_down_instance_taints_its_node_until_it_is_ready(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    ccm = start_ccm(**FAST)
    await ccm.leading()
    names = await cluster_of(kube, cloud, "shut-", 2)
    project = cloud.project()
    id_ = next(id_ for id_ in project.instances.ids if project.instances.get(id_).name == names[0])
    project.change_instance(id_, InstancePatch(state="stopped"))

    async def tainted(wanted: bool) -> bool:
        node = await get_node(kube, names[0])
        keys = {taint.key for taint in node.spec.taints} if node else set()
        return ("node.cloudprovider.kubernetes.io/shutdown" in keys) == wanted

    await eventually(lambda: tainted(True))
    await set_ready(kube, names[0], "True")
    await eventually(lambda: tainted(False))
    assert await get_node(kube, names[0]) is not None


async def test_another_node_under_the_same_name_is_not_deleted(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """W5: a confirmation about a deleted Node does not count for a new Node with its name."""
    ccm = start_ccm(**FAST | {"node_deletion_min_age": "3s"})
    await ccm.leading()
    names = await cluster_of(kube, cloud, "again-", 2)
    delete_instance(cloud, names[0])
    await ccm.until_logged(r"again-0: instance .* is missing")
    with contextlib.suppress(NotFoundError):  # on a busy machine, the runtime may have deleted it
        await kube.delete(f"{NODES}/{names[0]}")
    cloud.add_instance(names[0], addresses=[{"type": "InternalIP", "address": "10.9.9.9"}])
    await kube.create(NODES, node_body(names[0]))
    await eventually(lambda: initialised(kube, names[0]))
    await asyncio.sleep(5)
    assert await get_node(kube, names[0]) is not None


async def test_a_node_is_fenced_while_its_machine_is_shut_down(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """The API server stores the taint's time, by which the next process recognises that the runtime set the taint."""
    ccm = start_ccm(**FAST, fence_dead_nodes="true")
    await ccm.leading()
    names = await cluster_of(kube, cloud, "off-", 4)
    for name in names[1:]:
        await set_ready(kube, name, "True")
    project = cloud.project()
    id_ = next(row.id for row in project.instances.rows.values() if row.name == names[0])
    project.change_instance(id_, InstancePatch(state="stopped"))

    async def fenced(name: str) -> bool:
        node = await get_node(kube, name)
        return node is not None and node_fencing_rules.is_ours(node)

    await eventually(lambda: fenced(names[0]))
    assert [name for name in names[1:] if await fenced(name)] == []
    await ccm.stop()
    project.change_instance(id_, InstancePatch(state="running"))
    await set_ready(kube, names[0], "True")
    await (start_ccm(**FAST)).leading()

    async def is_back() -> bool:
        node = await get_node(kube, names[0])
        return node is not None and not node_fencing_rules.is_fenced(node) and not node.metadata.annotations

    await eventually(is_back)
