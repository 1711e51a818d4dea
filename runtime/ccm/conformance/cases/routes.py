# SPDX-License-Identifier: Apache-2.0
"""Routes from pod CIDRs to instances."""

from __future__ import annotations

import contextlib
import dataclasses

from ccm.cloud import CloudError, Conflict, Instance, Invalid, RateLimited, RetryAfter, Route, Transient

from ..trial import Failed, Trial
from ..world import NotRun, Trouble
from .collection import Collection
from .failing import errors_in, say_when, troubled

COLLECTION = Collection("routes", needs="routes")
case = COLLECTION.case

#: The methods that ask the cloud.
ALL = ("list", "create", "delete")


@case()
async def routes_are_listed(trial: Trial) -> None:
    """All routes of the network, each with its destination; how many at a time may be changed is a number."""
    if not isinstance(trial.routes.concurrency, int) or trial.routes.concurrency < 1:
        raise Failed(f"Routes.concurrency is {trial.routes.concurrency!r}")
    for route in await trial.ask(trial.routes.list, trial.cluster):
        if not route.destination:
            raise Failed(f"a route without a destination is listed: {route}")


@case(writes=True)
async def a_route_lives_from_create_to_delete(trial: Trial) -> None:
    """Made, listed with its instance and a handle, deleted, gone; deleting it once more succeeds."""
    target = (await trial.some_instances())[0]
    route = await _create(trial, target)
    if not _leads_to(route, target):
        raise Failed(f"made to {target.provider_id}, listed as {route}")
    if route.owner not in ("", trial.cluster):
        raise Failed(f"made for cluster {trial.cluster}, listed as {route.owner!r}'s: it would never be touched again")
    if route.owner not in ("", trial.cluster):
        raise Failed(f"made for cluster {trial.cluster}, listed as owned by {route.owner}")
    await trial.patiently(trial.routes.delete, trial.cluster, route)
    if await _listed(trial):
        raise Failed(f"the route {route} was deleted and is still listed")
    await trial.patiently(trial.routes.delete, trial.cluster, route)


@case(writes=True)
async def a_route_leads_to_its_own_instance(trial: Trial) -> None:
    """Target addresses that are another instance's are refused with Conflict or Invalid, or are not used: they would
    lead the Pods of one machine's Node to another machine, and switch off that one's check of source addresses."""
    target, other = (await trial.some_instances())[:2]
    theirs = _ips(other)
    if not theirs or {each.address for each in target.addresses} & set(theirs):
        raise NotRun("needs two instances with addresses of their own")
    if found := await _listed(trial):
        raise NotRun(f"the range of the kit's routes is in use ({found[0]}): choose another one with --route-cidr")
    _remove_at_end(trial)
    with contextlib.suppress(Conflict, Invalid):
        wanted = dataclasses.replace(_wanted(trial, target), target_addresses=theirs)
        await trial.patiently(trial.routes.create, trial.cluster, wanted)
    for route in await _listed(trial):
        if not _leads_to(route, target) or set(route.target_addresses or ()) & set(theirs):
            raise Failed(f"made to {target.provider_id} with addresses of {other.provider_id}, listed as {route}")


@case(writes=True)
async def a_route_can_be_matched_to_its_instance(trial: Trial) -> None:
    """Made with the addresses of its Node, as the framework does, it is listed with the instance's providerID, or with
    no providerID and addresses of this instance alone, by which the framework finds the Node."""
    target = (await trial.some_instances())[0]
    if not _ips(target):
        raise NotRun("needs an instance with an IP address")
    route = await _create(trial, target, dataclasses.replace(_wanted(trial, target), target_addresses=_ips(target)))
    if not _leads_to(route, target) or not set(route.target_addresses or ()) <= set(_ips(target)):
        raise Failed(f"made to {target.provider_id} at {', '.join(_ips(target))}, listed as {route}")


@case(writes=True)
async def a_route_is_there_once(trial: Trial) -> None:
    """Creating a route that is there succeeds or is a Conflict or RetryAfter, and makes no second one."""
    target = (await trial.some_instances())[0]
    await _create(trial, target)
    with contextlib.suppress(Conflict, RetryAfter):
        await trial.ask(trial.routes.create, trial.cluster, _wanted(trial, target))
    if len(found := await _listed(trial)) != 1:
        raise Failed(f"created twice, listed are {found}")


@case(writes=True)
async def a_route_to_nowhere_shows(trial: Trial) -> None:
    """When its instance is deleted, a route is gone, or is listed as a blackhole or without an instance."""
    target = await trial.new_instance()
    await _create(trial, target)
    await trial.world.delete_instance(target.provider_id)
    for route in await _listed(trial):
        if route.provider_id and not route.blackhole:
            raise Failed(f"{target.provider_id} was deleted, and its route is listed as {route}")


@case(writes=True)
async def a_server_error_is_transient(trial: Trial) -> None:
    """The cloud's own 5xx is Transient for `list`, `create` and `delete`: no route is taken for gone then."""
    await _asked_in(trial, Trouble.SERVER_ERROR, Transient, *ALL)


@case(writes=True)
async def a_proxys_404_is_not_not_found(trial: Trial) -> None:
    """A 404 that is not the cloud's own answer about just this route is Transient: it lists none, and removes none."""
    await _asked_in(trial, Trouble.PROXY_PAGE, Transient, *ALL)


@case(writes=True)
async def an_answer_cut_short_is_transient(trial: Trial) -> None:
    """A listing that cannot be read to its end is Transient, and no listing of what was read of it."""
    await _asked_in(trial, Trouble.CUT_ANSWER, Transient, "list")


@case(writes=True)
async def a_rate_limit_says_when_to_come_back(trial: Trial) -> None:
    """429 and its like are RateLimited, with the seconds that the cloud names, for reads and for writes."""
    say_when(await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited, *ALL))


@case(writes=True)
async def no_answer_is_transient(trial: Trial) -> None:
    """A cloud that never answers is Transient for `list` and `delete`, if the provider ends the call before its
    deadline does."""
    await _asked_in(trial, Trouble.HANG, Transient, "list", "delete")


async def _asked_in(trial: Trial, kind: Trouble, expected: type[CloudError], *methods: str) -> list[CloudError]:
    """The errors of these methods while there is a route, which is there afterwards as before."""
    trouble, target = troubled(trial, "routes", kind), (await trial.some_instances())[0]
    routes, route = trial.routes, await _create(trial, target)
    calls = {
        "list": (routes.list, trial.cluster),
        "create": (routes.create, trial.cluster, _wanted(trial, target)),
        "delete": (routes.delete, trial.cluster, route),
    }
    errors = await errors_in(trial, trouble, kind, expected, [calls[method] for method in methods])
    if (after := await _listed(trial)) != [route]:
        raise Failed(f"{kind.value}; before that, {route} was listed, and afterwards {after}")
    return errors


def _wanted(trial: Trial, target: Instance) -> Route:
    return Route(trial.subject.route_cidr, target.provider_id)


def _ips(instance: Instance) -> tuple[str, ...]:
    return tuple(each.address for each in instance.addresses if each.type.endswith("IP"))


def _leads_to(route: Route, target: Instance) -> bool:
    """Whether it names the instance, or addresses of it alone."""
    if route.provider_id or not route.target_addresses:
        return route.provider_id == target.provider_id and not route.blackhole
    return not route.blackhole and set(route.target_addresses) <= set(_ips(target))


async def _create(trial: Trial, target: Instance, wanted: Route | None = None) -> Route:
    """The route as it is listed afterwards. Removed at the end."""
    if found := await _listed(trial):
        raise NotRun(f"the range of the kit's routes is in use ({found[0]}): choose another one with --route-cidr")
    _remove_at_end(trial)
    await trial.patiently(trial.routes.create, trial.cluster, wanted or _wanted(trial, target))
    if not (found := await _listed(trial)):
        raise Failed(f"a route to {target.provider_id} was made and is not listed")
    return found[0]


def _remove_at_end(trial: Trial) -> None:
    async def remove() -> None:
        for route in await _listed(trial):
            await trial.patiently(trial.routes.delete, trial.cluster, route)

    trial.at_end(f"route {trial.subject.route_cidr}", remove)


async def _listed(trial: Trial) -> list[Route]:
    routes = await trial.ask(trial.routes.list, trial.cluster)
    return [route for route in routes if route.destination == trial.subject.route_cidr]
