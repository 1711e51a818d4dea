# SPDX-License-Identifier: Apache-2.0
"""The upstream framework and our runtime take over from each other on one cluster, with one Lease and the same load
balancers."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from pathlib import Path

import aiohttp
import pytest

from bed import go_programs
from bed.progress import Progress
from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator
from tests.ports import free_port

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import (
    CLUSTER_CIDR,
    NODES,
    SERVICES,
    Ccm,
    eventually,
    expire,
    get_lease,
    get_service,
    initialised,
    node_body,
    set_ready,
)


@pytest.mark.timeout(1800)  # the first run on a machine builds the framework
async def test_load_balancers_stay_when_the_other_one_takes_over_and_on_the_way_back(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, tmp_path: Path
) -> None:
    program = await asyncio.to_thread(go_programs.ensure, "peer", Progress())
    conf = tmp_path / "peer.conf"
    conf.write_text(cloud.conf())

    def start_peer() -> subprocess.Popen[bytes]:
        log = (tmp_path / "peer.log").open("ab")
        flags = {
            "cloud-provider": "sim",
            "cloud-config": conf,
            "kubeconfig": apiserver.kubeconfig(),
            "cluster-cidr": CLUSTER_CIDR,
            "bind-address": "127.0.0.1",
            "secure-port": free_port(),
        }
        return subprocess.Popen([str(program), *(f"--{k}={v}" for k, v in flags.items())], stdout=log, stderr=log)

    async def served(*ports: int) -> bool:
        rows = list(cloud.project().load_balancers.rows.values())
        return len(rows) == 1 and rows[0].state == "active" and sorted(p.port for p in rows[0].ports) == list(ports)

    async def leads(but: str) -> str:
        holder = (await get_lease(kube)).spec.holder_identity or ""
        return "" if holder == but else holder

    async def ready(ours: Ccm) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            return (await ours.get("/readyz"))[0] == 200
        return False

    async def change(*numbers: int) -> None:
        ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in numbers]
        await kube.patch(f"{SERVICES}/taken", {"spec": {"ports": ports}})

    address = {"type": "InternalIP", "address": "10.0.0.1"}
    cloud.add_instance("taken-1", zone="north-a", type="sim.small", addresses=[address])
    old = start_peer()
    try:
        await kube.create(NODES, node_body("taken-1", number=1))
        await set_ready(kube, "taken-1", "True")
        await eventually(lambda: initialised(kube, "taken-1"), what="initialised by the upstream framework")
        spec = {"type": "LoadBalancer", "ports": [{"name": "p80", "port": 80, "protocol": "TCP"}]}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": spec}
        await kube.create(SERVICES, body)
        await eventually(lambda: served(80), what="served by the upstream framework")
        (before,) = cloud.project().load_balancers.rows
        first = (await get_lease(kube)).spec.holder_identity or ""

        ours = start_ccm()  # a standby while the other process renews the Lease
        await eventually(lambda: ready(ours), what="ours is ready to take over")
        assert "leading; controllers" not in ours.text and (await get_lease(kube)).spec.holder_identity == first
        old.kill()  # like a crash of its Pod: it does not release the Lease
        old.wait()
        await expire(kube)
        second = await eventually(lambda: leads(first), what="ours leads after it")
        await change(80, 81)
        await eventually(lambda: served(80, 81), what="served by ours")

        old = start_peer()
        await ours.stop()
        await eventually(lambda: leads(second), what="the upstream framework leads again")
        await change(80)
        await eventually(lambda: served(80), what="served by the upstream framework again")
        assert list(cloud.project().load_balancers.rows) == [before]
        given = cloud.project().load_balancers.rows[before].ip
        assert [each.ip for each in (await get_service(kube, "taken")).status.load_balancer.ingress] == [given]
        assert cloud.calls("load_balancers.create") == 1 and cloud.calls("load_balancers.delete") == 0
        assert cloud.calls("routes.create") == 1 and cloud.calls("routes.delete") == 0
    finally:
        old.kill()
        old.wait()
        print((tmp_path / "peer.log").read_text()[-4000:])
