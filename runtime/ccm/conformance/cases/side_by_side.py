# SPDX-License-Identifier: Apache-2.0
"""Load balancers of several Services that change concurrently, in an order that differs on each run."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import secrets
from collections.abc import Sequence

from ccm.cloud import Backend, LoadBalancer, LoadBalancerSpec

from ..trial import Failed, Trial
from ..world import NotRun
from .collection import Collection

COLLECTION = Collection("load_balancers", needs="load_balancers")
case = COLLECTION.case

#: How many times the ports of each Service change (its backends once more), and the longest pause before a change, in
#: seconds.
CHANGES, PAUSE = 2, 0.5


@case(writes=True)
async def services_that_change_side_by_side_lose_nothing(trial: Trial) -> None:
    """Two Services change concurrently and in random order, on one load balancer if Services can share one. Both keep
    all their settings. If one is deleted while the other changes, the other keeps its settings."""
    seed = secrets.randbits(32)
    try:
        await _side_by_side(trial, random.Random(seed))
    except Failed as error:
        raise Failed(f"{error} (seed {seed})") from error


async def _side_by_side(trial: Trial, rng: random.Random) -> None:
    backends = await trial.backends()
    one, two = (dataclasses.replace(trial.spec(port=port), name=f"web-{port}") for port in (8000, 9000))
    name = (await trial.ensure(one, backends)).name
    two = await trial.world.share(two, name)
    desired = await trial.together(_changed(trial, one, backends, rng), _changed(trial, two, backends, rng))
    for spec, chosen in desired:
        await _check(trial, spec, chosen, "after both had changed")
    (one, _), (two, _) = desired
    keep = trial.patiently(trial.load_balancers.update_backends, two, backends)
    await trial.together(trial.delete(one), keep)
    await _check(trial, two, backends, "after the other one was deleted")
    if [each.service_uid for each in await trial.owned()] != [two.uid]:
        raise Failed("a deleted Service still has a load balancer in the listing")


async def _changed(
    trial: Trial, spec: LoadBalancerSpec, backends: Sequence[Backend], rng: random.Random
) -> tuple[LoadBalancerSpec, Sequence[Backend]]:
    """Change a Service several times. Return the Service and its backends, as last written."""
    await trial.ensure(spec, backends)
    chosen: Sequence[Backend] = backends
    changes = ["ports", "backends"] * CHANGES
    rng.shuffle(changes)
    for number, change in enumerate([*changes, "backends"]):
        await asyncio.sleep(rng.uniform(0, PAUSE))
        if change == "ports":
            port = dataclasses.replace(spec.ports[0], port=spec.ports[0].port + 1, node_port=30100 + number)
            spec = dataclasses.replace(spec, ports=(port,))
            await trial.patiently(trial.load_balancers.ensure, spec, chosen)
        else:
            chosen = backends[: len(backends) - 1] if len(chosen) == len(backends) else backends
            await trial.patiently(trial.load_balancers.update_backends, spec, chosen)
    await trial.ready(spec)
    return spec, chosen


async def _check(trial: Trial, spec: LoadBalancerSpec, backends: Sequence[Backend], when: str) -> None:
    """Check that the cloud has the last write of the Service, and that the load balancer listens on the Service's port.
    Raises Failed otherwise."""
    owned = [each for each in await trial.owned() if each.service_uid == spec.uid]
    if len(owned) != 1:
        raise Failed(f"{when} Service {spec.name} has {len(owned)} load balancers in the listing")
    if owned[0].fingerprint != trial.load_balancers.fingerprint(spec, backends):
        raise Failed(f"{when} the fingerprint of Service {spec.name} is not that of the last write")
    await _check_port(trial, spec, owned[0], when)


async def _check_port(trial: Trial, spec: LoadBalancerSpec, balancer: LoadBalancer, when: str) -> None:
    with contextlib.suppress(NotRun):
        ports = await trial.world.load_balancer_ports(balancer.name)
        if spec.ports[0].port not in ports:
            listens = ", ".join(map(str, sorted(ports))) or "no port"
            raise Failed(
                f"{when} the load balancer of Service {spec.name} listens on {listens}, not {spec.ports[0].port}"
            )
