# SPDX-License-Identifier: Apache-2.0
"""The provider `gce` passes all cases about instances on the stand-in, except for one that is impossible on Compute
Engine."""

from __future__ import annotations

import pytest

from ccm.conformance import CASES, Case, Outcome
from tests.kit import check

from .world import ONE_ID, subject

#: The excluded case: a new instance of the same name in the same zone has the same providerID.
SAME_ID = "instances.an_instance_created_again_is_another_one"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_gce_passes(case: Case) -> None:
    async with subject() as given:
        result = await check(case, given)
    if case.name == SAME_ID:
        assert result.outcome is Outcome.NOT_RUN and ONE_ID in result.detail
        return
    expected = Outcome.PASSED if case.needs in ("", "instances") else Outcome.NOT_APPLICABLE
    assert result.outcome is expected, result.detail
