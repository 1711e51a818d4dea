# SPDX-License-Identifier: Apache-2.0
"""The provider of Hetzner Cloud (docs/providers/hetzner.md), the counterpart of hcloud-cloud-controller-manager.

`settings` reads the configuration, `api` sends the calls, and each capability has a file of its own. Robot servers are
left alone.
"""

from typing import ClassVar

from ccm.cloud import Limits, ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud

from .api import Api
from .instances import HetznerInstances
from .load_balancers import HetznerLoadBalancers
from .routes import HetznerRoutes
from .settings import TIMEOUT, Settings


class HetznerCloud(ConnectedCloud):
    name: ClassVar[str] = "hetzner"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = Settings.parse(config)
        variables = settings.variables
        self._api = Api(settings)
        self._connect(self._api, settings.ignored, files=[variables.hcloud_token_file])
        self.limits = Limits(
            variables.hcloud_calls_per_second,
            variables.hcloud_burst,
            deadline=2 * variables.hcloud_request_timeout + 3,
            set_by=TIMEOUT,
        )
        self.instances = HetznerInstances(self._api)
        self.load_balancers = HetznerLoadBalancers(self._api) if variables.hcloud_load_balancers_enabled else None
        has_routes = bool(variables.hcloud_network) and variables.hcloud_network_routes_enabled
        self.routes = HetznerRoutes(self._api) if has_routes else None
