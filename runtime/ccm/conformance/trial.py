# SPDX-License-Identifier: Apache-2.0
"""One provider in one case: calls with deadlines and retries, resources of the kit in its cloud, and their removal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ccm.base.token_bucket import TokenBucket
from ccm.cloud import (
    AllocatesAddresses,
    Backend,
    Backends,
    Cloud,
    CloudError,
    Ingress,
    Instance,
    Instances,
    InstanceTags,
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

from .subject import Subject
from .world import NotRun

log = logging.getLogger(__name__)


T = TypeVar("T")

#: `GRACE`: how long a call may continue after its deadline, or after its cancellation, in seconds. `GRACES`: into how
#: many waits this time is divided.
GRACE, GRACES = 1.0, 10
#: The maximum number of attempts for a rate-limited call.
PATIENT_CALLS = 5
#: How many times a Transient call is retried in cases about something else, and the pause before each retry in seconds.
TRANSIENTS, PAUSE = 3, 1.0


class Failed(AssertionError):
    """The provider violates the contract; the text says what it did instead."""


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Published:
    """The `ccm.cloud.Allocations` of the kit: the addresses of its load balancers, as in the status of their
    Services."""

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
    """One run of one case: the cloud, and helpers to call it."""

    def __init__(self, subject: Subject, cloud: Cloud) -> None:
        self.subject, self.cloud, self.world = subject, cloud, subject.world
        self.cluster = f"ccm-conformance-{secrets.token_hex(4)}"
        self.published = Published()
        limits = cloud.limits
        self._bucket = TokenBucket(limits.calls_per_second, limits.burst)
        self._clean_ups: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    def introduce(self, cloud: Cloud) -> None:
        """Pass the allocations to the provider, if it uses them."""
        if isinstance(cloud.load_balancers, AllocatesAddresses):
            cloud.load_balancers.use_allocations(self.published)

    @contextlib.asynccontextmanager
    async def another(self) -> AsyncIterator[Cloud]:
        """Yield a second cloud with the same configuration, not started. Another case checks how it closes."""
        cloud = self.subject.create(self.subject.config)
        self.introduce(cloud)
        try:
            yield cloud
        finally:
            with contextlib.suppress(Exception):
                await cloud.close()

    # Capabilities. A case runs only if the provider has the one that the case is about. Any case may need instances.

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

    @property
    def instance_tags(self) -> InstanceTags:
        assert self.cloud.instance_tags is not None
        return self.cloud.instance_tags

    # Calls

    async def ask(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Return the answer. After RateLimited, make the call again, up to `PATIENT_CALLS` times in all. Raises
        CloudError, and Failed for any other exception and for a missed deadline."""
        for attempt in range(PATIENT_CALLS):
            try:
                return await self.ask_once(call, *args)
            except RateLimited as error:
                if attempt + 1 == PATIENT_CALLS:
                    raise
                await asyncio.sleep(error.retry_after or 5.0)
        raise AssertionError("unreachable")

    async def ask_once(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Like `ask`, without another call after RateLimited. Raises Failed for an error that is not a CloudError, and
        if there is no answer before the deadline."""
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
            raise Failed(f"{what} raised {described(error)}; only errors of ccm.cloud are allowed") from error
        return task.result()

    async def expect(self, kinds: tuple[type[CloudError], ...], when: str, call: Any, *args: Any) -> CloudError:
        """Return the error of the call, which must be one of `kinds`. Raises Failed for any other error, and if the
        call succeeds."""
        expected = " or ".join(kind.__name__ for kind in kinds)
        try:
            answer = await (self.ask_once if RateLimited in kinds else self.ask)(call, *args)
        except kinds as error:
            return error
        except CloudError as error:
            raise Failed(f"{when}: expected {expected}, not {described(error)}") from error
        raise Failed(f"{when}: expected {expected}, not an answer: {_short(answer)}")

    async def cancelled(self, task: asyncio.Future[Any], what: str) -> None:
        """Cancel a call. Raises Failed if it does not end within `GRACE` seconds."""
        task.cancel()
        for _ in range(GRACES):  # a process that gets no CPU time for a second loses only one of these waits
            await asyncio.wait({task}, timeout=GRACE / GRACES)
        if not task.done():
            raise Failed(f"{what} still runs {GRACE:g} s after its cancellation")

    # Instances

    async def listing(self) -> list[Instance]:
        """Return all instances, page by page."""
        return [instance for page in await self.pages() for instance in page.instances]

    async def pages(self) -> list[Page]:
        """Return all pages of the listing of instances. Raises Failed if the pages never end."""
        pages: list[Page] = []
        tokens: set[str | None] = set()
        token = None
        while token not in tokens:
            tokens.add(token)
            pages.append(await self.ask(self.instances.list_page, token))
            token = pages[-1].next
            if token is None:
                return pages
        raise Failed(f"page {token!r} is returned as the next one twice: the listing never ends")

    async def some_instances(self, at_least: int = 1) -> list[Instance]:
        """Return all instances. If there are fewer than `at_least`, create more. Raises NotRun if the world cannot
        create instances."""
        instances = await self.listing()
        while len(instances) < at_least:
            await self.new_instance()
            instances = await self.listing()
        return instances

    async def new_instance(self, name: str = "") -> Instance:
        """Create an instance, which is removed at the end. Raises Failed if it is not in the listing at once."""
        name = name or self.new_name()
        before = {instance.provider_id for instance in await self.listing()}
        await self.world.create_instance(name)
        new = [each for each in await self.listing() if each.name == name and each.provider_id not in before]
        if len(new) != 1:
            raise Failed(f"one instance {name!r} was created, but the listing has {len(new)} new ones with that name")
        created = new[0]

        async def remove() -> None:
            await self.world.delete_instance(created.provider_id)

        self.at_end(f"instance {created.provider_id}", remove)
        return created

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
        """Return the first `count` instances by providerID, or as many as there are, as backends; none if the provider
        does not offer instances."""
        if self.cloud.instances is None:
            return Backends()
        instances = sorted(await self.some_instances(), key=lambda instance: instance.provider_id)[:count]
        return Backends(Backend(each.name, each.provider_id, each.addresses) for each in instances)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer:
        """Call `ensure`, again after each RetryAfter, and wait until the load balancer is ready. It is removed at the
        end."""
        self.remove_at_end(spec)
        await self.patiently(self.load_balancers.ensure, spec, backends)
        balancer = await self.ready(spec)
        self.published.publish(spec, balancer.ingress)
        return balancer

    async def ready(self, spec: LoadBalancerSpec) -> LoadBalancer:
        deadline = time.monotonic() + self.subject.patience
        while not (balancer := await self.ask(self.load_balancers.get, spec)).ready:
            if time.monotonic() > deadline:
                raise Failed(f"load balancer {balancer.name} is not ready after {self.subject.patience:g} s")
            await asyncio.sleep(1.0)
        return balancer

    async def delete(self, spec: LoadBalancerSpec) -> None:
        with contextlib.suppress(NotFound):  # nothing existed, or nothing is left
            await self.patiently(self.load_balancers.delete, spec)
        self.published.withdraw(spec)

    def remove_at_end(self, spec: LoadBalancerSpec) -> None:
        async def remove() -> None:
            try:
                await self.delete(spec)
            except Exception:  # another case checks `delete`; here it only matters that nothing is left
                with contextlib.suppress(NotFound):
                    await self.ask(self.load_balancers.get, spec)
                    raise

        self.at_end(f"load balancer of cluster {spec.cluster}, Service {spec.uid}", remove)

    async def owned(self, cluster: str = "") -> list[LoadBalancer]:
        return list(await self.ask(self.load_balancers.list, cluster or self.cluster))

    async def patiently(self, call: Callable[..., Awaitable[T]], *args: Any, transients: int = TRANSIENTS) -> T:
        """Return the answer, with retries after each RetryAfter, and after a limited number of Transient errors.

        The controllers do the same: a real cloud sometimes answers 500, which must not fail a case about something
        else. A provider that always raises Transient fails. Raises Failed if RetryAfter comes for longer than the
        subject's patience.
        """
        deadline = time.monotonic() + self.subject.patience
        while True:
            try:
                return await self.ask(call, *args)
            except Transient as error:
                if not transients:
                    raise
                transients -= 1
                log.warning("retrying the call %s: %s", getattr(call, "__name__", call), error)
                await asyncio.sleep(PAUSE)
            except RetryAfter as error:
                if time.monotonic() > deadline:
                    raise Failed(f"not finished after {self.subject.patience:g} s: {error}") from error
                await asyncio.sleep(error.retry_after or 1.0)

    async def together(self, *steps: Coroutine[Any, Any, T]) -> list[T]:
        """Return the answers of concurrent steps.

        If one fails, the others are cancelled before its error is raised: otherwise they could still create resources
        during the clean-up.
        """
        tasks = [asyncio.create_task(step) for step in steps]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Clean-up

    def at_end(self, what: str, remove: Callable[[], Awaitable[None]]) -> None:
        """Register a function that runs when the case ends, whatever its result; the last one runs first."""
        self._clean_ups.append((what, remove))

    async def clean_up(self) -> list[str]:
        """Remove everything, and close the cloud. Return what could not be removed or closed."""
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
            left.append(f"the provider, which failed to close ({described(error)})")
        return left


async def _ended(call: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    """Make a call. Raises RuntimeError instead of SystemExit and KeyboardInterrupt, which would stop the event loop if
    they left a task."""
    try:
        return await call(*args)
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(described(error)) from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."
