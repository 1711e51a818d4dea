# SPDX-License-Identifier: Apache-2.0
"""The kit finds what is broken: a broken provider fails the cases that are about its defect, and passes the others."""

from __future__ import annotations

import asyncio

import pytest

from ccm.conformance import CASES, Case, Outcome, Result, check

from .mutants import MUTANTS, Mutant
from .simworld import simulated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_a_broken_provider_fails_just_what_is_broken(mutant: Mutant) -> None:
    a_few = asyncio.Semaphore(6)

    async def examined(case: Case) -> Result:
        async with a_few, simulated(mutant.create) as subject:  # a cloud each, so that they may run side by side
            return await check(case, subject)

    # Those that wait for a while are of their group's mutants only.
    groups = {name.partition(".")[0] for name in mutant.fails}
    cases = [case for case in CASES if not case.name.startswith("failures.") or "failures" in groups]
    results = await asyncio.gather(*map(examined, cases))
    failed = {result.case.name: result.detail for result in results if result.outcome is Outcome.FAILED}
    assert failed.keys() == mutant.fails, failed


def test_every_case_is_failed_by_a_broken_provider() -> None:
    assert {case.name for case in CASES} == {name for mutant in MUTANTS for name in mutant.fails}
