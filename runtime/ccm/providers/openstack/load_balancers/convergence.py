# SPDX-License-Identifier: Apache-2.0
"""Brings the parts of an ACTIVE load balancer to their desired state, one change for each call.

The parts are read at the beginning. Between two changes, this process keeps the parts in memory, and updates them from
Octavia's answers to its changes. At the end, it reads the states of all parts, because a part may have failed
meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ccm.cloud import Conflict, RetryAfter
from ccm.cloud.toolkit.steps import Step, do_next

from . import listener_rules, permissions
from . import load_balancer_steps as diff
from .job import Job
from .load_balancer_owners import Mark
from .memory import Memory
from .parts import Parts

if TYPE_CHECKING:
    from ..api import Api

#: Seconds until the remembered parts are read again, because somebody else may change them, too.
FRESH = 60.0


class Convergence:
    """Brings the parts of a load balancer to their desired state. `sign`: writes the Service's tag. `soon`: returns the
    seconds until the next call for a Service that waits."""

    def __init__(
        self,
        api: Api,
        parts: Parts,
        sign: Callable[[Job, Mark], Awaitable[Job]],
        soon: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._section, self._parts = api.settings.load_balancer, parts
        self._sign, self._soon, self._clock = sign, soon, clock

    async def run(self, job: Job, memory: Memory) -> None:
        """Return if all parts are up to date. Otherwise run one step and raise RetryAfter. Raises Conflict if only
        parts in ERROR are left, and writing them again did not help."""
        observed, todo = await self._look(job, memory)
        if not todo:
            return
        if job.present is not None and job.present.fingerprint:
            # Until the last step is done, no tag may have the fingerprint of a complete write, because the Service may
            # change back to that state.
            await self._sign(job, dataclasses.replace(job.present, fingerprint=""))
            memory.parts = observed
            raise RetryAfter(f"load balancer {job.id} is about to be changed", self._soon())
        step = next((each for each in todo if not each.repairs or memory.tried.first(each.repairs)), None)
        if step is None:
            memory.tried.clear()
            raise Conflict(
                f"load balancer {job.id} has parts in state ERROR in Octavia, and writing them again did not help: "
                f"{', '.join(each.repairs for each in todo)}; ask Octavia's operator to check its log"
            )

        async def do(step: Step) -> None:
            memory.parts = diff.after(observed, step, await self._parts.do(step))

        await do_next([step], do, f"load balancer {job.id}", self._soon, left=len(todo))

    async def _look(self, job: Job, memory: Memory) -> tuple[diff.Observed, list[Step]]:
        """Return the parts, and all steps that are possible now; [] if Octavia itself shows the desired state."""
        known, memory.parts = memory.parts, None
        if known is not None and known.fits(job.row) and self._clock() < memory.parts_until:
            todo = self.steps(job, known)
            if todo or await self._parts.are_well(job.row):
                return known, todo
        memory.parts_until = self._clock() + FRESH
        observed = await self._parts.observe(job.row)
        return observed, self.steps(job, observed)

    def steps(self, job: Job, observed: diff.Observed) -> list[Step]:
        """Return all steps that are possible now. Raises Conflict if another Service's listener uses a port, and
        Invalid if an annotation that the Service may not have would change the load balancer."""
        name = job.desired.name
        permissions.check_kept(
            job.spec.annotations,
            self._section,
            diff.certificates(observed.listeners, name, owner=job.owner),
            job.desired.tls,
        )
        return todo(job, observed, serial=self._section.provider_requires_serial_api_calls)


def todo(job: Job, observed: diff.Observed, *, serial: bool) -> list[Step]:
    """Return all steps that are possible now. `serial`: write members one by one."""
    listeners = listener_rules.listeners(job.desired, job.backends, job.member_subnet, job.features)
    return diff.steps(job.id, job.desired.name, listeners, observed, owner=job.owner, serial=serial)
