# SPDX-License-Identifier: Apache-2.0
"""A batch of workers starts only when the Nodes of the batch before it are adopted."""

from __future__ import annotations

import pytest

from .test_layouts import HOSTS, Cluster, cluster
from .test_runs import CHANGE, LOOK, WORKER, plays, run, states

pytestmark = pytest.mark.timeout(900)

__all__ = ["cluster"]

ASK = plays("site", "Ask the cloud who will be adopted")


async def test_no_other_batch_begins_while_the_first_one_is_not_adopted(cluster: Cluster):
    """No controller runs here, so nobody initialises the first worker's Node, and the second batch does not start."""
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    for name in ("w-1", "w-2"):
        cluster.add(name, WORKER, initialized=False)
    before = cluster.machines["w-2"].files()
    told = await run(cluster, LOOK + ASK + CHANGE, ccm_install_worker_serial=1, ccm_install_adopt_timeout=1)
    assert told.status != 0 and "Traceback" not in told.output
    assert "The Nodes could not be compared with the cloud: the runtime is not installed yet" in told.output
    assert any("did not initialise Node w-1 within 1 s" in message for message in told.failures), told.failures
    assert states(cluster) == {"kubeadm-cp": "not begun", "w-1": "changed", "w-2": "not begun"}
    assert cluster.machines["w-2"].files() == before
