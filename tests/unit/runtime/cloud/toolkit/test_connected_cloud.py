# SPDX-License-Identifier: Apache-2.0
"""A provider with one connection opens it, closes it, and says which settings have no effect."""

from __future__ import annotations

import logging
from typing import ClassVar

import pytest

from ccm.cloud import ProviderConfig, Unauthorized
from ccm.cloud.toolkit.connected_cloud import ConnectedCloud


class Connection:
    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._error = error

    async def open(self) -> None:
        self.calls.append("open")
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        self.calls.append("close")


class Connected(ConnectedCloud):
    name: ClassVar[str] = "connected"

    def __init__(self, connection: Connection) -> None:
        super().__init__(ProviderConfig())
        ignored = (f"{each} has no effect" for each in ("a", "b"))
        self._connect(connection, ignored, source="cloud.conf", files=["/etc/token", ""])


async def test_a_start_logs_what_has_no_effect_and_opens_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection()
    cloud = Connected(connection)
    await cloud.start()
    assert connection.calls == ["open"]
    assert [(each.name, each.levelno, each.getMessage()) for each in caplog.records] == [
        (__name__, logging.WARNING, "cloud.conf: a has no effect"),
        (__name__, logging.WARNING, "cloud.conf: b has no effect"),
    ]
    await cloud.close()
    assert connection.calls == ["open", "close"]


def test_files_that_are_used_are_watched() -> None:
    assert list(Connected(Connection()).watched_files) == ["/etc/token"]


async def test_a_connection_is_closed_after_a_failed_start_too() -> None:
    connection = Connection(Unauthorized("no token"))
    cloud = Connected(connection)
    with pytest.raises(Unauthorized):
        await cloud.start()
    await cloud.close()
    assert connection.calls == ["open", "close"]
