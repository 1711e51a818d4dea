# SPDX-License-Identifier: Apache-2.0
import contextlib
import socket
import ssl

import aiohttp
import pytest
from aiohttp import web

from ccm.base.late_certificates import late_certificates
from tests.integration.cluster import Authority

HOSTS = ["localhost"]


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Return a certificate authority, the only one that the system trusts."""
    folder = tmp_path / "system"
    folder.mkdir()
    authority = Authority(folder)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    return authority


def trusted(context):
    return context.cert_store_stats()["x509_ca"]


@pytest.mark.parametrize("make", [ssl.create_default_context, ssl._create_unverified_context])
def test_others_than_those_within_read_the_authorities_at_once(system, make):
    plain = make()
    with late_certificates():
        pass
    assert trusted(make()) == trusted(plain)
    assert "set_default_verify_paths" not in vars(ssl.SSLContext)


def test_an_import_that_fails_leaves_all_as_it_was(system):
    with contextlib.suppress(ImportError), late_certificates():
        raise ImportError
    assert trusted(ssl.create_default_context()) == 1


@pytest.mark.parametrize("use", ["wrap_bio", "wrap_socket"])
def test_the_first_connection_reads_them(system, use):
    with late_certificates():
        context = ssl.create_default_context()
    before = trusted(context)
    if use == "wrap_bio":
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    else:
        with socket.socket() as plain:
            context.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False).close()
    assert (before, trusted(context), type(context)) == (0, 1, ssl.SSLContext)


def test_an_authority_of_its_own_is_read_at_once_and_stays_the_only_one(system, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with late_certificates():
        context = ssl.create_default_context(cafile=str(Authority(other).file))
    context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    assert trusted(context) == 1


@contextlib.asynccontextmanager
async def served(authority, folder):
    certificate, key = authority.issue("server", hosts=HOSTS)
    (folder / "server.pem").write_bytes(certificate + key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem")
    runner = web.ServerRunner(web.Server(lambda request: _answer()))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"https://localhost:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def _answer():
    return web.Response(text="ok")


async def test_it_verifies_whom_it_talks_to(system, tmp_path):
    strange = tmp_path / "strange"
    strange.mkdir()
    with late_certificates():
        context = ssl.create_default_context()
    async with (
        served(system, tmp_path) as url,
        aiohttp.ClientSession() as session,
        session.get(url, ssl=context) as answer,
    ):
        assert await answer.text() == "ok"
    with late_certificates():
        context = ssl.create_default_context()
    async with served(Authority(strange), strange) as url, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(url, ssl=context)
