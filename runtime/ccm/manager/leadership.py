# SPDX-License-Identifier: Apache-2.0
"""Decides who works: the holder of the main Lease. Migrating controllers also need the migration Lease.

A process requests the migration Lease only while it holds the main one, so two of our processes never hold one each.
Losing either Lease stops all work (KEP-2436). If none of our controllers is migrating, we do not use the migration
Lease.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ccm.base.cancellation import TaskGroup
from ccm.controllers.shared.context import NoNotes, Notes
from ccm.engine.client import KubeClient
from ccm.engine.election import LeaderElector, LeadershipLost
from ccm.engine.objects import Lease, ObjectRef
from ccm.gateway.gateway import Gateway
from ccm.options.leader_migration import Split

from .alarm import set_alarm
from .event_recorders import Recorders
from .running_controllers import not_offered

log = logging.getLogger(__name__)

#: A leader that has not renewed this many seconds after the end of the lease duration is stuck (as in upstream).
LEASE_GRACE = 20.0
ANNOTATION = "ccm.outoftree.dev/"
COMPONENT = "cloud-controller-manager"
_TIME = "%Y-%m-%dT%H:%M:%SZ"

#: Runs the controllers with these names until cancelled.
Work = Callable[[tuple[str, ...]], Awaitable[None]]


def _end_at_once() -> None:
    """Exit the process immediately, because the Lease expired while work was in progress. Another process may lead, so
    this one must not write."""
    try:  # the alarm may have interrupted a write to the log, which then refuses another one
        log.critical("leadership is lost: the Lease expired before the work ended; exiting immediately")
        logging.shutdown()
    finally:
        os._exit(1)


class ElectionSettings(msgspec.Struct, frozen=True):
    """How a process is elected. `main`, `migration`: the names of the Leases, None without election or migration.
    Durations are in seconds. `provider`, `requested` (the controllers of `--controllers`): a leader writes them into
    its Lease."""

    main: str | None
    migration: str | None
    namespace: str
    lease_duration: float
    renew_deadline: float
    retry_period: float
    provider: str = ""
    requested: tuple[str, ...] = ()

    @property
    def leases(self) -> list[tuple[str, str]]:
        """The namespaces and names of the Leases that this process may hold."""
        return [(self.namespace, name) for name in (self.main, self.migration) if name is not None]


class Leadership:
    """The Leases of one process. Use it once."""

    def __init__(
        self,
        settings: ElectionSettings,
        split: Split,
        client: KubeClient,
        gateways: Sequence[Gateway],
        recorders: Recorders,
    ) -> None:
        self._settings, self._client, self._gateways, self._recorders = settings, client, gateways, recorders
        self._split = split
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self.main: LeaderElector | None = None
        self.migration: LeaderElector | None = None
        if settings.main is not None:
            self.main = self._elector(settings.main, split.own)
        if settings.migration is not None and split.migrated:
            self.migration = self._elector(settings.migration, split.migrated)

    def _elector(self, name: str, controllers: tuple[str, ...]) -> LeaderElector:
        settings = self._settings
        return LeaderElector(
            self._client,
            namespace=settings.namespace,
            name=name,
            identity=self._identity,
            lease_duration=settings.lease_duration,
            renew_deadline=settings.renew_deadline,
            retry_period=settings.retry_period,
            annotations=lambda: self._annotations(controllers),
            recorder=self._recorders.of(COMPONENT),
            expired=_end_at_once,
            alarm=set_alarm,
            may_release=lambda: not any(gateway.has_unfinished_writes for gateway in self._gateways),
        )

    @property
    def identity(self) -> str:
        """The name of this process in its Leases."""
        return self._identity

    @property
    def lease(self) -> ObjectRef | None:
        """The object of Events about the process as a whole, None without election."""
        if self.main is None:
            return None
        return ObjectRef("coordination.k8s.io/v1", "Lease", self.main.name, self.main.namespace)

    @property
    def notes(self) -> Notes:
        """The store for information that the next leader needs."""
        return NoNotes() if self.main is None else LeaseNotes(self._client, self.main.namespace, self.main.name)

    def unhealthy(self) -> str | None:
        """Return why the kubelet should restart this process, None if it should not."""
        for elector in (self.main, self.migration):
            if elector is not None and not elector.healthy(LEASE_GRACE):
                return f"this process leads but has not renewed its Lease {elector.name} in time"
        return None

    async def run(self, work: Work) -> None:
        """Work while holding the Leases. If one is lost, cancel the work and raise LeadershipLost."""

        async def own() -> None:
            log.info("leading; controllers: %s", ", ".join(self._split.own) or "none")
            await work(self._split.own)

        if self.main is None:
            await own()
        elif self.migration is None:
            await self.main.run(own)
        else:
            await self.main.run(lambda: self._with_migration(own, work))

    async def _with_migration(self, own: Callable[[], Awaitable[None]], work: Work) -> None:
        assert self.migration is not None
        elector = self.migration

        async def migrated() -> None:
            log.info("holding the migration Lease %s; controllers: %s", elector.name, ", ".join(self._split.migrated))
            await work(self._split.migrated)

        async def together(part: Awaitable[None]) -> None:
            await part

        try:
            async with TaskGroup() as tasks:
                tasks.create_task(together(own()), name="controllers")
                tasks.create_task(elector.run(migrated), name="migrated controllers")
        except BaseExceptionGroup as group:
            lost = group.subgroup(LeadershipLost)
            if lost is None:
                raise
            raise _first(lost) from None

    def _annotations(self, controllers: tuple[str, ...]) -> dict[str, str]:
        """Return the annotations in which the leader describes itself and, if it has several clouds, each of them.

        The annotations about all clouds together have the controllers that no cloud offers, and the last success of the
        cloud that has been silent for longest. If one of several clouds never answered this process, its own time and
        the common time are empty, because the Lease may have the times of a former leader.
        """
        refused = {gateway.name: not_offered(self._settings.requested, gateway.cloud) for gateway in self._gateways}
        nowhere = [name for name in self._settings.requested if all(name in clouds for clouds in refused.values())]
        values = {
            f"{ANNOTATION}cloud-provider": self._settings.provider,
            f"{ANNOTATION}controllers": ",".join(controllers),
            f"{ANNOTATION}not-offered": ",".join(nowhere),
        }
        several = len(self._gateways) > 1
        answered = {gateway.name: gateway.last_success for gateway in self._gateways}
        times = [at for at in answered.values() if at is not None]
        if len(times) == len(answered):
            values[f"{ANNOTATION}last-cloud-success"] = min(times).strftime(_TIME)
        elif several:
            values[f"{ANNOTATION}last-cloud-success"] = ""
        if several:
            values |= {f"{ANNOTATION}not-offered.{name}": ",".join(clouds) for name, clouds in refused.items()}
            values |= {
                f"{ANNOTATION}last-cloud-success.{name}": at.strftime(_TIME) if at is not None else ""
                for name, at in answered.items()
            }
        return values


class LeaseNotes:
    """Stores notes as annotations of the main Lease. The Lease exists while a process leads, and that process can read
    and patch it."""

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

    async def read(self, key: str) -> str | None:
        return (await self._client.get(self._path, Lease)).metadata.annotations.get(ANNOTATION + key)

    async def write(self, key: str, text: str) -> None:
        await self._client.patch(self._path, {"metadata": {"annotations": {ANNOTATION + key: text}}})


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
