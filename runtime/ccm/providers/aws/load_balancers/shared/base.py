# SPDX-License-Identifier: Apache-2.0
"""The base class of both types of load balancers, and the functions that both use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from ccm.cloud import Backend, Invalid, LoadBalancerSpec, NotFound

from ...api import Api
from ...instance_rules import Row
from ...settings_sections import Global
from . import target_rules as targets

#: The maximum number of resources in one request for tags.
TAGGED = 20

Tags = dict[str, dict[str, str]]


class Desired(targets.Selecting, Protocol):
    """The fields of a desired state that both types have."""

    @property
    def name(self) -> str: ...

    @property
    def internal(self) -> bool: ...

    @property
    def digest(self) -> str: ...


DesiredT = TypeVar("DesiredT", bound=Desired)
DesiredT_co = TypeVar("DesiredT_co", bound=Desired, covariant=True)
KnownT = TypeVar("KnownT")


class Reads(Protocol):
    async def named(self, name: str) -> Row | None: ...


class MakeDesired(Protocol[DesiredT_co]):
    def __call__(
        self, spec: LoadBalancerSpec, common: Global, cluster: str, *, most: int = 0, nodes_only: bool = False
    ) -> DesiredT_co: ...


class TypeLoadBalancers(Generic[DesiredT, KnownT]):
    """The load balancers of one type. `TITLE`: the type, for messages. `_known`: cluster and UID of a Service -> what
    is remembered about its load balancer."""

    TITLE: ClassVar[str]

    def __init__(self, api: Api, reads: Reads, make_desired: MakeDesired[DesiredT]) -> None:
        self._api, self._lookup, self._make_desired = api, reads.named, make_desired
        self._known: dict[tuple[str, str], KnownT] = {}

    async def exists(self, spec: LoadBalancerSpec) -> bool:
        return await self._lookup(spec.default_name) is not None

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Return a hash of everything except the targets, and a hash of the targets. If the Service cannot be served,
        return the reason."""
        try:
            desired = self._desired(spec)
        except Invalid as error:
            return f"not served: {error}"
        return fingerprint_of(desired, backends)

    async def _named(self, spec: LoadBalancerSpec) -> Row:
        row = await self._lookup(spec.default_name)
        if row is None:
            raise self._absent(spec)
        return row

    # No I/O

    def _absent(self, spec: LoadBalancerSpec) -> NotFound:
        return NotFound(f"the account has no {self.TITLE} {spec.default_name} for Service {spec.uid}")

    def _cluster(self, spec: LoadBalancerSpec) -> str:
        return self._api.cluster or spec.cluster

    def _desired(self, spec: LoadBalancerSpec, *, nodes_only: bool = False) -> DesiredT:
        most = self._api.settings.runtime.maxtargets
        cluster = self._cluster(spec)
        return self._make_desired(spec, self._api.settings.common, cluster, most=most, nodes_only=nodes_only)


def fingerprint_of(desired: Desired, backends: Sequence[Backend]) -> str:
    return f"{desired.digest}-{targets.digest_of(desired, backends)}"


def unchangeable(row: Row, desired: Desired) -> list[str]:
    """Return a warning if the Service asks for another scheme (internal or internet-facing) than the load balancer has,
    because AWS cannot change it."""
    if (row.get("Scheme") == "internal") != desired.internal:
        return [
            f"load balancer {desired.name} is {row.get('Scheme')}, which never changes: delete the Service to change it"
        ]
    return []


async def tags_of_all(names: Sequence[str], ask: Callable[[list[str]], Awaitable[Tags]]) -> Tags:
    """Return name or ARN -> tags of the resources that still exist. A resource that is gone makes the whole request
    fail, and the answer does not name the resource, so each one then gets a request of its own."""
    tags: Tags = {}
    for start in range(0, len(names), TAGGED):
        some = list(names[start : start + TAGGED])
        try:
            tags |= await ask(some)
        except NotFound:
            if len(some) > 1:
                for name in some:
                    tags |= await tags_of_all([name], ask)
    return tags
