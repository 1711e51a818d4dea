# SPDX-License-Identifier: Apache-2.0
"""The whole runtime as processes between a real API server and a simulated cloud that is made to fail."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator, running_simulator

from ..runtime.conftest import StartCcm, admin_token, start_ccm
from .audit import Witness, add_foreign_things

__all__ = ["StartCcm", "admin_token", "start_ccm"]

#: Flags that shorten what usually takes minutes.
FAST = {
    "node_monitor_period": "300ms",
    "node_deletion_min_age": "0s",
    # Churn deletes machines before any listing shows them. Their Nodes count as deletions, but the total, of which the
    # cap is a share, does not include them.
    "node_deletion_cap": "100%",
    "node_deletion_window": "3s",
    "node_status_update_frequency": "5s",
    "route_reconciliation_period": "3s",
}


@pytest.fixture
async def cloud() -> AsyncIterator[Simulator]:
    """Run a cloud that takes a moment for load balancers, with a project that others use, too."""
    config = {
        "projects": [
            {
                "name": "demo",
                "token": "demo-token",
                "region": "north",
                "load_balancer_addresses": "203.0.112.0/22",
            }
        ],
        "timing": {"load_balancer_create": 0.2, "load_balancer_update": 0.1, "load_balancer_delete": 0.1},
        "limits": {"page_size": 100},
    }
    async with running_simulator(config) as simulator:
        add_foreign_things(simulator)
        simulator.advance(1)
        yield simulator


@pytest.fixture
async def witness(kube: KubeClient, cloud: Simulator) -> AsyncIterator[Witness]:
    witness = Witness(kube, cloud)
    async with witness.watching():
        yield witness
