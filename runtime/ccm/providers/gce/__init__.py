# SPDX-License-Identifier: Apache-2.0
"""The provider of Google Compute Engine (docs/providers/gce.md): Nodes, as cloud-provider-gcp describes them.

`settings` reads its gce.conf, `credentials` and `tokens` prove who asks, `api` makes a call, and `instance_rules`
converts. Load balancers and routes are left to cloud-provider-gcp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ccm.cloud import Limits, ProviderConfig
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud

from .api import Api
from .instances import ComputeInstances
from .settings import Settings

#: Requests in one call of the contract, one after the other, at most: a token, and a lookup of a name with a domain.
REQUESTS = 6


class GceCloud(ConnectedCloud):
    name: ClassVar[str] = "gce"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        settings = self._settings = Settings.parse(config)
        runtime = settings.runtime
        self.limits = Limits(runtime.calls_per_second, runtime.calls_burst, deadline=REQUESTS * runtime.request_timeout)
        self._api = Api(settings)
        self._connect(self._api, (f"{config.source}: {each}" for each in settings.ignored))
        self.instances = ComputeInstances(self._api)

    @property
    def watched_files(self) -> Sequence[str]:
        return [path] if (path := self._settings.credentials_file) else []
