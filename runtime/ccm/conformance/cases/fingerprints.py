# SPDX-License-Identifier: Apache-2.0
"""A fingerprint covers what would be written, and costs little for thousands of Services and nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from ccm.cloud import Backend, Backends, CloudError, LoadBalancerSpec

from ..trial import Failed, Trial
from .collection import Collection

COLLECTION = Collection("load_balancers", needs="load_balancers")
case = COLLECTION.case
#: How many Services ask for a fingerprint with the same nodes.
SERVICES = 20


@case()
async def the_fingerprint_changes_with_the_desired_state(trial: Trial) -> None:
    """The fingerprint is equal for an equal desired state, in any object of the provider and for any order of backends,
    and differs after any change."""
    spec, backends, fingerprint = trial.spec(), await trial.backends(), trial.load_balancers.fingerprint
    same = fingerprint(spec, backends)
    if not isinstance(same, str) or not same:
        raise Failed(f"the fingerprint is {same!r}")
    async with trial.another() as other:
        assert other.load_balancers is not None
        if fingerprint(spec, backends) != same or other.load_balancers.fingerprint(spec, backends) != same:
            raise Failed("an equal desired state has different fingerprints: each start would write every Service")
    if fingerprint(spec, backends[::-1]) != same:
        raise Failed("the order of backends changes the fingerprint, although it is irrelevant")
    changed = dataclasses.replace(spec, ports=(dataclasses.replace(spec.ports[0], node_port=30081),))
    if fingerprint(changed, backends) == same:
        raise Failed("another node port does not change the fingerprint: the change would never be written")
    if backends and fingerprint(spec, backends[1:]) == same:
        raise Failed("another backend does not change the fingerprint: the change would never be written")


@case()
async def what_is_kept_with_backends_is_no_single_services(trial: Trial) -> None:
    """All Services share one `Backends`, so what `fingerprint` caches there with `once` is valid for all of them."""
    shared, first = await trial.backends(), trial.spec()
    fingerprint = trial.load_balancers.fingerprint
    fingerprint(first, shared)
    for other in (
        trial.spec(port=81),
        dataclasses.replace(trial.spec(), session_affinity="ClientIP", session_affinity_timeout=10800),
        dataclasses.replace(trial.spec(), external_traffic_policy="Local", health_check_node_port=32000),
        dataclasses.replace(trial.spec(), source_ranges=("198.51.100.0/24",)),
    ):
        if _outcome(fingerprint, other, shared) != _outcome(fingerprint, other, Backends(shared)):
            raise Failed("for the same backends, the fingerprint of a Service depends on which Service came first")


@case()
async def a_fingerprint_reads_the_nodes_once_for_all_services(trial: Trial) -> None:
    """`fingerprint` goes through all backends only for the first Services, because it uses what `Backends` caches."""
    backends, fingerprint = _Counted(await trial.backends()), trial.load_balancers.fingerprint
    for port in range(80, 80 + SERVICES):
        _outcome(fingerprint, trial.spec(port=port), backends)
    if _Counted.reads > SERVICES / 2:
        raise Failed(
            f"{SERVICES} Services with the same backends went through them {_Counted.reads} times: with thousands"
            " of nodes, each node that joins or leaves would take minutes of CPU. Use Backends.of(backends).digest"
        )


class _Counted(Backends):
    """Backends that count how many times somebody goes through all of them."""

    reads = 0

    def __new__(cls, backends: Iterable[Backend] = ()) -> Self:
        cls.reads = 0
        return super().__new__(cls, backends)

    def __iter__(self) -> Iterator[Backend]:
        type(self).reads += 1
        return super().__iter__()


def _outcome(fingerprint: Callable[..., str], spec: LoadBalancerSpec, backends: Backends) -> object:
    """Return the fingerprint, or the error of the contract if the cloud does not support such a load balancer."""
    try:
        return fingerprint(spec, backends)
    except CloudError as error:
        return type(error)
