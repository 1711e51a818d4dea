# SPDX-License-Identifier: Apache-2.0
"""Services and Nodes as the framework gives them to the provider, and calls that tests repeat as the framework does."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ccm.cloud import Backend, Backends, LoadBalancer, LoadBalancerSpec, Port, RetryAfter
from ccm.providers.hetzner import HetznerCloud

T = TypeVar("T")
PREFIX = "load-balancer.hetzner.cloud/"


def service(*ports: int, **annotations: str) -> LoadBalancerSpec:
    """Return a Service. Annotations are given without their prefix, and with _ instead of -."""
    return LoadBalancerSpec(
        cluster="kubernetes",
        uid=str(uuid.uuid4()),
        namespace="default",
        name="web",
        ports=tuple(Port(f"p{port}", "TCP", port, 30000 + port) for port in ports or (80, 443)),
        annotations={PREFIX + name.replace("_", "-"): text for name, text in annotations.items()},
    )


def changed(spec: LoadBalancerSpec, **annotations: str) -> LoadBalancerSpec:
    given = {PREFIX + name.replace("_", "-"): text for name, text in annotations.items()}
    return dataclasses.replace(spec, annotations={**spec.annotations, **given})


async def nodes(cloud: HetznerCloud) -> Backends:
    page = await cloud.instances.list_page(None)
    return Backends(
        Backend(each.name, each.provider_id, each.addresses, {"name": each.name}) for each in page.instances
    )


async def patiently(call: Callable[..., Awaitable[T]], *args: Any, times: int = 100) -> T:
    """Call again after each RetryAfter, and return the answer. The pauses are short, because actions of the stand-in
    are short."""
    for _ in range(times):
        try:
            return await call(*args)
        except RetryAfter:
            await asyncio.sleep(0.06)
    raise AssertionError(f"not done after {times} calls")


async def settled(cloud: HetznerCloud, spec: LoadBalancerSpec, backends: Backends) -> LoadBalancer:
    """Call `ensure`, then `get` until the load balancer is ready, as the framework does. Return the load balancer."""
    assert cloud.load_balancers is not None
    found = await patiently(cloud.load_balancers.ensure, spec, backends)
    while not found.ready:
        await asyncio.sleep(0.06)
        found = await cloud.load_balancers.get(spec)
    return found
