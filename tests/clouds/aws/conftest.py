# SPDX-License-Identifier: Apache-2.0
"""Fixtures: an AWS account in moto, a proxy in front of it, providers that use it, and a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from ccm.cloud import ProviderConfig
from ccm.engine.client import KubeClient
from ccm.providers.aws import AwsCloud
from tests.integration.cluster import ApiServer

from .account import Account, Moto
from .peer import ENVIRONMENT, Two
from .proxy import Proxy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set long time-outs, because moto is slow on a busy machine, and some tests call it a thousand times. Tests with
    the fixture `seen` get more time, because the first of them runs both controllers on all tables.
    """
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(2700 if "seen" in getattr(item, "fixturenames", ()) else 900))


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    found = Moto()
    yield found
    found.stop()


@pytest.fixture
def account(moto: Moto) -> Account:
    moto.reset()
    return Account(moto)


@pytest.fixture
def proxy(moto: Moto) -> Iterator[Proxy]:
    found = Proxy(moto.port)
    yield found
    found.close()


@pytest.fixture
def two(
    apiserver: ApiServer,
    kube: KubeClient,
    account: Account,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Two:
    """Return cloud-provider-aws and our runtime, on an empty account."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return Two(apiserver, account, proxy, tmp_path)


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[ProviderConfig], Awaitable[AwsCloud]]]:
    clouds: list[AwsCloud] = []

    async def create(config: ProviderConfig) -> AwsCloud:
        clouds.append(AwsCloud(config))
        await clouds[-1].start()
        return clouds[-1]

    yield create
    for each in clouds:
        await each.close()
