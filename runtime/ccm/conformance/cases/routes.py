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

#: The methods that call the cloud.
ALL = ("list", "create", "delete")


@case()
async def routes_are_listed(trial: Trial) -> None:
    """The listing has all routes of the network, each with its destination; `concurrency` is a positive number."""
    if not isinstance(trial.routes.concurrency, int) or trial.routes.concurrency < 1:
        raise Failed(f"Routes.concurrency is {trial.routes.concurrency!r}")
    for route in await trial.ask(trial.routes.list, trial.cluster):
        if not route.destination:
            raise Failed(f"a route without a destination is listed: {route}")


@case(writes=True)
async def a_route_lives_from_create_to_delete(trial: Trial) -> None:
    """A route is created, is listed with its instance, and is gone after its deletion; deleting it once more
    succeeds."""
    target = (await trial.some_instances())[0]
    route = await _create(trial, target)
    if not _leads_to(route, target):
        raise Failed(f"created to {target.provider_id}, listed as {route}")
    if route.owner not in ("", trial.cluster):
        raise Failed(f"created for cluster {trial.cluster}, owned by {route.owner!r}: it would never be changed")
    await trial.patiently(trial.routes.delete, trial.cluster, route)
    if await _listed(trial):
        raise Failed(f"the route {route} was deleted and is still listed")
    await trial.patiently(trial.routes.delete, trial.cluster, route)


@case(writes=True)
async def a_route_leads_to_its_own_instance(trial: Trial) -> None:
    """Target addresses of another instance are rejected with Conflict or Invalid, or ignored. Otherwise the traffic for
    the Pods of one Node would reach another machine, whose check of source addresses would be switched off."""
    target, other = (await trial.some_instances())[:2]
    theirs = _ips(other)
    if not theirs or {address.address for address in target.addresses} & set(theirs):
        raise NotRun("needs two instances with separate addresses")
    if listed := await _listed(trial):
        raise NotRun(f"the range of the kit's routes is in use ({listed[0]}): choose another one with --route-cidr")
    _remove_at_end(trial)
    with contextlib.suppress(Conflict, Invalid):
        desired = dataclasses.replace(_route_to(trial, target), target_addresses=theirs)
        await trial.patiently(trial.routes.create, trial.cluster, desired)
    for route in await _listed(trial):
        if not _leads_to(route, target) or set(route.target_addresses or ()) & set(theirs):
            raise Failed(f"created to {target.provider_id} with addresses of {other.provider_id}, listed as {route}")


@case(writes=True)
async def a_route_can_be_matched_to_its_instance(trial: Trial) -> None:
    """A route created with the addresses of its Node, as by the framework, is listed with the providerID of its
    instance, or without a providerID and with addresses of this instance only. So the framework finds the Node."""
    target = (await trial.some_instances())[0]
    if not _ips(target):
        raise NotRun("needs an instance with an IP address")
    route = await _create(trial, target, dataclasses.replace(_route_to(trial, target), target_addresses=_ips(target)))
    if not _leads_to(route, target) or not set(route.target_addresses or ()) <= set(_ips(target)):
        raise Failed(f"created to {target.provider_id} at {', '.join(_ips(target))}, listed as {route}")


@case(writes=True)
async def a_route_is_there_once(trial: Trial) -> None:
    """`create` of an existing route succeeds, or raises Conflict or RetryAfter, and creates no second route."""
    target = (await trial.some_instances())[0]
    await _create(trial, target)
    with contextlib.suppress(Conflict, RetryAfter):
        await trial.ask(trial.routes.create, trial.cluster, _route_to(trial, target))
    if len(listed := await _listed(trial)) != 1:
        raise Failed(f"created twice, the listing has {listed}")


@case(writes=True)
async def a_route_to_nowhere_shows(trial: Trial) -> None:
    """After the deletion of its instance, a route is gone, or listed as a blackhole or without an instance."""
    target = await trial.new_instance()
    await _create(trial, target)
    await trial.world.delete_instance(target.provider_id)
    for route in await _listed(trial):
        if route.provider_id and not route.blackhole:
            raise Failed(f"{target.provider_id} was deleted, and its route is listed as {route}")


@case(writes=True)
async def a_server_error_is_transient(trial: Trial) -> None:
    """A 5xx from the cloud is Transient for `list`, `create` and `delete`: no route counts as gone because of it."""
    await _asked_in(trial, Trouble.SERVER_ERROR, Transient, *ALL)


@case(writes=True)
async def a_proxys_404_is_not_not_found(trial: Trial) -> None:
    """A 404 that does not come from the cloud itself, or is not about this route, is Transient for all methods."""
    await _asked_in(trial, Trouble.PROXY_PAGE, Transient, *ALL)


@case(writes=True)
async def an_answer_cut_short_is_transient(trial: Trial) -> None:
    """A truncated listing is Transient; the part that was read is not used."""
    await _asked_in(trial, Trouble.CUT_ANSWER, Transient, "list")


@case(writes=True)
async def a_rate_limit_says_when_to_come_back(trial: Trial) -> None:
    """429 and similar answers are RateLimited, with the seconds that the cloud asks to wait, for reads and writes."""
    say_when(await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited, *ALL))


@case(writes=True)
async def no_answer_is_transient(trial: Trial) -> None:
    """If a cloud never answers, `list` and `delete` raise Transient, unless the deadline ends the call first."""
    await _asked_in(trial, Trouble.HANG, Transient, "list", "delete")


async def _asked_in(trial: Trial, kind: Trouble, expected: type[CloudError], *methods: str) -> list[CloudError]:
    """Return the errors of these methods during trouble. Raises Failed if they changed an existing route."""
    trouble, target = troubled(trial, "routes", kind), (await trial.some_instances())[0]
    routes, route = trial.routes, await _create(trial, target)
    calls = {
        "list": (routes.list, trial.cluster),
        "create": (routes.create, trial.cluster, _route_to(trial, target)),
        "delete": (routes.delete, trial.cluster, route),
    }
    errors = await errors_in(trial, trouble, kind, expected, [calls[method] for method in methods])
    if (after := await _listed(trial)) != [route]:
        raise Failed(f"{kind.value}; before that, {route} was listed, and afterwards {after}")
    return errors


def _route_to(trial: Trial, target: Instance) -> Route:
    return Route(trial.subject.route_cidr, target.provider_id)


def _ips(instance: Instance) -> tuple[str, ...]:
    return tuple(each.address for each in instance.addresses if each.type.endswith("IP"))


def _leads_to(route: Route, target: Instance) -> bool:
    """Return whether a route leads to the instance: by its providerID, or without one by addresses of this instance
    only."""
    if route.provider_id or not route.target_addresses:
        return route.provider_id == target.provider_id and not route.blackhole
    return not route.blackhole and set(route.target_addresses) <= set(_ips(target))


async def _create(trial: Trial, target: Instance, desired: Route | None = None) -> Route:
    """Create a route and return it as listed; it is removed at the end. Raises NotRun if the range of the kit's routes
    is in use, and Failed if the new route is not listed."""
    if listed := await _listed(trial):
        raise NotRun(f"the range of the kit's routes is in use ({listed[0]}): choose another one with --route-cidr")
    _remove_at_end(trial)
    await trial.patiently(trial.routes.create, trial.cluster, desired or _route_to(trial, target))
    if not (listed := await _listed(trial)):
        raise Failed(f"a route to {target.provider_id} was created but is not listed")
    return listed[0]


def _remove_at_end(trial: Trial) -> None:
    async def remove() -> None:
        for route in await _listed(trial):
            await trial.patiently(trial.routes.delete, trial.cluster, route)

    trial.at_end(f"route {trial.subject.route_cidr}", remove)


async def _listed(trial: Trial) -> list[Route]:
    routes = await trial.ask(trial.routes.list, trial.cluster)
    return [route for route in routes if route.destination == trial.subject.route_cidr]
