# SPDX-License-Identifier: Apache-2.0
"""The runtime between a real API server and vCenters in trouble: no Node is deleted because a vCenter cannot answer."""

from __future__ import annotations

from pathlib import Path

from tests.integration.runtime.support import eventually, get_node, set_ready

from .controllers import PATIENCE, answered, conf, register
from .proxy import Fault, Proxy
from .table import WORKERS, Row, build, one
from .test_peer import ZONES
from .vcenter import VCenter, done, machines, rows

#: After this many calls, Nodes that are not Ready count as kept, because two answers would be enough to delete them.
OFTEN = 3


async def test_one_of_two_vcenters_is_down(vcenter, proxy, controllers, tmp_path: Path):
    """While one vCenter is down, no Node is deleted, not even if its machine was deleted in the other vCenter. Most
    machines are in the vCenter that works, because the framework itself waits if many are missing at once.
    """
    second, kube, table = VCenter(), controllers.kube, WORKERS
    (tmp_path / "second").mkdir()
    other = Proxy(second.port, tmp_path / "second")
    keys = {"server": "127.0.0.1", "port": other.port, "ca-file": other.ca_file}
    one_more = "\n".join(['[VirtualCenter "second"]', *(f'{key} = "{value}"' for key, value in keys.items())])
    uuids = build(vcenter, table[:-1]) | build(second, table[-1:])
    await register(kube, table, uuids)
    program = controllers.ours(conf(proxy, one_more))
    try:
        await answered(kube, program, table)
        with vcenter.admin() as live:
            machine = machines(live)["vm-worker-0"]
            done(machine.PowerOffVM_Task())
            done(machine.Destroy_Task())
        with other.broken(Fault("drop")):
            asked = proxy.counted()["RetrievePropertiesEx"]
            for name in ("worker-0", table[-1].node):
                await set_ready(kube, name, "Unknown")

            async def is_asked_often() -> bool:
                assert await get_node(kube, "worker-0") and await get_node(kube, table[-1].node), program.text
                return proxy.counted()["RetrievePropertiesEx"] >= asked + OFTEN

            await eventually(is_asked_often, PATIENCE, program.text)

        async def is_deleted() -> bool:
            return await get_node(kube, "worker-0") is None

        await eventually(is_deleted, PATIENCE, program.text)
        assert await get_node(kube, table[-1].node)
    finally:
        await program.stop()
        other.close()
        second.stop()


async def test_a_restart_of_the_vcenter(vcenter, proxy, controllers):
    """Nodes survive a restart. The machines are those that vcsim has after each start."""
    kube = controllers.kube
    with vcenter.admin() as live:
        uuids = {f"vm-node-{n}": row.uuid for n, row in enumerate(rows(live).values())}
        ids = list(rows(live))
    table = tuple(Row(f"node-{n}", one(n + 1)) for n in range(len(ids)))

    def report() -> None:
        for id, row in zip(ids, table, strict=True):
            vcenter.shape(id, hostName=row.node, nics=list(row.nics))

    report()
    await register(kube, table[:-1], uuids)
    program = controllers.ours(conf(proxy))
    try:
        await answered(kube, program, table[:-1])
        vcenter.stop()
        asked = len(proxy.calls)
        await set_ready(kube, "node-0", "Unknown")

        async def is_asked_often() -> bool:
            assert await get_node(kube, "node-0"), program.text
            return len(proxy.calls) >= asked + OFTEN

        await eventually(is_asked_often, PATIENCE, program.text)
        vcenter.start()
        report()
        await register(kube, table[-1:], uuids)
        await answered(kube, program, table[-1:])
        assert await get_node(kube, "node-0")
    finally:
        await program.stop()


async def test_a_machine_whose_host_hangs(vcenter, proxy, controllers):
    """vCenter then reports no UUID of the machine. Our runtime keeps its Node, even after a restart; the vendor's
    controller deletes it."""
    uuids, kube, table = build(vcenter, WORKERS), controllers.kube, WORKERS
    await register(kube, table, uuids)
    program = controllers.ours(conf(proxy))
    try:
        await answered(kube, program, table)
    finally:
        await program.stop()
    with vcenter.admin() as live:
        vcenter.shape(machines(live)["vm-worker-0"]._moId, uuid="")
    await set_ready(kube, "worker-0", "Unknown")
    program, asked = controllers.ours(conf(proxy)), proxy.counted()["RetrievePropertiesEx"]
    try:

        async def is_asked_often() -> bool:
            assert await get_node(kube, "worker-0"), program.text
            return proxy.counted()["RetrievePropertiesEx"] >= asked + OFTEN

        await eventually(is_asked_often, PATIENCE, program.text)
    finally:
        await program.stop()
    other = controllers.theirs(conf(proxy))
    try:

        async def is_deleted() -> bool:
            return await get_node(kube, "worker-0") is None

        await eventually(is_deleted, PATIENCE, "what the page says of cloud-provider-vsphere")
    finally:
        await other.stop()


async def test_a_missing_right_is_named(vcenter, proxy, controllers):
    uuids = build(vcenter, WORKERS[:1])
    await register(controllers.kube, WORKERS[:1], uuids)
    with proxy.broken(Fault("denied", "POST /rest/com/vmware/cis/tagging/*")):
        program = controllers.ours(conf(proxy, ZONES))
        try:
            await program.until_logged("POST /rest/com/vmware/cis/tagging/tag-association.*: HTTP status 403", PATIENCE)
        finally:
            await program.stop()
