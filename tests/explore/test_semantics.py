# SPDX-License-Identifier: Apache-2.0
"""The API servers in memory pass the checks of `semantics`. `tests/integration/engine` runs them on a real one."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from ccm.engine.api_credentials import Access
from ccm.engine.client import KubeClient
from tests.kube_in_memory import KubeInMemory

from .process import use
from .semantics import OBJECTS, SUITE, a_watch_from_a_forgotten_version_is_told_so
from .simulation import Simulation
from .virtual_time import virtual_time
from .workloads import Workload


@contextlib.contextmanager
def cluster():
    """Yield the loop, the store, and a client of an empty cluster."""
    with virtual_time() as loop:
        simulation = Simulation(loop, Workload("none", ()), (), 0)
        client = KubeClient(Access(server="http://api"))
        process = SimpleNamespace(alive=True, name="suite", elector=None, first_list_right={}, sessions=[])
        use(client, simulation.api, process)
        yield loop, simulation.store, client


@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
def test_as_a_real_api_server(check):
    with cluster() as (loop, _, client):
        loop.run_until_complete(check(client, "suite"))


@pytest.mark.parametrize("check", OBJECTS, ids=lambda check: check.__name__)
def test_in_memory_as_a_real_api_server(check):
    kube = KubeInMemory()
    kube.latency = 0.0
    asyncio.run(check(kube, "suite"))  # type: ignore[arg-type]


def test_a_watch_from_a_forgotten_version():
    with cluster() as (loop, store, client):
        version = str(store.version)
        store.compact()
        loop.run_until_complete(a_watch_from_a_forgotten_version_is_told_so(client, version))
