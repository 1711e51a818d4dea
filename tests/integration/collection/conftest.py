# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the collection's modules against a real kube-apiserver, and against the runtime where Nodes need it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.listening import listening

from ..cluster import ApiServer
from ..runtime.conftest import cloud, start_ccm

__all__ = ["cloud", "start_ccm"]


@pytest.fixture(scope="session")
def kubeconfig(apiserver: ApiServer) -> str:
    return str(apiserver.kubeconfig())


class Interloper:
    """Changes an object at the worst moment: between a module's read and its write, or before a read."""

    def __init__(self) -> None:
        #: Path -> a function that is called once, just before the first PATCH of the path is passed on.
        self.strikes: dict[str, Callable[[], Awaitable[Any]]] = {}
        #: Path -> a function that is called before each GET of the path is passed on.
        self.reads: dict[str, Callable[[], Awaitable[Any]]] = {}
        #: Path -> the HTTP status with which the API server answered each PATCH.
        self.statuses: dict[str, list[int]] = {}
        self.kubeconfig: dict[str, Any] = {}


@pytest.fixture
async def interloper(apiserver: ApiServer) -> AsyncIterator[Interloper]:
    """Run a proxy in front of the API server, with a kubeconfig (as data) for connections through it."""
    between = Interloper()
    trust = ssl.create_default_context(cafile=str(apiserver.ca_file))
    as_admin = {"Authorization": f"Bearer {apiserver.token}"}

    async def pass_on(request: web.Request) -> web.Response:
        body = await request.read()
        if request.method == "PATCH":
            strike = between.strikes.pop(request.path, None)
            if strike is not None:
                await strike()
        elif request.method == "GET" and (look := between.reads.get(request.path)) is not None:
            await look()
        headers = as_admin | ({"Content-Type": request.content_type} if body else {})
        async with session.request(
            request.method, apiserver.url + request.path_qs, data=body or None, headers=headers, ssl=trust
        ) as answer:
            if request.method == "PATCH":
                between.statuses.setdefault(request.path, []).append(answer.status)
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    async with aiohttp.ClientSession() as session, listening(web.route("*", "/{path:.*}", pass_on)) as url:
        between.kubeconfig = kubeconfig_for(url)
        yield between


def kubeconfig_for(server: str, token: str = "") -> dict[str, Any]:
    """Return a kubeconfig as data, the form in which the roles pass on a control plane's admin.conf."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {"token": token} if token else {}}],
    }
