# SPDX-License-Identifier: Apache-2.0
"""What a Service sets is applied in the cloud, refused, or reported by a warning. Its fingerprint is the same in every
process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ccm.cloud import (
    AllocatesAddresses,
    Backend,
    Conflict,
    Forbidden,
    Invalid,
    LoadBalancerSpec,
    NotFound,
    NotImplementedByCloud,
    Port,
)

from ..another_process import fingerprint_or_refusal, fingerprints
from ..trial import Failed, Trial
from ..world import Listener, NotRun
from .collection import Collection

COLLECTION = Collection("load_balancers", needs="load_balancers")
case = COLLECTION.case

#: How a provider refuses a Service.
REFUSALS = (Invalid, NotImplementedByCloud, Forbidden, Conflict)
PORTS = (Port("http", "TCP", 80, 30080), Port("https", "TCP", 443, 30443), Port("admin", "TCP", 8080, 30880))
RANGES = ("198.51.100.0/24", "203.0.113.7/32")
HEALTH_PORT = 32456
#: An address of TEST-NET-1, which no cloud has.
NOBODYS_ADDRESS = "192.0.2.77"


@case()
async def the_fingerprint_is_the_same_in_every_process(trial: Trial) -> None:
    """The fingerprints are the same after a restart, because they do not depend on `hash()`, the order of a set, or an
    address in memory."""
    backends = await trial.backends()
    specs = [
        trial.spec(),
        dataclasses.replace(trial.spec(), ports=PORTS),
        dataclasses.replace(trial.spec(), source_ranges=RANGES),
        dataclasses.replace(trial.spec(), annotations={"example.com/b": "2", "example.com/a": "1"}),
    ]
    here = [fingerprint_or_refusal(trial.load_balancers, spec, backends) for spec in specs]
    if here != await fingerprints(trial.subject, specs, backends):
        raise Failed("another process has other fingerprints for equal Services: each restart would write all of them")


@case(writes=True)
async def every_port_is_served(trial: Trial) -> None:
    """Each port of a Service has a listener that sends to the port's own node port. If a port is removed from the
    Service, its listener disappears."""
    spec, backends = dataclasses.replace(trial.spec(), ports=PORTS), await trial.backends()
    served = await _served(trial, spec, backends)
    if served is None:
        return
    _all_ports(spec, backends, served)
    fewer = dataclasses.replace(spec, ports=PORTS[:1])
    if (served := await _served(trial, fewer, backends)) is not None:
        _all_ports(fewer, backends, served)


@case(writes=True)
async def each_protocol_is_served_or_refused(trial: Trial) -> None:
    """A port with UDP or SCTP, or one port with both TCP and UDP, is served as such or refused."""
    backends = await trial.backends()
    for ports in (
        (Port("dns", "UDP", 53, 30053),),
        (Port("dns-tcp", "TCP", 53, 30053), Port("dns", "UDP", 53, 30054)),
        (Port("diameter", "SCTP", 3868, 30868),),
    ):
        spec = dataclasses.replace(trial.spec(), ports=ports)
        served = await _served(trial, spec, backends)
        if served is not None:
            _all_ports(spec, backends, served)
            await trial.delete(spec)


@case(writes=True)
async def source_ranges_are_applied_or_refused(trial: Trial) -> None:
    """Only clients in `source_ranges` may connect. If the cloud cannot do that, the Service is refused, or a warning
    says that everyone may connect."""
    plain = trial.spec()
    changed = dataclasses.replace(plain, source_ranges=RANGES)
    for listener in await _set(trial, plain, changed, "source_ranges"):
        if listener.source_ranges != frozenset(RANGES):
            admitted = ", ".join(sorted(listener.source_ranges)) or "everyone"
            raise Failed(
                f"only {', '.join(RANGES)} may connect to port {listener.port}, but the cloud admits {admitted}"
            )


@case(writes=True)
async def session_affinity_is_applied_or_refused(trial: Trial) -> None:
    """With `session_affinity` ClientIP, a client always reaches the same backend. If the cloud cannot do that, the
    provider refuses the Service or warns."""
    plain = trial.spec()
    changed = dataclasses.replace(plain, session_affinity="ClientIP", session_affinity_timeout=10800)
    for listener in await _set(trial, plain, changed, "session_affinity"):
        if listener.session_affinity != "ClientIP":
            raise Failed(f"port {listener.port} has no session affinity, although the Service requests ClientIP")


@case(writes=True)
async def a_health_check_node_port_is_used_or_refused(trial: Trial) -> None:
    """With externalTrafficPolicy Local, only backends that answer on `health_check_node_port` get traffic, because
    connections to the other backends fail. If the cloud cannot do that, the provider refuses the
    Service or warns."""
    plain = trial.spec()
    changed = dataclasses.replace(plain, external_traffic_policy="Local", health_check_node_port=HEALTH_PORT)
    for listener in await _set(trial, plain, changed, "health_check_node_port"):
        if listener.health_check_port != HEALTH_PORT:
            raise Failed(
                f"port {listener.port} does not check port {HEALTH_PORT} of its backends (health_check_node_port), so "
                "clients are also sent to nodes without Pods of the Service"
            )


@case(writes=True)
async def a_requested_address_is_given_or_refused(trial: Trial) -> None:
    """A Service that requests an address gets it, is refused, or has a warning."""
    spec = dataclasses.replace(trial.spec(), load_balancer_ip=NOBODYS_ADDRESS)
    trial.remove_at_end(spec)
    try:
        made = await trial.patiently(trial.load_balancers.ensure, spec, await trial.backends())
        balancer = await trial.ready(spec)
    except (*REFUSALS, NotFound):
        return
    if not (made.warnings or balancer.warnings) and all(ingress.ip != NOBODYS_ADDRESS for ingress in balancer.ingress):
        raise Failed(
            f"a Service requested {NOBODYS_ADDRESS} and got {balancer.ingress} without a warning (load_balancer_ip)"
        )


async def _served(trial: Trial, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> tuple[Listener, ...] | None:
    """Return the listeners of a Service, None if the provider refuses it."""
    carried(trial)
    try:
        balancer = await trial.ensure(spec, backends)
    except (Invalid, NotImplementedByCloud):
        return None
    return await trial.world.load_balancer_listeners(balancer.name)


async def _set(trial: Trial, plain: LoadBalancerSpec, changed: LoadBalancerSpec, setting: str) -> list[Listener]:
    """Change a setting of an existing Service, and create a new Service with it. Return the listeners of both, except
    where the provider refuses the Service or warns about it. Raises Failed if the setting does not change the
    fingerprint. `setting`: its name, for messages."""
    carried(trial)
    backends, listeners = await trial.backends(), list[Listener]()
    before = await trial.ensure(plain, backends)
    fingerprints = [fingerprint_or_refusal(trial.load_balancers, spec, backends) for spec in (plain, changed)]
    if fingerprints[0] == fingerprints[1]:
        raise Failed(f"{setting} does not change the fingerprint: a Service that gets it later is never updated")
    for spec in (changed, dataclasses.replace(changed, uid=trial.spec().uid, name="another")):
        trial.remove_at_end(spec)
        try:
            made = await trial.patiently(trial.load_balancers.ensure, spec, backends)
            balancer = await trial.ready(spec)
        except REFUSALS:
            continue
        if not {*made.warnings, *balancer.warnings} - {*before.warnings}:
            listeners += await trial.world.load_balancer_listeners(balancer.name)
    return listeners


def carried(trial: Trial) -> None:
    """Raise NotRun for a provider that only allocates addresses, because something else carries the traffic, such as
    kube-proxy."""
    if isinstance(trial.load_balancers, AllocatesAddresses):
        raise NotRun("needs a cloud that carries the traffic; this provider only allocates addresses")


def _all_ports(spec: LoadBalancerSpec, backends: Sequence[Backend], served: Sequence[Listener]) -> None:
    """Raise Failed unless the listeners are the ports of the Service, and each sends to its node port."""
    expected = {(port.port, port.protocol) for port in spec.ports}
    present = {(each.port, each.protocol) for each in served}
    if present != expected:
        raise Failed(f"the Service has the ports {_list(expected)}, and the load balancer {_list(present)}")
    if not any(backend.internal_ip for backend in backends):
        return
    for port in spec.ports:
        targets = next(each.targets for each in served if (each.port, each.protocol) == (port.port, port.protocol))
        if not targets:
            raise Failed(f"port {port.port} sends to no backend")
        if {number for _, number in targets} != {port.node_port}:
            raise Failed(f"port {port.port} sends to {_list(targets)}, and not to the node port {port.node_port}")


def _list(pairs: frozenset[tuple[str, int]] | set[tuple[int, str]]) -> str:
    return ", ".join(f"{one}/{other}" for one, other in sorted(pairs)) or "none"
