# SPDX-License-Identifier: Apache-2.0
"""`pytest --pyargs ccm.conformance --ccm-provider NAME --ccm-cloud-config FILE`: the kit as tests."""

from __future__ import annotations

import asyncio

import pytest

from ccm.cloud import ConfigError

from . import CASES, Case, Outcome, Subject, check
from .command import subject


@pytest.fixture(scope="session")
def examined(pytestconfig: pytest.Config) -> Subject:
    option = pytestconfig.getoption
    if not (name := option("ccm_provider")):
        pytest.fail("the provider is missing: set --ccm-provider NAME", pytrace=False)
    try:
        return subject(
            name,
            option("ccm_cloud_config"),
            option("ccm_allow_writes"),
            option("ccm_route_cidr"),
            option("ccm_patience"),
        )
    except ConfigError as error:
        pytest.fail("\n".join(error.problems), pytrace=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_conformance(case: Case, examined: Subject) -> None:
    result = asyncio.run(check(case, examined))
    if result.outcome in (Outcome.NOT_RUN, Outcome.NOT_APPLICABLE):
        pytest.skip(f"{result.outcome.value}: {result.detail}")
    if result.outcome is Outcome.FAILED:
        pytest.fail(f"{case.summary}\n{result.detail}", pytrace=False)
