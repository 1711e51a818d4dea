# SPDX-License-Identifier: Apache-2.0
"""The provider of Azure (docs/providers/azure.md): Nodes, as cloud-provider-azure describes them.

`settings` reads azure.json, `credentials` and `tokens` authenticate, `api` makes a call to Azure Resource Manager,
`instances` lists, and `instance_rules` converts. Load balancers, routes and disks are left to cloud-provider-azure.
"""

from __future__ import annotations

from typing import ClassVar

from ccm.cloud import ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud
from ccm.cloud.toolkit.limit_settings import limits_of

from .api import Api
from .instances import ArmMachines
from .settings import TIMEOUT, Settings

#: A call of the contract has time for this many requests in sequence: for pages of machines, then for pages of their
#: parts.
REQUESTS = 12


class AzureCloud(ConnectedCloud):
    name: ClassVar[str] = "azure"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = Settings.parse(config)
        api = self._api = Api(settings)
        self._connect(api, settings.ignored, source=config.source, files=[settings.certificate_file])
        self.limits = limits_of(settings.runtime, requests=REQUESTS, set_by=TIMEOUT)
        self.instances = ArmMachines(api)
