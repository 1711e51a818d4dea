# SPDX-License-Identifier: Apache-2.0
"""A cloud that fails in every way there is, while Nodes and Services come and go: in the end all is as it should be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm.simcloud.testing import Simulator

from .audit import Witness, passes
from .churn import Churn
from .conftest import FAST, StartCcm

#: How long the cloud fails, in seconds: some passes of every controller.
FAILING = 4.0

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
    ccm = start_ccm(conf=cloud.conf(timeout=0.8), **FAST)
    await ccm.leading()
    churn = Churn(kube, cloud, witness, seed=1, nodes=10, services=6)
    await churn.begin()
    changes = asyncio.create_task(churn.run(per_second=10))
    await asyncio.sleep(1)
    ids = [cloud.fault(**rule) for rule in fault]
    await asyncio.sleep(FAILING)
    changes.cancel()
    await asyncio.gather(changes, return_exceptions=True)
    hits = sum(cloud.server.faults.active[id_].hits for id_ in ids)
    cloud.clear_faults()
    await churn.rest()
    await passes(kube, cloud, witness)
    assert hits > 0, "the fault did happen"
    assert ccm.process.poll() is None
