# SPDX-License-Identifier: Apache-2.0
"""Chooses the instances that are the targets of a load balancer of either type. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from ccm.cloud import Backend, Backends
from ccm.cloud.toolkit.digests import desired_digest
from ccm.cloud.toolkit.limited_members import limited

from ...instance_rules import instance_id


class Selecting(Protocol):
    """The part of a desired state that chooses the targets. `nodes`: the labels that a Node must have, None for any
    value. `most`: how many instances may be targets, 0 for all. `local`: externalTrafficPolicy is Local, so each Node
    may have the Service's only Pods, and all are targets. `service`: the Service's UID, so that Services choose
    different instances if there are more than `most`."""

    @property
    def nodes(self) -> Mapping[str, str | None]: ...

    @property
    def most(self) -> int: ...

    @property
    def local(self) -> bool: ...

    @property
    def service(self) -> str: ...


def ids(desired: Selecting, backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return the sorted IDs of the instances that are targets. Nodes of other clouds and Nodes without addresses are
    left out. So are draining Nodes, unless all are draining, because a removed target keeps its connections (`drains`).
    Without a limit, the IDs are computed once for all Services that select the same Nodes."""
    selector = tuple(sorted(desired.nodes.items()))
    every = Backends.of(backends).recent(("aws instances", selector), lambda each: _instances(selector, each))
    if not is_too_many(desired, every):
        return every

    def choose(of_all: Backends) -> tuple[str, ...]:
        selected_ids, named = set(every), ((instance_id(each.provider_id), each) for each in of_all)
        members = {id_: each for id_, each in named if id_ is not None and id_ in selected_ids}
        return tuple(sorted(limited(members, desired.most, desired.service)))

    return Backends.of(backends).recent(("aws chosen", selector, desired.most, desired.service), choose)


def is_too_many(desired: Selecting, every: Sequence[str]) -> bool:
    return 0 < desired.most < len(every) and not desired.local


def share(most: int, ports: int) -> int:
    """Return how many instances may be targets of a load balancer with this many ports: at least 1, or 0 for all. AWS
    counts an instance once for each port."""
    return max(1, most // max(1, ports)) if most else 0


def _instances(selector: Sequence[tuple[str, str | None]], backends: Sequence[Backend]) -> tuple[str, ...]:
    selected = [
        (id_, backend.draining)
        for backend in backends
        if backend.addresses
        and all(key in backend.labels and value in (None, backend.labels[key]) for key, value in selector)
        if (id_ := instance_id(backend.provider_id)) is not None
    ]
    serving = {id_ for id_, draining in selected if not draining}
    return tuple(sorted(serving or {id_ for id_, _ in selected}))


def without(ids: tuple[str, ...], stopped: Set[str]) -> tuple[str, ...]:
    """Return the targets without the stopped ones. If none is stopped, return `ids` itself, which Services share."""
    return tuple(each for each in ids if each not in stopped) if stopped else ids


def changed(
    before: tuple[str, ...], after: tuple[str, ...], backends: Sequence[Backend]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the targets to remove, and the targets to add. They are computed once for all Services with the same
    change."""

    def difference(_: Backends) -> tuple[tuple[str, ...], tuple[str, ...]]:
        old, new = set(before), set(after)
        return tuple(sorted(old - new)), tuple(sorted(new - old))

    return Backends.of(backends).recent(("aws changed", before, after), difference)


def digest_of(desired: Selecting, backends: Sequence[Backend]) -> str:
    """Return a hash of the targets. Without a limit, the hash is computed once for all Services that select the same
    Nodes."""
    chosen_by = (desired.most, desired.service) if desired.most and not desired.local else ()
    key = ("aws targets", tuple(sorted(desired.nodes.items())), chosen_by)
    return Backends.of(backends).once(key, lambda each: desired_digest(ids(desired, each)))
