# SPDX-License-Identifier: Apache-2.0
"""Load balancers of both types: each Service is served by the type that it asks for, and never changes it."""

from __future__ import annotations

from collections.abc import Sequence

from ccm import cloud
from ccm.cloud import Backend, ImplementedElsewhere, Invalid, LoadBalancerSpec, NotFound

from . import balancer_types as types
from .aws_api import Api
from .classic_groups import ClassicGroups
from .classic_load_balancers import ClassicLoadBalancers
from .cloud_conf_sections import CLASSIC, NETWORK
from .ec2_instances import Ec2Instances
from .network_load_balancers import NetworkLoadBalancers
from .node_groups import NodeGroups
from .vpc_subnets import VpcSubnets


class AwsLoadBalancers:
    def __init__(self, api: Api, instances: Ec2Instances) -> None:
        nodes, subnets = NodeGroups(api, instances), VpcSubnets(api)
        self._default = api.settings.runtime.loadbalancertype
        self._by_type: dict[str, NetworkLoadBalancers | ClassicLoadBalancers] = {
            NETWORK: NetworkLoadBalancers(api, nodes, subnets),
            CLASSIC: ClassicLoadBalancers(api, ClassicGroups(api, instances), nodes, subnets),
        }

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        return [found for each in self._by_type.values() for found in await each.list(cluster)]

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        try:
            return self._of(spec).fingerprint(spec, backends)
        except ImplementedElsewhere as error:
            return f"not served: {error}"

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        await self._refuse_change(spec)
        return await self._of(spec).get(spec)

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        await self._refuse_change(spec)
        return await self._of(spec).ensure(spec, backends)

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        return await self._of(spec).update_backends(spec, backends)

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        return await self._of(spec).deviations(spec, backends)

    async def delete(self, spec: LoadBalancerSpec) -> None:
        """Of both types, because annotations are not known any more."""
        absent = []
        for each in self._by_type.values():
            try:
                await each.delete(spec)
            except NotFound as error:
                absent.append(error)
        if len(absent) == len(self._by_type):
            raise absent[0]

    async def _refuse_change(self, spec: LoadBalancerSpec) -> None:
        """Raises Invalid if the Service has a load balancer of another type: its clients know that one. Costs no call
        unless its address is of the other type."""
        has, wants = types.had(spec), types.type_of(spec, self._default)
        if has and has != wants and await self._by_type[has].exists(spec):
            raise Invalid(types.never_changes(spec.default_name, has, wants))

    def _of(self, spec: LoadBalancerSpec) -> NetworkLoadBalancers | ClassicLoadBalancers:
        """Raises ImplementedElsewhere."""
        return self._by_type[types.type_of(spec, self._default)]
