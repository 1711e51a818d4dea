# SPDX-License-Identifier: Apache-2.0
"""One provider in one case: polite calls, what the kit makes in its cloud, and the removal of all of that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ccm.cloud import (
    AllocatesAddresses,
    Backend,
    Backends,
    Cloud,
    CloudError,
    Ingress,
    Instance,
    Instances,
    LoadBalancer,
    LoadBalancers,
    LoadBalancerSpec,
    NotFound,
    Page,
    Port,
    RateLimited,
    RetryAfter,
    Routes,
    Transient,
    Volumes,
)
from ccm.gateway.turns import TokenBucket

from .subject import Subject
from .world import NotRun

log = logging.getLogger(__name__)


T = TypeVar("T")

#: How long a call may go on after its deadline, or after it is cancelled, in seconds.
GRACE = 1.0
#: How often a call that the cloud refused as one too many is made again.
PATIENT_CALLS = 5
#: How often a call that the cloud failed to answer is made again, where a case is about something else, and the pause
#: before it in seconds.
TRANSIENTS, PAUSE = 3, 1.0


class Failed(AssertionError):
    """The provider does not do what the contract says; the text says what it did instead."""


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Published:
    """`ccm.cloud.Allocations`: the addresses of the kit's load balancers, as the status of their Services has them."""

    def __init__(self) -> None:
        self._ingress: dict[tuple[str, str], tuple[Ingress, ...]] = {}

    def holder(self, address: str) -> str | None:
        for (_, uid), ingress in self._ingress.items():
            if any(each.ip == address for each in ingress):
                return uid
        return None

    def publish(self, spec: LoadBalancerSpec, ingress: tuple[Ingress, ...]) -> None:
        self._ingress[spec.cluster, spec.uid] = ingress

    def withdraw(self, spec: LoadBalancerSpec) -> None:
        self._ingress.pop((spec.cluster, spec.uid), None)


class Trial:
    """One run of one case: the cloud, and ways to ask it."""

    def __init__(self, subject: Subject, cloud: Cloud) -> None:
        self.subject, self.cloud, self.world = subject, cloud, subject.world
        self.cluster = f"ccm-conformance-{secrets.token_hex(4)}"
        self.published = Published()
        limits = cloud.limits
        self._bucket = TokenBucket(limits.calls_per_second, limits.burst)
        self._clean_ups: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    def introduce(self, cloud: Cloud) -> None:
        """Say which Service has which address, where the provider asks for it."""
        if isinstance(cloud.load_balancers, AllocatesAddresses):
            cloud.load_balancers.use_allocations(self.published)

    @contextlib.asynccontextmanager
    async def another(self) -> AsyncIterator[Cloud]:
        """A second cloud of the same configuration, not started. How it closes is another case's matter."""
        cloud = self.subject.create(self.subject.config)
        self.introduce(cloud)
        try:
            yield cloud
        finally:
            with contextlib.suppress(Exception):
                await cloud.close()

    # Capabilities; `check` has made sure that the one which the case is about is there.

    @property
    def instances(self) -> Instances:
        if self.cloud.instances is None:
            raise NotRun("needs a provider that offers instances")
        return self.cloud.instances

    @property
    def load_balancers(self) -> LoadBalancers:
        assert self.cloud.load_balancers is not None
        return self.cloud.load_balancers

    @property
    def routes(self) -> Routes:
        assert self.cloud.routes is not None
        return self.cloud.routes

    @property
    def volumes(self) -> Volumes:
        assert self.cloud.volumes is not None
        return self.cloud.volumes

    # Asking

    async def ask(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """The answer. CloudErrors come through; anything else, and no answer within the deadline, is a failure."""
        for attempt in range(PATIENT_CALLS):
            try:
                return await self.ask_once(call, *args)
            except RateLimited as error:
                if attempt + 1 == PATIENT_CALLS:
                    raise
                await asyncio.sleep(error.retry_after or 5.0)
        raise AssertionError("unreachable")

    async def ask_once(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """As `ask`, but a refusal for too many calls comes through, too."""
        what = getattr(call, "__qualname__", repr(call))
        await asyncio.sleep(self._bucket.reserve())
        task = asyncio.ensure_future(_ended(call, args))
        deadline = self.cloud.limits.deadline
        try:
            await asyncio.wait({task}, timeout=deadline)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            await self.cancelled(task, what)
            raise Failed(f"{what} gave no answer within {deadline:g} s (Limits.deadline)")
        if task.cancelled():
            raise Failed(f"{what} cancelled itself")
        error = task.exception()
        if error is not None and not isinstance(error, CloudError):
            raise Failed(f"{what} raised {described(error)}; only errors of ccm.cloud mean something") from error
        return task.result()

    async def expect(self, kinds: tuple[type[CloudError], ...], when: str, call: Any, *args: Any) -> CloudError:
        """The error, which must be one of `kinds`."""
        wanted = " or ".join(kind.__name__ for kind in kinds)
        try:
            answer = await (self.ask_once if RateLimited in kinds else self.ask)(call, *args)
        except kinds as error:
            return error
        except CloudError as error:
            raise Failed(f"{when}: expected {wanted}, not {described(error)}") from error
        raise Failed(f"{when}: expected {wanted}, not an answer: {_short(answer)}")

    async def cancelled(self, task: asyncio.Future[Any], what: str) -> None:
        """Cancel a call, which must then end."""
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE)
        if not task.done():
            raise Failed(f"{what} goes on although it was cancelled {GRACE:g} s ago")

    # Instances

    async def listing(self) -> list[Instance]:
        """All instances, page by page."""
        return [instance for page in await self.pages() for instance in page.instances]

    async def pages(self) -> list[Page]:
        """Raises Failed when the pages never end."""
        pages: list[Page] = []
        asked: set[str | None] = set()
        token = None
        while token not in asked:
            asked.add(token)
            pages.append(await self.ask(self.instances.list_page, token))
            token = pages[-1].next
            if token is None:
                return pages
        raise Failed(f"page {token!r} is named as the next one a second time: the listing never ends")

    async def some_instances(self, at_least: int = 1) -> list[Instance]:
        """Those that are there. Creates what is lacking, if the world can."""
        found = await self.listing()
        while len(found) < at_least:
            await self.new_instance()
            found = await self.listing()
        return found

    async def new_instance(self, name: str = "") -> Instance:
        """An instance of the kit's own, removed at the end. It must be seen at once, in the listing."""
        name = name or self.new_name()
        before = {instance.provider_id for instance in await self.listing()}
        await self.world.create_instance(name)
        new = [each for each in await self.listing() if each.name == name and each.provider_id not in before]
        if len(new) != 1:
            raise Failed(f"an instance {name!r} was created, and {len(new)} new ones of that name are listed")
        found = new[0]

        async def remove() -> None:
            await self.world.delete_instance(found.provider_id)

        self.at_end(f"instance {found.provider_id}", remove)
        return found

    def new_name(self) -> str:
        return f"ccm-conformance-{secrets.token_hex(4)}"

    # Load balancers

    def spec(self, *, cluster: str = "", uid: str = "", port: int = 80) -> LoadBalancerSpec:
        return LoadBalancerSpec(
            cluster=cluster or self.cluster,
            uid=uid or str(uuid.uuid4()),
            namespace="ccm-conformance",
            name="web",
            ports=(Port("http", "TCP", port, 30080),),
        )

    async def backends(self, count: int = 2) -> Backends:
        """The first instances of the cloud, as nodes."""
        if self.cloud.instances is None:
            return Backends()
        found = sorted(await self.some_instances(), key=lambda instance: instance.provider_id)[:count]
        return Backends(Backend(each.name, each.provider_id, each.addresses) for each in found)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        """Ensure, however often the cloud asks to come back, and wait until it is ready. Removed at the end."""
        self.remove_at_end(spec)
        await self.patiently(self.load_balancers.ensure, spec, backends)
        found = await self.ready(spec)
        self.published.publish(spec, found.ingress)
        return found

    async def ready(self, spec: LoadBalancerSpec) -> LoadBalancer:
        deadline = time.monotonic() + self.subject.patience
        while not (found := await self.ask(self.load_balancers.get, spec)).ready:
            if time.monotonic() > deadline:
                raise Failed(f"load balancer {found.name} is not ready after {self.subject.patience:g} s")
            await asyncio.sleep(1.0)
        return found

    async def delete(self, spec: LoadBalancerSpec) -> None:
        with contextlib.suppress(NotFound):  # it says that there is nothing, or nothing any more
            await self.patiently(self.load_balancers.delete, spec)
        self.published.withdraw(spec)

    def remove_at_end(self, spec: LoadBalancerSpec) -> None:
        async def remove() -> None:
            try:
                await self.delete(spec)
            except Exception:  # a broken `delete` is another case's matter, if only nothing is left
                with contextlib.suppress(NotFound):
                    await self.ask(self.load_balancers.get, spec)
                    raise

        self.at_end(f"load balancer of cluster {spec.cluster}, Service {spec.uid}", remove)

    async def owned(self, cluster: str = "") -> list[LoadBalancer]:
        return list(await self.ask(self.load_balancers.list, cluster or self.cluster))

    async def patiently(self, call: Callable[..., Awaitable[T]], *args: Any, transients: int = TRANSIENTS) -> T:
        """The answer, asked again whenever the cloud says RetryAfter, and after so many failures of its own.

        The controllers do the same: a real cloud answers 500 now and then, and a case that is about something else
        does not fail for it. A provider that raises Transient each time does.
        """
        deadline = time.monotonic() + self.subject.patience
        while True:
            try:
                return await self.ask(call, *args)
            except Transient as error:
                if not transients:
                    raise
                transients -= 1
                log.warning("The call %s is made again: %s", getattr(call, "__name__", call), error)
                await asyncio.sleep(PAUSE)
            except RetryAfter as error:
                if time.monotonic() > deadline:
                    raise Failed(f"still not done after {self.subject.patience:g} s: {error}") from error
                await asyncio.sleep(error.retry_after or 1.0)

    async def together(self, *steps: Coroutine[Any, Any, T]) -> list[T]:
        """The answers of steps that run at the same time.

        When one fails the others end before its error is raised: what still makes things works against the clean-up.
        """
        tasks = [asyncio.create_task(step) for step in steps]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # The end

    def at_end(self, what: str, remove: Callable[[], Awaitable[None]]) -> None:
        """Run when the case has ended, however it ended; the last one first."""
        self._clean_ups.append((what, remove))

    async def clean_up(self) -> list[str]:
        """What could not be removed."""
        left = []
        for what, remove in reversed(self._clean_ups):
            try:
                await remove()
            except NotFound:
                pass
            except Exception as error:
                left.append(f"{what} ({described(error)})")
        try:
            async with asyncio.timeout(GRACE + self.cloud.limits.deadline):
                await self.cloud.close()
        except Exception as error:
            left.append(f"the provider, which cannot be closed ({described(error)})")
        return left


async def _ended(call: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    """Leaving a task, SystemExit would end the event loop."""
    try:
        return await call(*args)
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(described(error)) from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."
