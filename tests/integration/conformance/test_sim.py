# SPDX-License-Identifier: Apache-2.0
"""The provider of the simulated cloud passes the whole conformance kit, without excluded cases."""

from __future__ import annotations

import pytest

from ccm.conformance import CASES, Case, Outcome
from tests.kit import check

from .simworld import simulated


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_sim_passes(case: Case) -> None:
    async with simulated() as subject:
        result = await check(case, subject)
    assert result.outcome is Outcome.PASSED, result.detail
