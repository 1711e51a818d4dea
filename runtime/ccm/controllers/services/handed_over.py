# SPDX-License-Identifier: Apache-2.0
"""Services that were ours and are left to another controller now, because an administrator changed the classes.

A note on the Lease lists the classes that leaders served. Without it, a Service of a class that is no longer served
would look like one that got another class, whose load balancer is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from ccm.cloud import LoadBalancer
from ccm.engine.client import ApiError
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Service

from ..shared.context import Context
from . import class_rules as rules
from .class_rules import ServedClasses

log = logging.getLogger(__name__)

#: The key of the note that records which classes are served.
NOTE = "load-balancer-classes"
#: The kind of the objects that `Holds` shows.
KIND = "HandedOverService"
#: Seconds until the next attempt to write the note.
AGAIN = 5.0


class HandedOver:
    """Finds and reports the Services that were handed over. Without classes, the note is never written, and it is read
    only for a Service that `classes` exclude."""

    def __init__(self, context: Context, events: EventRecorder, classes: ServedClasses) -> None:
        self._context, self._events, self._classes = context, events, classes
        self._former: frozenset[str] | None = None
        self._reported: set[str] = set()

    async def record(self) -> None:
        """Note the classes that are served. Returns when the note is written; before that, no load balancer of these
        classes may be written."""
        while self._classes.names:
            try:
                former = await self._recall()
                if (note := rules.noted(former, self._classes)) is not None:
                    await self._context.notes.write(NOTE, note)
                self._former = former | self._classes.names
                return
            except ApiError as error:
                log.warning("cannot note the classes of Services for the next leader, trying again: %s", error)
                await asyncio.sleep(AGAIN)

    async def keep(self, unwanted: Collection[Service], listed: Mapping[str, LoadBalancer]) -> list[Service]:
        """Report the Services that were handed over, and return the others. `listed`: load balancers by UID.

        If the note cannot be read, every Service that the classes exclude counts as handed over, unless it is being
        deleted.
        """
        others, kept = [], {}
        for service in unwanted:
            if await self._is_kept(service):
                meta, name = service.metadata, listed[service.metadata.uid].name
                kept[f"{meta.namespace}/{meta.name}"] = "ClassNotServed", rules.why_kept(service, name, self._classes)
                self._report(service, name)
            else:
                others.append(service)
        self._context.holds.replace(KIND, kept)
        return others

    async def _is_kept(self, service: Service) -> bool:
        if not self._classes.exclude(service):
            return False
        try:
            return rules.is_handed_over(service, self._classes, await self._recall())
        except ApiError as error:
            log.warning("cannot read the classes that former leaders served, so nothing is deleted: %s", error)
            return service.metadata.deletion_timestamp is None

    def _report(self, service: Service, balancer: str) -> None:
        """Report the Service only once, although each audit finds it again."""
        if service.metadata.uid not in self._reported:
            self._reported.add(service.metadata.uid)
            message = rules.why_kept(service, balancer, self._classes)
            self._events.event(service, "Warning", "ClassNotServed", message)

    async def _recall(self) -> frozenset[str]:
        if self._former is None:
            self._former = rules.recalled(await self._context.notes.read(NOTE))
        return self._former
