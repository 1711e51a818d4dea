# SPDX-License-Identifier: Apache-2.0
"""W27: credentials are rotated while the process runs."""

from __future__ import annotations

from pathlib import Path

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, SERVICES, event_messages, eventually, initialised, node_body
from .test_services_and_routes import routes, served, service_body


def replace(file: Path, text: str) -> None:
    """Replace a file atomically, as the kubelet updates a Secret's volume."""
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

    async def works(name: str, number: int) -> None:
        """Check that everything that calls the cloud works: instances, load balancers, routes."""
        cloud.add_instance(name, addresses=[{"type": "InternalIP", "address": f"10.0.0.{number}"}])
        await kube.create(NODES, node_body(name, number=number))
        await kube.create(SERVICES, service_body(f"web-{name}", 8000 + number))
        await eventually(lambda: initialised(kube, name), what=f"{name} initialised")
        await eventually(lambda: served(kube, f"web-{name}"), what=f"web-{name} served")

        async def routed() -> bool:
            return routes(cloud).get(f"10.244.{number}.0/24") == name

        await eventually(routed, what=f"route to {name}")

    await works("before", 1)

    replace(file, cloud.conf(token="not-the-t0ken"))
    await ccm.until_logged("cannot be used; the previous version stays in use")
    await works("kept", 2)
    assert (await ccm.get("/readyz"))[0] == 200

    replace(file, "endpoint: [unclosed")
    await ccm.until_logged("line 1")

    cloud.rotate_token("rotated")
    replace(file, cloud.conf(token="rotated"))
    await ccm.until_logged("the new cloud configuration is in use")
    await works("after", 3)

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
