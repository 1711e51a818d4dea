# SPDX-License-Identifier: Apache-2.0
"""Runs one case against one provider, with a separate cloud, and removes everything at the end."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ccm.cloud import (
    Cloud,
    DrainsBackends,
    ImplementedElsewhere,
    KeepsLoadBalancers,
    Kept,
    NotImplementedByCloud,
    QuotaExceeded,
)

from .subject import Subject
from .trial import Failed, Trial, described
from .watchdog import Watchdog
from .world import NotRun

log = logging.getLogger(__name__)

#: The capability of load balancers that can outlive their Service (`ccm.cloud.KeepsLoadBalancers`).
KEEPS = "kept_load_balancers"
#: The capability of load balancers that can drain (`ccm.cloud.DrainsBackends`).
DRAINS = "draining_load_balancers"


class Outcome(enum.Enum):
    """The result of a case.

    `NOT_RUN`: the case could not check the requirement, so nothing is known about it. `NOT_APPLICABLE`: the case is
    about a capability that the provider does not offer.
    """

    PASSED = "passed"
    FAILED = "FAILED"
    NOT_RUN = "not proven"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Case:
    """One requirement for providers. `needs`: the capability that it concerns: `KEEPS`, `DRAINS` or the name of a field
    of `Cloud`; "" for none."""

    name: str
    function: Callable[[Trial], Awaitable[None]]
    needs: str = ""
    writes: bool = False

    @property
    def summary(self) -> str:
        """The requirement, in one paragraph."""
        return " ".join((self.function.__doc__ or "").split())


@dataclass(frozen=True)
class Result:
    case: Case
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0


async def check(case: Case, subject: Subject) -> Result:
    """Run one case. Raises only if it is cancelled: everything that the provider does is a result."""
    started = time.monotonic()

    def result(outcome: Outcome, detail: str = "") -> Result:
        return Result(case, outcome, detail, time.monotonic() - started)

    if case.writes and not subject.allow_writes:
        return result(Outcome.NOT_RUN, "creates resources in the cloud: allow it with --allow-writes")
    try:
        cloud = subject.create(subject.config)
    except Exception as error:
        return result(Outcome.FAILED, f"cannot create the provider: {described(error)}")
    trial = Trial(subject, cloud)
    trial.introduce(cloud)
    watchdog, detail, outcome = Watchdog(), "", Outcome.PASSED
    try:
        if case.needs and not _offers(cloud, case.needs):
            return result(Outcome.NOT_APPLICABLE, f"the provider offers no {case.needs.replace('_', ' ')}")
        with watchdog:
            await trial.ask(cloud.start)
            await case.function(trial)
    except (NotRun, NotImplementedByCloud, ImplementedElsewhere, QuotaExceeded) as error:
        outcome, detail = Outcome.NOT_RUN, str(error) if isinstance(error, NotRun) else described(error)
    except Failed as error:
        outcome, detail = Outcome.FAILED, str(error)
    except Exception as error:
        outcome, detail = Outcome.FAILED, described(error)
    finally:
        if watchdog.blocked:  # the provider may have caught the interruption
            outcome, detail = Outcome.FAILED, watchdog.blocked
        left = await trial.clean_up()  # also after an interruption
        for name in left:
            log.error("%s: LEFT BEHIND: %s", case.name, name)
    if left:
        outcome, detail = Outcome.FAILED, "; ".join(filter(None, [detail, f"LEFT BEHIND: {', '.join(left)}"]))
    return result(outcome, detail)


def _offers(cloud: Cloud, capability: str) -> bool:
    if capability not in (KEEPS, DRAINS):
        return getattr(cloud, capability) is not None
    balancers = cloud.load_balancers
    if capability == DRAINS:
        return isinstance(balancers, DrainsBackends)
    return isinstance(balancers, KeepsLoadBalancers) and Kept.LOAD_BALANCER in balancers.keeps
