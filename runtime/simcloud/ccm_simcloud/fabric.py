# SPDX-License-Identifier: Apache-2.0
"""The simulator as the network of its cloud: VPC routes in the kernel of this container, forwarding load balancers.

`decide` computes the desired network from the state of a project, purely. `Fabric` applies this network after each
change, and again after a failure; it knows nothing of projects.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Callable
from dataclasses import dataclass

from . import forward
from .forward import Listener, Rules
from .kernel import Kernel, KernelError
from .pass_through import Switch
from .world import Project

log = logging.getLogger("ccm_simcloud")

#: Seconds until a failed operation is retried.
RETRY = 2.0

#: (protocol, address, port)
Key = tuple[str, str, int]


@dataclass(frozen=True)
class Wanted:
    """The desired network. `routes`: destination -> gateway. `addresses`: of load balancers in mode proxy, without
    loopback. `ports`: (protocol, address, port) -> its rules. `passed`: addresses of load balancers in mode
    pass-through."""

    routes: dict[str, str]
    addresses: frozenset[str]
    ports: dict[Key, Rules]
    passed: frozenset[str] = frozenset()


def decide(project: Project) -> Wanted:
    """Return the desired network of a project. Omits blackholes and routes to instances without an address of that
    family."""
    routes = {}
    for route in project.routes.rows.values():
        instance = project.instances.rows.get(route.instance_id)
        gateway = instance.gateway_to(route.destination) if instance is not None else None
        if gateway:
            routes[route.destination] = gateway
    serving = [row for row in project.load_balancers.rows.values() if row.state in ("active", "updating")]
    ports: dict[Key, Rules] = {}
    for row in serving:
        for port in row.ports:
            ports[port.protocol, row.ip, port.port] = Rules(
                tuple((target.address, port.node_port) for target in row.targets),
                row.source_ranges,
                row.session_affinity == "ClientIP",
                row.health_check.node_port if row.health_check else None,
                row.mode == "pass-through",
                frozenset(target.address for target in row.targets if target.draining),
            )
    passed = frozenset(row.ip for row in serving if row.mode == "pass-through")
    addresses = frozenset(row.ip for row in serving if not ipaddress.ip_address(row.ip).is_loopback)
    return Wanted(routes, addresses - passed, ports, passed)


class Fabric:
    """Keeps the desired network: `start` applies it, and `changed` applies it again, until `close`."""

    def __init__(self, wanted: Callable[[], Wanted], kernel: Kernel) -> None:
        self._wanted, self._kernel = wanted, kernel
        self._listeners: dict[Key, Listener] = {}
        self._switch = Switch()
        self._said: set[str] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Call this when the desired network may have changed."""
        self._changed.set()

    @property
    def ports(self) -> set[Key]:
        """The ports that are open."""
        return set(self._listeners)

    @property
    def listeners(self) -> list[Listener]:
        """What serves the open ports, with the health of the backends."""
        return list(self._listeners.values())

    async def start(self) -> None:
        """Apply the desired network, and follow its changes. Raises KernelError if the kernel refuses."""
        await self._kernel.open()
        await self.apply()
        self._task = asyncio.create_task(self._follow(), name="simcloud: fabric")

    async def close(self) -> None:
        """Stop forwarding. Routes to instances and addresses of proxies remain, because a restart reuses them, and they
        end with the container."""
        if self._task is not None:
            await forward.end_tasks([self._task])
        for listener in self._listeners.values():
            await listener.close()
        self._listeners.clear()
        await self._kernel.close()

    async def _follow(self) -> None:
        done = True
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if done else RETRY):
                    await self._changed.wait()
            self._changed.clear()
            done = await self.apply()

    async def apply(self) -> bool:
        """Apply the desired network. Return False if a part failed, which does not affect other parts."""
        wanted, problems = self._wanted(), []
        steps = [self._apply_routes, self._apply_addresses, self._apply_ports, self._apply_passed]
        for step in steps:
            try:
                problems += await step(wanted)
            except Exception as error:
                log.exception("fabric")
                problems.append(f"{type(error).__name__}: {error}")
        for problem in problems:
            if problem not in self._said:
                log.error("%s; retrying every %g s", problem, RETRY)
        self._said = set(problems)
        return not problems

    async def _apply_routes(self, wanted: Wanted) -> list[str]:
        problems = []
        present = await self._kernel.routes()
        for destination in present.keys() - wanted.routes.keys():
            try:
                await self._kernel.remove_route(destination)
                log.info("removed route %s", destination)
            except KernelError as error:
                problems.append(str(error))
        for destination, gateway in wanted.routes.items():
            if present.get(destination) != gateway:
                try:
                    await self._kernel.set_route(destination, gateway)
                    log.info("set route %s via %s", destination, gateway)
                except KernelError as error:
                    problems.append(str(error))
        return problems

    async def _apply_addresses(self, wanted: Wanted) -> list[str]:
        """Add and remove addresses; return what failed. An address that is no longer needed is removed after its ports
        are closed."""
        problems = []
        present = await self._kernel.addresses()
        for address in wanted.addresses - present:
            try:
                await self._kernel.add_address(address)
            except KernelError as error:
                problems.append(str(error))
        for address in present - wanted.addresses:
            for key in [key for key in self._listeners if key[1] == address]:
                await self._close_port(key)
            try:
                await self._kernel.remove_address(address)
            except KernelError as error:
                problems.append(str(error))
        return problems

    async def _apply_ports(self, wanted: Wanted) -> list[str]:
        problems = []
        for key in self._listeners.keys() - wanted.ports.keys():
            await self._close_port(key)
        for key, rules in wanted.ports.items():
            protocol, address, port = key
            if key in self._listeners:
                if self._listeners[key].pool.rules != rules:
                    self._listeners[key].update(rules)
                continue
            try:
                self._listeners[key] = (
                    self._switch.listen(key, rules)
                    if rules.passes
                    else await forward.listen(protocol, address, port, rules)
                )
                log.info("forwarding %s %s:%d", protocol, address, port)
            except OSError as error:
                problems.append(f"cannot open {protocol} {address}:{port}: {forward.explain(error)}")
        return problems

    async def _apply_passed(self, wanted: Wanted) -> list[str]:
        try:
            await self._kernel.divert(wanted.passed, self._switch.target)
        except KernelError as error:
            return [str(error)]
        return []

    async def _close_port(self, key: Key) -> None:
        await self._listeners.pop(key).close()
        self._switch.forget(key)
        log.info("no longer forwarding %s %s:%d", *key)
