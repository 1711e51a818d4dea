# SPDX-License-Identifier: Apache-2.0
"""The Hetzner-shaped cloud as the conformance kit's world, and a provider that runs on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from ccm.cloud import ProviderConfig
from ccm.conformance import Listener, Subject, Trouble, World
from ccm.providers.hetzner import HetznerCloud
from tests.kit import PATIENT

from .face import TOKEN, Face, Fault, running
from .project import Project

#: Rows in a page of a listing, so that there are several pages.
PAGE = 3
FAULTS: dict[Trouble, dict[str, Any]] = {
    Trouble.SERVER_ERROR: {"kind": "status", "status": 503, "code": "service_error"},
    Trouble.PROXY_PAGE: {"kind": "html", "status": 404},
    Trouble.CUT_ANSWER: {"kind": "truncate"},
    Trouble.SHORT_LISTING: {"kind": "half", "path": "/servers"},
    Trouble.LATER_PAGE: {"kind": "status", "status": 503, "later": True},
    Trouble.HANG: {"kind": "hang"},
    Trouble.UNAUTHORIZED: {"kind": "status", "status": 401, "code": "unauthorized"},
    Trouble.RATE_LIMITED: {
        "kind": "status",
        "status": 429,
        "code": "rate_limit_exceeded",
        "headers": {"RateLimit-In": str(World.RETRY_AFTER)},
    },
    Trouble.LOST_ANSWER: {"kind": "drop", "method": "POST", "path": "/load_balancers", "late": True, "times": 1},
    Trouble.REFUSED: {"kind": "status", "status": 412, "code": "odd", "method": "POST", "path": "/load_balancers"},
    Trouble.HALF_MADE: {"kind": "status", "method": "POST", "path": "/load_balancers", "late": True, "times": 1},
}


class HetznerWorld(World):
    load_balancers_in_a_page = PAGE

    def __init__(self, face: Face) -> None:
        self._face, self._project = face, face.project

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        project, took = self._project, self._project.action_seconds
        if kind is Trouble.SLOW_LOAD_BALANCERS:
            project.action_seconds = 60.0
            try:
                yield
            finally:
                project.action_seconds = took
                project.end_actions()
            return
        with self._face.fault(Fault(**FAULTS[kind])):
            yield
        if kind is Trouble.HALF_MADE:  # the cloud failed before all parts were created
            for row in project.load_balancers.values():
                row["services"], row["targets"] = row["services"][:0], row["targets"][:1]

    async def create_instance(self, name: str) -> None:
        self._project.add_server(name, network=next(iter(self._project.networks.values())), labels={"a": "b"})

    async def delete_instance(self, provider_id: str) -> None:
        self._project.delete_server(int(provider_id.rpartition("/")[2]))

    async def stop_instance(self, provider_id: str) -> None:
        self._project.servers[int(provider_id.rpartition("/")[2])]["status"] = "off"

    async def untag_instance(self, provider_id: str) -> None:
        self._project.servers[int(provider_id.rpartition("/")[2])]["labels"] = {}

    async def break_load_balancer(self, name: str) -> None:
        """Make a load balancer's last action fail, and remove its targets, which the action should have added."""
        row = self._named(name)
        self._project.fail_last("load_balancer", row["id"])
        row["targets"] = []

    async def load_balancer_parts(self) -> frozenset[str]:
        return frozenset(map(str, (*self._project.load_balancers, *self._project.certificates)))

    async def load_balancer_listeners(self, name: str) -> tuple[Listener, ...]:
        row = self._named(name)
        found = []
        for each in row["services"]:
            to, check = each["destination_port"], each["health_check"]["port"]
            targets = frozenset((address, to) for address in self._project.target_addresses(row))
            found.append(Listener(each["listen_port"], "TCP", targets, health_check_port=check if check != to else 0))
        return tuple(found)

    def _named(self, name: str) -> Any:
        return next(row for row in self._project.load_balancers.values() if row["name"] == name)


def config(face: Face, **variables: str) -> ProviderConfig:
    """Return the configuration, with variables in the environment and the token in a file."""
    given = {
        "HCLOUD_ENDPOINT": face.url,
        "HCLOUD_NETWORK": "kube",
        "HCLOUD_LOAD_BALANCERS_LOCATION": "fsn1",
        "HCLOUD_CALLS_PER_SECOND": "10000",
        "HCLOUD_BURST": "1000",
        "HCLOUD_REQUEST_TIMEOUT": f"{PATIENT}s",
    } | variables
    return ProviderConfig(
        f"HCLOUD_TOKEN={TOKEN}\n", "hetzner.env", {name: text for name, text in given.items() if text}
    )


@contextlib.asynccontextmanager
async def hetzner(
    servers: int = 5, *, action_seconds: float = 0.05, page_limit: int = 50, **variables: str
) -> AsyncIterator[tuple[Face, HetznerCloud]]:
    """Yield a cloud with servers worker-0, worker-1, ... in the network kube, and a provider that was started on it."""
    project = Project(action_seconds=action_seconds, page_limit=page_limit)
    network = project.add_network()
    for number in range(servers):
        project.add_server(f"worker-{number}", network=network, location=("fsn1", "nbg1")[number % 2])
    async with running(project) as face:
        cloud = HetznerCloud(config(face, **variables))
        try:
            await cloud.start()
            yield face, cloud
        finally:
            await cloud.close()


@contextlib.asynccontextmanager
async def subject() -> AsyncIterator[Subject]:
    """Yield the conformance kit's subject: the provider, its configuration, and a world that can break its cloud."""
    async with hetzner(page_limit=PAGE) as (face, _):
        yield Subject("hetzner", HetznerCloud, config(face), allow_writes=True, world=HetznerWorld(face))
