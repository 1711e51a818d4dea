# SPDX-License-Identifier: Apache-2.0
"""Report why a Service waits, in an Event and its condition, once it has waited for a minute.

A Service that waits causes no failure, so nothing else would say what it waits for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from ccm.engine.client import ApiError
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Service
from ccm.engine.queue import Requeue

from ..shared.unchanged_answers import UnchangedAnswers
from .service_conditions import ServiceConditions

log = logging.getLogger(__name__)

#: Seconds until an Event says what a Service waits for.
PATIENCE = 60.0


class Waiting(Requeue):
    """Raised by the work on a Service: nothing is wrong, but it has to wait for `reason`, a clause for people."""

    def __init__(self, after: float, reason: str) -> None:
        super().__init__(after)
        self.reason = reason


class _Wait(msgspec.Struct):
    service: Service
    reason: Callable[[], str]
    due: float
    is_reported: bool = False


class WaitingServices:
    def __init__(self, events: EventRecorder, conditions: ServiceConditions, clock: Callable[[], float]) -> None:
        self._events, self._conditions, self._clock = events, conditions, clock
        self._waits: dict[str, _Wait] = {}
        self._answers: UnchangedAnswers[str] = UnchangedAnswers()
        self._wake = asyncio.Event()

    def begin(self, key: str, service: Service, reason: Callable[[], str]) -> None:
        """Record that the Service waits. A wait goes on until `end`, even if its reason changes. `reason` is called
        when the wait is reported."""
        wait = self._waits.get(key)
        if wait is None or wait.service.metadata.uid != service.metadata.uid:
            self._waits[key] = _Wait(service, reason, self._clock() + PATIENCE)
            self._wake.set()
        else:
            wait.reason = reason

    def again(self, key: str, service: Service | None, answer: str, after: float) -> float:
        """Record that the Service, None if it is gone, waits for the cloud, which has just said `answer`. Return the
        seconds until the next attempt: `after`, or more while the answer stays the same."""
        if service is not None:
            self.begin(key, service, lambda: answer)
        return self._answers.pause(key, answer, after, self._clock())

    def end(self, key: str) -> None:
        self._waits.pop(key, None)
        self._answers.forget(key)

    async def run(self) -> None:
        """Report each Service when it has waited for `PATIENCE` seconds."""
        while True:
            pending = [wait.due for wait in self._waits.values() if not wait.is_reported]
            if not pending:
                self._wake.clear()
                await self._wake.wait()
                continue
            await asyncio.sleep(max(0.0, min(pending) - self._clock()))
            await self._report_due()

    async def _report_due(self) -> None:
        now = self._clock()
        for key, wait in list(self._waits.items()):
            if not wait.is_reported and now >= wait.due:
                wait.is_reported = True
                message = f"The load balancer has waited for {PATIENCE:g} s: {wait.reason()}"
                self._events.event(wait.service, "Normal", "LoadBalancerWaits", message)
                await self._conditions.waits(wait.service, "LoadBalancerWaits", message)
                if self._waits.get(key) is not wait:  # it was served meanwhile
                    await self._take_back(wait.service)

    async def _take_back(self, service: Service) -> None:
        try:
            await self._conditions.served(service)
        except ApiError as error:
            log.info("Service %s is served and its condition stays for now: %s", service.metadata.name, error)
