# SPDX-License-Identifier: Apache-2.0
"""The explorer's API server does what a real one does; `tests/integration/engine/test_semantics.py` is the other half."""

from types import SimpleNamespace

import pytest

from ccm.engine.auth import Access
from ccm.engine.client import KubeClient

from .api_server import Session
from .semantics import SUITE
from .simulation import Simulation
from .virtual_time import virtual_time
from .workloads import Workload


@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
def test_as_a_real_api_server(check):
    with virtual_time() as loop:
        simulation = Simulation(loop, Workload("none", ()), (), 0)
        simulation.store.compact()
        client = KubeClient(Access(server="http://api"))
        client._session = Session(
            simulation.api, SimpleNamespace(alive=True, name="suite", elector=None, first_list_right={})
        )
        loop.run_until_complete(check(client, "suite"))
