# SPDX-License-Identifier: Apache-2.0
"""Comparisons of load balancers with their Services: one after the other at a slow pace, and whenever a user asks.

The fingerprint says what was written last. What a person, or the cloud itself, changed since is found here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter

from ccm.cloud import Backend, CloudError, ComparesLoadBalancers, Conflict, LoadBalancers, LoadBalancerSpec
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Service

from . import comparison_rules as rules
from .context import Context

log = logging.getLogger(__name__)

DEVIATIONS = Counter(
    "ccm_load_balancer_deviations", "Load balancers that were not as they had been written, and were written again."
)


class Comparison:
    """`cloud` gives the present cloud's load balancers, which are replaced when credentials are reloaded."""

    def __init__(self, context: Context, events: EventRecorder, cloud: Callable[[], LoadBalancers]) -> None:
        self._context, self._events, self._cloud = context, events, cloud

    async def run(self, settled: Callable[[], Iterable[rules.Compared]], compare: Callable[[str], None]) -> None:
        """Every `rules.PACE` seconds call `compare` with the key whose turn it is."""
        while True:
            await asyncio.sleep(rules.PACE)
            if (key := rules.following(settled())) is not None:
                compare(key)

    async def deviates(
        self, service: Service, spec: LoadBalancerSpec, backends: Sequence[Backend], *, asked: bool
    ) -> bool:
        """Whether the load balancer must be written again. A provider that cannot compare writes it if a user asks.

        A failure is raised if a user asked; otherwise its turn comes again.
        """
        balancers = self._cloud()
        if not isinstance(balancers, ComparesLoadBalancers):
            return asked
        try:
            found = await self._context.gateway.call(
                "load_balancers.deviations", lambda: balancers.deviations(spec, backends)
            )
        except Conflict as error:
            found = (str(error),)
        except CloudError as error:
            if asked:
                raise
            log.info("the load balancer of %s/%s is compared later: %s", spec.namespace, spec.name, error)
            return False
        if found:
            DEVIATIONS.inc()
            message = f"The load balancer is not as it was written, and is written again: {rules.some(found)}"
            self._events.event(service, "Warning", "LoadBalancerDeviates", message)
        elif asked:
            self._events.event(service, "Normal", "LoadBalancerChecked", "The load balancer is as it was written")
        return bool(found)
