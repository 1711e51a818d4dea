# SPDX-License-Identifier: Apache-2.0
"""The mistakes that outsiders found at commit d7a87390 come back, one at a time: seeds of `make unit` find each again.

The numbers of findings are those of tests/unit/test_findings.py. With the runtime of that commit, the explorer found
finding 1 with seed 9, finding 2 with seed 59, and F1 with seeds 0 and 24, each in the seed's first sequence.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ccm.controllers.services.service_steps import ServiceSteps
from ccm.engine.queue import WorkQueue
from ccm.gateway import gateway
from ccm.gateway.breaker import Breaker
from ccm.gateway.slots import Slots

from .__main__ import seeds_of
from .checks import Violation
from .explorer import Trial, sequences_of
from .simulation import Outcome

Patch = pytest.MonkeyPatch
MAKEFILE = Path(__file__).parents[2] / "Makefile"


def the_breaker_counts_calls(patch: Patch) -> None:
    """Five failures in a row hold back all calls of a group, even calls for other objects."""
    check, failed = Breaker.check, Breaker.failed
    patch.setattr(Breaker, "check", lambda self, subject, now: check(self, None, now))
    patch.setattr(Breaker, "failed", lambda self, error, subject, now, kind: failed(self, error, None, now, kind))
    patch.setattr(gateway, "_concerns_one_object", lambda operation, error: False)


def whoever_comes_first_has_every_slot(patch: Patch) -> None:
    """No slots are reserved for other groups, and no workers for other namespaces."""
    patch.setattr(Slots, "_may_go", lambda self, group, namespace: self._free > 0)
    patch.setattr(WorkQueue, "_may_run", lambda self, namespace: True)


def backends_wait_for_the_rest(patch: Patch) -> None:
    """Backends are written only if everything else of the Service can be written."""

    async def keep_up(self: ServiceSteps, service: Any, spec: Any, state: Any) -> None:
        return None

    patch.setattr(ServiceSteps, "keep_up", keep_up)


class Finding(NamedTuple):
    """A finding: the first seed with this workload violates `invariant` in one of its first `within` sequences."""

    number: str
    put_back: Callable[[Patch], None]
    workload: str
    invariant: str
    within: int = 1


FINDINGS = (
    Finding("1", the_breaker_counts_calls, "tenants", "tenant-waits"),
    Finding("2", whoever_comes_first_has_every_slot, "slow", "node-waits"),
    Finding("F1", backends_wait_for_the_rest, "refused", "backends-behind"),
)


def seeds_of_make_unit() -> list[int]:
    found = re.search(r"^unit:.*?tests\.explore --seeds (\S+)", MAKEFILE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return seeds_of(found[1])


def workload_of(seed: int) -> str:
    over = Outcome([Violation("", "", 0.0)], [], [], 0.0, 0)
    return sequences_of(seed, lambda trial: over)[0][0].workload


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.number)
def test_a_seed_of_make_unit_finds_it_again(finding: Finding, monkeypatch: Patch) -> None:
    seed = next(each for each in seeds_of_make_unit() if workload_of(each) == finding.workload)
    finding.put_back(monkeypatch)
    outcomes = [outcome for _, outcome in sequences_of(seed, Trial.run)]
    first = next(number for number, each in enumerate(outcomes, 1) if finding.invariant in each.invariants)
    assert first <= finding.within
