# SPDX-License-Identifier: Apache-2.0
"""Nodes and Services come and go while the cloud fails, lags or is large; finally the state is right."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm.engine.objects import Node
from ccm_simcloud.testing import Simulator

from ..runtime.support import NODES, Ccm, eventually, get_node
from .audit import Witness, passes
from .churn import Churn
from .conftest import FAST, StartCcm

#: Numbers of changes before and while the cloud fails: enough for some passes of every controller.
BEFORE, FAILING = 10, 40

FAULTS: dict[str, list[dict[str, Any]]] = {
    "5xx": [
        {"action": "status", "status": 500, "probability": 0.2},
        {"action": "status", "status": 503, "probability": 0.2},
    ],
    "5xx-with-retry-after": [{"action": "status", "status": 503, "retry_after": 0.5, "probability": 0.4}],
    "error-pages-of-a-proxy": [{"action": "status", "status": 502, "body": "html", "probability": 0.4}],
    "404-pages-of-a-proxy": [{"action": "status", "status": 404, "body": "html", "probability": 0.4}],
    "time-outs": [{"action": "timeout", "seconds": 2.0, "probability": 0.3}],
    "half-open": [{"action": "timeout", "probability": 0.3}],
    "slow": [{"action": "delay", "seconds": 0.4}],
    "truncated": [{"action": "truncate", "probability": 0.4}],
    "short-listings": [{"action": "short_list", "probability": 0.5}],
    "no-instances-listed": [{"action": "empty_list", "probability": 0.5, "match": {"operation": "instances.*"}}],
    "nothing-listed": [{"action": "empty_list", "probability": 0.3}],
    "429-with-retry-after": [{"action": "rate_limit", "per_second": 5, "retry_after": 0.3}],
    "429-without": [{"action": "status", "status": 429, "code": "rate_limited", "probability": 0.3}],
    "hang-ups": [{"action": "hang_up", "probability": 0.3}],
    "answers-lost": [{"action": "hang_up", "after_effect": True, "probability": 0.4}],
    "answers-late": [{"action": "timeout", "seconds": 2.0, "after_effect": True, "probability": 0.3}],
    "provisioning-fails": [{"action": "provision_error", "probability": 0.3}],
    "refused": [{"action": "status", "status": 403, "code": "forbidden", "probability": 0.4}],
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_in_the_end_all_is_right_after(
    fault: list[dict[str, Any]], kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    # Only late answers must run into the timeout. With the other faults, a busy machine may need seconds for an answer.
    seconds = 0.8 if fault[0]["action"] == "timeout" else 60
    ccm = start_ccm(conf=cloud.conf(request_timeout=seconds), **FAST)
    await ccm.leading()
    churn = Churn(kube, cloud, witness, seed=1, nodes=10, services=6)
    await churn.begin()
    await churn.changes(BEFORE)
    ids = [cloud.fault(**rule) for rule in fault]
    await churn.changes(FAILING)

    async def happened() -> bool:
        await churn.changes(1)
        return any(cloud.server.faults.active[id_].hits for id_ in ids)

    await eventually(happened)
    cloud.clear_faults()
    await churn.rest()
    await passes(kube, cloud, witness)
    assert ccm.process.poll() is None


async def test_a_listing_that_is_behind_leaks_nothing(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    """An eventually consistent cloud may not yet list a new object, so there seems to be nothing to delete. The
    provider declares this with `listing_lag`."""
    await start_ccm(conf=cloud.conf(listing_lag=4), **FAST).leading()
    churn = Churn(kube, cloud, witness, seed=8, nodes=8, services=6)
    await churn.begin()
    fault = cloud.fault(action="stale", seconds=2.0)
    await churn.changes(50)
    assert cloud.server.faults.active[fault].hits > 0
    cloud.clear_faults()
    await churn.rest()
    await passes(kube, cloud, witness)


async def test_a_cloud_that_lists_nothing_while_services_go_leaks_nothing(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    """The cloud lists no load balancers, and later lists them again: those of Services deleted meanwhile are
    deleted."""
    await start_ccm(**FAST).leading()
    churn = Churn(kube, cloud, witness, seed=9, nodes=2, services=6)
    await churn.begin()
    await passes(kube, cloud, witness)
    fault = cloud.fault(action="empty_list", match={"operation": "load_balancers.list"})
    await churn.delete_service()
    await churn.delete_service()

    async def was_told_nothing() -> bool:
        return cloud.server.faults.active[fault].hits >= 2

    await eventually(was_told_nothing)
    cloud.clear_faults()
    await passes(kube, cloud, witness)
    assert len(cloud.project().load_balancers.ids) == 4 + 2, "of the cluster, and of others"


async def test_tokens_that_expire_are_renewed_once_each(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    await start_ccm(**FAST).leading()
    churn = Churn(kube, cloud, witness, seed=5, nodes=8, services=4)
    await churn.begin()
    before = cloud.calls("tokens.create")
    for _ in range(5):
        cloud.expire_tokens()
        await churn.changes(6)
    await churn.rest()
    await passes(kube, cloud, witness)
    assert 3 <= cloud.calls("tokens.create") - before <= 5


async def test_an_instance_made_again_under_its_name_is_another_one(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    """The old instance's Node is deleted; the new one's Node gets the new providerID, address, route and targets."""
    await start_ccm(**FAST).leading()
    churn = Churn(kube, cloud, witness, seed=6, nodes=16, services=3)
    await churn.begin()
    await passes(kube, cloud, witness)
    first = {name: await get_node(kube, name) for name in sorted(witness.present())}
    for _ in range(12):
        await churn.replace_instance()
    await eventually(lambda: only_ready_ones(kube))
    for _ in range(12):
        await churn.add_node()
        await asyncio.sleep(0.05)
    await churn.rest()
    await passes(kube, cloud, witness)
    again = {name: await get_node(kube, name) for name in sorted(witness.present())}
    renewed = [name for name, node in again.items() if node is not None and first[name] is not None]
    changed = [name for name in renewed if again[name].spec.provider_id != first[name].spec.provider_id]
    assert len(witness.deleted) >= 3 and sorted(changed) == sorted(set(witness.deleted))


async def only_ready_ones(kube: KubeClient) -> bool:
    """Return whether every Node that is not Ready has been deleted."""
    nodes, _ = await kube.list(NODES, Node)
    return not [
        node
        for node in nodes
        if not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    ]


async def test_ten_thousand_instances_of_others_cost_pages_not_memory(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    """Our cluster has 12 of more than 10,000 instances in the account. The simulator gives at most 100 in a page
    (conftest), so a listing has 101 pages. It does not stay in memory."""
    ccm = start_ccm(conf=cloud.conf(page_size=1000, calls_per_second=100, burst=200), **FAST)
    await ccm.leading()
    churn = Churn(kube, cloud, witness, seed=7, nodes=12, services=3)
    await churn.begin()
    await passes(kube, cloud, witness)
    before = resident(ccm)
    cloud.add_instances(10_000, prefix="theirs-")
    since = cloud.server.journal.sequence
    await churn.changes(20, per_second=5)
    await churn.rest()
    await passes(kube, cloud, witness)
    pages = cloud.calls("instances.list", since=since)
    assert pages >= 100, "there was at least one listing of all"
    assert resident(ccm) - before < 60, "MiB"
    assert not [name for name in witness.present() if name.startswith("theirs-")]


def resident(ccm: Ccm) -> float:
    """Return the resident memory of the process, in MiB."""
    status = Path(f"/proc/{ccm.process.pid}/status").read_text()
    return float(status.partition("VmRSS:")[2].split()[0]) / 1024
