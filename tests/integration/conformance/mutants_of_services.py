# SPDX-License-Identifier: Apache-2.0
"""More broken providers. Most of them ignore a part of what a Service requests."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ccm import cloud
from ccm.cloud import CloudError, LoadBalancerSpec, Page, ProviderConfig
from ccm.providers.sim import SimCloud, SimInstances, SimLoadBalancers, load_balancer_rules
from ccm.providers.sim import api as sim_api
from ccm.providers.sim.api import Api

from .mutants import mutant

# --- what a Service requests -----------------------------------------------------------------------------------------


class Ignores(SimLoadBalancers, abc.ABC):
    """Neither writes nor fingerprints what `known` removes from a Service."""

    @abc.abstractmethod
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec: ...

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        return super().fingerprint(self.known(spec), backends)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        return await super().ensure(self.known(spec), backends)


@mutant(
    "load_balancers.source_ranges_are_applied_or_refused",
    "load_balancers.a_range_of_ipv6_does_not_open_ipv4",
)
class IgnoresSourceRanges(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, source_ranges=())


@mutant("load_balancers.session_affinity_is_applied_or_refused")
class IgnoresSessionAffinity(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, session_affinity="None")


@mutant("load_balancers.a_health_check_node_port_is_used_or_refused")
class IgnoresTheHealthCheckNodePort(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, health_check_node_port=0)


@mutant(
    "load_balancers.a_requested_address_is_given_or_refused",
    "load_balancers.a_setting_that_comes_too_late_is_refused_or_reported",
)
class IgnoresTheRequestedAddress(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, load_balancer_ip="")


@mutant("load_balancers.a_fingerprint_reads_the_nodes_once_for_all_services")
class ReadsTheNodesAgain(SimLoadBalancers):
    """Computes the Nodes again for each Service, although all Services have the same ones."""

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        return super().fingerprint(spec, list(backends))


@mutant(
    "load_balancers.every_port_is_served",
    "load_balancers.each_protocol_is_served_or_refused",
    "load_balancers.a_port_without_node_port_is_refused",
)
class ServesTheFirstPort(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, ports=spec.ports[:1])


@mutant(
    "load_balancers.every_port_is_served",
    "load_balancers.each_protocol_is_served_or_refused",
    "load_balancers.a_port_without_node_port_is_refused",
)
class SendsToTheFirstNodePort(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        first = spec.ports[0].node_port
        return replace(spec, ports=tuple(replace(port, node_port=first) for port in spec.ports))


@mutant("load_balancers.each_protocol_is_served_or_refused")
class ServesAnyProtocolAsTcp(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        served = {port.port: replace(port, protocol="TCP") for port in spec.ports}
        return replace(spec, ports=tuple(served.values()))


class ClaimsToHaveWritten(SimLoadBalancers, abc.ABC):
    """Leaves something out of its writes but not out of the fingerprint."""

    @abc.abstractmethod
    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]: ...

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        balancers = self

        class Writes(Api):
            async def call(self, method: str, path: str, *args: Any, body: Any = None, **kwargs: Any) -> Any:
                if body and path.startswith("/load-balancers"):
                    body = balancers.left_out(body, method)
                return await api.call(method, path, *args, body=body, **kwargs)

            async def list(self, *args: Any) -> Any:
                return await api.list(*args)

        self._api = Writes(api.settings)


@mutant("load_balancers.source_ranges_are_applied_or_refused")
class FingerprintsSourceRangesOnly(ClaimsToHaveWritten):
    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        return body | {"source_ranges": []} if "source_ranges" in body else body


@mutant("load_balancers.source_ranges_are_applied_or_refused")
class WritesSourceRangesAtTheStartOnly(ClaimsToHaveWritten):
    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key != "source_ranges" or method == "POST"}


@mutant("load_balancers.source_ranges_are_applied_or_refused")
class WritesSourceRangesWithChangesOnly(ClaimsToHaveWritten):
    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key != "source_ranges" or method != "POST"}


@mutant(
    "load_balancers.members_have_the_addresses_that_are_given",
    "load_balancers.every_port_is_served",
    "load_balancers.each_protocol_is_served_or_refused",
    "load_balancers.one_that_is_kept_is_taken_back_by_its_namespace",
)
class SendsNoTargets(ClaimsToHaveWritten):
    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        return body | {"targets": []} if "targets" in body else body


# --- what outlives a Service -----------------------------------------------------------------------------------------

OUTLIVES = "load_balancers.one_that_is_kept_outlives_its_service"
TAKEN_BACK = "load_balancers.one_that_is_kept_is_taken_back_by_its_namespace"
LAST = "load_balancers.what_a_service_asks_for_last_is_kept"


@mutant(OUTLIVES, TAKEN_BACK)
class DeletesWhatIsToBeKept(SimLoadBalancers):
    async def delete(self, spec: LoadBalancerSpec) -> None:
        await self._remove(await self._find(spec))


@mutant(OUTLIVES)
class DeletesWhatOnlyTheMarkKeeps(SimLoadBalancers):
    async def delete(self, spec: LoadBalancerSpec) -> None:
        if spec.keep is None:
            await self._remove(await self._find(spec))
        else:
            await super().delete(spec)


@mutant(OUTLIVES, TAKEN_BACK, LAST)
class IgnoresWhatIsToBeKept(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, keep=None)

    async def delete(self, spec: LoadBalancerSpec) -> None:
        await super().delete(self.known(spec))


@mutant(LAST)
class IgnoresProtection(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, protected=False)


@mutant(TAKEN_BACK)
class MakesAnotherInstead(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, take_back="")


@mutant(TAKEN_BACK)
class GivesItToAnyNamespace(SimLoadBalancers):
    async def _take_back(self, spec: LoadBalancerSpec) -> sim_api.LoadBalancer:
        rows = await self._api.list("/load-balancers", sim_api.LoadBalancer, [("tag", f"cluster:{spec.cluster}")])
        namespaces = [row.tags.get("kept_for") for row in rows if row.name == spec.take_back]
        return await super()._take_back(replace(spec, namespace=namespaces[0] if namespaces else spec.namespace))


@mutant(OUTLIVES, TAKEN_BACK)
class ListsWhatNoServiceHas(SimLoadBalancers):
    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        rows = await self._api.list("/load-balancers", sim_api.LoadBalancer, [("tag", f"cluster:{cluster}")])
        return [load_balancer_rules.load_balancer(row) for row in rows if "service_uid" in row.tags]


@mutant(OUTLIVES)
class ShowsNothingThatIsKept(SimLoadBalancers):
    async def kept(self, cluster: str) -> Sequence[cloud.KeptLoadBalancer]:
        return ()


@mutant(OUTLIVES)
class ShowsWhatAnotherClusterKeeps(SimLoadBalancers):
    async def kept(self, cluster: str) -> Sequence[cloud.KeptLoadBalancer]:
        return await super().kept(cluster.removesuffix("-2"))


@mutant(OUTLIVES)
class KeepsTheTargets(ClaimsToHaveWritten):
    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._before: Any = ()

    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        if method == "PUT" and body["targets"] == ():
            return body | {"targets": self._before}
        self._before = body.get("targets", self._before)
        return body


@mutant(LAST)
class NeverForgetsWhatIsToBeKept(ClaimsToHaveWritten):
    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        if not body.get("tags"):
            return body
        return body | {"tags": {key: value for key, value in body["tags"].items() if key != "keep" or value}}


# --- nodes that drain ------------------------------------------------------------------------------------------------

DRAINS = "load_balancers.a_node_that_drains_gets_no_new_connections"


@mutant(DRAINS)
class IgnoresThatNodesDrain(ClaimsToHaveWritten):
    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        targets = [{key: each[key] for key in each if key != "draining"} for each in body.get("targets", ())]
        return body | {"targets": targets} if "targets" in body else body


@mutant(DRAINS)
class NeverSendsToANodeAgain(ClaimsToHaveWritten):
    """A node that drained once drains forever."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._drained: set[str] = set()

    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        self._drained |= {each["address"] for each in body.get("targets", ()) if each.get("draining")}
        targets = [each | {"draining": each["address"] in self._drained} for each in body.get("targets", ())]
        return body | {"targets": targets} if "targets" in body else body


@mutant(DRAINS)
class ShowsNothingOfItInTheFingerprint(SimLoadBalancers):
    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        return super().fingerprint(spec, _undrained(backends))


@mutant(DRAINS)
class LetsTheLastNodeDrain(ClaimsToHaveWritten):
    """Lets a node drain even if all nodes drain."""

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        self._all = all(each.draining for each in backends)
        return await super().update_backends(spec, backends)

    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        if not getattr(self, "_all", False):
            return body
        return body | {"targets": [each | {"draining": True} for each in body.get("targets", ())]}


def _undrained(backends: Sequence[cloud.Backend]) -> cloud.Backends:
    return cloud.Backends.of(backends).recent(
        "undrained", lambda every: cloud.Backends(replace(each, draining=False) for each in every)
    )


# --- fingerprints ----------------------------------------------------------------------------------------------------


class Hashing(SimLoadBalancers):
    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        written, _, targets = super().fingerprint(spec, backends).partition("-")
        return f"{hash(written)}".replace("-", "m") + f"-{targets}"


@mutant("load_balancers.the_fingerprint_is_the_same_in_every_process")
class HashesItsFingerprint(SimCloud):
    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self.load_balancers = Hashing(self._api)


class Unordered(SimLoadBalancers):
    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        written, _, targets = super().fingerprint(spec, backends).partition("-")
        return f"{load_balancer_rules.digest(list({written[at : at + 8] for at in range(0, 64, 8)}))}-{targets}"


@mutant("load_balancers.the_fingerprint_is_the_same_in_every_process")
class FingerprintsASet(SimCloud):
    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self.load_balancers = Unordered(self._api)


# --- listings --------------------------------------------------------------------------------------------------------


@mutant("later_pages.a_failure_among_instances_is_transient", "failures.a_listing_cut_short_shows")
class EndsItsListingAtAFailure(SimInstances):
    async def list_page(self, token: str | None) -> Page:
        try:
            return replace(await super().list_page(token), total=None)
        except CloudError:
            if token is None:
                raise
            return Page([])


@mutant("later_pages.all_load_balancers_are_listed", "later_pages.a_failure_among_load_balancers_is_transient")
class ListsTheFirstPageOfLoadBalancers(SimLoadBalancers):
    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        page = await self._api.page("/load-balancers", sim_api.LoadBalancer, [("tag", f"cluster:{cluster}")], None)
        return [load_balancer_rules.load_balancer(row) for row in page.items if row.tags.get("service_uid")]


@mutant("later_pages.a_failure_among_load_balancers_is_transient")
class EndsTheListingOfLoadBalancersAtAFailure(SimLoadBalancers):
    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        tags, rows, token = [("tag", f"cluster:{cluster}")], list[sim_api.LoadBalancer](), None
        while True:
            try:
                page = await self._api.page("/load-balancers", sim_api.LoadBalancer, tags, token)
            except CloudError:
                if token is None:
                    raise
                break
            rows, token = [*rows, *page.items], page.next_page_token
            if token is None:
                break
        return [load_balancer_rules.load_balancer(row) for row in rows if row.tags.get("service_uid")]


# --- what nobody would serve -----------------------------------------------------------------------------------------


class Checks(SimLoadBalancers, abc.ABC):
    """Changes a Service before `ensure`, so that the provider does not notice what it cannot serve."""

    @abc.abstractmethod
    def seen(self, spec: LoadBalancerSpec) -> LoadBalancerSpec: ...

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        return await super().ensure(self.seen(spec), backends)


@mutant("load_balancers.a_port_without_node_port_is_refused")
class ServesPortsWithoutNodePort(Checks):
    def seen(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, ports=tuple(replace(port, node_port=port.node_port or 1) for port in spec.ports))


@mutant("load_balancers.each_ip_family_is_served_or_reported")
class IgnoresTheFamilies(Checks):
    def seen(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, ip_families=("IPv4",))


@mutant("load_balancers.a_range_of_ipv6_does_not_open_ipv4")
class TakesAllOfIpv6ForEveryone(Checks):
    def seen(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, source_ranges=tuple(each for each in spec.source_ranges if each != "::/0"))


@mutant("load_balancers.a_load_balancer_without_targets_is_reported")
class SaysNothingOfMissingTargets(SimLoadBalancers):
    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        found = await super().ensure(spec, backends)
        return replace(found, warnings=tuple(each for each in found.warnings if "nobody serves" not in each))


@mutant("load_balancers.a_warning_is_in_the_answer_of_the_write")
class WarnsOnlyWhenItWrites(SimLoadBalancers):
    """Does not warn if there is nothing to write, so a leader that starts later never learns of the problem."""

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        try:
            written = (await self.get(spec)).fingerprint == self.fingerprint(spec, backends)
        except CloudError:
            written = False
        found = await super().ensure(spec, backends)
        return replace(found, warnings=()) if written else found


@mutant("load_balancers.a_setting_that_comes_too_late_is_refused_or_reported")
class IgnoresALaterAddress(SimLoadBalancers):
    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> cloud.LoadBalancer:
        try:
            await self.get(spec)
        except CloudError:
            return await super().ensure(spec, backends)
        return await super().ensure(replace(spec, load_balancer_ip=""), backends)


@mutant("instances.a_listing_repeats_itself")
class ListsAddressesInAnyOrder(SimInstances):
    turn = 0

    async def list_page(self, token: str | None) -> Page:
        page = await super().list_page(token)
        self.turn += token is None
        if self.turn % 2:
            return page
        turned = [replace(each, addresses=each.addresses[::-1]) for each in page.instances]
        return Page(turned, page.next, page.total)
