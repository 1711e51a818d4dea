# SPDX-License-Identifier: Apache-2.0
"""Broken providers: the simulated cloud's provider with one defect each, and the cases that must fail because of it.

Real cloud-controller-managers have, or had, these defects.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ccm import cloud
from ccm.cloud import (
    CloudError,
    Conflict,
    InstanceRef,
    LoadBalancerSpec,
    NotFound,
    Page,
    ProviderConfig,
    RateLimited,
    Transient,
    Unauthorized,
    VolumeRef,
)
from ccm.providers.sim import (
    SimCloud,
    SimInstances,
    SimInstanceTags,
    SimLoadBalancers,
    SimQuotas,
    SimRoutes,
    SimVolumes,
    instance_rules,
    load_balancer_rules,
)
from ccm.providers.sim import api as sim_api
from ccm.providers.sim.api import Api
from ccm.providers.sim.volumes import CSI_DRIVER


@dataclass(frozen=True)
class Mutant:
    name: str
    create: Callable[[ProviderConfig], cloud.Cloud]
    fails: frozenset[str]


MUTANTS: list[Mutant] = []
#: Cases that change a setting of an existing load balancer.
SETTINGS = (
    "load_balancers.source_ranges_are_applied_or_refused",
    "load_balancers.session_affinity_is_applied_or_refused",
    "load_balancers.a_health_check_node_port_is_used_or_refused",
)


def mutant(*fails: str) -> Callable[[type], type]:
    """Register a mutant and the cases that it fails. The class is a Cloud, or replaces one capability (or the Api)."""

    def register(cls: type) -> type:
        MUTANTS.append(Mutant(cls.__name__, cls if issubclass(cls, SimCloud) else with_part(cls), frozenset(fails)))
        return cls

    return register


#: The simulated cloud's classes, and the attribute of `Cloud` that holds an instance of each.
PARTS: dict[type, str] = {
    SimInstances: "instances",
    SimLoadBalancers: "load_balancers",
    SimRoutes: "routes",
    SimVolumes: "volumes",
    SimInstanceTags: "instance_tags",
    SimQuotas: "quotas",
}


def with_part(part: type) -> Callable[[ProviderConfig], cloud.Cloud]:
    """Return a factory of simulated clouds with `part` in place of their own capability, or of their Api."""

    def create(config: ProviderConfig) -> cloud.Cloud:
        made = SimCloud(config)
        if issubclass(part, Api):
            for each in (made, *(getattr(made, name) for name in PARTS.values())):
                each._api = part(made._api.settings) if each is made else made._api
            made._connection = made._api
        else:
            name = next(name for base, name in PARTS.items() if issubclass(part, base))
            setattr(made, name, part(made._api))
        return made

    return create


@contextlib.contextmanager
def gone_by_any_404() -> Iterator[None]:
    """Take any 404 as the cloud's own answer, even if a proxy sends it."""
    try:
        yield
    except Transient as error:
        if ": 404 " not in str(error):
            raise
        raise NotFound(str(error)) from None


# --- the provider's life ---------------------------------------------------------------------------------------------


@mutant("configuration.the_name_is_the_registered_one")
class AnotherName(SimCloud):
    name = "simulated"


@mutant("configuration.limits_are_usable")
class NoConcurrency(SimCloud):
    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self.limits = replace(self.limits, concurrency=0)


@mutant("configuration.an_unusable_text_is_a_config_error")
class CrashesOnItsConfiguration(SimCloud):
    def __init__(self, config: ProviderConfig) -> None:
        try:
            super().__init__(config)
        except cloud.ConfigError as error:
            raise KeyError("endpoint") from error


@mutant("configuration.it_closes_without_a_start", "configuration.the_environment_is_the_one_that_is_given")
class ClosesOnlyWhatItOpened(SimCloud):
    started = False

    async def start(self) -> None:
        self.started = True
        await super().start()

    async def close(self) -> None:
        if not self.started:
            raise AttributeError("'NoneType' object has no attribute 'close'")
        await super().close()


@mutant("configuration.two_clouds_live_side_by_side")
class OneSessionForAll(SimCloud):
    """All instances share a session: the first one opens it, and any of them closes it."""

    shared: ClassVar[dict[str, Api]] = {}

    async def start(self) -> None:
        endpoint = self._api.settings.endpoint
        if endpoint not in self.shared or self.shared[endpoint]._session.closed:
            await super().start()
            self.shared[endpoint] = self._api
        for each in (self, *(getattr(self, name) for name in PARTS.values())):
            each._api = self.shared[endpoint]


@mutant("configuration.no_secret_is_shown")
class TellsItsToken(Api):
    async def call(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().call(*args, **kwargs)
        except Unauthorized as error:
            raise Unauthorized(f"{error} (token {self.settings.token})") from None


@mutant("configuration.no_secret_is_shown")
class ShowsItsSettings(SimCloud):
    def __repr__(self) -> str:
        return f"SimCloud({self.config.text})"


@mutant("configuration.limits_are_usable")
class LimitsAGroupThatThereIsNot(SimCloud):
    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self.limits = replace(self.limits, groups={"elb": cloud.Rate(1.0, 1)})


@mutant("configuration.the_environment_is_the_one_that_is_given")
class ReadsTheProcesssEnvironment(SimCloud):
    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        if "PATH" not in os.environ:
            raise cloud.ConfigError(["$PATH is not set"])


@mutant("configuration.watched_files_can_be_read")
class WatchesWhatIsNotThere(SimCloud):
    @property
    def watched_files(self) -> Sequence[str]:
        return ("/nowhere/token",)


# --- instances -------------------------------------------------------------------------------------------------------


class SaysElse(SimInstances, abc.ABC):
    """Lists and reads each instance after `_told` changed it."""

    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        return replace(page, instances=[self._told(each) for each in page.instances])

    async def get(self, ref: InstanceRef) -> cloud.Instance:
        return self._told(await super().get(ref))

    @abc.abstractmethod
    def _told(self, instance: cloud.Instance) -> cloud.Instance: ...


@mutant("instances.it_owns_what_it_lists")
class DisownsItsInstances(SimInstances):
    def owns(self, provider_id: str) -> bool:
        return False


@mutant("instances.a_listed_id_is_its_own_canonical_spelling")
class SpellsIdsAnotherWay(SimInstances):
    def canonical(self, provider_id: str) -> str | None:
        return provider_id.replace("sim://north/", "sim:///")


@mutant("instances.it_leaves_foreign_ids_alone")
class OwnsEverything(SimInstances):
    def owns(self, provider_id: str) -> bool:
        return "://" in provider_id


@mutant("instances.it_leaves_foreign_ids_alone")
class CannotReadForeignIds(SimInstances):
    def owns(self, provider_id: str) -> bool:
        _scheme, _rest = provider_id.split("://")
        return super().owns(provider_id)


@mutant("instances.a_reloaded_cloud_owns_the_same_ids")
class OwnsWhatItHasSeen(SimInstances):
    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._seen: set[str] = set()

    def owns(self, provider_id: str) -> bool:
        return super().owns(provider_id) and provider_id in self._seen

    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        self._seen |= {each.provider_id for each in page.instances}
        return page


@mutant("instances.a_uuid_is_of_one_machine")
class SpellsUuidsInCapitals(SaysElse):
    def _told(self, instance: cloud.Instance) -> cloud.Instance:
        return replace(instance, system_uuids=(f"AB-{instance.provider_id}",))


@mutant("instances.a_uuid_is_of_one_machine")
class GivesAllMachinesOneUuid(SaysElse):
    def _told(self, instance: cloud.Instance) -> cloud.Instance:
        return replace(instance, system_uuids=("4237a1c5-4a4f-4b1b-8c8c-0d9c8b7a6f5e",))


@mutant("instances.instances_are_well_formed")
class ZonesThatNoLabelCanHold(SaysElse):
    def _told(self, instance: cloud.Instance) -> cloud.Instance:
        return replace(instance, zone=f"Zone {instance.zone}")


@mutant("instances.instances_are_well_formed")
class PodCidrsWithHostBits(SaysElse):
    def _told(self, instance: cloud.Instance) -> cloud.Instance:
        return replace(instance, pod_cidrs=("10.244.1.7/24",))


@mutant("instances.a_listing_repeats_itself")
class AddressesFlap(SimInstances):
    """Every second listing has the addresses in reverse order."""

    listings = 0

    async def list_page(self, token: str | None) -> Page:
        self.listings += token is None
        page = await super().list_page(token)
        if self.listings % 2:
            return page
        return replace(page, instances=[replace(each, addresses=each.addresses[::-1]) for each in page.instances])


@mutant("instances.all_pages_are_the_whole")
class LosesOneAtTheEndOfAPage(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        return Page(page.instances if page.next is None else page.instances[:-1], page.next, page.total)


@mutant("instances.getting_agrees_with_listing", "instances.getting_by_name_agrees_with_listing")
class TellsLessWhenGot(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        return replace(await super().get(ref), zone="")


@mutant(
    "instances.an_unknown_id_is_not_found",
    "instances.an_instance_created_again_is_another_one",
)
class TriesTheNameAsWell(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        try:
            return await super().get(ref)
        except NotFound:
            return await super().get(InstanceRef(ref.node_name))


@mutant("instances.the_id_counts_and_not_the_name")
class AsksForTheNameOfWhatIsThere(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        found = await super().get(ref)
        with contextlib.suppress(CloudError):
            return await super().get(InstanceRef(ref.node_name))
        return found


@mutant("instances.names_match_exactly")
class MatchesPartsOfNames(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        try:
            return await super().get(ref)
        except NotFound:
            if ref.provider_id:
                raise
        rows = await self._api.list("/instances", sim_api.Instance)
        if found := [row for row in rows if row.name.startswith(ref.node_name)]:
            return instance_rules.instance(found[0])
        raise NotFound(ref.node_name)


@mutant("instances.names_match_exactly")
class IgnoresCase(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        return await super().get(replace(ref, node_name=ref.node_name.lower()))


@mutant(
    "instances.an_unknown_name_is_not_found",
    "instances.names_match_exactly",
    "instances.a_deleted_instance_is_gone",
)
class FailsOverAnEmptyListing(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        if ref.provider_id:
            return await super().get(ref)
        rows = await self._api.list("/instances", sim_api.Instance, [("name", ref.node_name)])
        if len(rows) > 1:
            raise Conflict("several")
        return instance_rules.instance(rows[0])


@mutant("instances.a_deleted_instance_is_gone")
class KeepsWhatItGot(SimInstances):
    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.kept: dict[InstanceRef, cloud.Instance] = {}

    async def get(self, ref: InstanceRef) -> cloud.Instance:
        if not ref.provider_id:
            return await super().get(ref)
        try:
            self.kept[ref] = await super().get(ref)
        except NotFound:
            if ref not in self.kept:
                raise
        return self.kept[ref]


@mutant(
    "instances.a_new_instance_is_seen_at_once",
    "instances.a_deleted_instance_is_gone",
    "instances.a_stopped_instance_is_shut_down_and_not_gone",
    "instances.a_lost_tag_changes_no_instance",
)
class GetsFromItsFirstListing(SimInstances):
    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.known: set[str] = set()
        self.complete = False

    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        if not self.complete:
            self.known |= {instance.provider_id for instance in page.instances}
            self.complete = page.next is None
        return page

    async def get(self, ref: InstanceRef) -> cloud.Instance:
        if ref.provider_id and self.complete and ref.provider_id not in self.known:
            raise NotFound(f"no {ref.provider_id}")
        return await super().get(ref)


@mutant("instances.an_alias_finds_its_instance")
class AliasesThatNothingFinds(SaysElse):
    def _told(self, instance: cloud.Instance) -> cloud.Instance:
        return replace(instance, aliases=(f"{instance.provider_id.rpartition('/')[2]}.internal",))


@mutant("instances.warnings_are_sentences")
class WarnsInAWholePage(SaysElse):
    def _told(self, instance: cloud.Instance) -> cloud.Instance:
        return replace(instance, warnings=("Traceback:\n  the guest tools do not answer",))


@mutant("instances.a_lost_tag_changes_no_instance")
class ListsByTag(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        tagged = [each for each in page.instances if each.labels]
        return Page(tagged, page.next, page.total and page.total - len(page.instances) + len(tagged))


@mutant("instances.a_lost_tag_changes_no_instance")
class GetsByTag(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        found = await super().get(ref)
        if not found.labels:
            raise NotFound(f"no instance of this cluster: {found.provider_id}")
        return found


@mutant("instances.a_stopped_instance_is_shut_down_and_not_gone")
class ListsOnlyWhatRuns(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        running = [each for each in page.instances if each.state is cloud.InstanceState.RUNNING]
        return Page(running, page.next, page.total and page.total - len(page.instances) + len(running))


@mutant("instances.an_ambiguous_name_is_a_conflict")
class TakesTheFirstOfThatName(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        try:
            return await super().get(ref)
        except Conflict:
            rows = await self._api.list("/instances", sim_api.Instance, [("name", ref.node_name)])
            return instance_rules.instance(rows[0])


# --- a cloud that fails ----------------------------------------------------------------------------------------------


@mutant(
    "failures.a_server_error_is_transient",
    "load_balancers.a_server_error_is_transient",
    "routes.a_server_error_is_transient",
    "volumes.a_server_error_is_transient",
    "later_pages.a_failure_among_instances_is_transient",
    "later_pages.a_failure_among_load_balancers_is_transient",
)
class ServerErrorsMeanGone(Api):
    def _error(self, reply: sim_api.Reply, missing: str) -> CloudError:
        return NotFound("gone?") if reply.status >= 500 else super()._error(reply, missing)


@mutant(
    "failures.a_proxys_404_is_not_not_found",
    "load_balancers.a_proxys_404_is_not_not_found",
    "routes.a_proxys_404_is_not_not_found",
    "volumes.a_proxys_404_is_not_not_found",
)
class Every404MeansGone(Api):
    def _error(self, reply: sim_api.Reply, missing: str) -> CloudError:
        return NotFound("404") if reply.status == 404 else super()._error(reply, missing)


@mutant("failures.an_answer_cut_short_is_transient")
class ReadsWhatItCan(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        try:
            return await super().list_page(token)
        except Transient as error:
            if "cannot parse the response" not in str(error):
                raise
            return Page([])


@mutant("failures.refused_credentials_are_unauthorized")
class RefusedMeansTryAgain(Api):
    def _error(self, reply: sim_api.Reply, missing: str) -> CloudError:
        return Transient("401") if reply.status == 401 else super()._error(reply, missing)


@mutant("load_balancers.what_the_cloud_refuses_to_one_service_concerns_it_alone")
class TakesARefusalForAnOutage(Api):
    def _error(self, reply: sim_api.Reply, missing: str) -> CloudError:
        error = super()._error(reply, missing)
        return Transient(str(error)) if isinstance(error, Transient) else error


@mutant("load_balancers.what_the_cloud_refuses_to_one_service_concerns_it_alone")
class TakesARefusalForARateLimit(Api):
    def _error(self, reply: sim_api.Reply, missing: str) -> CloudError:
        error = super()._error(reply, missing)
        refused = isinstance(error, Transient) and error.scope == "object"
        return RateLimited(str(error)) if refused else error


@mutant("failures.a_listing_cut_short_shows")
class TellsNoTotal(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        return replace(await super().list_page(token), total=None)


@mutant(
    "failures.a_rate_limit_says_when_to_come_back",
    "load_balancers.a_rate_limit_says_when_to_come_back",
    "routes.a_rate_limit_says_when_to_come_back",
    "volumes.a_rate_limit_says_when_to_come_back",
)
class ForgetsWhenToComeBack(Api):
    def _error(self, reply: sim_api.Reply, missing: str) -> CloudError:
        error = super()._error(reply, missing)
        return RateLimited(str(error)) if isinstance(error, RateLimited) else error


@mutant("failures.a_rate_limit_is_not_waited_for")
class WaitsByItself(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        try:
            return await super().list_page(token)
        except RateLimited:
            await asyncio.sleep(4)
            raise


@mutant("failures.no_answer_is_transient")
class SilenceMeansGone(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        try:
            return await super().list_page(token)
        except Transient as error:
            if "no answer" in str(error):
                raise NotFound("no answer") from None
            raise


@mutant("failures.a_cancelled_call_ends")
class DoesNotHeedCancellation(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        try:
            return await super().list_page(token)
        except asyncio.CancelledError:
            await asyncio.sleep(6)
            raise


@mutant("failures.what_a_short_listing_lacks_is_not_gone")
class GetsFromAShortListing(SimInstances):
    async def get(self, ref: InstanceRef) -> cloud.Instance:
        if not ref.provider_id:
            return await super().get(ref)
        token: str | None = None
        while True:
            page = await self.list_page(token)
            for instance in page.instances:
                if instance.provider_id == ref.provider_id:
                    return instance
            if (token := page.next) is None:
                raise NotFound(f"no {ref.provider_id}")


@mutant("failures.what_a_short_listing_lacks_is_not_gone")
class KnowsNothingOfThePartThatIsUnreachable(SimInstances):
    """A listing reports that a part cannot be reached, but a lookup by name does not."""

    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        if page.total and len(page.instances) < page.total and page.next is None and token is None:
            return replace(page, unreachable="the second half")
        return page


@mutant("failures.a_rate_limit_says_what_pauses")
class PausesWhoKnowsWhat(Api):
    async def call(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().call(*args, **kwargs)
        except RateLimited as error:
            raise RateLimited(str(error), retry_after=error.retry_after, scope="load balancers") from None


@mutant("failures.it_recovers")
class StaysLockedOut(Api):
    locked = False

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        if self.locked:
            raise Unauthorized("refused once already")
        try:
            return await super().call(*args, **kwargs)
        except Unauthorized:
            self.locked = True
            raise


# --- volumes ---------------------------------------------------------------------------------------------------------


@mutant("volumes.volumes_of_others_are_left_alone")
class LabelsEveryVolume(SimVolumes):
    async def labels(self, ref: VolumeRef) -> dict[str, str]:
        if ref.driver == CSI_DRIVER:
            return dict(await super().labels(ref))
        return {"topology.kubernetes.io/zone": "north-a"}


@mutant("volumes.a_volume_has_its_zone")
class VolumesWithoutAZone(SimVolumes):
    async def labels(self, ref: VolumeRef) -> dict[str, str]:
        await super().labels(ref)
        return {}


@mutant("volumes.a_proxys_404_is_not_not_found")
class VolumesOfAProxyAreGone(SimVolumes):
    async def labels(self, ref: VolumeRef) -> dict[str, str]:
        with gone_by_any_404():
            return dict(await super().labels(ref))


@mutant(
    "volumes.a_server_error_is_transient",
    "volumes.a_proxys_404_is_not_not_found",
    "volumes.an_answer_cut_short_is_transient",
    "volumes.no_answer_is_transient",
)
class NoLabelsRatherThanAnError(SimVolumes):
    async def labels(self, ref: VolumeRef) -> dict[str, str]:
        with contextlib.suppress(Transient):
            return dict(await super().labels(ref))
        return {}


# --- load balancers --------------------------------------------------------------------------------------------------


@mutant(
    "load_balancers.one_that_is_not_there_is_not_found",
    "load_balancers.it_lives_from_ensure_to_delete",
    "load_balancers.one_that_is_kept_outlives_its_service",
    "load_balancers.one_that_is_kept_is_taken_back_by_its_namespace",
)
class NoneLooksLikeOneThatIsNotReady(SimLoadBalancers):
    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        try:
            return await super().get(spec)
        except NotFound:
            return cloud.LoadBalancer(spec.uid, spec.default_name, ready=False)


@mutant(
    "load_balancers.another_clusters_is_never_touched",
    "load_balancers.one_that_is_kept_outlives_its_service",
    "load_balancers.one_that_is_kept_is_taken_back_by_its_namespace",
)
class ListsAllClusters(SimLoadBalancers):
    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        rows = await self._api.list("/load-balancers", sim_api.LoadBalancer)
        return [load_balancer_rules.load_balancer(row) for row in rows]


@mutant("load_balancers.another_clusters_is_never_touched")
class IgnoresTheCluster(SimLoadBalancers):
    async def _find(self, spec: LoadBalancerSpec) -> sim_api.LoadBalancer:
        rows = await self._api.list("/load-balancers", sim_api.LoadBalancer, [("tag", f"service_uid:{spec.uid}")])
        if not rows:
            raise NotFound("none")
        return rows[0]


@mutant("load_balancers.deleting_nothing_succeeds")
class DeletingNothingIsAnError(SimLoadBalancers):
    async def delete(self, spec: LoadBalancerSpec) -> None:
        try:
            await self._find(spec)
        except NotFound as error:
            raise Conflict(f"cannot delete: {error}") from None
        await super().delete(spec)


@mutant("load_balancers.updating_one_that_is_gone_is_not_found")
class UpdatingNothingSucceeds(SimLoadBalancers):
    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        try:
            return await super().update_backends(spec, backends)
        except NotFound:
            return cloud.LoadBalancer(spec.uid, spec.default_name)


@mutant("load_balancers.the_fingerprint_changes_with_the_desired_state")
class FingerprintsOfTheMoment(SimLoadBalancers):
    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.salt = secrets.token_hex(4)

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        return f"{self.salt}{super().fingerprint(spec, backends)}"


@mutant(
    "load_balancers.the_fingerprint_changes_with_the_desired_state",
    "load_balancers.services_that_change_side_by_side_lose_nothing",
    "load_balancers.every_port_is_served",
)
class FingerprintsWithoutPorts(SimLoadBalancers):
    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        return super().fingerprint(replace(spec, ports=()), backends)


@mutant(
    "load_balancers.what_is_kept_with_backends_is_no_single_services",
    "load_balancers.a_setting_that_comes_too_late_is_refused_or_reported",
    *SETTINGS,
    "load_balancers.what_a_service_asks_for_last_is_kept",
)
class KeepsAFingerprintByPortsAlone(SimLoadBalancers):
    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        whole = super().fingerprint
        return cloud.Backends.of(backends).once(("fingerprint", spec.ports), lambda each: whole(spec, each))


@mutant("load_balancers.it_lives_from_ensure_to_delete", "load_balancers.one_that_is_kept_outlives_its_service")
class AddressesThatAreNone(SimLoadBalancers):
    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        return replace(await super().get(spec), ingress=(cloud.Ingress(ip="pending"),))


@mutant(
    "load_balancers.ensuring_again_changes_nothing",
    "load_balancers.a_change_is_written_in_place",
    "load_balancers.an_address_of_another_service_is_refused",
    "load_balancers.a_requested_address_is_given_or_refused",
    "load_balancers.a_setting_that_comes_too_late_is_refused_or_reported",
    "load_balancers.one_that_is_kept_outlives_its_service",
    "load_balancers.one_that_is_kept_is_taken_back_by_its_namespace",
    "load_balancers.what_a_service_asks_for_last_is_kept",
)
class MakesItAnewEachTime(SimLoadBalancers):
    addresses = itertools.cycle(range(50, 100))

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        return super().fingerprint(replace(spec, load_balancer_ip=""), backends)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        with contextlib.suppress(NotFound):
            await self.delete(spec)
        address = f"203.0.113.{next(self.addresses)}"
        return await super().ensure(replace(spec, load_balancer_ip=address), backends)


@mutant(
    "load_balancers.a_change_is_written_in_place",
    "load_balancers.members_have_the_addresses_that_are_given",
    "load_balancers.services_that_change_side_by_side_lose_nothing",
    "load_balancers.every_port_is_served",
    "load_balancers.a_warning_is_in_the_answer_of_the_write",
    "load_balancers.a_setting_that_comes_too_late_is_refused_or_reported",
    *SETTINGS,
    "load_balancers.what_a_service_asks_for_last_is_kept",
    "load_balancers.a_node_that_drains_gets_no_new_connections",
)
class NeverWritesAChange(SimLoadBalancers):
    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        try:
            if (found := await self._find(spec)).state == "active":
                return load_balancer_rules.load_balancer(found)
        except NotFound:
            pass
        return await super().ensure(spec, backends)


@mutant(
    "load_balancers.backends_are_updated",
    "load_balancers.members_have_the_addresses_that_are_given",
    "load_balancers.services_that_change_side_by_side_lose_nothing",
    "load_balancers.a_node_that_drains_gets_no_new_connections",
)
class ForgetsThatBackendsWereUpdated(SimLoadBalancers):
    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        return load_balancer_rules.load_balancer(await self._find(spec))


@mutant("load_balancers.members_have_the_addresses_that_are_given")
class LooksUpAddresses(SimLoadBalancers):
    """Reads the backends' addresses from the cloud instead of using those that the framework passes."""

    async def _filled(self, backends: Sequence[cloud.Backend]) -> list[cloud.Backend]:
        rows = [instance_rules.instance(row) for row in await self._api.list("/instances", sim_api.Instance)]
        known = {each.provider_id: each.addresses for each in rows}
        return [replace(each, addresses=known[each.provider_id]) for each in backends]

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        return await super().update_backends(spec, await self._filled(backends))


@mutant(
    "load_balancers.members_have_the_addresses_that_are_given",
    "load_balancers.a_node_that_drains_gets_no_new_connections",
)
class AddsAllInstances(SimLoadBalancers):
    async def _find(self, spec: LoadBalancerSpec) -> sim_api.LoadBalancer:
        found = await super()._find(spec)
        rows = [instance_rules.instance(row) for row in await self._api.list("/instances", sim_api.Instance)]
        everybody = [cloud.Backend(each.name, each.provider_id, each.addresses) for each in rows]
        if found.state == "active":
            body = {"targets": load_balancer_rules.targets(everybody)}
            await self._api.call("PUT", f"/load-balancers/{found.id}/targets", sim_api.LoadBalancer, body=body)
        return found


@mutant(
    "load_balancers.services_do_not_touch_each_other", "load_balancers.services_that_change_side_by_side_lose_nothing"
)
class DeletesTheWholeCluster(SimLoadBalancers):
    async def delete(self, spec: LoadBalancerSpec) -> None:
        for row in await self._api.list("/load-balancers", sim_api.LoadBalancer, [("tag", f"cluster:{spec.cluster}")]):
            await super().delete(replace(spec, uid=row.tags["service_uid"]))


class GivesWhatIsAskedFor(SimLoadBalancers, abc.ABC):
    """Reports the requested address as that of the load balancer whenever `may_have` allows it. Subclasses decide
    wrongly, so two Services get one address."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.given: set[str] = set()

    @abc.abstractmethod
    def may_have(self, address: str) -> bool:
        """Return whether a Service gets the address that it requests."""

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        wanted = spec.load_balancer_ip
        if wanted and not self.may_have(wanted):
            raise Conflict(f"the address {wanted} is in use")
        made = self._given(await super().ensure(replace(spec, load_balancer_ip=""), backends), wanted)
        self.given |= {each.ip for each in made.ingress}
        return made

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        return self._given(await super().get(spec), spec.load_balancer_ip)

    def _given(self, balancer: cloud.LoadBalancer, wanted: str) -> cloud.LoadBalancer:
        return replace(balancer, ingress=(cloud.Ingress(ip=wanted),)) if wanted and balancer.ingress else balancer


@mutant("load_balancers.an_address_of_another_service_is_refused")
class GivesAnAddressTwice(GivesWhatIsAskedFor):
    def may_have(self, address: str) -> bool:
        return True


@mutant("load_balancers.an_address_of_another_service_is_refused")
class ForgetsAddressesAtARestart(GivesWhatIsAskedFor):
    def may_have(self, address: str) -> bool:
        return address not in self.given


@mutant(
    "load_balancers.a_lost_answer_makes_no_second_one",
    "load_balancers.a_half_made_one_is_completed",
    "load_balancers.an_address_of_another_service_is_refused",
    "load_balancers.a_requested_address_is_given_or_refused",
    "load_balancers.each_ip_family_is_served_or_reported",
    "load_balancers.a_range_of_ipv6_does_not_open_ipv4",
    "load_balancers.a_load_balancer_without_targets_is_reported",
    "load_balancers.one_that_is_kept_outlives_its_service",
    "load_balancers.one_that_is_kept_is_taken_back_by_its_namespace",
)
class NamesThatAreNeverTheSame(SimLoadBalancers):
    """Names each load balancer at random. `ensure` creates another one unless this process created one before and got
    the answer."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.made: dict[str, int] = {}

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        if (spec.cluster + spec.uid) in self.made:
            return await super().ensure(spec, backends)
        tags = {"cluster": spec.cluster, "service_uid": spec.uid, "fingerprint": self.fingerprint(spec, backends)}
        body = load_balancer_rules.desired(spec) | {"name": f"lb-{secrets.token_hex(4)}", "ip": "", "tags": tags}
        body |= {"targets": load_balancer_rules.targets(backends)}
        answer = await self._api.call("POST", "/load-balancers", sim_api.LoadBalancer, body=body)
        self.made[spec.cluster + spec.uid] = 1
        return load_balancer_rules.load_balancer(answer)

    async def delete(self, spec: LoadBalancerSpec) -> None:
        self.made.pop(spec.cluster + spec.uid, None)
        tags = [("tag", f"cluster:{spec.cluster}"), ("tag", f"service_uid:{spec.uid}")]
        for row in await self._api.list("/load-balancers", sim_api.LoadBalancer, tags):
            await self._api.call("DELETE", f"/load-balancers/{row.id}", Any)


@mutant("load_balancers.nothing_is_waited_for")
class HoldsAWorker(SimLoadBalancers):
    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        found = await super().ensure(spec, backends)
        for _ in range(60):
            if found.ready:
                break
            await asyncio.sleep(0.1)
            found = await self.get(spec)
        return found


@mutant("load_balancers.nothing_is_waited_for")
class AlwaysReady(SimLoadBalancers):
    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        return replace(await super().ensure(spec, backends), ready=True)


@mutant("load_balancers.one_that_failed_is_reported_and_replaced")
class FailureIsNoNews(SimLoadBalancers):
    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        return replace(load_balancer_rules.load_balancer(await self._find(spec)), ready=True)


@mutant("load_balancers.one_that_failed_is_deleted", "load_balancers.a_half_made_one_is_deleted")
class LeavesWhatFailed(SimLoadBalancers):
    async def delete(self, spec: LoadBalancerSpec) -> None:
        with contextlib.suppress(NotFound):
            if (await self._find(spec)).state != "error":
                await super().delete(spec)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        with contextlib.suppress(NotFound):
            if (await self._find(spec)).state == "error":
                await super().delete(spec)
        return await super().ensure(spec, backends)


@mutant(
    "load_balancers.a_half_made_one_is_completed",
    "load_balancers.a_half_made_one_is_deleted",
    "load_balancers.one_that_is_kept_outlives_its_service",
    "load_balancers.one_that_is_kept_is_taken_back_by_its_namespace",
)
class TagsItAfterwards(SimLoadBalancers):
    """Tags a load balancer only after its creation: if the second call fails, nobody owns it."""

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        try:
            await self._find(spec)
        except NotFound:
            body = load_balancer_rules.desired(spec) | {"name": f"lb-{secrets.token_hex(4)}"}
            body |= {"targets": load_balancer_rules.targets(backends)}
            made = await self._api.call("POST", "/load-balancers", sim_api.LoadBalancer, body=body)
            tags = {"cluster": spec.cluster, "service_uid": spec.uid}
            await self._api.call("PATCH", f"/load-balancers/{made.id}", sim_api.LoadBalancer, body={"tags": tags})
        return await super().ensure(spec, backends)


@mutant("load_balancers.a_proxys_404_is_not_not_found")
class LoadBalancersOfAProxyAreGone(SimLoadBalancers):
    async def _find(self, spec: LoadBalancerSpec) -> sim_api.LoadBalancer:
        with gone_by_any_404():
            return await super()._find(spec)


@mutant(
    "load_balancers.a_server_error_is_transient",
    "load_balancers.a_proxys_404_is_not_not_found",
    "load_balancers.an_answer_cut_short_is_transient",
)
class ListsWhatItCan(SimLoadBalancers):
    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        with contextlib.suppress(Transient):
            return await super().list(cluster)
        return []


@mutant(
    "load_balancers.a_server_error_is_transient",
    "load_balancers.a_proxys_404_is_not_not_found",
    "load_balancers.a_rate_limit_says_when_to_come_back",
    "load_balancers.no_answer_is_transient",
)
class DeletesIfThatWorks(SimLoadBalancers):
    async def delete(self, spec: LoadBalancerSpec) -> None:
        with contextlib.suppress(Transient, RateLimited):
            await super().delete(spec)


@mutant("load_balancers.a_server_error_is_transient")
class BackendsOfWhatFailsAreGone(SimLoadBalancers):
    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        try:
            return await super().update_backends(spec, backends)
        except Transient as error:
            raise NotFound(str(error)) if ": 503 " in str(error) else error from None


# --- routes ----------------------------------------------------------------------------------------------------------


@mutant("routes.routes_are_listed")
class RoutesNoneAtATime(SimRoutes):
    concurrency = 0


@mutant("routes.a_route_leads_to_its_own_instance")
class RoutesToWhateverAddress(SimRoutes):
    async def create(self, cluster: str, route: cloud.Route) -> None:
        for row in await self._api.list("/instances", sim_api.Instance):
            if {each.address for each in row.addresses} & set(route.target_addresses or ()):
                route = replace(route, provider_id=f"sim://{row.region}/{row.id}")
        await super().create(cluster, route)


@mutant("routes.a_route_lives_from_create_to_delete")
class DeletingARouteTwiceIsAnError(SimRoutes):
    async def delete(self, cluster: str, route: cloud.Route) -> None:
        await self._api.call("DELETE", f"/routes/{route.id}", type(None), missing="route_not_found")


@mutant("routes.a_route_lives_from_create_to_delete")
class RoutesBelongToTheProject(SimRoutes):
    async def list(self, cluster: str) -> Sequence[cloud.Route]:
        return [replace(route, owner="demo") for route in await super().list(cluster)]


@mutant("routes.a_route_to_nowhere_shows")
class BlackholesLookAlive(SimRoutes):
    async def list(self, cluster: str) -> Sequence[cloud.Route]:
        rows = await self._api.list("/routes", sim_api.Route)
        return [cloud.Route(row.destination, f"sim://{row.region}/{row.instance_id}", row.id) for row in rows]


@mutant(
    "routes.a_route_can_be_matched_to_its_instance",
    "routes.a_route_leads_to_its_own_instance",
    "routes.a_route_lives_from_create_to_delete",
)
class RoutesByAnAddressOfNobody(SimRoutes):
    """Reports routes by an address that no Node has, such as a router's own: the framework finds no Node by it."""

    async def list(self, cluster: str) -> Sequence[cloud.Route]:
        return [replace(each, provider_id="", target_addresses=("192.0.2.1",)) for each in await super().list(cluster)]


@mutant("routes.a_route_is_there_once")
class RoutesAreNotDone(SimRoutes):
    async def create(self, cluster: str, route: cloud.Route) -> None:
        try:
            await super().create(cluster, route)
        except Conflict as error:
            raise NotFound(str(error)) from None
        except cloud.RetryAfter as error:
            raise NotFound(str(error)) from None


@mutant("routes.a_proxys_404_is_not_not_found")
class RoutesOfAProxyAreGone(SimRoutes):
    async def delete(self, cluster: str, route: cloud.Route) -> None:
        with contextlib.suppress(NotFound), gone_by_any_404():
            await super().delete(cluster, route)


@mutant(
    "routes.a_server_error_is_transient",
    "routes.a_proxys_404_is_not_not_found",
    "routes.an_answer_cut_short_is_transient",
    "routes.no_answer_is_transient",
)
class NoRoutesRatherThanAnError(SimRoutes):
    async def list(self, cluster: str) -> Sequence[cloud.Route]:
        with contextlib.suppress(Transient):
            return await super().list(cluster)
        return []


# --- tags of instances -----------------------------------------------------------------------------------------------


@mutant("instance_tags.added_tags_stay_beside_those_of_others", "instance_tags.a_tag_with_another_value_is_kept")
class ReplacesAllTags(SimInstanceTags):
    async def add(self, provider_id, tags):
        path = f"/instances/{provider_id.rpartition('/')[2]}"
        await self._api.call("PATCH", path, sim_api.Instance, body={"labels": dict(tags)}, missing="instance_not_found")


@mutant("instance_tags.a_tag_with_another_value_is_kept")
class OverwritesTags(SimInstanceTags):
    async def add(self, provider_id, tags):
        path = f"/instances/{provider_id.rpartition('/')[2]}"
        found = await self._api.call("GET", path, sim_api.Instance, missing="instance_not_found")
        body = {"labels": {**found.labels, **tags}}
        await self._api.call("PATCH", path, sim_api.Instance, body=body, missing="instance_not_found")


@mutant("instance_tags.a_deleted_instance_is_not_found")
class TagsNothingSilently(SimInstanceTags):
    async def add(self, provider_id, tags):
        with contextlib.suppress(NotFound):
            await super().add(provider_id, tags)


@mutant("instance_tags.added_tags_stay_beside_those_of_others", "instance_tags.a_tag_with_another_value_is_kept")
class ListsNoTags(SimInstanceTags):
    async def list(self):
        return {}


# --- quotas of the project -------------------------------------------------------------------------------------------


@mutant("quotas.each_quota_is_listed_once_with_its_numbers")
class ListsWhatHasNoLimit(SimQuotas):
    async def list(self):
        return [*await super().list(), cloud.Quota("volumes", 3, -1)]


@mutant("quotas.each_quota_is_listed_once_with_its_numbers")
class ListsAQuotaTwice(SimQuotas):
    async def list(self):
        return [cloud.Quota("routes", 0, 5)] * 2
