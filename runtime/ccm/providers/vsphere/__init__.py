# SPDX-License-Identifier: Apache-2.0
"""The provider of vSphere (docs/providers/vsphere.md): Nodes, as cloud-provider-vsphere describes them.

`settings` reads its vsphere.conf, `session` keeps a session with a vCenter, `api` reads the vCenter, and the `*_rules`
convert. pyvmomi is imported when the provider starts, so only users of this provider need it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from ccm import cloud
from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit.limit_settings import limits_of
from ccm.cloud.toolkit.untrusted_text import printable

from .errors import TIMEOUT
from .instances import VSphereInstances
from .session import sdk_problem
from .settings import Settings, named_files

log = logging.getLogger(__name__)


class VSphereCloud(cloud.Cloud):
    name: ClassVar[str] = "vsphere"
    instances: VSphereInstances

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        if problem := sdk_problem():
            raise ConfigError([problem])
        settings = self._settings = Settings.parse(config)
        self.limits = limits_of(settings.runtime, requests=1, set_by=TIMEOUT, spare=3.0)
        self.instances = VSphereInstances(settings)

    @property
    def watched_files(self) -> Sequence[str]:
        return named_files(self._settings)

    async def start(self) -> None:
        for sentence in self._settings.ignored:
            log.warning("%s: %s", self.config.source, sentence)
        for problem in await self.instances.start():
            log.warning("the machines of one vCenter are unknown: %s", printable(problem))

    async def close(self) -> None:
        await self.instances.close()
