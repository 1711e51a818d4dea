# SPDX-License-Identifier: Apache-2.0
"""Services and Nodes as the framework gives them to the provider, and calls that tests repeat as the framework does."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ccm.cloud import Backend, Backends, LoadBalancer, LoadBalancerSpec, NotFound, Port, RetryAfter
from ccm.providers.cloudstack import CloudStackCloud
from ccm.providers.cloudstack.annotations import PREFIX

T = TypeVar("T")
#: About as long as a job of the stand-in takes, in seconds.
PAUSE = 0.01


def service(*ports: int, annotations: dict[str, str] | None = None, **more: Any) -> LoadBalancerSpec:
    """Return a Service. Annotations are given without their prefix."""
    return LoadBalancerSpec(
        cluster="kubernetes",
        uid=str(uuid.uuid4()),
        namespace="default",
        name="web",
        ports=tuple(Port(f"p{port}", "TCP", port, 30000 + port) for port in ports or (80, 443)),
        annotations={PREFIX + name: text for name, text in (annotations or {}).items()},
        **more,
    )


async def nodes(cloud: CloudStackCloud) -> Backends:
    page = await cloud.instances.list_page(None)
    return Backends(Backend(each.name, each.provider_id, each.addresses) for each in page.instances)


async def patiently(call: Callable[..., Awaitable[T]], *args: Any, times: int = 100) -> T:
    """Call again after each RetryAfter, and return the answer. The pauses are short, because jobs of the stand-in are
    short."""
    for _ in range(times):
        try:
            return await call(*args)
        except RetryAfter:
            await asyncio.sleep(PAUSE)
    raise AssertionError(f"not done after {times} calls")


async def settled(cloud: CloudStackCloud, spec: LoadBalancerSpec, backends: Backends) -> LoadBalancer:
    """Call `ensure`, then `get` until the load balancer is ready, as the framework does. Return the load balancer."""
    assert cloud.load_balancers is not None
    found = await patiently(cloud.load_balancers.ensure, spec, backends)
    while not found.ready:
        await asyncio.sleep(PAUSE)
        found = await cloud.load_balancers.get(spec)
    return found


async def deleted(cloud: CloudStackCloud, spec: LoadBalancerSpec) -> None:
    """Delete again and again, at most five times, until the provider raises NotFound because nothing is left. The
    framework stops at the first success.
    """
    assert cloud.load_balancers is not None
    for _ in range(5):
        try:
            await patiently(cloud.load_balancers.delete, spec)
        except NotFound:
            return
    raise AssertionError("it is never gone")
