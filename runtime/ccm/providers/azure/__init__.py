# SPDX-License-Identifier: Apache-2.0
"""The provider of Azure (docs/providers/azure.md): Nodes, as cloud-provider-azure describes them.

`settings` reads its azure.json, `credentials` and `tokens` prove who asks, `api` makes a call to Azure Resource
Manager, `instances` lists, and `instance_rules` converts. Load balancers, routes and disks are left to
cloud-provider-azure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ccm.cloud import Limits, ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud

from .api import Api
from .instances import ArmMachines
from .settings import Settings

#: Requests in one call of the contract, one after the other, at most: pages of machines, then of what belongs to them.
REQUESTS = 12


class AzureCloud(ConnectedCloud):
    name: ClassVar[str] = "azure"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = self._settings = Settings.parse(config)
        runtime = settings.runtime
        self.limits = Limits(runtime.calls_per_second, runtime.calls_burst, deadline=REQUESTS * runtime.request_timeout)
        self._api = Api(settings)
        self._connect(self._api, (f"{config.source}: {each}" for each in settings.ignored))
        self.instances = ArmMachines(self._api)

    @property
    def watched_files(self) -> Sequence[str]:
        return [path] if (path := self._settings.certificate_file) else []
