# SPDX-License-Identifier: Apache-2.0
"""The provider `cloudstack` passes every case of the kit whose capability it has, over HTTP."""

from __future__ import annotations

import pytest

from ccm.conformance import CASES, Case, Outcome
from ccm.conformance.kit import DRAINS
from tests.kit import check

from .world import subject


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_cloudstack_passes(case: Case) -> None:
    async with subject() as given:
        result = await check(case, given)
        expected = Outcome.PASSED if _has(case.needs) else Outcome.NOT_APPLICABLE
        assert result.outcome is expected, result.detail


def _has(needs: str) -> bool:
    return needs in ("", "instances", "load_balancers", DRAINS)
