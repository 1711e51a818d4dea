# SPDX-License-Identifier: Apache-2.0
"""A complete provider for the Acme cloud. Each file has the contract's word for its subject.

Like most client libraries, its client blocks (here: urllib); `BlockingCalls` keeps it off the event loop. The provider
`sim` shows the same with an asynchronous client.
"""

from __future__ import annotations

from typing import ClassVar

from ccm import cloud
from ccm.cloud import ProviderConfig

from .api import Api
from .instances import AcmeInstances
from .load_balancers import AcmeLoadBalancers
from .settings import Settings


class AcmeCloud(cloud.Cloud):
    name: ClassVar[str] = "acme"

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        api = self._api = Api(Settings.read(config))
        self.instances = AcmeInstances(api)
        self.load_balancers = AcmeLoadBalancers(api)

    async def start(self) -> None:
        await self._api.call("GET", "/account")

    async def close(self) -> None:
        self._api.close()
