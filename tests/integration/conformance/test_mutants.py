# SPDX-License-Identifier: Apache-2.0
"""The kit finds what is broken: a broken provider fails the cases that are about its defect, and passes the others."""

from __future__ import annotations

import asyncio

import pytest

from ccm.conformance import CASES, Case, Outcome, Result, check

from .mutants import MUTANTS, Mutant
from .simworld import simulated


def waits(case: str) -> bool:
    """Cases that wait for a while; they are asked of those mutants alone that fail one of them."""
    return case.startswith("failures.") or case.endswith(".no_answer_is_transient")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_a_broken_provider_fails_just_what_is_broken(mutant: Mutant) -> None:
    a_few = asyncio.Semaphore(6)

    async def examined(case: Case) -> Result:
        async with a_few, simulated(mutant.create) as subject:  # a cloud each, so that they may run side by side
            return await check(case, subject)

    cases = [case for case in CASES if not waits(case.name) or any(map(waits, mutant.fails))]
    results = await asyncio.gather(*map(examined, cases))
    failed = {result.case.name: result.detail for result in results if result.outcome is Outcome.FAILED}
    assert failed.keys() == mutant.fails, failed


def test_every_case_is_failed_by_a_broken_provider() -> None:
    assert {case.name for case in CASES} == {name for mutant in MUTANTS for name in mutant.fails}
