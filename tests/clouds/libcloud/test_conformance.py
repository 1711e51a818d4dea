# SPDX-License-Identifier: Apache-2.0
"""The provider `libcloud` passes the conformance kit's cases about instances over HTTP, with the driver of
DigitalOcean. It has no other capability.
"""

from __future__ import annotations

import pytest

from ccm.conformance import CASES, Case, Outcome
from tests.kit import check

from .droplets import subject

#: This case cannot run: the driver itself follows pages. `test_listings.py` shows what happens if a later page fails.
PAGES = "later_pages.a_failure_among_instances_is_transient"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_libcloud_passes(case: Case) -> None:
    async with subject() as given:
        result = await check(case, given)
    ours = Outcome.NOT_RUN if case.name == PAGES else Outcome.PASSED
    expected = ours if case.needs in ("", "instances") else Outcome.NOT_APPLICABLE
    assert result.outcome is expected, result.detail
