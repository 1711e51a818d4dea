# SPDX-License-Identifier: Apache-2.0
"""One process leads, and another takes over when it ends; Lease, metrics and health endpoints show which one leads."""

from __future__ import annotations

import asyncio
import datetime
import signal

from ccm.engine.client import KubeClient
from ccm.engine.objects import parse_time
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, Ccm, eventually, expire, get_lease, initialised, node_body

OFTEN = {"leader_elect_retry_period": "500ms"}


async def two(start_ccm: StartCcm, **flags: str) -> tuple[Ccm, Ccm]:
    """Start a leader, and a standby that is ready to take over."""
    leader = start_ccm(**flags)
    await leader.leading()
    standby = start_ccm(**flags)

    async def ready() -> bool:
        try:
            return (await standby.get("/readyz"))[0] == 200
        except OSError:
            return False

    await eventually(ready)
    assert "leading; controllers" not in standby.text
    return leader, standby


async def test_sigterm_hands_over_before_the_lease_ends(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """Upstream waits for the whole lease (W26), which is longer here than this test waits. `make bench` measures the
    time of a hand-over."""
    leader, standby = await two(start_ccm, leader_elect_lease_duration="15m", leader_elect_renew_deadline="10m")
    cloud.add_instance("handover", addresses=[{"type": "InternalIP", "address": "10.0.0.1"}])
    held_by = (await get_lease(kube)).spec.holder_identity
    leader.signal(signal.SIGTERM)
    await standby.leading()
    await kube.create(NODES, node_body("handover"))
    await eventually(lambda: initialised(kube, "handover"))
    assert await leader.wait() == 0
    assert (await get_lease(kube)).spec.holder_identity not in ("", held_by)


async def test_sigkill_hands_over_when_the_lease_ends(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    leader, standby = await two(start_ccm, **OFTEN)
    leader.signal(signal.SIGKILL)
    await leader.wait()
    last = (await get_lease(kube)).spec
    changed = datetime.datetime.now(datetime.UTC)
    await expire(kube, seconds=3)
    await standby.leading()
    now = (await get_lease(kube)).spec
    assert now.holder_identity != last.holder_identity
    # The standby waited until the Lease had expired. test_election.py shows with a fake clock how soon it follows.
    assert parse_time(now.acquire_time) - changed >= datetime.timedelta(seconds=3)


async def test_losing_the_lease_ends_the_process(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    leader = start_ccm(**OFTEN)
    await leader.leading()
    lease = await get_lease(kube)
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease.metadata.name}"
    await kube.patch(path, {"spec": {"holderIdentity": "a-thief"}})
    assert await leader.wait() == 1
    assert "leadership is lost" in leader.text


async def test_the_lease_tells_what_its_holder_does(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    cloud.add_instance("told")
    await start_ccm(controllers="cloud-node", leader_elect_retry_period="500ms").leading()
    await kube.create(NODES, node_body("told"))

    async def told() -> dict[str, str] | None:
        annotations = (await get_lease(kube)).metadata.annotations
        return annotations if "ccm.outoftree.dev/last-cloud-success" in annotations else None

    annotations = await eventually(told)
    assert annotations["ccm.outoftree.dev/cloud-provider"] == "sim"
    assert annotations["ccm.outoftree.dev/controllers"] == "cloud-node-controller"


async def test_health_and_metrics(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, admin_token: str):
    ccm = start_ccm()
    await ccm.leading()

    async def ready() -> bool:
        return (await ccm.get("/readyz"))[0] == 200

    await eventually(ready)
    assert await ccm.get("/healthz") == (200, "ok")
    assert await ccm.get("/livez") == (200, "ok")
    assert "[+]informers ok" in (await ccm.get("/readyz?verbose"))[1]
    assert (await ccm.get("/metrics"))[0] == 403  # as an anonymous user
    assert (await ccm.get("/metrics", "wrong"))[0] == 401
    status, text = await ccm.get("/metrics", admin_token)
    assert status == 200
    assert 'running_managed_controllers{manager="cloud-controller-manager",name="cloud-node"} 1.0' in text
    assert 'leader_election_master_status{name="cloud-controller-manager"} 1.0' in text
    assert "workqueue_depth" in text and "rest_client_requests_total" in text


async def test_a_cloud_that_is_down_at_start_is_waited_for(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    cloud.fault(action="status", status=503)
    ccm = start_ccm()
    await ccm.until_logged("the cloud does not answer")
    status, text = await ccm.get("/readyz")
    assert status == 500 and "[-]cloud failed" in text
    assert (await ccm.get("/livez"))[0] == 200
    cloud.clear_faults()
    await ccm.leading()
    await asyncio.sleep(0)
