# SPDX-License-Identifier: Apache-2.0
"""The simulated cloud as the conformance kit's `World`, which can cause every kind of trouble that the kit has."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec.structs import replace

from ccm.cloud import Cloud, ProviderConfig, VolumeRef
from ccm.conformance import Listener, Subject, Trouble, World
from ccm.providers.sim import SimCloud
from ccm.providers.sim.volumes import CSI_DRIVER
from ccm_simcloud import strict
from ccm_simcloud.model import InstancePatch, VolumeBody
from ccm_simcloud.testing import Simulator, running_simulator
from ccm_simcloud.world import Refusal
from tests.kit import PATIENT

TOKEN = "very-secret-token"
CONFIG: dict[str, Any] = {
    "projects": [
        {
            "name": "demo",
            "token": TOKEN,
            "region": "north",
            "load_balancer_addresses": "203.0.113.10-203.0.113.99",
        }
    ]
}
#: Rows in a page of a listing.
PAGE = 3
#: The simulator's fault for each kind of trouble.
FAULTS: dict[Trouble, dict[str, Any]] = {
    Trouble.SERVER_ERROR: {"action": "status", "status": 503},
    Trouble.PROXY_PAGE: {"action": "status", "status": 404, "body": "html"},
    Trouble.CUT_ANSWER: {"action": "truncate"},
    Trouble.SHORT_LISTING: {"action": "short_list", "match": {"operation": "instances.list"}},
    Trouble.LATER_PAGE: {"action": "status", "status": 503, "match": {"path": "[?&]page_token="}},
    Trouble.HANG: {"action": "timeout"},
    Trouble.UNAUTHORIZED: {"action": "status", "status": 401, "code": "unauthorized"},
    Trouble.RATE_LIMITED: {"action": "status", "status": 429, "code": "rate_limited", "retry_after": World.RETRY_AFTER},
    Trouble.LOST_ANSWER: {
        "action": "hang_up",
        "after_effect": True,
        "count": 1,
        "match": {"operation": "load_balancers.create"},
    },
    Trouble.REFUSED: {
        "action": "status",
        "status": 412,
        "code": "odd_request",
        "match": {"operation": "load_balancers.create"},
    },
    Trouble.HALF_MADE: {
        "action": "status",
        "status": 500,
        "after_effect": True,
        "count": 1,
        "match": {"operation": "load_balancers.create"},
    },
}


class SimWorld(World):
    load_balancers_in_a_page = PAGE

    def __init__(self, cloud: Simulator) -> None:
        self._cloud = cloud
        self._project = cloud.project()

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        world, timing = self._cloud.server.world, self._cloud.server.world.timing
        if kind is Trouble.SLOW_LOAD_BALANCERS:
            world.timing = replace(timing, load_balancer_create=60.0)
        else:
            self._cloud.fault(**FAULTS[kind])
        if kind is Trouble.HALF_MADE:  # the cloud does not complete it either
            self._cloud.fault(**FAULTS[kind] | {"action": "provision_error"})
        try:
            yield
        finally:
            self._cloud.clear_faults()
            world.timing = timing
            if kind is Trouble.SLOW_LOAD_BALANCERS:
                self._cloud.advance(61)

    async def create_instance(self, name: str) -> None:
        self._cloud.add_instance(
            name,
            type="sim.small",
            zone="north-a",
            labels={"cluster": "demo"},
            addresses=[{"type": "InternalIP", "address": "10.0.0.9"}],
        )

    async def delete_instance(self, provider_id: str) -> None:
        with contextlib.suppress(Refusal):
            self._project.delete_instance(provider_id.rpartition("/")[2])

    async def stop_instance(self, provider_id: str) -> None:
        self._project.change_instance(provider_id.rpartition("/")[2], InstancePatch(state="stopped"))

    async def untag_instance(self, provider_id: str) -> None:
        self._project.change_instance(provider_id.rpartition("/")[2], InstancePatch(labels={}))

    async def break_load_balancer(self, name: str) -> None:
        found = next(row for row in self._project.load_balancers.rows.values() if row.name == name)
        self._project.break_load_balancer(found.id, "the kit asked for it")

    async def load_balancer_parts(self) -> frozenset[str]:
        return frozenset(self._project.load_balancers.rows)

    async def load_balancer_listeners(self, name: str) -> tuple[Listener, ...]:
        found = next(row for row in self._project.load_balancers.rows.values() if row.name == name)
        return tuple(
            Listener(
                port.port,
                port.protocol,
                frozenset((target.address, port.node_port) for target in found.targets if not target.draining),
                frozenset(found.source_ranges),
                found.session_affinity,
                found.health_check.node_port if found.health_check else 0,
            )
            for port in found.ports
        )

    async def create_volume(self) -> VolumeRef:
        volume = self._project.create_volume(strict.convert({"name": "data", "zone": "north-b"}, VolumeBody, ""))
        return VolumeRef(CSI_DRIVER, volume.id)

    async def delete_volume(self, ref: VolumeRef) -> None:
        with contextlib.suppress(Refusal):
            self._project.delete_volume(ref.handle)


@contextlib.asynccontextmanager
async def simulated(create: Callable[[ProviderConfig], Cloud] = SimCloud) -> AsyncIterator[Subject]:
    """Run a simulated cloud with some instances; yield what the kit needs to check a provider of it.

    Pages are small, so that there are several.
    """
    async with running_simulator(CONFIG) as cloud:
        for number in range(5):
            cloud.add_instance(
                f"worker-{number}",
                type="sim.small",
                zone=f"north-{'ab'[number % 2]}",
                labels={"cluster": "demo"},
                addresses=[
                    {"type": "InternalIP", "address": f"10.0.0.{number + 1}"},
                    {"type": "ExternalIP", "address": f"198.51.100.{number + 1}"},
                    {"type": "Hostname", "address": f"worker-{number}"},
                ],
            )
        conf = cloud.conf(page_size=PAGE, request_timeout=PATIENT, calls_per_second=1e4, burst=1000)
        yield Subject("sim", create, ProviderConfig(conf, "cloud.conf"), allow_writes=True, world=SimWorld(cloud))
