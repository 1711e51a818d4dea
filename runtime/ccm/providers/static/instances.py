# SPDX-License-Identifier: Apache-2.0
"""The machines of the list. Each call reads the file, if there is one, and parses it again if it has changed."""

from __future__ import annotations

import re
from pathlib import Path

from ccm.cloud import BlockingCalls, ConfigError, Instance, InstanceRef, NotFound, Page, Transient

from .settings import Settings

#: Seconds allowed for reading the file; a file on an unreachable server may block forever.
PATIENCE = 5.0


class Inventory:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._calls = BlockingCalls("static", threads=2, deadline=PATIENCE, hung_limit=4)
        self._text: str | None = None
        self._machines: tuple[Instance, ...] = settings.machines or ()

    async def machines(self) -> tuple[Instance, ...]:
        """Return the machines. Raises Transient if they are unknown."""
        try:
            return await self.read()
        except ConfigError as error:
            raise Transient(f"the list of machines is unknown: {error}") from None

    async def read(self) -> tuple[Instance, ...]:
        """Return the machines, and read the file if there is one. Raises ConfigError with all problems of the file, and
        Transient if the file system does not respond."""
        if not self.settings.file:
            return self._machines
        try:
            text = await self._calls.run(Path(self.settings.file).read_text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ConfigError([f"{self.settings.source}: cannot read {self.settings.file}: {reason}"]) from None
        if text != self._text:
            self._machines, self._text = self.settings.read_file(text), text
        return self._machines

    def close(self) -> None:
        self._calls.close()


class StaticInstances:
    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._id = re.compile(rf"static://{re.escape(inventory.settings.cluster)}/[A-Za-z0-9._-]+")

    async def list_page(self, token: str | None) -> Page:
        machines = await self._inventory.machines()
        return Page(machines, total=len(machines))

    async def get(self, ref: InstanceRef) -> Instance:
        machines = await self._inventory.machines()
        value, attribute = (ref.provider_id, "provider_id") if ref.provider_id else (ref.node_name, "name")
        for machine in machines:
            if getattr(machine, attribute) == value:
                return machine
        settings = self._inventory.settings
        raise NotFound(f"{settings.file or settings.source} lists no machine {value}")

    def owns(self, provider_id: str) -> bool:
        return self._id.fullmatch(provider_id) is not None
