# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a vCenter, a proxy in front of it, the provider, and the controllers as processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from ccm.cloud import ProviderConfig
from ccm.engine.client import KubeClient
from ccm.providers.vsphere import VSphereCloud
from tests.integration.cluster import ApiServer

from .controllers import Controllers
from .proxy import Proxy
from .vcenter import VCenter

RUNTIME = "[Runtime]\nrequest-timeout = 60s\npage-size = 3\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set long timeouts, because two controllers run one after the other, and a busy machine is slow."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture
def vcenter() -> Iterator[VCenter]:
    found = VCenter()
    yield found
    found.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[str], Awaitable[VSphereCloud]]]:
    clouds: list[VSphereCloud] = []

    async def create(text: str) -> VSphereCloud:
        clouds.append(VSphereCloud(ProviderConfig(text, "vsphere.conf", {})))
        await clouds[-1].start()
        return clouds[-1]

    yield create
    for each in clouds:
        await each.close()


@pytest.fixture
def proxy(vcenter: VCenter, tmp_path: Path) -> Iterator[Proxy]:
    """Yield a proxy in front of the vCenter; the proxy counts and breaks calls."""
    found = Proxy(vcenter.port, tmp_path)
    yield found
    found.close()


@pytest.fixture
def controllers(apiserver: ApiServer, kube: KubeClient, tmp_path: Path) -> Controllers:
    return Controllers(apiserver, kube, tmp_path)
