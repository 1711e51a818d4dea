# SPDX-License-Identifier: Apache-2.0
"""Load balancers: made once, told from others', changed in place, and removed to the last rest."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import time
from collections.abc import Callable, Sequence

from ccm.cloud import (
    Backend,
    Backends,
    CloudError,
    Conflict,
    Invalid,
    LoadBalancer,
    LoadBalancers,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    RateLimited,
    RetryAfter,
    Transient,
)

from ..trial import Failed, Trial, described
from ..world import NotRun, Trouble
from .collection import Collection
from .failing import errors_in, say_when, troubled

COLLECTION = Collection("load_balancers", needs="load_balancers")
case = COLLECTION.case

#: How long a call may take that waits for nothing, in seconds.
AT_ONCE = 5.0
#: The methods that ask the cloud.
ALL = ("list", "get", "ensure", "update_backends", "delete")


@case()
async def one_that_is_not_there_is_not_found(trial: Trial) -> None:
    """`get` of a Service without one is NotFound, and it is in no listing."""
    spec = trial.spec()
    await trial.expect((NotFound,), "get of a load balancer that was never made", trial.load_balancers.get, spec)
    if await trial.owned():
        raise Failed(f"the unknown cluster {trial.cluster} is told to own load balancers")


@case(writes=True)
async def deleting_nothing_succeeds(trial: Trial) -> None:
    """`delete` is done when nothing is left; where there was nothing, it may say NotFound."""
    await trial.delete(trial.spec())


@case(writes=True)
async def updating_one_that_is_gone_is_not_found(trial: Trial) -> None:
    """`update_backends` without a load balancer is NotFound: the framework then makes it again."""
    call, spec = trial.load_balancers.update_backends, trial.spec()
    await trial.expect((NotFound,), "update_backends of one that is not there", call, spec, await trial.backends())


@case()
async def the_fingerprint_tells_wishes_apart(trial: Trial) -> None:
    """The same for the same wish, from another object and for backends in another order; another one for any change."""
    spec, backends, fingerprint = trial.spec(), await trial.backends(), trial.load_balancers.fingerprint
    same = fingerprint(spec, backends)
    if not isinstance(same, str) or not same:
        raise Failed(f"the fingerprint is {same!r}")
    async with trial.another() as other:
        assert other.load_balancers is not None
        if fingerprint(spec, backends) != same or other.load_balancers.fingerprint(spec, backends) != same:
            raise Failed("the same wish has different fingerprints: every Service would be written at each start")
    if fingerprint(spec, backends[::-1]) != same:
        raise Failed("the order of backends changes the fingerprint, and it means nothing")
    changed = dataclasses.replace(spec, ports=(dataclasses.replace(spec.ports[0], node_port=30081),))
    if fingerprint(changed, backends) == same:
        raise Failed("another node port does not change the fingerprint: the change would never be written")
    if backends and fingerprint(spec, backends[1:]) == same:
        raise Failed("another backend does not change the fingerprint: the change would never be written")


@case()
async def what_is_kept_with_backends_is_no_single_services(trial: Trial) -> None:
    """All Services share one `Backends`: what `fingerprint` keeps there by `once` for one of them is right for all."""
    shared, first = await trial.backends(), trial.spec()
    fingerprint = trial.load_balancers.fingerprint
    fingerprint(first, shared)
    for other in (
        trial.spec(port=81),
        dataclasses.replace(trial.spec(), session_affinity="ClientIP", session_affinity_timeout=10800),
        dataclasses.replace(trial.spec(), external_traffic_policy="Local", health_check_node_port=32000),
        dataclasses.replace(trial.spec(), source_ranges=("198.51.100.0/24",)),
    ):
        if _said(fingerprint, other, shared) != _said(fingerprint, other, Backends(shared)):
            raise Failed("the fingerprint of a Service depends on which Service asked before, for the same backends")


def _said(fingerprint: Callable[..., str], spec: LoadBalancerSpec, backends: Backends) -> object:
    """The fingerprint, or which error of the contract says that the cloud has no such load balancer."""
    try:
        return fingerprint(spec, backends)
    except CloudError as error:
        return type(error)


@case(writes=True)
async def it_lives_from_ensure_to_delete(trial: Trial) -> None:
    """Made, ready with an address, listed for its Service with the fingerprint of the wish, deleted, gone."""
    spec, backends = trial.spec(), await trial.backends()
    found = await trial.ensure(spec, backends)
    if not found.ingress or not all(each.hostname or _is_ip(each.ip) for each in found.ingress):
        raise Failed(f"it is ready, but its ingress is {found.ingress!r}")
    listed = await _one(trial, spec)
    if listed.fingerprint != trial.load_balancers.fingerprint(spec, backends):
        raise Failed(f"the fingerprint in the cloud is {listed.fingerprint!r}, not that of what was written")
    await trial.delete(spec)
    await trial.expect((NotFound,), "get of the deleted load balancer", trial.load_balancers.get, spec)
    if await trial.owned():
        raise Failed("it was deleted and is still listed")


@case(writes=True)
async def ensuring_again_changes_nothing(trial: Trial) -> None:
    """`ensure` is idempotent: the same load balancer, the same address, and no second one."""
    spec, backends = trial.spec(), await trial.backends()
    first = await trial.ensure(spec, backends)
    again = await trial.ensure(spec, backends)
    if (first.name, first.ingress) != (again.name, again.ingress):
        raise Failed(f"ensured twice: first {first}, then {again}")
    await _one(trial, spec)


@case(writes=True)
async def a_change_is_written_in_place(trial: Trial) -> None:
    """Another port is written to the same load balancer, which keeps its address."""
    spec, backends = trial.spec(), await trial.backends()
    first = await trial.ensure(spec, backends)
    changed = dataclasses.replace(spec, ports=(dataclasses.replace(spec.ports[0], port=81, node_port=30081),))
    second = await trial.ensure(changed, backends)
    if first.ingress != second.ingress:
        raise Failed(f"with another port its address changed from {first.ingress} to {second.ingress}")
    if (await _one(trial, spec)).fingerprint != trial.load_balancers.fingerprint(changed, backends):
        raise Failed("the fingerprint in the cloud is not that of the change")


@case(writes=True)
async def backends_are_updated(trial: Trial) -> None:
    """`update_backends` writes the backends, and the fingerprint says so afterwards."""
    spec, backends = trial.spec(), await trial.backends()
    await trial.ensure(spec, backends)
    await trial.patiently(trial.load_balancers.update_backends, spec, backends[1:])
    await trial.ready(spec)
    if (await _one(trial, spec)).fingerprint != trial.load_balancers.fingerprint(spec, backends[1:]):
        raise Failed("the fingerprint in the cloud is not that of the updated backends")


@case(writes=True)
async def members_have_the_addresses_that_are_given(trial: Trial) -> None:
    """A load balancer sends to addresses of its backends as they are given, and to each backend that has one. The
    framework leaves out what a Node claims and its instance does not have: a provider that looks up addresses itself,
    or adds others, would bring them back."""
    spec, (first, second, *_) = trial.spec(), await _two_backends(trial)
    without = dataclasses.replace(first, addresses=())
    for call, backends in (
        (trial.load_balancers.ensure, [first, second]),
        (trial.load_balancers.update_backends, [without, second]),
        (trial.load_balancers.ensure, [first]),
    ):
        trial.remove_at_end(spec)
        await trial.patiently(call, spec, backends)
        found = await trial.world.load_balancer_members((await trial.ready(spec)).name)
        allowed = {each.node_name: {address.address for address in each.addresses} for each in backends}
        if strange := found - set().union(*allowed.values()):
            raise Failed(f"it sends to {', '.join(sorted(strange))}, which no backend was given")
        if lacking := [name for name, addresses in allowed.items() if addresses and not addresses & found]:
            raise Failed(f"it sends to {', '.join(sorted(found)) or 'nothing'}, and not to {', '.join(lacking)}")


@case(writes=True)
async def services_do_not_touch_each_other(trial: Trial) -> None:
    """Two Services have a load balancer each; deleting one leaves the other as it is."""
    one, two, backends = trial.spec(), trial.spec(), await trial.backends()
    await trial.ensure(one, backends)
    await trial.ensure(two, backends)
    kept = await _one(trial, two)
    if (uids := {each.service_uid for each in await trial.owned()}) != {one.uid, two.uid}:
        raise Failed(f"Services {one.uid} and {two.uid} have one each, listed are those of {sorted(uids)}")
    await trial.delete(one)
    if (left := await _one(trial, two)).ingress != kept.ingress:
        raise Failed(f"after the other one was deleted it is {left}, and was {kept}")


@case(writes=True)
async def another_clusters_is_never_touched(trial: Trial) -> None:
    """A Service of the same UID in another cluster: refused with Conflict or given one of its own. Never adopted, and
    never deleted."""
    ours, backends = trial.spec(), await trial.backends()
    theirs = dataclasses.replace(ours, cluster=f"{trial.cluster}-other")
    await trial.ensure(theirs, backends)
    before = await _one(trial, theirs)
    trial.remove_at_end(ours)
    with contextlib.suppress(Conflict):
        await trial.patiently(trial.load_balancers.ensure, ours, [])
    _same(before, await _one(trial, theirs), "ensuring one for another cluster")
    if any((each.name, each.ingress) == (before.name, before.ingress) for each in await trial.owned()):
        raise Failed(f"the other cluster's load balancer {before.name} is listed as ours")
    with contextlib.suppress(Conflict):
        await trial.delete(ours)
    _same(before, await _one(trial, theirs), "deleting the one of another cluster")


@case(writes=True)
async def an_address_of_another_service_is_refused(trial: Trial) -> None:
    """A Service asks (`spec.loadBalancerIP`) for the address that another one has: it is refused, or gets another
    address. After a restart, too, even if it is the first to ask. The other Service keeps its address."""
    owner, backends = trial.spec(), await trial.backends()
    before = await trial.ensure(owner, backends)
    wanted = next((each.ip for each in before.ingress if _is_ip(each.ip)), "")
    if not wanted:
        raise NotRun("needs a load balancer that has an IP address")
    await _refused(trial, trial.load_balancers, wanted, backends, "at once")
    _same(before, await _one(trial, owner), "asking for its address")
    async with trial.another() as restarted:
        await trial.ask(restarted.start)
        assert restarted.load_balancers is not None
        await _refused(trial, restarted.load_balancers, wanted, backends, "after a restart")
        as_published = dataclasses.replace(owner, ingress=before.ingress)
        kept = await trial.patiently(restarted.load_balancers.ensure, as_published, backends)
    if kept.ready and kept.ingress != before.ingress:
        raise Failed(f"after a restart its address changed from {before.ingress} to {kept.ingress}")


@case(writes=True)
async def a_lost_answer_makes_no_second_one(trial: Trial) -> None:
    """The load balancer was made and the answer got lost: the next `ensure` finds it."""
    spec, backends = trial.spec(), await trial.backends()
    trial.remove_at_end(spec)
    async with trial.world.trouble(Trouble.LOST_ANSWER):
        with contextlib.suppress(CloudError):
            await trial.ask_once(trial.load_balancers.ensure, spec, backends)
    await trial.ensure(spec, backends)
    await _one(trial, spec)


@case(writes=True)
async def nothing_is_waited_for(trial: Trial) -> None:
    """While the cloud works for a minute, `ensure` answers `ready=False`, or raises RetryAfter, at once."""
    spec, backends = trial.spec(), await trial.backends()
    async with trial.world.trouble(Trouble.SLOW_LOAD_BALANCERS):
        trial.remove_at_end(spec)
        started = time.monotonic()
        try:
            found = await trial.ask(trial.load_balancers.ensure, spec, backends)
        except RetryAfter:
            found = None
        if (took := time.monotonic() - started) > AT_ONCE:
            raise Failed(f"ensure took {took:.1f} s: a worker was held while the cloud works")
        if found is not None and found.ready:
            raise Failed("ensure says that it is ready, while the cloud still works on it")


@case(writes=True)
async def one_that_failed_is_told_and_replaced(trial: Trial) -> None:
    """One in the cloud's error state is a Conflict for `get`, and `ensure` makes a good one of it."""
    spec, backends = trial.spec(), await trial.backends()
    found = await trial.ensure(spec, backends)
    await trial.world.break_load_balancer(found.name)
    await trial.expect((Conflict,), "get of a load balancer that failed", trial.load_balancers.get, spec)
    await trial.ensure(spec, backends)
    await _one(trial, spec)


@case(writes=True)
async def one_that_failed_is_deleted(trial: Trial) -> None:
    """Leftovers in the cloud's error state are removed, too."""
    spec = trial.spec()
    found = await trial.ensure(spec, await trial.backends())
    await trial.world.break_load_balancer(found.name)
    await trial.delete(spec)
    if await trial.owned():
        raise Failed("it had failed, was deleted, and is still listed")


@case(writes=True)
async def a_half_made_one_is_completed(trial: Trial) -> None:
    """A write failed, and left a part of a load balancer: the next `ensure` makes a good one, and no second one, and
    `delete` then leaves no part of either."""
    spec = trial.spec()
    before = await _half_made(trial, spec)
    await trial.ensure(spec, await trial.backends())
    await _one(trial, spec)
    await trial.delete(spec)
    await _nothing_left(trial, before)


@case(writes=True)
async def a_half_made_one_is_deleted(trial: Trial) -> None:
    """A write failed, and left a part of a load balancer: `delete` removes it, although nothing completed it."""
    spec = trial.spec()
    before = await _half_made(trial, spec)
    await trial.delete(spec)
    await _nothing_left(trial, before)


@case(writes=True)
async def a_server_error_is_transient(trial: Trial) -> None:
    """The cloud's own 5xx is Transient, whatever is asked: no load balancer is gone then, and no listing is empty."""
    await _asked_in(trial, Trouble.SERVER_ERROR, Transient, *ALL)


@case(writes=True)
async def a_proxys_404_is_not_not_found(trial: Trial) -> None:
    """A 404 that is not the cloud's own answer about just this load balancer is Transient, whatever is asked: taken for
    NotFound, it leaves one behind that nobody looks for."""
    await _asked_in(trial, Trouble.PROXY_PAGE, Transient, *ALL)


@case(writes=True)
async def an_answer_cut_short_is_transient(trial: Trial) -> None:
    """A listing, or a load balancer, that cannot be read to its end is Transient, and no answer with what was read."""
    await _asked_in(trial, Trouble.CUT_ANSWER, Transient, "list", "get")


@case(writes=True)
async def a_rate_limit_says_when_to_come_back(trial: Trial) -> None:
    """429 and its like are RateLimited, with the seconds that the cloud names, for reads and for writes."""
    say_when(await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited, *ALL))


@case(writes=True)
async def no_answer_is_transient(trial: Trial) -> None:
    """A cloud that never answers is Transient for `get` and `delete`, if the provider ends the call before its
    deadline does."""
    await _asked_in(trial, Trouble.HANG, Transient, "get", "delete")


async def _asked_in(trial: Trial, kind: Trouble, expected: type[CloudError], *methods: str) -> list[CloudError]:
    """The errors of these methods while there is a load balancer, which is there afterwards as before."""
    trouble, found = troubled(trial, "load_balancers", kind), trial.load_balancers
    spec, backends = trial.spec(), await trial.backends()
    await trial.ensure(spec, backends)
    before = await _one(trial, spec)
    changed = dataclasses.replace(spec, ports=(dataclasses.replace(spec.ports[0], port=81, node_port=30081),))
    calls = {
        "list": (found.list, spec.cluster),
        "get": (found.get, spec),
        "ensure": (found.ensure, changed, backends),
        "update_backends": (found.update_backends, spec, backends[1:]),
        "delete": (found.delete, spec),
    }
    errors = await errors_in(trial, trouble, kind, expected, [calls[method] for method in methods])
    _same(before, await _one(trial, spec), f"asking while {kind.value}")
    return errors


async def _refused(trial: Trial, balancers: LoadBalancers, wanted: str, backends: Sequence[Backend], when: str) -> None:
    """A new Service does not get the address `wanted`."""
    spec = dataclasses.replace(trial.spec(), load_balancer_ip=wanted)
    trial.remove_at_end(spec)
    try:
        found = await trial.patiently(balancers.ensure, spec, backends)
    except (Conflict, Invalid, NotImplementedByCloud):
        return
    if not found.ready:
        found = await trial.ready(spec)
    if any(each.ip == wanted for each in found.ingress):
        raise Failed(f"asked for {wanted} {when}, a Service gets that address, which another Service has")


async def _two_backends(trial: Trial) -> list[Backend]:
    found = [each for each in await trial.backends() if each.internal_ip]
    if len(found) < 2:
        raise NotRun("needs two instances with an InternalIP")
    return found


async def _half_made(trial: Trial, spec: LoadBalancerSpec) -> frozenset[str]:
    """A load balancer of which a part is there. Gives the parts of others. Removed at the end."""
    trouble = troubled(trial, "load_balancers", Trouble.HALF_MADE)
    before, backends = await trial.world.load_balancer_parts(), await trial.backends()
    trial.remove_at_end(spec)
    async with trouble:
        try:
            await trial.patiently(trial.load_balancers.ensure, spec, backends, transients=0)
        except CloudError as error:
            failure = described(error)
        else:
            raise NotRun("needs a load balancer that is made in several steps, of which one can fail; it was made")
    if not await trial.world.load_balancer_parts() - before:
        raise NotRun(f"needs a part of a load balancer; nothing is left when it fails ({failure})")
    return before


async def _nothing_left(trial: Trial, before: frozenset[str]) -> None:
    if await trial.owned():
        raise Failed("it was deleted and is still listed")
    if left := await trial.world.load_balancer_parts() - before:
        raise Failed(f"it was deleted, and left behind is {', '.join(sorted(left))}")


async def _one(trial: Trial, spec: LoadBalancerSpec) -> LoadBalancer:
    """The only one that the listing has for this Service."""
    found = [each for each in await trial.owned(spec.cluster) if each.service_uid == spec.uid]
    if len(found) != 1:
        raise Failed(f"Service {spec.uid} of cluster {spec.cluster} has {len(found)} load balancers in the listing")
    return found[0]


def _same(before: LoadBalancer, after: LoadBalancer, what: str) -> None:
    if (before.name, before.ingress, before.fingerprint) != (after.name, after.ingress, after.fingerprint):
        raise Failed(f"{what} changed the load balancer from {before} to {after}")


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
