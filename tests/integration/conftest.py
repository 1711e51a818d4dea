# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the integration tests: a real API server, and a client to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from ccm.engine.client import KubeClient

from .cluster import ApiServer, MissingBinaries

#: Files that take more than a minute, the longest first. They start first, so that files side by side end together.
LONGEST = (
    "test_chaos",
    "test_soak",
    "test_layouts",
    "test_runs",
    "test_services_and_routes",
    "test_lifecycle",
    "test_api_server",
    "test_mutants",
    "test_taking_over",
    "test_examples",
    "test_cloud",
    "test_wrong_api_server",
)

#: Stories of many plays: each takes a minute of a processor, or more. `make test` leaves them to CI (`make test-ci`).
MARKED_LONG = (
    "test_bad_files",
    "test_journal_copies",
    "test_a_worker_that_fails_takes_its_batch_along_and_that_is_said_once",
    "test_a_worker_that_may_fail_does_not_keep_the_others_from_being_done",
    "test_fifty_workers_are_followed_by_a_person",
    "test_one_worker_more_that_fails_than_may_ends_the_run",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long, and sort the files."""
    for item in items:
        if any(name in item.nodeid for name in MARKED_LONG):
            item.add_marker(pytest.mark.long)
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


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
