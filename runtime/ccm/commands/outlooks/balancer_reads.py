# SPDX-License-Identifier: Apache-2.0
"""Asks the cloud about the load balancers of Services: with one listing, and with single reads where the listing does
not say enough."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from ccm.cloud import (
    Backends,
    CloudError,
    ComparesLoadBalancers,
    KeepsLoadBalancers,
    KeptLoadBalancer,
    LoadBalancer,
    LoadBalancerSpec,
    NotImplementedByCloud,
)
from ccm.controllers.services import backend_rules
from ccm.controllers.services import service_rules as rules
from ccm.controllers.services.allocations import ServiceAllocations
from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.services.keep_rules import keepable, readable_keep, why_held
from ccm.controllers.services.service_balancers import ServiceBalancers
from ccm.controllers.services.service_rules import Step
from ccm.controllers.services.service_state import ServiceState
from ccm.controllers.shared.context import Context
from ccm.engine.objects import Service

from ..asking.reading import answer_of
from .service_outlook import Evidence


class BalancerReads:
    """Reads of load balancers. `listed`: UID of a Service -> its load balancer, or the error of the listing."""

    def __init__(
        self, context: Context, services: Iterable[Service], backends: backend_rules.BackendSets, classes: ServedClasses
    ) -> None:
        allocations = ServiceAllocations()
        for service in services:
            allocations.on_service(None, service)
        self._context, self._backends, self._classes = context, backends, classes
        self._balancers = ServiceBalancers(context, allocations, 0.0)
        self.listed: Mapping[str, LoadBalancer] | CloudError = {}

    async def list(self) -> None:
        """List the load balancers. If the provider cannot list them, each one is read alone."""
        cluster = self._context.cluster_name
        answer = await answer_of(lambda: self._balancers.call("list", lambda: self._balancers.cloud.list(cluster)))
        if isinstance(answer, NotImplementedByCloud):
            self.listed = {}
        else:
            self.listed = answer if isinstance(answer, CloudError) else {each.service_uid: each for each in answer}

    async def kept(self) -> Sequence[KeptLoadBalancer] | CloudError:
        """Return the load balancers that are kept without a Service; () if the provider cannot keep any."""
        balancers, cluster = self._balancers.cloud, self._context.cluster_name
        if not isinstance(balancers, KeepsLoadBalancers):
            return ()
        return await answer_of(lambda: self._balancers.call("kept", lambda: balancers.kept(cluster)))

    async def about(self, service: Service, *, compare: bool = False) -> Evidence | CloudError:
        """Return what the cloud has for a Service. `compare`: read and compare its load balancer even if the
        fingerprint is right."""
        if isinstance(self.listed, CloudError):
            return self.listed
        listed = self.listed.get(service.metadata.uid)
        if not rules.wants_it_served(service, self._classes):
            notes = service.metadata.annotations
            return Evidence(
                listed=listed, held=why_held(notes, keepable(self._balancers.cloud)), keep=readable_keep(notes)
            )
        try:
            spec = rules.load_balancer_spec(
                service,
                self._context.cluster_name,
                needs_node_ports=self._context.gateway.cloud.needs_node_ports,
                keeps=keepable(self._balancers.cloud),
            )
            current = self.backends(spec)
            fingerprint = self._balancers.fingerprint(spec, current)
        except rules.ServiceRuleError as error:
            return Evidence(problem=str(error), listed=listed)
        except CloudError as error:
            return error

        def fingerprint_of(backends: Backends) -> Hashable:
            return self._balancers.fingerprint(spec, backends)

        count = len(current)
        written = listed.fingerprint if listed is not None else ""
        step = rules.next_step(ServiceState(service), fingerprint, fingerprint_of, written)
        if listed is not None and listed.ready and step is Step.ADOPT and not compare:
            return Evidence(step, listed=listed, backends=count)
        read = await answer_of(lambda: self._balancers.call("get", lambda: self._balancers.cloud.get(spec)))
        there = isinstance(read, LoadBalancer)
        deviations = await self._deviations(spec, current) if there and (compare or step is Step.ENSURE) else None
        return Evidence(step, listed=listed, read=read, deviations=deviations, backends=count)

    def backends(self, spec: LoadBalancerSpec) -> Backends:
        return self._backends.of(spec, drains=self._balancers.drain(spec))

    async def _deviations(self, spec: LoadBalancerSpec, backends: Backends) -> Sequence[str] | CloudError | None:
        balancers = self._balancers.cloud
        if not isinstance(balancers, ComparesLoadBalancers):
            return None
        return await answer_of(lambda: self._balancers.call("deviations", lambda: balancers.deviations(spec, backends)))
