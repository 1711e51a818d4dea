# SPDX-License-Identifier: Apache-2.0
"""One listing of a cloud's instances, read to its end, and what it proves about a Node. No I/O.

A listing that has invalid entries, or omits a part of the cloud that could not be queried, proves that instances exist,
but never that one is gone. An empty listing proves nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import Address, AddressType, Instance, InstanceRef, InstanceState, Page
from ccm.cloud.errors import Conflict, NotFound, Transient

#: A listing counts as endless after this many pages, or after this many pages in a row that only repeat instances.
#: Pages shift while instances come and go, but not that far.
MOST_PAGES, MOST_REPEATED = 10_000, 10


@dataclass(frozen=True)
class Snapshot:
    """One listing, read to its end. `began` is in monotonic seconds.

    `unusable`: the problem of the first invalid Instance from the provider, "" if all are valid. `unreachable`: the
    part of the cloud that could not be queried (`Page.unreachable`), "" for none. With either, the listing still proves
    what exists, but not what does not. `by_name`: the instances by names and aliases. `canonical`: returns the spelling
    of a Node's providerID in the listing, None if it cannot be determined.
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
        """Return the snapshot. An instance may occur twice if pages shift during the read; the later one counts."""
        by_id: dict[str, Instance] = {}
        by_name: dict[str, list[Instance]] = {}
        for instance in instances:
            by_id[instance.provider_id] = instance
        for instance in by_id.values():
            for name in instance.names:  # each name once
                if (known := by_name.get(name)) is None:
                    by_name[name] = [instance]
                else:
                    known.append(instance)
        return cls(began, by_id, by_name, pages, unusable, canonical, unreachable)

    @property
    def proves_absence(self) -> bool:
        """Whether an instance that is not in the listing does not exist."""
        return bool(self.by_id) and not self.unusable and not self.unreachable

    @property
    def is_empty(self) -> bool:
        """Whether the listing has no instance, no invalid entry, and omits no part of the cloud."""
        return not (self.by_id or self.unusable or self.unreachable)

    @functools.cached_property
    def _by_folded_id(self) -> dict[str, str]:
        return {provider_id.casefold(): provider_id for provider_id in self.by_id}

    @functools.cached_property
    def _by_system_uuid(self) -> dict[str, list[Instance]]:
        by_uuid: dict[str, list[Instance]] = {}
        for instance in self.by_id.values():
            for system_uuid in set(instance.system_uuids):
                by_uuid.setdefault(system_uuid, []).append(instance)
        return by_uuid

    def find(self, ref: InstanceRef) -> Instance:
        """Return the instance, with the providerID as spelled in `ref`.

        Raises NotFound, Conflict (several instances with that name, or a providerID in another or an unknown spelling),
        or Transient (the listing is empty, has invalid entries, or omits a part of the cloud, so it does not prove that
        the instance is gone).
        """
        try:
            return self._find(ref)
        except NotFound as error:
            if self.unusable:
                raise Transient(f"{error}, but it has invalid entries: {self.unusable}") from None
            if self.unreachable:
                raise Transient(f"{error}, but a part of the cloud could not be queried: {self.unreachable}") from None
            raise

    def _find(self, ref: InstanceRef) -> Instance:
        if not self.by_id:
            raise Transient("the cloud lists no instances at all, which is implausible while there are nodes")
        if ref.provider_id:
            canonical_id = canonical_ref(ref, self.canonical).provider_id or ""
            if (listed := self.by_id.get(canonical_id)) is not None:
                return as_asked(listed, ref, canonical_id)
            if (similar := self._by_folded_id.get(canonical_id.casefold())) is not None:
                raise Conflict(
                    f"the Node's providerID is {ref.provider_id}, the cloud spells it {similar}: it is unclear whether "
                    "they are the same; delete the Node, so that it registers again"
                )
            raise NotFound(f"the cloud lists no instance {ref.provider_id}")
        named = self.by_name.get(ref.node_name, [])
        if len(named) != 1 and ref.system_uuid:
            named = self._with_system_uuid(ref.system_uuid, named) or named
        if len(named) > 1:
            ids = ", ".join(sorted(instance.provider_id for instance in named))
            raise Conflict(
                f"{len(named)} instances are named {ref.node_name!r} ({ids}): give the Node a providerID or rename"
            )
        if not named:
            raise NotFound(f"the cloud lists no instance named {ref.node_name!r}")
        return named[0]

    def _with_system_uuid(self, system_uuid: str, named: Sequence[Instance]) -> list[Instance]:
        """Return the instances of `named` with this SMBIOS UUID; if `named` is empty, those of all instances."""
        instances = self._by_system_uuid.get(system_uuid.lower(), ())
        return [each for each in instances if not named or each in named]


def canonical_ref(ref: InstanceRef, canonical: Callable[[str], str | None]) -> InstanceRef:
    """Return `ref` with the providerID as the cloud lists it, which `canonical` returns. Raises Conflict if that cannot
    be determined, because the instance is then unknown, not gone."""
    if not ref.provider_id or (spelling := canonical(ref.provider_id)) == ref.provider_id:
        return ref
    if not spelling:
        raise Conflict(f"cannot determine which instance the providerID {ref.provider_id} refers to")
    return dataclasses.replace(ref, provider_id=spelling)


def as_asked(instance: Instance, ref: InstanceRef, canonical: str | None) -> Instance:
    """Return the instance with the providerID as the Node spells it, which never changes, so that comparisons are
    consistent. An instance whose providerID is not `canonical` stays as it is."""
    if not ref.provider_id or instance.provider_id != canonical or canonical == ref.provider_id:
        return instance
    return dataclasses.replace(instance, provider_id=ref.provider_id)


def instance_problem(answer: Any) -> str:
    """Return why this is not a valid Instance, "" if it is valid. Python does not enforce types."""
    if not isinstance(answer, Instance):
        return f"expected Instance, got {type(answer).__name__}"
    texts = {name: getattr(answer, name) for name in ("provider_id", "name", "type", "zone", "region", "incomplete")}
    wrong = [f"{name}={value!r}" for name, value in texts.items() if not isinstance(value, str)]
    if not isinstance(answer.addresses, Sequence) or not all(map(_is_address, answer.addresses)):
        wrong.append(f"addresses={answer.addresses!r}")
    if not isinstance(answer.labels, Mapping) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in answer.labels.items()
    ):
        wrong.append(f"labels={answer.labels!r}")
    for name in ("aliases", "warnings", "system_uuids", "pod_cidrs"):
        texts_of = getattr(answer, name)
        if not isinstance(texts_of, tuple) or not all(isinstance(text, str) and text for text in texts_of):
            wrong.append(f"{name}={texts_of!r}")
    if not isinstance(answer.state, InstanceState):
        wrong.append(f"state={answer.state!r}")
    if not wrong:
        return ""
    return f"instance {answer.provider_id!r} ({answer.name!r}) has {', '.join(wrong)}"[:500]


def _is_address(value: Any) -> bool:
    return (
        isinstance(value, Address)
        and isinstance(value.type, AddressType)
        and isinstance(value.address, str)
        and bool(value.address)
    )


class ListingEnd:
    """Stops listings that do not end. A cloud that always names another page would otherwise be read for ever."""

    def __init__(self) -> None:
        self._ids = set[str]()
        self._pages = self._repeated = 0

    def require(self, page: Page) -> None:
        """Raises Transient if this page shows that the listing does not end."""
        ids = {
            instance.provider_id
            for instance in page.instances
            if isinstance(getattr(instance, "provider_id", None), str)
        }
        self._repeated = self._repeated + 1 if ids and ids <= self._ids else 0
        self._pages += 1
        self._ids |= ids
        if page.next is not None and (self._pages >= MOST_PAGES or self._repeated >= MOST_REPEATED):
            came = f"{self._pages} have been read, {self._repeated} in a row without a new instance"
            raise Transient(f"instances.list: its pages do not end: {came}")
