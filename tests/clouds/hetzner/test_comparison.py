# SPDX-License-Identifier: Apache-2.0
"""Counts the figures in docs/providers/index.md: calls of each operation, and calls that fail in every way.

The vendor's controller cannot run here, so its calls are not among the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from typing import Any

from ccm.cloud import (
    Backend,
    Backends,
    CloudError,
    Instance,
    InstanceRef,
    LoadBalancerSpec,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)
from ccm.providers.hetzner import HetznerCloud
from tests.comparison import confirm, confirm_calls

from .face import Fault
from .services import nodes, patiently, service, settled
from .world import PAGE, config, hetzner


async def test_calls_by_operation() -> None:
    """The calls are counted for a Service with two ports and four Nodes, a fifth Node that joins and leaves, a third
    port, and the deletion."""
    async with hetzner() as (face, cloud):
        before, counted = len(face.exchanges), {}

        def count(operation: str) -> None:
            nonlocal before
            counted[operation] = len(face.exchanges) - before
            before = len(face.exchanges)

        backends, spec = await nodes(cloud), service()
        count("nodes initialised")
        few = Backends(backends[1:])
        await settled(cloud, spec, few)
        count("create")
        await cloud.load_balancers.ensure(spec, few)
        count("unchanged")
        await patiently(cloud.load_balancers.update_backends, spec, backends)
        count("node joins")
        await patiently(cloud.load_balancers.update_backends, spec, few)
        count("node leaves")
        wider = dataclasses.replace(spec, ports=service(80, 443, 8080).ports)
        await patiently(cloud.load_balancers.ensure, wider, few)
        count("port added")
        (row,) = face.project.load_balancers.values()
        assert [each["listen_port"] for each in row["services"]] == [80, 443, 8080] and len(row["targets"]) == 4
        await patiently(cloud.load_balancers.delete, wider)
        count("delete")
        assert not face.project.load_balancers
    for operation, calls in counted.items():
        confirm_calls("hetzner", operation, ours=calls, theirs=None)


#: What happens to one call, and the errors that the provider may raise, which are never NotFound.
KINDS: dict[str, tuple[dict[str, Any], tuple[type[CloudError], ...]]] = {
    "5xx": ({"kind": "status", "status": 503}, (Transient,)),
    "a proxy's page": ({"kind": "html", "status": 404}, (Transient,)),
    "429": ({"kind": "status", "status": 429, "code": "rate_limit_exceeded"}, (RateLimited,)),
    "locked": ({"kind": "status", "status": 423, "code": "locked", "times": 5}, (RetryAfter, Transient)),
    "half an answer": ({"kind": "truncate"}, (Transient,)),
    "half of the rows": ({"kind": "half"}, (Transient,)),
    "no connection": ({"kind": "drop", "late": True}, (Transient,)),
    "no answer": ({"kind": "hang"}, (Transient,)),
    "the token is no longer valid": ({"kind": "status", "status": 401, "code": "unauthorized"}, (Unauthorized,)),
}


async def test_each_call_breaks_in_each_way_and_nothing_looks_gone() -> None:
    async with hetzner(page_limit=PAGE) as (face, cloud):
        truth = await _story(cloud, service())
        calls = sorted({_form(call) for call in face.calls()})
    assert {"GET /servers", "GET /servers/[0-9]+", "POST /load_balancers"} < set(calls)
    # Only some run at a time: otherwise the stand-in would answer so late that calls time out.
    turns = asyncio.Semaphore(8)
    jobs = [_survives(kind, call, truth, turns) for kind in KINDS for call in calls]
    await asyncio.gather(*jobs)
    confirm("hetzner", "faults survived", f"{len(jobs)} of {len(KINDS) * len(calls)}")


async def _survives(kind: str, call: str, truth: list[Instance], turns: asyncio.Semaphore) -> None:
    what, errors = KINDS[kind]
    method, path = call.split()
    fault, spec = Fault(method=method, path=path, **what), service()
    seconds = "2s" if kind == "no answer" else "30s"
    async with turns, hetzner(page_limit=PAGE) as (face, _):
        cloud = HetznerCloud(config(face, HCLOUD_REQUEST_TIMEOUT=seconds))
        try:
            with face.fault(fault), contextlib.suppress(*errors):
                await cloud.start()
                assert await _story(cloud, spec) == truth, (kind, call)
            assert fault.times < what.get("times", -1), f"{call} was never broken by {kind}"
            await cloud.start()
            assert await _story(cloud, spec) == truth, (kind, call)
        finally:
            await cloud.close()
        assert len(face.project.load_balancers) == 1, (kind, call)


async def _story(cloud: HetznerCloud, spec: LoadBalancerSpec) -> list[Instance]:
    """Read all instances by a listing and one by one, and one by its name. Create a load balancer and remove a target.
    Return the instances."""
    token, found = None, []
    while True:
        page = await cloud.instances.list_page(token)
        found += page.instances
        if not (token := page.next):
            break
    found += [await cloud.instances.get(InstanceRef(each.name, each.provider_id)) for each in tuple(found)]
    found += [await cloud.instances.get(InstanceRef("worker-1"))]
    backends = Backends(Backend(each.name, each.provider_id, each.addresses, {}) for each in found[:5])
    await settled(cloud, spec, backends)
    await patiently(cloud.load_balancers.update_backends, spec, Backends(backends[1:]), times=20)
    (listed,) = await cloud.load_balancers.list(spec.cluster)
    assert listed.fingerprint == cloud.load_balancers.fingerprint(spec, Backends(backends[1:]))
    return found


def _form(call: str) -> str:
    return re.sub(r"/[0-9]+", "/[0-9]+", call)
