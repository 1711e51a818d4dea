# SPDX-License-Identifier: Apache-2.0
"""Hooks for all tests: the results contain each test's cost, and a test in quarantine cannot fail a run.

Fixtures: a real API server, and a client of it.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests import processor, quarantine

if TYPE_CHECKING:  # not imported at run time: unit tests start faster
    from ccm.engine.client import KubeClient
    from tests.integration.cluster import ApiServer

_begun: pytest.StashKey[float] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis give the same examples each time, without its deadline of 200 ms of the wall clock."""
    if config.pluginmanager.has_plugin("hypothesispytest"):
        from hypothesis import settings

        settings.load_profile("ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    entries = quarantine.parse(quarantine.LIST.read_text().splitlines())
    again = config.getoption("reruns", None)  # the mark costs a question to the main process for each test
    for item in items:
        if again and not _may_be_late(item):
            item.add_marker(pytest.mark.flaky(reruns=0))
        entry = quarantine.entry_of(item.nodeid, entries)
        if entry is not None:
            item.add_marker(pytest.mark.xfail(reason=f"in quarantine since {entry.since}: {entry.why}", strict=False))
            item.user_properties.append(("quarantine", str(entry.since)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """In a worker, freeze tests and modules, so that the garbage collector need not traverse them each time."""
    if hasattr(session.config, "workerinput"):  # the worker of the mutation tests looks for functions first
        gc.collect()
        gc.freeze()


def _may_be_late(item: pytest.Item) -> bool:
    """Return whether the test gets a second try: tests with real servers do, but not those about secrets and
    threats."""
    with_servers = item.nodeid.startswith(("tests/integration/", "tests/clouds/"))
    return with_servers and "/secrecy/" not in item.nodeid and item.get_closest_marker("threat") is None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_begun] = processor.used()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Add the test's cost at its teardown, because JUnit XML has the properties of a test's last report."""
    if call.when == "teardown" and _begun in item.stash:
        others = [(name, value) for name, value in item.user_properties if name != "cpu"]
        cost = max(0.0, processor.used() - item.stash[_begun])
        item.user_properties[:] = [*others, ("cpu", f"{cost:.3f}")]


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Restore the handlers of signals after each test: a program that a later test starts inherits an ignored signal.

    The product may leave signals ignored in the last code of a process, such as the cleanup of a module.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Start etcd and kube-apiserver for the whole session: tests use their own names, and leave the servers running."""
    from tests.integration.cluster import ApiServer, MissingBinaries

    try:
        server = ApiServer(tmp_path_factory.mktemp("apiserver"))
    except MissingBinaries as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.close()


@pytest.fixture
async def kube(apiserver: ApiServer) -> AsyncIterator[KubeClient]:
    """Yield a patient client with all rights. Each test has its own, because the client belongs to the test's event
    loop. At the end, remove what the next test would read, because the tests share the API server."""
    from tests.integration.cluster import remove_objects
    from tests.patient import PatientClient

    client = PatientClient.from_config(kubeconfig=str(apiserver.kubeconfig()))
    yield client
    await remove_objects(client)
    await client.close()
