# SPDX-License-Identifier: Apache-2.0
"""Machines without a cloud: a file lists them (docs/providers/static.md).

A machine that is removed from the file is gone. If the file is unreadable, invalid, or lists no machine at all, the
machines count as unknown, not as gone.
"""

from __future__ import annotations

from typing import ClassVar

from ccm import cloud
from ccm.cloud import Limits, ProviderConfig

from .instances import PATIENCE, Inventory, StaticInstances
from .load_balancers import StaticLoadBalancers
from .settings import Settings


class StaticCloud(cloud.Cloud):
    name: ClassVar[str] = "static"
    instances: StaticInstances
    load_balancers: StaticLoadBalancers | None
    limits = Limits(calls_per_second=100.0, burst=200, deadline=PATIENCE * 2)

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self._settings = Settings.parse(config.text, config.source)
        self._inventory = Inventory(self._settings)
        self.instances = StaticInstances(self._inventory)
        self.load_balancers = StaticLoadBalancers(self._settings) if self._settings.pool else None

    @property
    def needs_node_ports(self) -> bool:
        """False: kube-proxy serves the addresses themselves."""
        return False

    async def start(self) -> None:
        """Read the machines. Raises ConfigError with all problems of the file. Later, its problems are Transient."""
        await self._inventory.read()

    async def close(self) -> None:
        self._inventory.close()
