# SPDX-License-Identifier: Apache-2.0
"""W27: credentials are rotated under a running process."""

from __future__ import annotations

from pathlib import Path

from ccm.engine.client import KubeClient
from ccm.simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, event_messages, eventually, initialised, node_body


def replace(file: Path, text: str) -> None:
    """Atomically, as a Secret's volume is."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


async def test_W27_rotated_credentials_need_no_restart(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, admin_token: str
):
    ccm = start_ccm()
    await ccm.leading()
    [argument] = [argument for argument in ccm.arguments if argument.startswith("--cloud-config=")]
    file = Path(argument.partition("=")[2])

    async def works(name: str) -> None:
        cloud.add_instance(name, addresses=[{"type": "InternalIP", "address": "10.0.0.1"}])
        await kube.create(NODES, node_body(name))
        await eventually(lambda: initialised(kube, name), 30, f"{name} initialised")

    await works("before")

    replace(file, cloud.conf(token="not-the-t0ken"))
    await ccm.until_logged("cannot be used; the former one stays in force")
    await works("kept")
    assert (await ccm.get("/readyz"))[0] == 200

    replace(file, "endpoint: [unclosed")
    await ccm.until_logged("line 1")

    cloud.rotate_token("rotated")
    replace(file, cloud.conf(token="rotated"))
    await ccm.until_logged("is used with the new one from now on")
    await works("after")

    assert ccm.process.poll() is None
    assert "not-the-t0ken" not in ccm.text and "Traceback" not in ccm.text
    metrics = (await ccm.get("/metrics", admin_token))[1]
    assert 'ccm_cloud_config_reloads_total{result="success"} 1.0' in metrics
    assert 'ccm_cloud_config_reloads_total{result="refused"} 1.0' in metrics
    assert 'ccm_cloud_config_reloads_total{result="invalid"} 1.0' in metrics

    async def told() -> bool:
        return bool(await event_messages(kube, "CloudConfigReloaded", "cloud-controller-manager"))

    await eventually(told)
    assert len(await event_messages(kube, "CloudConfigRefused", "cloud-controller-manager")) == 2
