# SPDX-License-Identifier: Apache-2.0
"""The base of providers with one connection, such as a `JsonApi`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from ccm.cloud import Cloud


class Connection(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


class ConnectedCloud(Cloud):
    """A cloud with one connection. The constructor of a subclass calls `_connect`."""

    def _connect(
        self, connection: Connection, ignored: Iterable[str] = (), *, source: str = "", files: Iterable[str] = ()
    ) -> None:
        """Set the connection, which `start` opens and `close` closes.

        `ignored`: sentences about settings without effect. `start` logs each one after `source`, the name of the
        settings' file. `files`: paths that the settings name, "" for a path that is not set.
        """
        self._connection = connection
        self._ignored = tuple(f"{source}: {sentence}" if source else sentence for sentence in ignored)
        self._files = [path for path in files if path]

    @property
    def watched_files(self) -> Sequence[str]:
        return self._files

    async def start(self) -> None:
        log = logging.getLogger(type(self).__module__)
        for sentence in self._ignored:
            log.warning("%s", sentence)
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()
