# SPDX-License-Identifier: Apache-2.0
"""What is published is served: a Service that nobody would serve, or that does not get what it asks for, is refused or
reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ccm.cloud import Backend, LoadBalancer, LoadBalancerSpec, NotFound, Port

from ..another_process import fingerprint_or_refusal
from ..trial import Failed, Trial
from .collection import Collection
from .service_settings import REFUSALS, carried

COLLECTION = Collection("load_balancers", needs="load_balancers")
case = COLLECTION.case

WITHOUT_NODE_PORT = (Port("http", "TCP", 80, 30080), Port("admin", "TCP", 8080, 0))
#: A Node whose instance confirms no address: no provider may send traffic to it.
UNREACHABLE = Backend("ccm-conformance-unreachable", "")


@case(writes=True)
async def a_port_without_node_port_is_refused(trial: Trial) -> None:
    """With `allocateLoadBalancerNodePorts: false`, ports have the node port 0. A provider that needs node ports refuses
    such a Service, or reports it."""
    carried(trial)
    if not trial.cloud.needs_node_ports:
        return
    spec = dataclasses.replace(trial.spec(), ports=WITHOUT_NODE_PORT)
    if (answer := await _served(trial, spec, await trial.backends())) and not answer.warnings:
        raise Failed("port 8080 has no node port, and the load balancer is published without a warning: refuse it")


@case(writes=True)
async def each_ip_family_is_served_or_reported(trial: Trial) -> None:
    """If the load balancer does not have an IP family that the Service requests, the Service is refused, or a warning
    says so. Node ports of a Service with only IPv6 do not listen on IPv4."""
    carried(trial)
    backends = await trial.backends()
    for families in (("IPv6",), ("IPv4", "IPv6")):
        spec = dataclasses.replace(trial.spec(), ip_families=families)
        answer = await _served(trial, spec, backends)
        if answer is None or answer.warnings or any(ingress.hostname for ingress in answer.ingress):
            continue  # a host name may have addresses of both families
        present = {"IPv6" if ":" in ingress.ip else "IPv4" for ingress in answer.ingress if ingress.ip}
        if missing := set(families) - present:
            raise Failed(
                f"the Service asks for {' and '.join(families)}, and its load balancer has no {', '.join(missing)} "
                "address, without a warning (ip_families)"
            )
        if families == ("IPv6",) and any(":" not in member for member in await _members(trial, answer)):
            raise Failed("the Service has only IPv6, and the load balancer sends to IPv4 addresses of nodes")


@case(writes=True)
async def a_range_of_ipv6_does_not_open_ipv4(trial: Trial) -> None:
    """`source_ranges` with only ::/0 admit no IPv4 client. A Service with them is refused if its load balancer has an
    IPv4 address."""
    carried(trial)
    spec = dataclasses.replace(trial.spec(), source_ranges=("::/0",))
    if (answer := await _served(trial, spec, await trial.backends())) is None:
        return
    if all(":" in ingress.ip for ingress in answer.ingress if ingress.ip) and any(
        ingress.ip for ingress in answer.ingress
    ):
        return
    raise Failed("the Service admits only ::/0, and its load balancer has an IPv4 address: refuse it")


@case(writes=True)
async def a_load_balancer_without_targets_is_reported(trial: Trial) -> None:
    """If there are nodes and none can be a target, a warning of `ensure` says that nobody serves the Service."""
    carried(trial)
    answer = await _served(trial, trial.spec(), [UNREACHABLE])
    if answer is not None and not answer.warnings:
        raise Failed("no node can be a target, and the load balancer is published without a warning")


@case(writes=True)
async def a_warning_is_in_the_answer_of_the_write(trial: Trial) -> None:
    """`ensure` returns the warnings about what it has written, even if the cloud is not done, and the next `ensure`
    returns them again. A later `get` need not return them."""
    carried(trial)
    spec, first = trial.spec(), await _served(trial, trial.spec(), [UNREACHABLE])
    if first is None or (first := await _served(trial, spec, [UNREACHABLE])) is None:
        return
    again = await trial.patiently(trial.load_balancers.ensure, spec, [UNREACHABLE])
    if lost := set(first.warnings) - set(again.warnings):
        raise Failed(f"the second `ensure` of the same Service no longer warns: {', '.join(sorted(lost))}")


@case(writes=True)
async def a_setting_that_comes_too_late_is_refused_or_reported(trial: Trial) -> None:
    """A setting that the cloud applies to new load balancers only (`World.comes_too_late`) is part of the fingerprint.
    If it changes later, `ensure` refuses the change, warns about it, or applies it."""
    carried(trial)
    spec, backends = trial.spec(), await trial.backends()
    before = await trial.ensure(spec, backends)
    changed = trial.world.comes_too_late(spec)
    prints = [fingerprint_or_refusal(trial.load_balancers, each, backends) for each in (spec, changed)]
    if prints[0] == prints[1]:
        raise Failed("a setting for new load balancers does not change the fingerprint, so nobody looks at a change")
    try:
        answer = await trial.patiently(trial.load_balancers.ensure, changed, backends)
    except (*REFUSALS, NotFound):
        return
    balancer = await trial.ready(changed)
    applied = changed.load_balancer_ip and any(ingress.ip == changed.load_balancer_ip for ingress in balancer.ingress)
    if not applied and not set(answer.warnings) - set(before.warnings):
        raise Failed("a setting for new load balancers changed later, and no warning says that it has no effect")


async def _served(trial: Trial, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> LoadBalancer | None:
    """Return what `ensure` answers, with the address that the load balancer has when it is ready; None if the Service
    is refused."""
    trial.remove_at_end(spec)
    try:
        answer = await trial.patiently(trial.load_balancers.ensure, spec, backends)
        balancer = await trial.ready(spec)
    except REFUSALS:
        return None
    return dataclasses.replace(answer, name=balancer.name, ingress=balancer.ingress)


async def _members(trial: Trial, balancer: LoadBalancer) -> frozenset[str]:
    return await trial.world.load_balancer_members(balancer.name)
