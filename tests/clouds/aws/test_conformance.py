# SPDX-License-Identifier: Apache-2.0
"""The provider `aws` passes the conformance kit on moto, except for cases that are impossible on AWS."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from ccm.conformance import CASES, Case, Outcome, Subject
from ccm.conformance.kit import DRAINS, KEEPS
from ccm.providers.aws import AwsCloud
from tests.kit import check

from .account import KEYS, Account
from .proxy import Proxy
from .world import AwsWorld, ClassicWorld, config

#: The provider's capabilities, and "" for cases that need none.
HAS = ("", "instances", "load_balancers", DRAINS, KEEPS, "routes", "volumes", "instance_tags")
#: Cases that cannot run, because EC2 reports no total of a listing, and because a load balancer's address is a name.
NOT_RUN = {
    "failures.a_listing_cut_short_shows",
    "failures.what_a_short_listing_lacks_is_not_gone",
    "load_balancers.an_address_of_another_service_is_refused",
}
#: Cases that cannot run with Classic Load Balancers, because these exist at once and never fail.
NOT_CLASSIC = {
    "load_balancers.nothing_is_waited_for",
    "load_balancers.one_that_failed_is_reported_and_replaced",
    "load_balancers.one_that_failed_is_deleted",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_aws_passes(case: Case, account: Account, proxy: Proxy) -> None:
    await passes(case, account, proxy, AwsWorld(account, proxy), "nlb", NOT_RUN)


@pytest.mark.parametrize("case", [each for each in CASES if each.needs == "load_balancers"], ids=lambda case: case.name)
async def test_aws_passes_with_classic_load_balancers(case: Case, account: Account, proxy: Proxy) -> None:
    await passes(case, account, proxy, ClassicWorld(account, proxy), "classic", NOT_RUN | NOT_CLASSIC)


async def passes(
    case: Case, account: Account, proxy: Proxy, world: AwsWorld, type_: str, not_run: Collection[str]
) -> None:
    for zone in "abaaba":
        account.run(zone=zone)
    given = Subject(
        "aws",
        AwsCloud,
        config(account, proxy, type_=type_),
        allow_writes=True,
        world=world,
        secrets=tuple(KEYS.values()),
    )
    result = await check(case, given)
    expected = Outcome.PASSED if case.needs in HAS else Outcome.NOT_APPLICABLE
    if case.name in not_run:
        expected = Outcome.NOT_RUN
    assert result.outcome is expected, result.detail
