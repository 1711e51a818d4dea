# SPDX-License-Identifier: Apache-2.0
"""One complete listing of a cloud's instances, and what it proves about a Node. No I/O.

A listing that is empty, has entries that cannot be used, or lacks a part of the cloud that could not be asked, proves
that instances exist, and never that one is gone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Address, AddressType, Instance, InstanceRef, InstanceState
from ccm.cloud.errors import Conflict, NotFound, Transient


@dataclass(frozen=True)
class Snapshot:
    """One complete listing. `began` is monotonic seconds.

    `unusable`: what is wrong with the first entry that the provider made no proper Instance of, "" when all are. Such a
    listing still tells what exists, but no longer what does not. Nor does one of a cloud of which a part could not be
    asked: `unreachable` says which (`Page.unreachable`), "" for none. `by_name`: by names and aliases. `canonical`: a
    Node's providerID as the listing would spell it, None when that cannot be told.
    """

    began: float
    by_id: dict[str, Instance]
    by_name: dict[str, list[Instance]]
    pages: int
    unusable: str = ""
    canonical: Callable[[str], str | None] = field(default=str, compare=False, repr=False)
    unreachable: str = ""

    @classmethod
    def of(
        cls,
        instances: Iterable[Instance],
        began: float,
        pages: int,
        unusable: str = "",
        canonical: Callable[[str], str | None] = str,
        unreachable: str = "",
    ) -> Snapshot:
        """An instance may come twice, when pages shift while they are read; the later one counts."""
        by_id: dict[str, Instance] = {}
        by_name: dict[str, dict[str, Instance]] = {}
        for instance in instances:
            by_id[instance.provider_id] = instance
        for instance in by_id.values():
            for name in instance.names:
                by_name.setdefault(name, {})[instance.provider_id] = instance
        unambiguous = {name: list(found.values()) for name, found in by_name.items()}
        return cls(began, by_id, unambiguous, pages, unusable, canonical, unreachable)

    @property
    def proves_absence(self) -> bool:
        """Whether what it lacks does not exist."""
        return bool(self.by_id) and not self.unusable and not self.unreachable

    @functools.cached_property
    def _by_folded_id(self) -> dict[str, str]:
        return {provider_id.casefold(): provider_id for provider_id in self.by_id}

    def find(self, ref: InstanceRef) -> Instance:
        """The instance, with the providerID as `ref` spells it.

        Raises NotFound, Conflict (several of that name, or a providerID in another spelling), or Transient (an empty
        listing proves nothing, nor does one with unusable entries or without a part of the cloud).
        """
        try:
            return self._find(ref)
        except NotFound as error:
            if self.unusable:
                raise Transient(f"{error}, but it has entries that cannot be used: {self.unusable}") from None
            if self.unreachable:
                raise Transient(f"{error}, but a part of the cloud could not be asked: {self.unreachable}") from None
            raise

    def _find(self, ref: InstanceRef) -> Instance:
        if not self.by_id:
            raise Transient("the cloud lists no instance at all, which is not believable while there are nodes")
        if ref.provider_id:
            asked = canonical_ref(ref, self.canonical).provider_id or ""
            if (found := self.by_id.get(asked)) is not None:
                return as_asked(found, ref, asked)
            if (similar := self._by_folded_id.get(asked.casefold())) is not None:
                raise Conflict(
                    f"the Node's providerID is {ref.provider_id}, the cloud spells it {similar}: whether they are the "
                    "same cannot be told; delete the Node, so that it registers anew"
                )
            raise NotFound(f"the cloud lists no instance {ref.provider_id}")
        named = self.by_name.get(ref.node_name, [])
        if len(named) > 1:
            ids = ", ".join(sorted(instance.provider_id for instance in named))
            raise Conflict(
                f"{len(named)} instances are named {ref.node_name!r} ({ids}): give the Node a providerID or rename"
            )
        if not named:
            raise NotFound(f"the cloud lists no instance named {ref.node_name!r}")
        return named[0]


def canonical_ref(ref: InstanceRef, canonical: Callable[[str], str | None]) -> InstanceRef:
    """With the providerID as the cloud lists it. Raises Conflict when that cannot be told: unknown, never gone."""
    if not ref.provider_id or (spelt := canonical(ref.provider_id)) == ref.provider_id:
        return ref
    if not spelt:
        raise Conflict(f"which instance the providerID {ref.provider_id} means cannot be told")
    return dataclasses.replace(ref, provider_id=spelt)


def as_asked(found: Instance, ref: InstanceRef, canonical: str | None) -> Instance:
    """With the providerID as the Node spells it: that never changes, and whoever compares them sees the same."""
    if not ref.provider_id or found.provider_id != canonical or canonical == ref.provider_id:
        return found
    return dataclasses.replace(found, provider_id=ref.provider_id)


def instance_problem(found: Any) -> str:
    """Why this is not an Instance as the contract has it, "" when it is. Types are no more than a promise in Python."""
    if not isinstance(found, Instance):
        return f"expected Instance, got {type(found).__name__}"
    texts = {name: getattr(found, name) for name in ("provider_id", "name", "type", "zone", "region")}
    wrong = [f"{name}={value!r}" for name, value in texts.items() if not isinstance(value, str)]
    if not isinstance(found.addresses, Sequence) or not all(map(_is_address, found.addresses)):
        wrong.append(f"addresses={found.addresses!r}")
    if not isinstance(found.labels, Mapping) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in found.labels.items()
    ):
        wrong.append(f"labels={found.labels!r}")
    for name in ("aliases", "warnings"):
        texts_of = getattr(found, name)
        if not isinstance(texts_of, tuple) or not all(isinstance(text, str) and text for text in texts_of):
            wrong.append(f"{name}={texts_of!r}")
    if not isinstance(found.state, InstanceState):
        wrong.append(f"state={found.state!r}")
    if not wrong:
        return ""
    return f"instance {found.provider_id!r} ({found.name!r}) has {', '.join(wrong)}"[:500]


def _is_address(found: Any) -> bool:
    return (
        isinstance(found, Address)
        and isinstance(found.type, AddressType)
        and isinstance(found.address, str)
        and bool(found.address)
    )
