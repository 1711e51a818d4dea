# SPDX-License-Identifier: Apache-2.0
"""A real API server does what the explorer's does; `tests/explore/test_semantics.py` is the other half."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from ccm.engine.client import KubeClient
from tests.explore.semantics import SERVICES, SUITE, Check, a_watch_from_a_forgotten_version_is_told_so, service

from ..cluster import ApiServer


@pytest.fixture
def name() -> str:
    return f"same-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
async def test_as_the_explorers_api_server(kube: KubeClient, name: str, check: Check) -> None:
    await check(kube, name)


async def test_a_watch_from_a_forgotten_version(kube: KubeClient, apiserver: ApiServer, name: str) -> None:
    created = await kube.create(SERVICES, service(name))
    await kube.patch(f"{SERVICES}/{name}", {"metadata": {"labels": {"a": "1"}}})
    await asyncio.to_thread(apiserver.compact)
    await asyncio.to_thread(apiserver.stop)
    await asyncio.to_thread(apiserver.start)
    await a_watch_from_a_forgotten_version_is_told_so(kube, created.resource_version)
