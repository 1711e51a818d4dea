# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the integration tests: a real API server, and a client to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from ccm.engine.client import KubeClient

from .cluster import ApiServer, MissingBinaries


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest starts first, so that files side by side end together."""
    items.sort(key=lambda item: "test_chaos" not in item.nodeid)


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """etcd and kube-apiserver, shared by the session: tests use names of their own and leave it running."""
    try:
        server = ApiServer(tmp_path_factory.mktemp("apiserver"))
    except MissingBinaries as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.close()


@pytest.fixture
async def kube(apiserver: ApiServer) -> AsyncIterator[KubeClient]:
    """A client with all rights. One for each test, as it belongs to the test's event loop."""
    client = KubeClient.from_config(kubeconfig=str(apiserver.kubeconfig()))
    yield client
    await client.close()
