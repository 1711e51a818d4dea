# SPDX-License-Identifier: Apache-2.0
"""Load balancers: created once, separated from those of others, updated in place, and deleted completely."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
from collections.abc import Sequence

from ccm.cloud import (
    Backend,
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
    Unauthorized,
)

from ..trial import Failed, Trial, described
from ..world import NotRun, Trouble
from .collection import Collection
from .failing import errors_in, say_when, troubled

COLLECTION = Collection("load_balancers", needs="load_balancers")
case = COLLECTION.case

#: How long a call may take that does not wait for the cloud: `AT_ONCE` seconds, or, if the cloud or the machine is
#: slow, `CALLS` times as long as a listing.
AT_ONCE, CALLS = 5.0, 20
#: The methods that call the cloud.
ALL = ("list", "get", "ensure", "update_backends", "delete")


@case()
async def one_that_is_not_there_is_not_found(trial: Trial) -> None:
    """`get` for a Service without a load balancer raises NotFound, and no listing contains one."""
    spec = trial.spec()
    await trial.expect((NotFound,), "get of a load balancer that never existed", trial.load_balancers.get, spec)
    if await trial.owned():
        raise Failed(f"the listing for the unknown cluster {trial.cluster} contains load balancers")


@case(writes=True)
async def deleting_nothing_succeeds(trial: Trial) -> None:
    """`delete` succeeds if nothing is left; if nothing existed, it may raise NotFound."""
    await trial.delete(trial.spec())


@case(writes=True)
async def updating_one_that_is_gone_is_not_found(trial: Trial) -> None:
    """`update_backends` raises NotFound if there is no load balancer. The framework then creates it again."""
    call, spec = trial.load_balancers.update_backends, trial.spec()
    await trial.expect((NotFound,), "update_backends of one that does not exist", call, spec, await trial.backends())


@case(writes=True)
async def it_lives_from_ensure_to_delete(trial: Trial) -> None:
    """A load balancer is created, becomes ready with an address, is listed for its Service with the current
    fingerprint, and is gone after its deletion."""
    spec, backends = trial.spec(), await trial.backends()
    balancer = await trial.ensure(spec, backends)
    if not balancer.ingress or not all(ingress.hostname or _is_ip(ingress.ip) for ingress in balancer.ingress):
        raise Failed(f"it is ready, but its ingress is {balancer.ingress!r}")
    listed = await _one(trial, spec)
    if listed.fingerprint != trial.load_balancers.fingerprint(spec, backends):
        raise Failed(f"the fingerprint in the cloud is {listed.fingerprint!r}, not that of the last write")
    await trial.delete(spec)
    await trial.expect((NotFound,), "get of the deleted load balancer", trial.load_balancers.get, spec)
    if await trial.owned():
        raise Failed("it was deleted and is still listed")


@case(writes=True)
async def ensuring_again_changes_nothing(trial: Trial) -> None:
    """`ensure` is idempotent: a second call returns the same load balancer with the same address, and creates no other
    one."""
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
    """`update_backends` writes the backends and the new fingerprint."""
    spec, backends = trial.spec(), await trial.backends()
    await trial.ensure(spec, backends)
    await trial.patiently(trial.load_balancers.update_backends, spec, backends[1:])
    await trial.ready(spec)
    if (await _one(trial, spec)).fingerprint != trial.load_balancers.fingerprint(spec, backends[1:]):
        raise Failed("the fingerprint in the cloud is not that of the updated backends")


@case(writes=True)
async def members_have_the_addresses_that_are_given(trial: Trial) -> None:
    """A load balancer sends traffic to the given addresses of its backends, and to each backend that has one. The
    framework leaves out addresses that a Node claims but its instance does not have. A provider that looks up or adds
    addresses itself would bring them back."""
    spec, (first, second, *_) = trial.spec(), await _two_backends(trial)
    without = dataclasses.replace(first, addresses=())
    for call, backends in (
        (trial.load_balancers.ensure, [first, second]),
        (trial.load_balancers.update_backends, [without, second]),
        (trial.load_balancers.ensure, [first]),
    ):
        trial.remove_at_end(spec)
        await trial.patiently(call, spec, backends)
        members = await trial.world.load_balancer_members((await trial.ready(spec)).name)
        allowed = {backend.node_name: {address.address for address in backend.addresses} for backend in backends}
        if strange := members - set().union(*allowed.values()):
            raise Failed(f"it sends to {', '.join(sorted(strange))}, which is not an address of the backends")
        if missing := [name for name, addresses in allowed.items() if addresses and not addresses & members]:
            raise Failed(f"it sends to {', '.join(sorted(members)) or 'nothing'}, and not to {', '.join(missing)}")


@case(writes=True)
async def services_do_not_touch_each_other(trial: Trial) -> None:
    """Two Services have separate load balancers; the deletion of one does not change the other."""
    one, two, backends = trial.spec(), trial.spec(), await trial.backends()
    await trial.ensure(one, backends)
    await trial.ensure(two, backends)
    kept = await _one(trial, two)
    if (uids := {each.service_uid for each in await trial.owned()}) != {one.uid, two.uid}:
        raise Failed(f"Services {one.uid} and {two.uid} have one each, but the listing has those of {sorted(uids)}")
    await trial.delete(one)
    if (left := await _one(trial, two)).ingress != kept.ingress:
        raise Failed(f"after the deletion of the other one it is {left}, and was {kept}")


@case(writes=True)
async def another_clusters_is_never_touched(trial: Trial) -> None:
    """A Service with the same UID in another cluster gets a Conflict or its own load balancer. The existing one is
    never adopted and never deleted."""
    ours, backends = trial.spec(), await trial.backends()
    theirs = dataclasses.replace(ours, cluster=f"{trial.cluster}-other")
    await trial.ensure(theirs, backends)
    before = await _one(trial, theirs)
    trial.remove_at_end(ours)
    with contextlib.suppress(Conflict):
        await trial.patiently(trial.load_balancers.ensure, ours, [])
    _same(before, await _one(trial, theirs), "ensure for another cluster")
    if any((each.name, each.ingress) == (before.name, before.ingress) for each in await trial.owned()):
        raise Failed(f"the other cluster's load balancer {before.name} is listed as ours")
    with contextlib.suppress(Conflict):
        await trial.delete(ours)
    _same(before, await _one(trial, theirs), "delete for another cluster")


@case(writes=True)
async def an_address_of_another_service_is_refused(trial: Trial) -> None:
    """A Service that requests the address of another Service (`spec.loadBalancerIP`) is refused, or gets another
    address. This also holds after a restart, even if this Service is written first. The other Service keeps its
    address."""
    owner, backends = trial.spec(), await trial.backends()
    before = await trial.ensure(owner, backends)
    address = next((ingress.ip for ingress in before.ingress if _is_ip(ingress.ip)), "")
    if not address:
        raise NotRun("needs a load balancer that has an IP address")
    await _refused(trial, trial.load_balancers, address, backends, "at once")
    _same(before, await _one(trial, owner), "a request for its address")
    async with trial.another() as restarted:
        await trial.ask(restarted.start)
        assert restarted.load_balancers is not None
        await _refused(trial, restarted.load_balancers, address, backends, "after a restart")
        as_published = dataclasses.replace(owner, ingress=before.ingress)
        kept = await trial.patiently(restarted.load_balancers.ensure, as_published, backends)
    if kept.ready and kept.ingress != before.ingress:
        raise Failed(f"after a restart its address changed from {before.ingress} to {kept.ingress}")


@case(writes=True)
async def a_lost_answer_makes_no_second_one(trial: Trial) -> None:
    """If the answer to a create is lost, the next `ensure` finds the load balancer and creates no second one."""
    spec, backends = trial.spec(), await trial.backends()
    trial.remove_at_end(spec)
    async with trial.world.trouble(Trouble.LOST_ANSWER):
        with contextlib.suppress(CloudError):
            await trial.ask_once(trial.load_balancers.ensure, spec, backends)
    await trial.ensure(spec, backends)
    await _one(trial, spec)


@case(writes=True)
async def nothing_is_waited_for(trial: Trial) -> None:
    """While the cloud works for a minute, `ensure` returns `ready=False` or raises RetryAfter at once."""
    spec, backends = trial.spec(), await trial.backends()
    async with trial.world.trouble(Trouble.SLOW_LOAD_BALANCERS):
        trial.remove_at_end(spec)
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            answer = await trial.ask(trial.load_balancers.ensure, spec, backends)
        except RetryAfter:
            answer = None
        if (took := clock() - started) > AT_ONCE and took > CALLS * (one := await _seconds_of_a_listing(trial)):
            compared = f"ensure took {took:.1f} s, where a listing takes {one:.1f} s"
            raise Failed(f"{compared}: it blocked a worker while the cloud works")
        if answer is not None and answer.ready:
            raise Failed("ensure returns ready=True while the cloud still works on it")


async def _seconds_of_a_listing(trial: Trial) -> float:
    started = asyncio.get_running_loop().time()
    await trial.owned()
    return asyncio.get_running_loop().time() - started


@case(writes=True)
async def one_that_failed_is_reported_and_replaced(trial: Trial) -> None:
    """For a load balancer in the cloud's error state, `get` raises Conflict, and `ensure` repairs or replaces it."""
    spec, backends = trial.spec(), await trial.backends()
    balancer = await trial.ensure(spec, backends)
    await trial.world.break_load_balancer(balancer.name)
    await trial.expect((Conflict,), "get of a load balancer that failed", trial.load_balancers.get, spec)
    await trial.ensure(spec, backends)
    await _one(trial, spec)


@case(writes=True)
async def one_that_failed_is_deleted(trial: Trial) -> None:
    """`delete` also removes a load balancer that is in the cloud's error state."""
    spec = trial.spec()
    balancer = await trial.ensure(spec, await trial.backends())
    await trial.world.break_load_balancer(balancer.name)
    await trial.delete(spec)
    if await trial.owned():
        raise Failed("it had failed, was deleted, and is still listed")


@case(writes=True)
async def a_half_made_one_is_completed(trial: Trial) -> None:
    """After a write failed and left a part of a load balancer, the next `ensure` completes it without creating a second
    one, and `delete` then leaves no part of it."""
    spec = trial.spec()
    before = await _half_made(trial, spec)
    await trial.ensure(spec, await trial.backends())
    await _one(trial, spec)
    await trial.delete(spec)
    await _nothing_left(trial, before)


@case(writes=True)
async def a_half_made_one_is_deleted(trial: Trial) -> None:
    """After a write failed and left a part of a load balancer, `delete` removes the part without a prior `ensure`."""
    spec = trial.spec()
    before = await _half_made(trial, spec)
    await trial.delete(spec)
    await _nothing_left(trial, before)


@case(writes=True)
async def a_server_error_is_transient(trial: Trial) -> None:
    """A 5xx from the cloud is Transient for all methods: nothing counts as gone or empty because of it."""
    await _asked_in(trial, Trouble.SERVER_ERROR, Transient, *ALL)


@case(writes=True)
async def what_the_cloud_refuses_to_one_service_concerns_it_alone(trial: Trial) -> None:
    """A refusal with an unknown code is about what this Service asks for. So the error is not RateLimited, and a
    Transient or Unauthorized one has `scope="object"`. Otherwise, the refused Services would hold back those of other
    tenants."""
    trouble, spec, backends = troubled(trial, "load_balancers", Trouble.REFUSED), trial.spec(), await trial.backends()
    what = f"ensure when {Trouble.REFUSED.value}"
    trial.remove_at_end(spec)
    async with trouble:
        error = await trial.expect((CloudError,), what, trial.load_balancers.ensure, spec, backends)
    if isinstance(error, RateLimited):
        raise Failed(f"RateLimited from {what}: a refusal is no rate limit, for which other Services would wait, too")
    if isinstance(error, (Transient, Unauthorized)) and error.scope != "object":
        raise Failed(f"{type(error).__name__} with the scope 'all' from {what}: it says that the cloud may be down")


@case(writes=True)
async def a_proxys_404_is_not_not_found(trial: Trial) -> None:
    """A 404 that does not come from the cloud itself, or is not about this load balancer, is Transient for all methods.
    As NotFound, it would leave an orphaned load balancer."""
    await _asked_in(trial, Trouble.PROXY_PAGE, Transient, *ALL)


@case(writes=True)
async def an_answer_cut_short_is_transient(trial: Trial) -> None:
    """A truncated answer, for a listing or a load balancer, is Transient; the part that was read is not used."""
    await _asked_in(trial, Trouble.CUT_ANSWER, Transient, "list", "get")


@case(writes=True)
async def a_rate_limit_says_when_to_come_back(trial: Trial) -> None:
    """429 and similar answers are RateLimited, with the seconds that the cloud asks to wait, for reads and writes."""
    say_when(await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited, *ALL))


@case(writes=True)
async def no_answer_is_transient(trial: Trial) -> None:
    """If a cloud never answers, `get` and `delete` raise Transient, unless the deadline ends the call first."""
    await _asked_in(trial, Trouble.HANG, Transient, "get", "delete")


async def _asked_in(trial: Trial, kind: Trouble, expected: type[CloudError], *methods: str) -> list[CloudError]:
    """Return the errors of these methods during trouble, and check that an existing load balancer is unchanged
    afterwards."""
    trouble, balancers = troubled(trial, "load_balancers", kind), trial.load_balancers
    spec, backends = trial.spec(), await trial.backends()
    await trial.ensure(spec, backends)
    before = await _one(trial, spec)
    changed = dataclasses.replace(spec, ports=(dataclasses.replace(spec.ports[0], port=81, node_port=30081),))
    calls = {
        "list": (balancers.list, spec.cluster),
        "get": (balancers.get, spec),
        "ensure": (balancers.ensure, changed, backends),
        "update_backends": (balancers.update_backends, spec, backends[1:]),
        "delete": (balancers.delete, spec),
    }
    errors = await errors_in(trial, trouble, kind, expected, [calls[method] for method in methods])
    _same(before, await _one(trial, spec), f"a call while {kind.value}")
    return errors


async def _refused(
    trial: Trial, balancers: LoadBalancers, address: str, backends: Sequence[Backend], when: str
) -> None:
    """Check that a new Service does not get `address`. Raises Failed if it does."""
    spec = dataclasses.replace(trial.spec(), load_balancer_ip=address)
    trial.remove_at_end(spec)
    try:
        answer = await trial.patiently(balancers.ensure, spec, backends)
    except (Conflict, Invalid, NotImplementedByCloud):
        return
    if not answer.ready:
        answer = await trial.ready(spec)
    if any(ingress.ip == address for ingress in answer.ingress):
        raise Failed(f"a Service requested {address} {when} and got it, although another Service has that address")


async def _two_backends(trial: Trial) -> list[Backend]:
    backends = [each for each in await trial.backends() if each.internal_ip]
    if len(backends) < 2:
        raise NotRun("needs two instances with an InternalIP")
    return backends


async def _half_made(trial: Trial, spec: LoadBalancerSpec) -> frozenset[str]:
    """Create a part of a load balancer, which is removed at the end. Return the parts that existed before. Raises
    NotRun if the whole load balancer was created, or nothing of it."""
    trouble = troubled(trial, "load_balancers", Trouble.HALF_MADE)
    before, backends = await trial.world.load_balancer_parts(), await trial.backends()
    trial.remove_at_end(spec)
    async with trouble:
        try:
            await trial.patiently(trial.load_balancers.ensure, spec, backends, transients=0)
        except CloudError as error:
            failure = described(error)
        else:
            raise NotRun("needs a load balancer whose creation has several steps that can fail; this one was created")
    if not await trial.world.load_balancer_parts() - before:
        raise NotRun(f"needs a part of a load balancer; the failed creation left nothing ({failure})")
    return before


async def _nothing_left(trial: Trial, before: frozenset[str]) -> None:
    if await trial.owned():
        raise Failed("it was deleted and is still listed")
    if left := await trial.world.load_balancer_parts() - before:
        raise Failed(f"it was deleted, but {', '.join(sorted(left))} is left")


async def _one(trial: Trial, spec: LoadBalancerSpec) -> LoadBalancer:
    """Return the only load balancer in the listing for this Service. Raises Failed if there is none, or several."""
    owned = [each for each in await trial.owned(spec.cluster) if each.service_uid == spec.uid]
    if len(owned) != 1:
        missing = "" if owned else "; does it write the ownership tags by which it lists?"
        raise Failed(
            f"Service {spec.uid} of cluster {spec.cluster} has {len(owned)} load balancers in the listing{missing}"
        )
    return owned[0]


def _same(before: LoadBalancer, after: LoadBalancer, what: str) -> None:
    if (before.name, before.ingress, before.fingerprint) != (after.name, after.ingress, after.fingerprint):
        raise Failed(f"{what} changed the load balancer from {before} to {after}")


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
