# SPDX-License-Identifier: Apache-2.0
"""The provider of Apache CloudStack (docs/providers/cloudstack.md): what cloudstack-kubernetes-provider is in Go.

`settings` reads its configuration, `api` makes a call, and each capability is a file of its own.
"""

from collections.abc import Sequence
from typing import ClassVar

from ccm.cloud import Limits, ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud

from .api import Api
from .instances import CloudStackInstances
from .load_balancers import CloudStackLoadBalancers
from .settings import Settings


class CloudStackCloud(ConnectedCloud):
    name: ClassVar[str] = "cloudstack"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = self._settings = Settings.parse(config)
        self._api = Api(settings)
        self._connect(self._api, (f"{config.source}: {each}" for each in settings.ignored))
        runtime = settings.runtime
        self.limits = Limits(runtime.calls_per_second, runtime.burst, deadline=4 * runtime.request_timeout + 3)
        self.instances = CloudStackInstances(self._api)
        self.load_balancers = CloudStackLoadBalancers(self._api) if settings.balancers.enabled else None

    @property
    def watched_files(self) -> Sequence[str]:
        return self._settings.files
