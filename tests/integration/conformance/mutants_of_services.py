# SPDX-License-Identifier: Apache-2.0
"""Broken providers that ignore a part of what a Service requests, or of what a listing has."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ccm import cloud
from ccm.cloud import CloudError, LoadBalancerSpec, Page, ProviderConfig
from ccm.providers import sim
from ccm.providers.sim import SimCloud, SimInstances, SimLoadBalancers
from ccm.providers.sim_api import Api

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


@mutant("load_balancers.source_ranges_are_applied_or_refused")
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


@mutant("load_balancers.a_requested_address_is_given_or_refused")
class IgnoresTheRequestedAddress(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, load_balancer_ip="")


@mutant("load_balancers.a_fingerprint_reads_the_nodes_once_for_all_services")
class ReadsTheNodesAgain(SimLoadBalancers):
    """For each Service, as if no other had the same ones."""

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[cloud.Backend]) -> str:
        return super().fingerprint(spec, list(backends))


@mutant("load_balancers.every_port_is_served", "load_balancers.each_protocol_is_served_or_refused")
class ServesTheFirstPort(Ignores):
    def known(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        return replace(spec, ports=spec.ports[:1])


@mutant("load_balancers.every_port_is_served", "load_balancers.each_protocol_is_served_or_refused")
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
    """Leaves something out of what it writes, and not out of the fingerprint."""

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
)
class SendsNoTargets(ClaimsToHaveWritten):
    def left_out(self, body: dict[str, Any], method: str) -> dict[str, Any]:
        return body | {"targets": []} if "targets" in body else body


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
        return f"{sim._digest(list({written[at : at + 8] for at in range(0, 64, 8)}))}-{targets}"


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
        page = await self._api.page("/load-balancers", sim.LoadBalancer, [("tag", f"cluster:{cluster}")], None)
        return [sim._load_balancer(row) for row in page.items if "service_uid" in row.tags]


@mutant("later_pages.a_failure_among_load_balancers_is_transient")
class EndsTheListingOfLoadBalancersAtAFailure(SimLoadBalancers):
    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        tags, rows, token = [("tag", f"cluster:{cluster}")], list[sim.LoadBalancer](), None
        while True:
            try:
                page = await self._api.page("/load-balancers", sim.LoadBalancer, tags, token)
            except CloudError:
                if token is None:
                    raise
                break
            rows, token = [*rows, *page.items], page.next_page_token
            if token is None:
                break
        return [sim._load_balancer(row) for row in rows if "service_uid" in row.tags]
