# SPDX-License-Identifier: Apache-2.0
"""The kit's cases for optional capabilities: a good provider passes, and each defect is found."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from ccm.cloud import (
    Address,
    AddressType,
    Backend,
    Backends,
    Cloud,
    ConfigError,
    Conflict,
    Instance,
    InstanceRef,
    Limits,
    LoadBalancerSpec,
    NotFound,
    Page,
    ProviderConfig,
    Rate,
    RateLimited,
    Route,
    Transient,
)
from ccm.conformance import CASES, Outcome, Subject, Trouble, World, check

PART = "datacenter b does not answer"
FAST = Limits(1e6, 10**6, deadline=60.0)


def machine(number: int, **fields: Any) -> Instance:
    address = Address(AddressType.INTERNAL_IP, f"10.0.0.{number}")
    return Instance(f"shelf://{number}", f"m{number}", addresses=(address,), **fields)


class Shelf:
    """A cloud: machines in two datacenters, one of which may be unreachable, their tags, and routes to addresses."""

    def __init__(self) -> None:
        self.machines = {number: machine(number, aliases=(f"m{number}.internal",)) for number in range(1, 5)}
        self.tagged = set(self.machines)
        self.trouble: Trouble | None = None
        self.routes: list[Route] = []

    def is_reachable(self, number: int) -> bool:
        return self.trouble is not Trouble.SHORT_LISTING or number % 2 == 0


class ShelfWorld(World):
    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        self.shelf.trouble = kind
        try:
            yield
        finally:
            self.shelf.trouble = None

    async def create_instance(self, name: str) -> None:
        number = max(self.shelf.machines) + 1
        self.shelf.machines[number] = dataclasses.replace(machine(number), name=name)
        self.shelf.tagged.add(number)

    async def delete_instance(self, provider_id: str) -> None:
        self.shelf.machines.pop(_number(provider_id), None)

    async def untag_instance(self, provider_id: str) -> None:
        self.shelf.tagged.discard(_number(provider_id))


def _number(provider_id: str) -> int:
    return int(provider_id.removeprefix("shelf://"))


class ShelfInstances:
    """A correct implementation: it reports what is unreachable, and finds names and aliases."""

    def __init__(self, shelf: Shelf, scope: Any = "group") -> None:
        self.shelf, self.scope = shelf, scope

    def _reachable(self) -> list[Instance]:
        if self.shelf.trouble is Trouble.RATE_LIMITED:
            raise RateLimited("slow down", retry_after=World.RETRY_AFTER, scope=self.scope)
        return [each for number, each in self.shelf.machines.items() if self.shelf.is_reachable(number)]

    async def list_page(self, token: str | None) -> Page:
        return Page(self._reachable(), unreachable=PART if self.shelf.trouble is Trouble.SHORT_LISTING else "")

    async def get(self, ref: InstanceRef) -> Instance:
        def is_meant(instance: Instance) -> bool:
            return instance.provider_id == ref.provider_id if ref.provider_id else instance.is_named(ref.node_name)

        found = [each for each in self._reachable() if is_meant(each)]
        if len(found) > 1:
            raise Conflict(f"several are named {ref.node_name!r}")
        if not found and self.shelf.trouble is Trouble.SHORT_LISTING:
            raise Transient(f"{ref} is not known: {PART}")
        if not found:
            raise NotFound(f"no {ref}")
        return found[0]

    def owns(self, provider_id: str) -> bool:
        return provider_id.startswith("shelf://") and provider_id[8:].isdigit()


class ShelfRoutes:
    """Routes that lead to addresses and name no instance."""

    concurrency = 1

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    async def list(self, cluster: str) -> list[Route]:
        return list(self.shelf.routes)

    async def create(self, cluster: str, route: Route) -> None:
        own = {each.provider_id: each.addresses for each in self.shelf.machines.values()}[route.provider_id]
        addresses = route.target_addresses or tuple(each.address for each in own)
        if not {each.address for each in own}.issuperset(addresses):
            raise Conflict("not its addresses")
        self.shelf.routes.append(Route(route.destination, "", id=route.destination, target_addresses=addresses))

    async def delete(self, cluster: str, route: Route) -> None:
        self.shelf.routes = [each for each in self.shelf.routes if each.id != route.id]


class ShelfBalancers:
    """Load balancers of which the cases call only `fingerprint`."""

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        return f"{spec} {Backends.of(backends).digest}"


class KeepsTheWhole(ShelfBalancers):
    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        whole = super().fingerprint
        return Backends.of(backends).once(spec.ports, lambda each: whole(spec, each))


class ReadsThemAgain(ShelfBalancers):
    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        return f"{spec} {sorted(each.provider_id for each in backends)}"


class ShelfCloud(Cloud):
    name = "shelf"
    limits = dataclasses.replace(FAST, groups={"instances": Rate(1e6, 10**6)})
    kept: ClassVar[list[Shelf]] = []

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self.shelf = self.kept[-1]
        self.instances = ShelfInstances(self.shelf)
        self.routes = ShelfRoutes(self.shelf)
        self.load_balancers = ShelfBalancers()  # type: ignore[assignment]


async def outcome(case: str, create: type[ShelfCloud], environment: Mapping[str, str] | None = None) -> tuple[Any, str]:
    ShelfCloud.kept[:] = [shelf := Shelf()]
    config = ProviderConfig(environment={} if environment is None else environment)
    subject = Subject("shelf", create, config, allow_writes=True, world=ShelfWorld(shelf))
    result = await check(next(each for each in CASES if each.name == case), subject)
    return result.outcome, result.detail


def broken(part: type) -> type[ShelfCloud]:
    """Return a ShelfCloud whose capability `part` replaces the correct one."""

    class Broken(ShelfCloud):
        def __init__(self, config: ProviderConfig) -> None:
            super().__init__(config)
            if issubclass(part, ShelfInstances):
                self.instances = part(self.shelf)
            elif issubclass(part, ShelfBalancers):
                self.load_balancers = part()  # type: ignore[assignment]
            else:
                self.routes = part(self.shelf)

    return Broken


class ForgetsAliases(ShelfInstances):
    async def get(self, ref: InstanceRef) -> Instance:
        found = await super().get(ref)
        if not ref.provider_id and found.name != ref.node_name:
            raise NotFound(f"no {ref}")
        return found


class WarnsInPages(ShelfInstances):
    def _reachable(self) -> list[Instance]:
        return [dataclasses.replace(each, warnings=("x" * 501,)) for each in super()._reachable()]


class WarnsTwice(ShelfInstances):
    def _reachable(self) -> list[Instance]:
        return [dataclasses.replace(each, warnings=("it is old", "it is old")) for each in super()._reachable()]


class FiltersByTag(ShelfInstances):
    def _reachable(self) -> list[Instance]:
        return [each for each in super()._reachable() if _number(each.provider_id) in self.shelf.tagged]


class SaysNothing(ShelfInstances):
    """Omits unreachable instances, and does not report that a part of the cloud is unreachable."""

    async def list_page(self, token: str | None) -> Page:
        return Page(self._reachable())


class DeniesByName(ShelfInstances):
    async def get(self, ref: InstanceRef) -> Instance:
        try:
            return await super().get(ref)
        except Transient as error:
            raise (error if ref.provider_id else NotFound(str(error))) from None


class DeniesById(ShelfInstances):
    async def get(self, ref: InstanceRef) -> Instance:
        try:
            return await super().get(ref)
        except Transient as error:
            raise NotFound(str(error)) from None


class PausesWhoKnowsWhat(ShelfInstances):
    def __init__(self, shelf: Shelf) -> None:
        super().__init__(shelf, scope="elb")


class LeadsElsewhere(ShelfRoutes):
    async def list(self, cluster: str) -> list[Route]:
        return [dataclasses.replace(each, target_addresses=("10.0.0.3",)) for each in self.shelf.routes]


class NamesNothing(ShelfRoutes):
    async def list(self, cluster: str) -> list[Route]:
        return [dataclasses.replace(each, target_addresses=None) for each in self.shelf.routes]


class ReadsTheProcess(ShelfCloud):
    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        if not os.environ.get("PATH"):
            raise ConfigError(["$PATH is not set"])


class ReadsTheConfig(ShelfCloud):
    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        if not config.environment.get("SHELF_TOKEN"):
            raise ConfigError(["$SHELF_TOKEN is not set"])


class WatchesNothingThatIs(ShelfCloud):
    watched_files = ("/nowhere/token",)


class WatchesItself(ShelfCloud):
    watched_files = (__file__,)


class LimitsAnotherThing(ShelfCloud):
    limits = dataclasses.replace(FAST, groups={"elb": Rate(1.0, 1)})


class LimitsToNothing(ShelfCloud):
    limits = dataclasses.replace(FAST, groups={"routes": Rate(0.0, 1)})


ADDITIONS = (
    "instances.an_alias_finds_its_instance",
    "instances.warnings_are_sentences",
    "instances.a_lost_tag_changes_no_instance",
    "failures.a_listing_cut_short_shows",
    "failures.what_a_short_listing_lacks_is_not_gone",
    "failures.a_rate_limit_says_what_pauses",
    "routes.a_route_can_be_matched_to_its_instance",
    "routes.a_route_lives_from_create_to_delete",
    "routes.a_route_leads_to_its_own_instance",
    "load_balancers.what_is_kept_with_backends_is_no_single_services",
    "load_balancers.a_fingerprint_reads_the_nodes_once_for_all_services",
    "configuration.limits_are_usable",
    "configuration.the_environment_is_the_one_that_is_given",
    "configuration.watched_files_can_be_read",
)


@pytest.mark.parametrize("case", ADDITIONS)
async def test_a_good_provider_passes(case: str) -> None:
    assert await outcome(case, ShelfCloud) == (Outcome.PASSED, "")


@pytest.mark.parametrize(
    ("case", "create"),
    [
        ("instances.an_alias_finds_its_instance", broken(ForgetsAliases)),
        ("instances.warnings_are_sentences", broken(WarnsInPages)),
        ("instances.warnings_are_sentences", broken(WarnsTwice)),
        ("instances.a_lost_tag_changes_no_instance", broken(FiltersByTag)),
        ("failures.a_listing_cut_short_shows", broken(SaysNothing)),
        ("failures.what_a_short_listing_lacks_is_not_gone", broken(DeniesByName)),
        ("failures.what_a_short_listing_lacks_is_not_gone", broken(DeniesById)),
        ("failures.a_rate_limit_says_what_pauses", broken(PausesWhoKnowsWhat)),
        ("routes.a_route_can_be_matched_to_its_instance", broken(LeadsElsewhere)),
        ("routes.a_route_can_be_matched_to_its_instance", broken(NamesNothing)),
        ("routes.a_route_lives_from_create_to_delete", broken(NamesNothing)),
        ("load_balancers.what_is_kept_with_backends_is_no_single_services", broken(KeepsTheWhole)),
        ("load_balancers.a_fingerprint_reads_the_nodes_once_for_all_services", broken(ReadsThemAgain)),
        ("configuration.limits_are_usable", LimitsAnotherThing),
        ("configuration.limits_are_usable", LimitsToNothing),
        ("configuration.the_environment_is_the_one_that_is_given", ReadsTheProcess),
        ("configuration.watched_files_can_be_read", WatchesNothingThatIs),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_a_defect_is_found(case: str, create: type[ShelfCloud]) -> None:
    found, detail = await outcome(case, create)
    assert found is Outcome.FAILED and detail


async def test_settings_of_the_given_environment_are_found() -> None:
    case = "configuration.the_environment_is_the_one_that_is_given"
    path = os.environ["PATH"]
    assert await outcome(case, ReadsTheConfig, {"SHELF_TOKEN": "s3cret"}) == (Outcome.PASSED, "")
    assert os.environ["PATH"] == path, "the process has its variables again"


async def test_files_that_are_there_may_be_watched() -> None:
    assert await outcome("configuration.watched_files_can_be_read", WatchesItself) == (Outcome.PASSED, "")


async def test_a_world_that_cannot_take_tags_leaves_the_case_out() -> None:
    ShelfCloud.kept[:] = [Shelf()]

    class WithoutTags(ShelfWorld):
        untag_instance = World.untag_instance

    subject = Subject("shelf", ShelfCloud, ProviderConfig(environment={}), world=WithoutTags(ShelfCloud.kept[0]))
    case = next(each for each in CASES if each.name == "instances.a_lost_tag_changes_no_instance")
    result = await check(case, subject)
    assert result.outcome is Outcome.NOT_RUN and "tags" in result.detail


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert set(ADDITIONS) <= {case.name for case in CASES}

