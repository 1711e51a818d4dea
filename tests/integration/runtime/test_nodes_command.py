# SPDX-License-Identifier: Apache-2.0
"""`ccm nodes` against a real API server and the simulated cloud: what a migration checks before it taints a Node."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from .support import NODES, node_body


async def ccm_nodes(apiserver: ApiServer, conf: Path, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ccm.cli", "nodes", "--cloud-provider=sim", f"--cloud-config={conf}",
        f"--kubeconfig={apiserver.kubeconfig()}", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


async def test_every_node_is_told_and_none_is_touched(
    kube: KubeClient, cloud: Simulator, apiserver: ApiServer, tmp_path: Path
):
    conf = tmp_path / "cloud.conf"
    conf.write_text(cloud.conf())
    ours = cloud.add_instance("ours")
    moved = node_body("moved", tainted=False)
    moved["metadata"]["annotations"] = {"alpha.kubernetes.io/provided-node-ip": "192.0.2.9"}
    cloud.add_instance("moved", addresses=[{"type": "InternalIP", "address": "10.0.0.7"}])
    bodies = [node_body("ours"), moved, node_body("strange", tainted=False, providerID="k3s://strange")]
    for body in bodies:
        await kube.create(NODES, body)
    status, out, err = await ccm_nodes(apiserver, conf, "--output=json")
    assert status == 0, err
    told = {item["name"]: item for item in json.loads(out)}
    assert {name: item["verdict"] for name, item in told.items()} == {
        "moved": "mismatched",
        "ours": "ok",
        "strange": "foreign",
    }
    assert told["ours"]["instance"] == f"sim://north/{ours.id}"
    assert "192.0.2.9" in told["moved"]["reason"] and "10.0.0.7" in told["moved"]["reason"]

    conf.write_text(cloud.conf().replace("demo-token", "wrong"))
    status, out, err = await ccm_nodes(apiserver, conf)
    assert (status, out) == (1, "") and "the cloud gave no answer" in err
