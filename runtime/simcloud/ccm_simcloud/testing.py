# SPDX-License-Identifier: Apache-2.0
"""Runs the simulated cloud inside a test: real HTTP on an ephemeral port of 127.0.0.1, with access to its internals.

async with running_simulator({"projects": [...]}) as cloud:
    provider = SimCloud(ProviderConfig(cloud.conf()))
    cloud.fault(action="status", status=500, match={"operation": "instances.*"})
    assert cloud.calls("instances.list") == 1
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from . import config as configuration
from . import strict
from .fabric import Fabric, decide
from .faults import Rule
from .journal import Entry
from .kernel import MemoryKernel
from .model import Instance, InstanceBody
from .server import Server
from .world import Project


@dataclass
class Simulator:
    """A running simulator. The methods make no HTTP calls and do not appear in the journal."""

    server: Server
    url: str
    kernel: MemoryKernel
    fabric: Fabric

    def project(self, name: str | None = None) -> Project:
        """Return the state and operations of a project; the first one by default."""
        projects = self.server.world.projects
        return projects[name] if name is not None else next(iter(projects.values()))

    def conf(self, project: str | None = None, **more: Any) -> str:
        """Return a cloud.conf for the provider `sim`."""
        chosen = self.project(project)
        values = {"endpoint": self.url, "project": chosen.name, "token": chosen.config.token, **more}
        return msgspec.yaml.encode(values).decode()

    def add_instance(self, name: str, project: str | None = None, **fields: Any) -> Instance:
        """Create an instance; fields as in the API."""
        body = strict.convert({"name": name, **fields}, InstanceBody, "")
        return self.project(project).create_instance(body)

    def add_instances(self, count: int, project: str | None = None, prefix: str = "node-") -> list[Instance]:
        """Create many instances PREFIX0…, in three zones, each with a unique InternalIP 10.x.y.z."""
        with self.server.world.batch():
            return [
                self.add_instance(
                    f"{prefix}{number}",
                    project,
                    type="sim.small",
                    zone=f"north-{'abc'[number % 3]}",
                    addresses=[
                        {"type": "InternalIP", "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}
                    ],
                )
                for number in range(count)
            ]

    def fault(self, **rule: Any) -> str:
        """Activate a fault (fields as in POST /admin/faults). Return its ID."""
        return self.server.faults.add([strict.convert(rule, Rule, "")])[0]

    def clear_faults(self) -> None:
        self.server.faults.clear()

    def calls(self, operation: str = "", **filters: Any) -> int:
        """Return the number of calls of an operation (`instances.list`, `instances.*`)."""
        return len(self.server.journal.select(operation=operation, **filters))

    def journal(self, operation: str = "", **filters: Any) -> list[Entry]:
        return self.server.journal.select(operation=operation, **filters)

    def expire_tokens(self) -> None:
        """Reject all access tokens issued so far; project tokens remain valid."""
        self.server.expire_tokens()

    def rotate_token(self, token: str, project: str | None = None) -> None:
        """Accept only `token` for the project from now on; a running provider is rejected until it gets this token."""
        self.server.rotate_token(self.project(project).name, token)

    def forwards(self, protocol: str, address: str, port: int) -> bool:
        """Return whether a load balancer's port is open (with `fabric`)."""
        return (protocol, address, port) in self.fabric.ports

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change of the cloud's state."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.server.world.subscribe(lambda: None if future.done() else future.set_result(None))
        return future

    def advance(self, seconds: float) -> None:
        """Let time pass in the cloud: load balancers become ready, tokens expire."""
        self.server.world.advance(seconds)


@contextlib.asynccontextmanager
async def running_simulator(
    config: dict[str, Any] | str | None = None, *, state: str | None = None, port: int = 0, fabric: bool = False
) -> AsyncIterator[Simulator]:
    """Run a simulator in this event loop. `config`: data or YAML text as for `--config`; default: one project `demo`.

    `state`: a SQLite file, to be reused after a restart. `port`: 0 selects a free one. `fabric`: load balancers of
    the first project really forward, on addresses of 127.0.0.0/8; routes appear in `Simulator.kernel.route_table`.
    """
    if isinstance(config, str):
        parsed = configuration.parse(config)
    else:
        parsed = configuration.from_data(configuration.DEFAULT if config is None else config)
    server = Server(parsed, state)
    kernel = MemoryKernel()
    network = Fabric(partial(decide, next(iter(server.world.projects.values()))), kernel)
    server.world.subscribe(network.changed)
    runner = web.AppRunner(server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        bound = runner.addresses[0][1]
        if fabric:
            await network.start()
        yield Simulator(server, f"http://127.0.0.1:{bound}", kernel, network)
    finally:
        await network.close()
        await runner.cleanup()
