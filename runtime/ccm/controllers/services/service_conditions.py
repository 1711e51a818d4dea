# SPDX-License-Identifier: Apache-2.0
"""Write to a Service's status why it waits for its load balancer, and remove that when it is served.

Events say the same, but are gone after an hour. A retry whose message differs only in numbers, IDs or times writes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from ccm.engine.client import ApiError
from ccm.engine.objects import Service, ServiceCondition

from . import service_condition_rules as rules
from .class_rules import ServedClasses
from .service_rules import concerns_us
from .service_writes import ServiceWrites

log = logging.getLogger(__name__)

#: Seconds between two messages of one reason, because some clouds answer with another text each time.
PAUSE = 60.0


class ServiceConditions:
    def __init__(
        self,
        writes: ServiceWrites,
        classes: ServedClasses,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._writes, self._classes, self._now, self._monotonic = writes, classes, now, monotonic
        #: UID of a Service that waits -> its condition as it was written last, and when. The cache may be older.
        self._written: dict[str, tuple[ServiceCondition, float]] = {}

    async def waits(self, service: Service, reason: str, text: str) -> None:
        """Write that the Service waits. Write nothing if that is no news, or if the last write for this reason was less
        than `PAUSE` seconds ago.

        A failed write is not repeated before the next call. A Service that is not ours is left alone, because it may
        have the name of one of ours that is still to be released.
        """
        if not concerns_us(service, self._classes):
            return
        before, at = self._written.get(service.metadata.uid) or (rules.shown(service), -PAUSE)
        after = rules.waiting(before, reason, text, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        now = self._monotonic()
        repeats = before is not None and before.reason == reason and now - at < PAUSE
        if repeats or not rules.is_news(before, after):
            return
        try:
            await self._writes.patch_conditions(service, rules.set_patch(after))
        except ApiError as error:
            log.debug("Service %s: its condition is not written: %s", service.metadata.name, error)
            return
        self._written[service.metadata.uid] = after, now

    async def served(self, service: Service) -> None:
        """Remove the condition, because the Service no longer waits. Raises ApiError."""
        if service.metadata.uid in self._written or rules.shown(service) is not None:
            await self._writes.patch_conditions(service, rules.removal_patch())
            self.forget(service)

    def forget(self, service: Service) -> None:
        self._written.pop(service.metadata.uid, None)
