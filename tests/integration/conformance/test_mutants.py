# SPDX-License-Identifier: Apache-2.0
"""The conformance kit finds defects: a broken provider fails the cases about its defect, and passes all others."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from ccm.cloud import InstanceRef, Page, Transient
from ccm.conformance import CASES, Case, Outcome, Result
from ccm.providers.sim import SimInstances
from ccm.providers.sim.api import Api
from tests.kit import check

from . import mutants_of_services  # noqa: F401  (adds its own to MUTANTS)
from .mutants import MUTANTS, Mutant, with_part
from .simworld import simulated


def waits(case: str) -> bool:
    """Return whether a case takes long. Such cases run only for mutants that must fail one of them."""
    groups, names = ("failures.", "later_pages."), (".no_answer_is_transient", "_in_every_process")
    return case.startswith(groups) or case.endswith(names)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_a_broken_provider_fails_just_what_is_broken(mutant: Mutant) -> None:
    a_few = asyncio.Semaphore(6)

    async def examined(case: Case) -> Result:
        async with a_few, simulated(mutant.create) as subject:  # one cloud each, so that they can run in parallel
            return await check(case, subject)

    cases = [case for case in CASES if not waits(case.name) or any(map(waits, mutant.fails))]
    results = await asyncio.gather(*map(examined, cases))
    failed = {result.case.name: result.detail for result in results if result.outcome is Outcome.FAILED}
    assert failed.keys() == mutant.fails, failed


async def test_a_refusal_that_is_a_rate_limit_is_told_as_such() -> None:
    (mutant,) = [each for each in MUTANTS if each.name == "TakesARefusalForARateLimit"]
    (case,) = [each for each in CASES if each.name in mutant.fails]
    async with simulated(mutant.create) as subject:
        result = await check(case, subject)
    assert result.outcome is Outcome.FAILED and "a refusal is no rate limit" in result.detail


def test_every_case_is_failed_by_a_broken_provider() -> None:
    assert {case.name for case in CASES} == {name for mutant in MUTANTS for name in mutant.fails}


class Blocks(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        time.sleep(10)  # noqa: ASYNC251  (as a client library that is not asynchronous)
        return await super().list_page(token)


class BlocksAndCatchesEverything(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        try:
            time.sleep(10)  # noqa: ASYNC251
        except Exception as error:
            raise Transient(str(error)) from error
        return await super().list_page(token)


class WritesNoTags(Api):
    async def call(self, method: str, path: str, *args: Any, body: Any = None, **kwargs: Any) -> Any:
        if method == "POST" and body and path == "/load-balancers":
            body = body | {"tags": {"service_uid": body["tags"]["service_uid"]}}
        return await super().call(method, path, *args, body=body, **kwargs)

    async def list(self, path: str, kind: Any, query: Any = ()) -> Any:
        own = [each for each in query if each[1].startswith("service_uid:")]
        return await super().list(path, kind, own or query)


class BorrowsAScheme(SimInstances):
    """A provider whose providerIDs look like another cloud's."""

    def owns(self, provider_id: str) -> bool:
        return super().owns(provider_id.replace("gce://", "sim://"))

    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        return Page([borrowed(each) for each in page.instances], page.next, page.total)

    async def get(self, ref: InstanceRef) -> Any:
        own = InstanceRef(ref.node_name, ref.provider_id.replace("gce://", "sim://"))
        return borrowed(await super().get(own))


def borrowed(instance: Any) -> Any:
    return replace(instance, provider_id=instance.provider_id.replace("sim://", "gce://"))


class WithoutAScheme(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        bare = [replace(each, provider_id=each.provider_id.rpartition("/")[2]) for each in page.instances]
        return Page(bare, page.next, page.total)


@pytest.mark.parametrize(
    ("part", "case", "cause"),
    [
        (Blocks, "instances.a_listing_repeats_itself", r"Blocks\.list_page .* blocks the event loop"),
        (BlocksAndCatchesEverything, "instances.a_listing_repeats_itself", r"list_page .* blocks the event loop"),
        (WritesNoTags, "load_balancers.it_lives_from_ensure_to_delete", "does it write the ownership tags"),
        (BorrowsAScheme, "instances.it_owns_what_it_lists", "that of another cloud's controller"),
        (WithoutAScheme, "instances.it_owns_what_it_lists", r"not of the form scheme://"),
    ],
)
async def test_the_cause_is_named(part: type, case: str, cause: str) -> None:
    async with simulated(with_part(part)) as subject:
        result = await check(next(each for each in CASES if each.name == case), subject)
    assert result.outcome is Outcome.FAILED and re.search(cause, result.detail), result
