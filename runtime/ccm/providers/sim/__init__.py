# SPDX-License-Identifier: Apache-2.0
"""The provider of the simulated cloud (docs/providers/sim.md), and the example to copy for your own provider.

It shows everything a provider does, in files with the contract's words: `settings` reads the configuration and reports
all of its problems, `api` speaks HTTP and maps every failure to the contract's errors, and each capability is one small
class, with longer conversions in `*_rules`. The framework does everything else: batching, caching, retries, rate
limits.
"""

from __future__ import annotations

from typing import ClassVar

from ccm.cloud import Limits, ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud

from .api import Api
from .instance_tags import SimInstanceTags
from .instances import SimInstances
from .load_balancers import SimLoadBalancers
from .quotas import SimQuotas
from .routes import SimRoutes
from .settings import Settings
from .volumes import SimVolumes


class SimCloud(ConnectedCloud):
    name: ClassVar[str] = "sim"
    instances: SimInstances
    load_balancers: SimLoadBalancers
    routes: SimRoutes
    volumes: SimVolumes
    instance_tags: SimInstanceTags
    quotas: SimQuotas

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = Settings.parse(config)
        self.limits = Limits(
            settings.calls_per_second, settings.burst, settings.concurrency, listing_lag=settings.listing_lag
        )
        self._api = Api(settings)
        self._connect(self._api, settings.warnings)
        self.instances = SimInstances(self._api)
        self.load_balancers = SimLoadBalancers(self._api)
        self.routes = SimRoutes(self._api)
        self.volumes = SimVolumes(self._api)
        self.instance_tags = SimInstanceTags(self._api)
        self.quotas = SimQuotas(self._api)

    @property
    def needs_node_ports(self) -> bool:
        """Whether load balancers send to node ports. Known after `start`, because the project decides how its load
        balancers forward."""
        return not self._api.passes_through
