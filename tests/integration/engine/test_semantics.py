# SPDX-License-Identifier: Apache-2.0
"""A real API server passes the same checks as the explorer's API server (`tests/explore/test_semantics.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator

import pytest

from ccm.engine.client import KubeClient, NotFoundError
from ccm.engine.objects import PartialObject
from tests.explore.semantics import (
    LEASES,
    NODES,
    SERVICES,
    SUITE,
    Check,
    a_watch_from_a_forgotten_version_is_told_so,
    service,
)

from ..cluster import ApiServer


@pytest.fixture
async def name(kube: KubeClient) -> AsyncIterator[str]:
    """Yield a name for the objects of one test. They are removed at the end: other tests read all Nodes and
    Services."""
    name = f"same-{uuid.uuid4().hex[:8]}"
    yield name
    for path in (SERVICES, NODES, LEASES):
        for found in (await kube.list(path, PartialObject))[0]:
            if found.metadata.name.startswith(name):
                await kube.patch(f"{path}/{found.metadata.name}", {"metadata": {"finalizers": None}})
                with contextlib.suppress(NotFoundError):
                    await kube.delete(f"{path}/{found.metadata.name}")


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
