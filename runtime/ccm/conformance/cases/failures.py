# SPDX-License-Identifier: Apache-2.0
"""A failing cloud: its failures prove nothing about the requested object, and every call ends.

All of these cases read instances, because a wrong conclusion there deletes a Node; the cases of other capabilities are
in their own modules.
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

#: How long a rejected call may take, in seconds; less than the pause that the cloud requests.
AT_ONCE = 3.0
#: How many instances are read individually.
SAMPLE = 5


@case()
async def a_server_error_is_transient(trial: Trial) -> None:
    """A 5xx from the cloud is Transient, for a listing and for single reads by ID and by name."""
    await _asked_in(trial, Trouble.SERVER_ERROR, Transient)


@case()
async def a_proxys_404_is_not_not_found(trial: Trial) -> None:
    """A 404 that does not come from the cloud itself, or is not about this object, is Transient: it proves nothing."""
    await _asked_in(trial, Trouble.PROXY_PAGE, Transient)


@case()
async def an_answer_cut_short_is_transient(trial: Trial) -> None:
    """A truncated answer is Transient; the part that was read is not used as an answer."""
    await _asked_in(trial, Trouble.CUT_ANSWER, Transient)


@case()
async def refused_credentials_are_unauthorized(trial: Trial) -> None:
    """Credentials that are no longer valid are Unauthorized. The message addresses the person who can renew them."""
    await _asked_in(trial, Trouble.UNAUTHORIZED, Unauthorized)


@case()
async def a_listing_cut_short_shows(trial: Trial) -> None:
    """A listing that omits instances raises an error, reports a larger `total`, or sets `unreachable`. It never looks
    complete."""
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
        raise Failed(f"a listing of {len(ids)} instances looks complete (total {total})")


@case()
async def what_a_short_listing_lacks_is_not_gone(trial: Trial) -> None:
    """While listings omit instances, `get` does not raise NotFound for the ID of an existing instance. If the listing
    sets `unreachable`, `get` does not raise NotFound for a name that is missing from it, either."""
    instances = await trial.some_instances(2)
    async with trial.world.trouble(Trouble.SHORT_LISTING):
        for instance in instances[:SAMPLE]:
            ref = InstanceRef(instance.name, instance.provider_id)
            try:
                await trial.ask_once(trial.instances.get, ref)
            except NotFound as error:
                raise Failed(f"{instance.provider_id} exists, but while a part is unreachable: {error}") from error
            except CloudError:
                continue
        with contextlib.suppress(CloudError):
            page = await trial.ask_once(trial.instances.list_page, None)
            if page.unreachable:
                what = f"get by an unknown name while {page.unreachable}"
                await trial.expect((Transient,), what, trial.instances.get, InstanceRef(trial.new_name()))


@case()
async def a_rate_limit_says_when_to_come_back(trial: Trial) -> None:
    """429 and similar answers are RateLimited, with the seconds that the cloud asks to wait; the framework then
    pauses."""
    say_when(await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited))


@case()
async def a_rate_limit_says_what_pauses(trial: Trial) -> None:
    """`RateLimited.scope` is "all", or "group" if the cloud counts calls separately per kind of resource."""
    for error in await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited):
        if (scope := getattr(error, "scope", None)) not in ("all", "group"):
            raise Failed(f"RateLimited.scope is {scope!r}")


@case()
async def a_rate_limit_is_not_waited_for(trial: Trial) -> None:
    """The provider does not retry by itself: a rejected call ends at once, and the framework waits."""
    await trial.some_instances()
    async with trial.world.trouble(Trouble.RATE_LIMITED):
        started = time.monotonic()
        with contextlib.suppress(CloudError):
            await trial.ask_once(trial.instances.list_page, None)
        if (took := time.monotonic() - started) > AT_ONCE:
            raise Failed(f"a rejected call took {took:.1f} s")


@case()
async def no_answer_is_transient(trial: Trial) -> None:
    """If the cloud never answers, the call raises Transient, unless its deadline ends it first."""
    await trial.some_instances()
    async with trial.world.trouble(Trouble.HANG):
        await unanswered(trial, trial.instances.list_page, None)


@case()
async def a_cancelled_call_ends(trial: Trial) -> None:
    """A cancelled call ends with CancelledError within a second, and the next call works."""
    instances = await trial.some_instances()
    ref = InstanceRef(instances[0].name, instances[0].provider_id)
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
    """After the trouble, the same provider object works again: it replaces broken connections and old tokens."""
    instances = await trial.some_instances()
    for kind in (Trouble.CUT_ANSWER, Trouble.UNAUTHORIZED, Trouble.SERVER_ERROR):
        async with trial.world.trouble(kind):
            with contextlib.suppress(CloudError):
                await trial.ask_once(trial.instances.list_page, None)
        await trial.ask(trial.instances.get, InstanceRef(instances[0].name, instances[0].provider_id))


async def _asked_in(trial: Trial, kind: Trouble, expected: type[CloudError]) -> list[CloudError]:
    """Return the errors of all ways to read an existing instance; all must be `expected`."""
    instance = (await trial.some_instances())[0]
    when, instances = f"when {kind.value}", trial.instances
    async with trial.world.trouble(kind):
        return [
            await trial.expect((expected,), f"list_page {when}", instances.list_page, None),
            await trial.expect(
                (expected,), f"get by ID {when}", instances.get, InstanceRef(instance.name, instance.provider_id)
            ),
            await trial.expect((expected,), f"get by name {when}", instances.get, InstanceRef(instance.name)),
        ]
