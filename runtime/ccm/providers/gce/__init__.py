# SPDX-License-Identifier: Apache-2.0
"""The provider of Google Compute Engine (docs/providers/gce.md): Nodes, as cloud-provider-gcp describes them.

`settings` reads gce.conf, `credentials` and `tokens` authenticate, `api` makes a call, and `instance_rules` converts.
Load balancers and routes are left to cloud-provider-gcp.
"""

from __future__ import annotations

from typing import ClassVar

from ccm.cloud import ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud
from ccm.cloud.toolkit.limit_settings import limits_of

from .api import Api
from .instances import ComputeInstances
from .settings import TIMEOUT, Settings

#: A call of the contract has time for this many requests in sequence: for a token, and for the pages in which a name
#: with a domain is looked up.
REQUESTS = 6


class GceCloud(ConnectedCloud):
    name: ClassVar[str] = "gce"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = Settings.parse(config)
        api = self._api = Api(settings)
        self._connect(api, settings.ignored, source=config.source, files=[settings.credentials_file])
        self.limits = limits_of(settings.runtime, requests=REQUESTS, set_by=TIMEOUT)
        self.instances = ComputeInstances(api)
