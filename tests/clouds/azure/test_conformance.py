# SPDX-License-Identifier: Apache-2.0
"""The provider `azure` passes all cases about instances on the stand-in, with single machines and with machines of
scale sets, except for cases that are impossible on Azure."""

from __future__ import annotations

import pytest

from ccm.conformance import CASES, Case, Outcome
from tests.kit import check

from .world import NEVER_SHORT, ONE_ID, subject

#: Impossible with single machines, because a new machine of the same name has the same providerID.
SAME_ID = "instances.an_instance_created_again_is_another_one"
SHORT = ("failures.a_listing_cut_short_shows", "failures.what_a_short_listing_lacks_is_not_gone")


@pytest.mark.parametrize("in_sets", [False, True], ids=["alone", "in scale sets"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_azure_passes(case: Case, in_sets: bool) -> None:
    async with subject(in_sets) as given:
        result = await check(case, given)
    expected = Outcome.PASSED if case.needs in ("", "instances") else Outcome.NOT_APPLICABLE
    if case.name in SHORT or (case.name == SAME_ID and not in_sets):
        assert result.outcome is Outcome.NOT_RUN
        assert (NEVER_SHORT if case.name in SHORT else ONE_ID) in result.detail
        return
    assert result.outcome is expected, result.detail
