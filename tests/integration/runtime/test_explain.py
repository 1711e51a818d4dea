# SPDX-License-Identifier: Apache-2.0
"""`ccm explain node`, as an engineer on call would use it."""

from __future__ import annotations

import asyncio
import sys

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import NODES, event_messages, eventually, node_body


async def explain(apiserver: ApiServer, name: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ccm.cli", "explain", "node", name, "--kubeconfig", str(apiserver.kubeconfig())),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


async def test_why_a_node_is_still_tainted(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.add_instance("somebody-else")
    await kube.create(NODES, node_body("stuck"))
    status, out, _ = await explain(apiserver, "stuck")
    assert status == 1 and "No controller" in out
    await start_ccm().leading()
    await eventually(lambda: event_messages(kube, "InstanceNotFound", "stuck"))

    async def told() -> bool:
        status, out, error = await explain(apiserver, "stuck")
        assert (status, error) == (1, "")
        return all(
            part in out
            for part in (
                "waits for its initialisation",
                "InstanceNotFound",
                "no instance named 'stuck'",
                "which renewed the Lease kube-system/cloud-controller-manager",
                "provider sim; the cloud last answered it",
            )
        )

    await eventually(told)


async def test_no_such_node(apiserver: ApiServer, kube: KubeClient):
    status, out, error = await explain(apiserver, "nowhere")
    assert (status, out) == (2, "")
    assert error == "ccm: Node 'nowhere' does not exist: see kubectl get nodes\n"
