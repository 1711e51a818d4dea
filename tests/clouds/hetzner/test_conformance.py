# SPDX-License-Identifier: Apache-2.0
"""The provider `hetzner` passes all cases about its capabilities on the Hetzner-shaped cloud."""

from __future__ import annotations

import pytest

from ccm.conformance import CASES, Case, Outcome
from ccm.conformance.kit import KEEPS
from tests.kit import check

from .world import subject

#: The provider's capabilities, and "" for cases that need none.
HAS = ("", "instances", "load_balancers", KEEPS, "routes")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hetzner_passes(case: Case) -> None:
    async with subject() as given:
        result = await check(case, given)
    expected = Outcome.PASSED if case.needs in HAS else Outcome.NOT_APPLICABLE
    assert result.outcome is expected, result.detail
