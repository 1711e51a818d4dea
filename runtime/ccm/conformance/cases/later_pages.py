# SPDX-License-Identifier: Apache-2.0
"""Listings in pages: all pages are read, and a failure on a later page is not taken for the end of the listing."""

from __future__ import annotations

from ccm.cloud import LoadBalancerSpec, Transient

from ..trial import Failed, Trial
from ..world import NotRun, Trouble
from .collection import Collection
from .failing import troubled

COLLECTION = Collection("later_pages")
case = COLLECTION.case

#: How many instances are listed; some are created if there are fewer.
SEVERAL = 4


@case(needs="instances")
async def a_failure_among_instances_is_transient(trial: Trial) -> None:
    """If a later page of instances fails, the listing raises Transient, or `total` shows that some are missing.
    Otherwise, the instances on that page would count as deleted."""
    await trial.some_instances(SEVERAL)
    if (await trial.ask(trial.instances.list_page, None)).next is None:
        raise NotRun("needs a listing of instances with several pages")
    async with troubled(trial, "instances", Trouble.LATER_PAGE):
        try:
            pages = await trial.pages()
        except Transient:
            return
    count, total = sum(len(page.instances) for page in pages), pages[-1].total
    if total is None or count >= total:
        raise Failed(f"the second page failed, and the listing ended with {count} instances as if it were complete")


@case(needs="load_balancers", writes=True)
async def all_load_balancers_are_listed(trial: Trial) -> None:
    """If the cloud lists load balancers in pages, `list` reads all pages, because a load balancer that it misses counts
    as deleted."""
    specs = await _more_than_a_page(trial)
    listed = {each.service_uid for each in await trial.owned()}
    if missing := {spec.uid for spec in specs} - listed:
        raise Failed(
            f"{len(specs)} load balancers exist, and the listing has {len(specs) - len(missing)}: it does not read all "
            f"pages of the cloud ({trial.world.load_balancers_in_a_page} in each)"
        )


@case(needs="load_balancers", writes=True)
async def a_failure_among_load_balancers_is_transient(trial: Trial) -> None:
    """If a later page of load balancers fails, `list` raises Transient. Otherwise, the load balancers on that page
    would count as deleted."""
    trouble, specs = troubled(trial, "load_balancers", Trouble.LATER_PAGE), await _more_than_a_page(trial)
    async with trouble:
        when = f"list of {len(specs)} load balancers when {Trouble.LATER_PAGE.value}"
        await trial.expect((Transient,), when, trial.load_balancers.list, trial.cluster)


async def _more_than_a_page(trial: Trial) -> list[LoadBalancerSpec]:
    if not (page := trial.world.load_balancers_in_a_page):
        raise NotRun("needs to know how many load balancers are in a page of the cloud (load_balancers_in_a_page)")
    backends, specs = await trial.backends(), [trial.spec() for _ in range(page + 1)]
    for spec in specs:
        await trial.ensure(spec, backends)
    return specs
