# SPDX-License-Identifier: Apache-2.0
"""Instances: the virtual machines of all vCenters, with one query for each vCenter or configured datacenter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from ccm.cloud import BlockingCalls, CloudError, Conflict, Instance, InstanceRef, NotFound, Page, Transient

from . import instance_rules
from .api import Inventory, Reading
from .errors import TIMEOUT, translated
from .instance_rules import Machine
from .session import Session, load_sdk
from .settings import Settings

#: Threads for each vCenter, so that a vCenter that hangs uses no threads of the others.
THREADS = 6
#: Seconds for logging out at the end.
FAREWELL = 5.0


class VCenterCalls:
    """The inventory of one vCenter, read in threads of its own."""

    def __init__(self, inventory: Inventory, deadline: float) -> None:
        self.inventory = inventory
        self.name = inventory.session.vcenter.name
        server = inventory.session.vcenter.server
        self._calls = BlockingCalls(
            f"vsphere {self.name}",
            threads=THREADS,
            deadline=deadline,
            set_by=TIMEOUT,
            translate=lambda error: translated(error, server, deadline),
        )

    async def start(self) -> None:
        await self._calls.run(self.inventory.start)

    async def ask(self, question: Callable[[Inventory], Reading]) -> Reading:
        return await self._calls.run(question, self.inventory)

    async def close(self) -> None:
        with contextlib.suppress(CloudError, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self._calls.run(self.inventory.session.close)
        self._calls.close()


class VSphereInstances:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        runtime, labels = settings.runtime, settings.labels if settings.has_zones else None
        self._vcenters = [
            VCenterCalls(
                Inventory(
                    Session(vcenter, runtime.request_timeout, with_places=settings.has_zones), labels, runtime.page_size
                ),
                runtime.request_timeout,
            )
            for vcenter in settings.vcenters
        ]

    async def start(self) -> list[str]:
        """Log in to all vCenters. Return why some of them failed; raise the error if all failed."""
        await asyncio.to_thread(load_sdk)
        outcomes = await asyncio.gather(*(vcenter.start() for vcenter in self._vcenters), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if len(failed) == len(outcomes) or not all(isinstance(each, CloudError) for each in failed):
            raise failed[0]
        return [str(each) for each in failed]

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._vcenters))

    async def list_page(self, token: str | None) -> Page:
        """Return all machines of all vCenters on one page. Machines of a vCenter that does not answer are unknown."""
        readings, failed = await self._ask(lambda inventory: inventory.all())
        if not readings:
            raise failed[0]
        unreachable = [str(each) for each in failed]
        unreachable += [
            f"no UUID is reported for {', '.join(reading.unknown[:5])}"
            + (f" and {len(reading.unknown) - 5} more" if len(reading.unknown) > 5 else "")
            for reading in readings
            if reading.unknown
        ]
        return Page(self._instances(readings), unreachable="; ".join(unreachable))

    async def get(self, ref: InstanceRef) -> Instance:
        if ref.provider_id:
            uuid = instance_rules.uuid_of(ref.provider_id) or ""
            return await self._one(lambda inventory: inventory.with_uuid(uuid), f"has the UUID {uuid}")
        if unnamed := instance_rules.UNNAMED.fullmatch(ref.node_name):
            return await self._one_of_name(ref, lambda inventory: inventory.with_reference(unnamed["id"]))
        uuids = instance_rules.spellings(ref.system_uuid)
        return await self._one_of_name(ref, lambda inventory: inventory.with_name(ref.node_name, uuids))

    def owns(self, provider_id: str) -> bool:
        return instance_rules.uuid_of(provider_id) is not None

    def canonical(self, provider_id: str) -> str | None:
        uuid = instance_rules.uuid_of(provider_id)
        return None if uuid is None else instance_rules.provider_id(uuid)

    async def _one(self, question: Callable[[Inventory], Reading], what: str) -> Instance:
        readings, failed = await self._ask(question, enough=_runs)
        instances = self._instances(readings)
        if not instances:
            raise self._absent(failed, what)
        return instances[0]

    async def _one_of_name(self, ref: InstanceRef, question: Callable[[Inventory], Reading]) -> Instance:
        readings, failed = await self._ask(question)
        instances = self._instances(readings)
        named = [each for each in instances if each.name == ref.node_name]
        if len(named) != 1 and ref.system_uuid:
            named = [each for each in named or instances if ref.system_uuid.lower() in each.system_uuids] or named
        if len(named) > 1:
            ids = ", ".join(sorted(each.provider_id for each in named))
            raise Conflict(f"{len(named)} virtual machines are named {ref.node_name!r} ({ids}): rename all but one")
        if not named or failed:
            raise self._absent(failed, f"has a guest named {ref.node_name!r}")
        return named[0]

    def _absent(self, failed: Sequence[CloudError], what: str) -> CloudError:
        if not failed:
            return NotFound(f"no virtual machine {what}")
        if len(failed) == len(self._vcenters):
            return failed[0]
        return Transient(f"it is unknown whether a virtual machine {what}: {'; '.join(map(str, failed))}")

    async def _ask(
        self, question: Callable[[Inventory], Reading], enough: Callable[[Reading], bool] = lambda reading: False
    ) -> tuple[list[Reading], list[CloudError]]:
        """Return the readings of all vCenters that answer, and the others' errors. Stop as soon as one reading is
        `enough`."""
        readings: list[Reading] = []
        failed: list[CloudError] = []
        tasks = [asyncio.ensure_future(vcenter.ask(question)) for vcenter in self._vcenters]
        try:
            for task in asyncio.as_completed(tasks):
                try:
                    reading = await task
                except CloudError as error:
                    failed.append(error)
                    continue
                readings.append(reading)
                if enough(reading):
                    break
        finally:
            for pending in tasks:
                pending.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return readings, failed

    def _instances(self, readings: Sequence[Reading]) -> list[Instance]:
        machines = [machine for reading in readings for machine in reading.machines]
        places: dict[Machine, tuple[str, str] | None] = {}
        for reading in readings:
            places |= reading.places
        return instance_rules.instances(machines, places if self._settings.has_zones else None, self._settings.nodes)


def _runs(reading: Reading) -> bool:
    """Return whether the reading has a running machine. It is the right one, even if other vCenters have copies."""
    return any(machine.rank == (False, False) for machine in reading.machines)
