# SPDX-License-Identifier: Apache-2.0
"""The provider of many smaller clouds (docs/providers/libcloud.md): Nodes of every cloud with an entry in `drivers`.

`settings` reads the configuration, `api` runs a driver of Apache Libcloud and records the cloud's own answers, and
`instance_rules` checks and converts these answers. Load balancers are left to others, because no driver can mark who
owns one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ccm import cloud
from ccm.cloud import ConfigError, Limits, ProviderConfig

from .api import library_problem
from .instances import LibcloudInstances
from .settings import LISTING_TIMEOUT, Settings


class LibcloudCloud(cloud.Cloud):
    name: ClassVar[str] = "libcloud"
    instances: LibcloudInstances

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        if problem := library_problem():
            raise ConfigError([problem])
        settings = self._settings = Settings.parse(config)
        self.limits = Limits(
            settings.calls_per_second, settings.burst, deadline=settings.listing_timeout + 3, set_by=LISTING_TIMEOUT
        )
        self.instances = LibcloudInstances(settings)

    @property
    def watched_files(self) -> Sequence[str]:
        return list(self._settings.files.values())

    async def start(self) -> None:
        await self.instances.start()

    async def close(self) -> None:
        await self.instances.close()
