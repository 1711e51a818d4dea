# SPDX-License-Identifier: Apache-2.0
"""What every controller receives, and the interface that all controllers share."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from prometheus_client import Gauge

from ccm.cloud import CloudError
from ccm.engine.client import ApiError, KubeClient
from ccm.engine.events import EventRecorder
from ccm.engine.informer import Informer
from ccm.engine.objects import Node, Service
from ccm.gateway.gateway import Gateway

from .holds import Holds
from .rule_error import RuleError

RUNNING = Gauge(
    "running_managed_controllers",
    "Controllers that run in this process (upstream's name and labels).",
    ["name", "manager"],
)


class Notes(Protocol):
    """Short texts by key that a leader leaves for the next one. Both methods raise ApiError."""

    async def read(self, key: str) -> str | None: ...

    async def write(self, key: str, text: str) -> None: ...


class NoNotes:
    """The notes of a process without leader election, which has nowhere to store them: nothing is kept."""

    async def read(self, key: str) -> str | None:
        return None

    async def write(self, key: str, text: str) -> None:
        return None


@dataclass(frozen=True)
class Context:
    """What every controller receives. `recorder(component)` returns the recorder for an event source. `holds`: where
    controllers report what they do not delete for now. `monotonic` returns seconds, `now` a time with a time zone."""

    client: KubeClient
    gateway: Gateway
    nodes: Informer[Node]
    services: Informer[Service]
    recorder: Callable[[str], EventRecorder]
    cluster_name: str
    notes: Notes = field(default_factory=NoNotes)
    holds: Holds = field(default_factory=Holds)
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)

    def of_cloud(self, name: str) -> str:
        """Return `name`; if the process has several clouds, with a hyphen and the name of this cloud appended."""
        return f"{name}-{self.gateway.name}" if self.gateway.name else name


def log_failure(log: logging.Logger) -> Callable[[object, Exception], None]:
    """Return a failure reporter for work queues.

    Errors of clouds, servers and objects become one log line. Bugs become a traceback.
    """

    def report(key: object, error: Exception) -> None:
        if isinstance(error, (CloudError, ApiError, RuleError)):
            log.warning("%s: %s", key, error)
        else:
            log.error("%s: unexpected %s", key, type(error).__name__, exc_info=error)

    return report


class Controller(Protocol):
    """A control loop. The process constructs it when it becomes the leader and runs it until it is cancelled."""

    #: Canonical name, as in `--controllers`.
    name: ClassVar[str]

    async def run(self) -> None: ...
