# SPDX-License-Identifier: Apache-2.0
"""What a log line says about a connection that failed."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from ccm.base.connection_problem import connection_problem
from tests.integration.cluster import Authority
from tests.ports import free_port


async def problem(url: str) -> str:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError) as raised:
            await session.get(url)
    return connection_problem(raised.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_nobody_listens(scheme: str) -> None:
    port = free_port()
    assert await problem(f"{scheme}://127.0.0.1:{port}/") == f"cannot connect to 127.0.0.1:{port}: connection refused"


async def test_a_name_that_does_not_exist() -> None:
    text = await problem("https://nowhere.invalid/")
    assert text.startswith("cannot connect to nowhere.invalid:443: ") and "object at" not in text


async def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("server", hosts=["127.0.0.1"])
    (tmp_path / "pair.pem").write_bytes(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pair.pem")
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        text = await problem(f"https://127.0.0.1:{port}/")
    assert text.startswith(f"cannot connect to 127.0.0.1:{port}: ") and "certificate verify failed" in text


def test_other_errors_keep_their_text() -> None:
    assert connection_problem(aiohttp.ClientPayloadError("cut off")) == "cut off"
    assert connection_problem(ConnectionResetError()) == "ConnectionResetError"
