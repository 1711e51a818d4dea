# SPDX-License-Identifier: Apache-2.0
"""The provider of Apache CloudStack (docs/providers/cloudstack.md), the counterpart of cloudstack-kubernetes-provider.

`settings` reads the configuration, `api` makes a call, and each capability has a file of its own.
"""

from typing import ClassVar

from ccm.cloud import ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud
from ccm.cloud.toolkit.limit_settings import limits_of

from .api import Api
from .instances import CloudStackInstances
from .load_balancers import CloudStackLoadBalancers
from .settings import TIMEOUT, Settings


class CloudStackCloud(ConnectedCloud):
    name: ClassVar[str] = "cloudstack"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = Settings.parse(config)
        self._api = Api(settings)
        self._connect(self._api, settings.ignored, source=config.source, files=settings.files)
        self.limits = limits_of(settings.runtime, requests=4, set_by=TIMEOUT, spare=3.0)
        self.instances = CloudStackInstances(self._api)
        self.load_balancers = CloudStackLoadBalancers(self._api) if settings.balancers.enabled else None
