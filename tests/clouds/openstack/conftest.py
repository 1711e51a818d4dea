# SPDX-License-Identifier: Apache-2.0
"""The tests of this folder need the OpenStack services of `make openstack` (the rig). They share one project there,
which is removed at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud import ProviderConfig
from ccm.engine.client import KubeClient
from ccm.providers.openstack import OpenStackCloud
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import CLUSTER_CIDR, PATIENT, Ccm
from tests.ports import free_port

from .customer import DATA, Site

StartCcm = Callable[..., Ccm]
Provider = Callable[..., AbstractAsyncContextManager[OpenStackCloud]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore::PendingDeprecationWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set long timeouts, because real services are slow, and even slower on a busy machine."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Yield a project with a network, a router, and servers node-0 to node-2, each in its own zone."""
    if not (DATA / "world.json").exists():
        pytest.fail("the OpenStack services are not there: run `make openstack`", pytrace=False)
    made = Site()
    made.rig.reset()
    try:
        made.servers = made.boot_all({f"node-{n}": zone for n, zone in enumerate(("zone-a", "zone-b", "zone-c"))})
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """Before and after each test that uses the site, forget calls and faults. Before it, also let changes of load
    balancers take only 0.1 s again. What a test creates stays."""
    if "site" not in request.fixturenames:
        yield
        return
    site = request.getfixturevalue("site")
    site.rig.reset()
    site.rig.load_balancers(0.1)
    yield
    site.rig.reset()


@pytest.fixture
def provider(site: Site) -> Provider:
    """Start the provider in this process; keyword arguments change cloud.conf as in `Site.conf`."""

    @asynccontextmanager
    async def start(**changed: Any) -> AsyncIterator[OpenStackCloud]:
        cloud = OpenStackCloud(ProviderConfig(site.conf(**changed), "cloud.conf"))
        await cloud.start()
        try:
            yield cloud
        finally:
            await cloud.close()

    return start


@pytest.fixture
async def start_ccm(apiserver: ApiServer, site: Site, kube: KubeClient, tmp_path: Path) -> AsyncIterator[StartCcm]:
    """Start `ccm` processes; all are stopped at the end. Keyword arguments become flags.

    Load balancers are removed after that, because a running process would create them again for existing Services.
    """
    started: list[Ccm] = []

    def start(*, conf: str | None = None, **flags: Any) -> Ccm:
        started.append(run_ccm(apiserver, site, tmp_path, conf=conf, **flags))
        return started[-1]

    yield start
    for process in started:
        await process.stop()
        print(process.text)  # pytest shows it if the test fails
    await asyncio.to_thread(site.clean_balancers)


def run_ccm(apiserver: ApiServer, site: Site, folder: Path, *, conf: str | None = None, **flags: Any) -> Ccm:
    """Start one `ccm` process, which the caller must stop. Its files are in `folder`."""
    port = free_port()
    config = folder / f"cloud-{port}.conf"
    config.write_text(site.conf() if conf is None else conf)
    values: dict[str, Any] = {
        "cloud-provider": "openstack",
        "cloud-config": config,
        "kubeconfig": apiserver.kubeconfig(),
        "cluster-name": site.name,
        "cluster-cidr": CLUSTER_CIDR,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        **PATIENT,
    } | {name.replace("_", "-"): value for name, value in flags.items()}
    return Ccm([f"--{name}={value}" for name, value in values.items()], folder / f"ccm-{port}.log", port)
