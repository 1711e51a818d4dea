# SPDX-License-Identifier: Apache-2.0
"""The provider of OpenStack (docs/providers/openstack.md): the counterpart of cloud-provider-openstack, which is
written in Go.

`settings` reads its cloud.conf, `credentials` prepares the login, `api` makes a call, and each capability is a file or
a folder of its own. openstacksdk is imported when the provider starts, so only users of this provider need it.
"""

from typing import ClassVar

from ccm.cloud import ConfigError, Limits, ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud

from .api import Api
from .credentials import named_files, sdk_problem
from .errors import TIMEOUT
from .instances import OpenStackInstances
from .load_balancers.load_balancers import OctaviaLoadBalancers
from .quotas import OpenStackQuotas
from .routes import OpenStackRoutes
from .settings import Settings
from .volumes import OpenStackVolumes


class OpenStackCloud(ConnectedCloud):
    name: ClassVar[str] = "openstack"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        if problem := sdk_problem():
            raise ConfigError([problem])
        settings = Settings.parse(config, config.environment)
        runtime = settings.runtime
        self._api = Api(settings)
        self._connect(self._api, settings.ignored, source=config.source, files=named_files(settings))
        self.limits = Limits(
            runtime.calls_per_second,
            runtime.burst,
            runtime.concurrency,
            deadline=self._api.deadline + 3,
            set_by=TIMEOUT,
        )

        self.instances = OpenStackInstances(self._api)
        self.load_balancers = OctaviaLoadBalancers(self._api) if settings.load_balancer.enabled else None
        self.routes = OpenStackRoutes(self._api) if settings.route.router_id else None
        self.volumes = OpenStackVolumes(self._api)
        self.quotas = OpenStackQuotas(self._api)
