# SPDX-License-Identifier: Apache-2.0
"""A cloud that fails: it says nothing about what was asked for, and a call always ends.

All of these ask for instances, since there a wrong conclusion deletes a Node; those about what else there is are with
the other cases about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time

from ccm.cloud import CloudError, InstanceRef, NotFound, RateLimited, Transient, Unauthorized

from ..trial import Failed, Trial
from ..world import Trouble
from .collection import Collection
from .failing import say_when, unanswered

COLLECTION = Collection("failures", needs="instances")
case = COLLECTION.case

#: How long a refusal may take, in seconds; less than what the cloud asks to wait.
AT_ONCE = 3.0
#: How many instances are asked for one by one.
SAMPLE = 5


@case()
async def a_server_error_is_transient(trial: Trial) -> None:
    """The cloud's own 5xx is Transient, for a listing and for a single read by ID and by name."""
    await _asked_in(trial, Trouble.SERVER_ERROR, Transient)


@case()
async def a_proxys_404_is_not_not_found(trial: Trial) -> None:
    """A 404 that is not the cloud's own answer about just this thing proves nothing: Transient."""
    await _asked_in(trial, Trouble.PROXY_PAGE, Transient)


@case()
async def an_answer_cut_short_is_transient(trial: Trial) -> None:
    """An answer that cannot be read to its end is Transient, and no answer with what was read of it."""
    await _asked_in(trial, Trouble.CUT_ANSWER, Transient)


@case()
async def refused_credentials_are_unauthorized(trial: Trial) -> None:
    """Credentials that are no longer good are Unauthorized: the message is for the person who can renew them."""
    await _asked_in(trial, Trouble.UNAUTHORIZED, Unauthorized)


@case()
async def a_listing_cut_short_shows(trial: Trial) -> None:
    """A listing that lacks instances raises, tells a `total` that it does not reach, or says what is `unreachable`. It
    never looks complete."""
    await trial.some_instances(2)
    async with trial.world.trouble(Trouble.SHORT_LISTING):
        token, total, ids = None, None, set()
        try:
            for _ in range(1000):
                page = await trial.ask_once(trial.instances.list_page, token)
                ids |= {instance.provider_id for instance in page.instances}
                token, total = page.next, page.total if page.total is not None else total
                if page.unreachable:
                    return
                if token is None:
                    break
        except CloudError:
            return
    if total is None or len(ids) >= total:
        raise Failed(f"{len(ids)} instances were listed as if they were all (total {total})")


@case()
async def what_a_short_listing_lacks_is_not_gone(trial: Trial) -> None:
    """While listings lack instances, none of those that exist is NotFound by its ID; and once the listing says what is
    `unreachable`, a name that it does not have is not NotFound either."""
    found = await trial.some_instances(2)
    async with trial.world.trouble(Trouble.SHORT_LISTING):
        for instance in found[:SAMPLE]:
            ref = InstanceRef(instance.name, instance.provider_id)
            try:
                await trial.ask_once(trial.instances.get, ref)
            except NotFound as error:
                raise Failed(f"{instance.provider_id} exists, and while a part is unreachable: {error}") from error
            except CloudError:
                continue
        with contextlib.suppress(CloudError):
            page = await trial.ask_once(trial.instances.list_page, None)
            if page.unreachable:
                what = f"get by an unknown name while {page.unreachable}"
                await trial.expect((Transient,), what, trial.instances.get, InstanceRef(trial.new_name()))


@case()
async def a_rate_limit_says_when_to_come_back(trial: Trial) -> None:
    """429 and its like are RateLimited, with the seconds that the cloud names; the framework then pauses."""
    say_when(await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited))


@case()
async def a_rate_limit_says_what_pauses(trial: Trial) -> None:
    """`RateLimited.scope` is "all", or "group" where the cloud counts calls of one kind of thing by themselves."""
    for error in await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited):
        if (scope := getattr(error, "scope", None)) not in ("all", "group"):
            raise Failed(f"RateLimited.scope is {scope!r}")


@case()
async def a_rate_limit_is_not_waited_for(trial: Trial) -> None:
    """The provider does not retry by itself: a refused call ends at once, and the framework pauses all the others."""
    await trial.some_instances()
    async with trial.world.trouble(Trouble.RATE_LIMITED):
        started = time.monotonic()
        with contextlib.suppress(CloudError):
            await trial.ask_once(trial.instances.list_page, None)
        if (took := time.monotonic() - started) > AT_ONCE:
            raise Failed(f"a refused call went on for {took:.1f} s")


@case()
async def no_answer_is_transient(trial: Trial) -> None:
    """A cloud that never answers is Transient, if the provider ends the call before its deadline does."""
    await trial.some_instances()
    async with trial.world.trouble(Trouble.HANG):
        await unanswered(trial, trial.instances.list_page, None)


@case()
async def a_cancelled_call_ends(trial: Trial) -> None:
    """A call ends within a second of being cancelled, with CancelledError, and the next one works."""
    found = await trial.some_instances()
    ref = InstanceRef(found[0].name, found[0].provider_id)
    for call in (functools.partial(trial.instances.list_page, None), functools.partial(trial.instances.get, ref)):
        name = call.func.__qualname__
        async with trial.world.trouble(Trouble.HANG):
            task: asyncio.Future[object] = asyncio.ensure_future(call())
            await asyncio.sleep(0.3)
            await trial.cancelled(task, name)
            if not task.cancelled():
                raise Failed(f"{name} was cancelled and ended with {task.exception() or 'an answer'!r}")
    await trial.ask(trial.instances.list_page, None)


@case()
async def it_recovers(trial: Trial) -> None:
    """When the trouble is over, the same object answers again: broken connections and old tokens are replaced."""
    found = await trial.some_instances()
    for kind in (Trouble.CUT_ANSWER, Trouble.UNAUTHORIZED, Trouble.SERVER_ERROR):
        async with trial.world.trouble(kind):
            with contextlib.suppress(CloudError):
                await trial.ask_once(trial.instances.list_page, None)
        await trial.ask(trial.instances.get, InstanceRef(found[0].name, found[0].provider_id))


async def _asked_in(trial: Trial, kind: Trouble, expected: type[CloudError]) -> list[CloudError]:
    """The errors of each way to ask for an instance that exists, all of which must be `expected`."""
    found = (await trial.some_instances())[0]
    when, instances = f"when {kind.value}", trial.instances
    async with trial.world.trouble(kind):
        return [
            await trial.expect((expected,), f"list_page {when}", instances.list_page, None),
            await trial.expect(
                (expected,), f"get by ID {when}", instances.get, InstanceRef(found.name, found.provider_id)
            ),
            await trial.expect((expected,), f"get by name {when}", instances.get, InstanceRef(found.name)),
        ]
