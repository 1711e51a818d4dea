# SPDX-License-Identifier: Apache-2.0
"""Compare load balancers with their Services: one at a time at a slow pace, and whenever a user asks.

The fingerprint records what was last written. The comparison finds what a person, or the cloud itself, changed since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter

from ccm.cloud import Backend, CloudError, ComparesLoadBalancers, Conflict, LoadBalancers, LoadBalancerSpec
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Service

from ..shared.context import Context
from . import comparison_rules as rules

log = logging.getLogger(__name__)

DEVIATIONS = Counter(
    "ccm_load_balancer_deviations", "Load balancers that differed from their Service and were written again."
)


class Comparison:
    """Compares load balancers with what `ensure` would write. `cloud` returns the current cloud's load balancers, which
    are replaced when credentials are reloaded."""

    def __init__(self, context: Context, events: EventRecorder, cloud: Callable[[], LoadBalancers]) -> None:
        self._context, self._events, self._cloud = context, events, cloud

    async def run(self, settled: Callable[[], Iterable[rules.Compared]], compare: Callable[[str], None]) -> None:
        """Call `compare` every `rules.PACE` seconds, with the key that is due. `settled` returns the Services whose
        load balancers can be compared."""
        while True:
            await asyncio.sleep(rules.PACE)
            if (key := rules.following(settled())) is not None:
                compare(key)

    async def deviates(
        self, service: Service, spec: LoadBalancerSpec, backends: Sequence[Backend], *, requested: bool
    ) -> bool:
        """Return whether the load balancer must be written again.

        `requested`: a user asked for the comparison. If the provider cannot compare, the load balancer is written again
        only then. A Conflict counts as a deviation. Any other failure is raised if a user asked; otherwise the Service
        is compared again later.
        """
        balancers = self._cloud()
        if not isinstance(balancers, ComparesLoadBalancers):
            return requested
        try:
            deviations = await self._context.gateway.call(
                "load_balancers.deviations", lambda: balancers.deviations(spec, backends)
            )
        except Conflict as error:
            deviations = (str(error),)
        except CloudError as error:
            if requested:
                raise
            log.info("cannot compare the load balancer of %s/%s, trying later: %s", spec.namespace, spec.name, error)
            return False
        if deviations:
            DEVIATIONS.inc()
            message = f"The load balancer differs from its Service and is written again: {rules.some(deviations)}"
            self._events.event(service, "Warning", "LoadBalancerDeviates", message)
        elif requested:
            self._events.event(service, "Normal", "LoadBalancerChecked", "The load balancer matches its Service")
        return bool(deviations)
