# SPDX-License-Identifier: Apache-2.0
"""What outsiders found at commit d7a87390 is put back, one finding at a time: seeds of `make unit` find each again.

The numbers are those of tests/unit/test_findings.py. The runtime of that commit shows the same with the same seeds.
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
from .explorer import Trial, sequences_of

Patch = pytest.MonkeyPatch
MAKEFILE = Path(__file__).parents[2] / "Makefile"


def the_breaker_counts_calls(patch: Patch) -> None:
    """Five failures in a row hold back all calls of a group, whosever they are."""
    check, failed = Breaker.check, Breaker.failed
    patch.setattr(Breaker, "check", lambda self, subject, now: check(self, None, now))
    patch.setattr(Breaker, "failed", lambda self, error, subject, now, kind: failed(self, error, None, now, kind))
    patch.setattr(gateway, "_concerns_one_object", lambda operation, error: False)


def whoever_comes_first_has_every_slot(patch: Patch) -> None:
    """No slots are left to other groups, and no workers to other namespaces."""
    patch.setattr(Slots, "_may_go", lambda self, group, namespace: self._free > 0)
    patch.setattr(WorkQueue, "_may_run", lambda self, namespace: True)


def backends_wait_for_the_rest(patch: Patch) -> None:
    """Backends are written only if everything else is written."""

    async def keep_up(self: ServiceSteps, service: Any, spec: Any, state: Any) -> None:
        return None

    patch.setattr(ServiceSteps, "keep_up", keep_up)


class Finding(NamedTuple):
    """`seed` violates `invariant` within so many sequences."""

    number: str
    put_back: Callable[[Patch], None]
    seed: int
    invariant: str
    within: int = 1


FINDINGS = (
    Finding("1", the_breaker_counts_calls, 9, "tenant-waits"),
    Finding("2", whoever_comes_first_has_every_slot, 59, "node-waits"),
    Finding("F1", backends_wait_for_the_rest, 0, "backends-behind"),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.number)
def test_a_seed_of_make_unit_finds_it_again(finding: Finding, monkeypatch: Patch) -> None:
    finding.put_back(monkeypatch)
    outcomes = [outcome for _, outcome in sequences_of(finding.seed, Trial.run)]
    first = next(number for number, each in enumerate(outcomes, 1) if finding.invariant in each.invariants)
    assert first <= finding.within


def test_the_seeds_are_those_of_make_unit() -> None:
    seeds = re.search(r"^unit:.*?tests\.explore --seeds (\S+)", MAKEFILE.read_text(), re.DOTALL | re.MULTILINE)
    assert seeds is not None
    assert {finding.seed for finding in FINDINGS} <= set(seeds_of(seeds[1]))
