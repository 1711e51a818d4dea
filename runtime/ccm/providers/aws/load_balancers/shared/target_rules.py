# SPDX-License-Identifier: Apache-2.0
"""Which instances are the targets of a load balancer of either type. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from ccm.cloud import Backend, Backends
from ccm.cloud.toolkit.digests import desired_digest
from ccm.cloud.toolkit.service_checks import nobody_serves

from ...annotations import PREFIX
from ...instance_rules import instance_id


class Selecting(Protocol):
    """A desired state. `nodes`: the labels that a Node must have, None for any value."""

    @property
    def nodes(self) -> Mapping[str, str | None]: ...


def ids(desired: Selecting, backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return the sorted IDs of the instances that are targets. Left out are Nodes of other clouds, Nodes whose instance
    confirms no address, and Nodes that drain, unless all do: a target that is removed keeps its connections (`drains`).
    Computed once for Services that select the same Nodes."""
    selector = tuple(sorted(desired.nodes.items()))
    return Backends.of(backends).recent(("aws instances", selector), lambda every: _instances(selector, every))


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


def nobody(desired: Selecting, backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return the warning that there are no targets although there are Nodes; () otherwise."""
    selector = f"annotation {PREFIX}target-node-labels" if desired.nodes else ""
    return nobody_serves(backends, ids(desired, backends), selector)


def without(ids: tuple[str, ...], stopped: Set[str]) -> tuple[str, ...]:
    """Return the targets without the stopped ones. If none is stopped, that is the same tuple, which Services share."""
    return tuple(each for each in ids if each not in stopped) if stopped else ids


def changed(
    before: tuple[str, ...], after: tuple[str, ...], backends: Sequence[Backend]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the targets that go, and the targets that come. Computed once for all Services with the same change."""

    def difference(_: Backends) -> tuple[tuple[str, ...], tuple[str, ...]]:
        old, new = set(before), set(after)
        return tuple(sorted(old - new)), tuple(sorted(new - old))

    return Backends.of(backends).recent(("aws changed", before, after), difference)


def digest_of(desired: Selecting, backends: Sequence[Backend]) -> str:
    """Return a hash of the targets, computed once for all Services that select the same Nodes."""
    key = ("aws targets", tuple(sorted(desired.nodes.items())))
    return Backends.of(backends).once(key, lambda each: desired_digest(ids(desired, each)))
