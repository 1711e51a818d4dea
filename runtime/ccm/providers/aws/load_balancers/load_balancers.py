# SPDX-License-Identifier: Apache-2.0
"""Load balancers of both types. A Service asks for one type; its load balancer never changes to the other type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from ccm import cloud
from ccm.cloud import Backend, ImplementedElsewhere, Invalid, Kept, KeptLoadBalancer, LoadBalancerSpec, NotFound

from ..api import Api
from ..instances import Ec2Instances
from ..settings_sections import CLASSIC, NETWORK
from .classic.groups import ClassicGroups
from .classic.load_balancers import ClassicLoadBalancers
from .network.load_balancers import NetworkLoadBalancers
from .network.node_groups import NodeGroups
from .shared import type_rules as types
from .shared.deletions import Deletions
from .shared.security_groups import OneListing, SecurityGroups
from .shared.subnets import VpcSubnets


class AwsLoadBalancers:
    keeps = frozenset({Kept.LOAD_BALANCER})

    def __init__(self, api: Api, instances: Ec2Instances) -> None:
        groups, subnets = SecurityGroups(api), VpcSubnets(api)
        nodes = NodeGroups(api, instances, groups)
        self.deletions = Deletions()
        self._groups, self._default = groups, api.settings.runtime.loadbalancertype
        self._network = NetworkLoadBalancers(api, instances, nodes, subnets)
        self._by_type: dict[str, NetworkLoadBalancers | ClassicLoadBalancers] = {
            NETWORK: self._network,
            CLASSIC: ClassicLoadBalancers(api, ClassicGroups(api, instances, groups), nodes, subnets),
        }

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        self.deletions.lists()
        return [balancer for each in self._by_type.values() for balancer in await each.list(cluster)]

    async def kept(self, cluster: str) -> Sequence[KeptLoadBalancer]:
        return await self._network.kept(cluster)

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        try:
            return self._of(spec).fingerprint(spec, backends)
        except ImplementedElsewhere as error:
            return f"not served: {error}"

    def drains(self, spec: LoadBalancerSpec) -> bool:
        return self._of(spec).drains(spec)

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        await self._refuse_change(spec)
        return await self._of(spec).get(spec)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        await self._refuse_change(spec)
        with self._writing(spec) as each:
            return await each.ensure(spec, backends)

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        with self._writing(spec, types.had(spec)) as each:  # the existing type, even if the Service asks for the other
            return await each.update_backends(spec, backends)

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        return await self._of(spec).deviations(spec, backends)

    async def delete(self, spec: LoadBalancerSpec) -> None:
        """Delete the load balancers of both types, because the annotation may have changed since the last write. A type
        is skipped once a listing has proved that nothing of it is left. If neither type has anything, the next request
        looks at both again. Raises NotFound if there was none."""
        deletion, listing, any_deleted = self.deletions.of(spec), OneListing(self._groups), False
        for type_, balancers in self._by_type.items():  # NETWORK first: it fills `listing`, which CLASSIC uses
            if type_ in deletion.certain:
                continue
            is_certain = self.deletions.is_certain(spec, type_)
            with contextlib.suppress(NotFound):
                await balancers.delete(spec, deletion, listing)
                any_deleted = True
            if is_certain:
                deletion.certain.add(type_)
        if not any_deleted:
            self.deletions.forget(spec)
            raise NotFound(f"the account has no load balancer {spec.default_name} for Service {spec.uid}")

    async def _refuse_change(self, spec: LoadBalancerSpec) -> None:
        """Raises Invalid if the Service has a load balancer of another type, whose address its clients know. Makes no
        call unless the address in its status is of another type."""
        has, wants = types.had(spec), types.type_of(spec, self._default)
        if has and has != wants and await self._by_type[has].exists(spec):
            raise Invalid(types.never_changes(spec.default_name, has, wants))

    @contextlib.contextmanager
    def _writing(
        self, spec: LoadBalancerSpec, type_: str = ""
    ) -> Iterator[NetworkLoadBalancers | ClassicLoadBalancers]:
        """Yield the load balancers of the type to write, by default the type that the Service asks for, and record the
        write afterwards. Failed writes are recorded, too, because they may have had an effect."""
        requested = types.type_of(spec, self._default)
        type_ = type_ or requested
        try:
            yield self._by_type[type_]
        finally:
            self.deletions.wrote(spec, type_)

    def _of(self, spec: LoadBalancerSpec) -> NetworkLoadBalancers | ClassicLoadBalancers:
        """Return the load balancers of the type that the Service asks for. Raises ImplementedElsewhere if another
        controller serves that type."""
        return self._by_type[types.type_of(spec, self._default)]
