# SPDX-License-Identifier: Apache-2.0
"""Flags and annotations that contradict each other, or ask for what the cloud does not have, are refused or told."""

from __future__ import annotations

from ccm.controllers.services.keep_rules import KEEP, PROTECT, TAKE_BACK
from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import SERVICES, event_messages, eventually
from .test_services_and_routes import balancers, served, service_body

MISSPELLED = KEEP.replace("deletion", "deletoin")
REFUSED = {
    "keeps-the-address": ({KEEP: "address"}, f"{KEEP}: this cloud cannot keep 'address', it can keep only"),
    "keeps-what": ({KEEP: "true"}, f"{KEEP}: 'true' is not one of"),
    "protects-whom": ({PROTECT: "yes"}, f"{PROTECT}: 'yes' is not true or false"),
    "takes-what-nobody-kept": ({TAKE_BACK: "nowhere"}, "nowhere"),
}


async def test_what_cannot_be_followed_is_never_ignored(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    flags = {"fence_dead_nodes": "true", "node_deletion_cap": "0%"}
    flags |= {"delete_orphaned_load_balancers": "true", "orphan_audit_period": "0"}
    process = start_ccm(**flags)
    await process.leading()
    await process.until_logged("--fence-dead-nodes has no effect: --node-deletion-cap=0% allows none")
    await process.until_logged("--delete-orphaned-load-balancers has no effect: --orphan-audit-period=0")

    for name, (refused, _) in REFUSED.items():
        body = service_body(name)
        body["metadata"]["annotations"] = refused
        await kube.create(SERVICES, body)
    for name, (_, message) in REFUSED.items():
        events = await eventually(lambda name=name: event_messages(kube, "SyncLoadBalancerFailed", name))  # type: ignore[misc]
        assert message in events[0]
    assert balancers(cloud) == []

    body = service_body("misspelled")
    body["metadata"]["annotations"] = {MISSPELLED: "load-balancer"}
    await kube.create(SERVICES, body)
    events = await eventually(lambda: event_messages(kube, "LoadBalancerWarning", "misspelled"))
    assert f"annotation {MISSPELLED} has no effect; did you mean {KEEP}?" in events[0]
    await eventually(lambda: served(kube, "misspelled"))

    for name, (refused, _) in REFUSED.items():
        await kube.patch(f"{SERVICES}/{name}", {"metadata": {"annotations": dict.fromkeys(refused)}})
    for name in REFUSED:
        await eventually(lambda name=name: served(kube, name))  # type: ignore[misc]
