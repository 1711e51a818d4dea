# SPDX-License-Identifier: Apache-2.0
"""C19 of the behaviour reference, as far as it needs no API server."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import types

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from cryptography import x509

from ccm.app.options import parse
from ccm.app.server import CertificateError, _self_signed, application, serve, tls_context

OPEN = ("/healthz", "/livez", "/readyz")


class FakeAuthorizer:
    def __init__(self):
        self.asked = []

    async def check(self, authorization, path):
        self.asked.append((authorization, path))
        return (200, "") if authorization == "Bearer good" else (403, f"not you: {path}")


@pytest.fixture
def authorizer():
    return FakeAuthorizer()


@pytest.fixture
def state():
    return types.SimpleNamespace(live=None, cloud=None)


@pytest.fixture
def client_of(authorizer, state):
    """A client of an application whose checks say what `state` says."""

    @contextlib.asynccontextmanager
    async def client_of(always_allow=OPEN):
        live = {"ping": lambda: None, "leaderElection": lambda: state.live}
        ready = {**live, "cloud": lambda: state.cloud}
        async with TestClient(TestServer(application(live, ready, authorizer, always_allow))) as client:
            yield client

    return client_of


async def got(client, path, **headers):
    async with client.get(path, headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("path", OPEN)
async def test_health_is_open_to_everybody(client_of, authorizer, path):
    async with client_of() as client:
        assert await got(client, path) == (200, "ok")
    assert authorizer.asked == []


async def test_verbose_and_exclude(client_of, state):
    state.cloud = "503"
    live = "[+]ping ok\n[+]leaderElection ok\n"
    async with client_of() as client:
        assert await got(client, "/livez?verbose") == (200, live + "check passed\n")
        assert await got(client, "/healthz?verbose=1") == (200, live + "check passed\n")
        assert await got(client, "/readyz") == (500, live + "[-]cloud failed: 503\ncheck failed\n")
        assert await got(client, "/readyz?exclude=cloud") == (200, "ok")
        assert await got(client, "/readyz?exclude=cloud&exclude=ping&verbose") == (
            200,
            "[+]ping excluded: ok\n[+]leaderElection ok\n[+]cloud excluded: ok\ncheck passed\n",
        )


async def test_what_is_ready_and_what_is_alive(client_of, state):
    async with client_of() as client:

        async def statuses():
            return [(await got(client, path))[0] for path in OPEN]

        state.cloud = "503"
        assert await statuses() == [200, 200, 500]
        state.cloud, state.live = None, "lost"
        assert await statuses() == [500, 500, 500]
        state.live = None
        assert await statuses() == [200, 200, 200]


async def test_metrics_need_authorisation(client_of, authorizer):
    async with client_of() as client:
        assert await got(client, "/metrics") == (403, "not you: /metrics\n")
        status, text = await got(client, "/metrics", Authorization="Bearer good")
        assert status == 200
        assert "# TYPE python_info gauge" in text
    assert authorizer.asked == [("", "/metrics"), ("Bearer good", "/metrics")]


async def test_metrics_in_the_form_that_is_asked_for(client_of):
    async with client_of(always_allow=("/metrics",)) as client:
        async with client.get("/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=")
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with client.get("/metrics", headers=accept) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            assert (await response.text()).endswith("# EOF\n")


async def test_always_allowed_paths_are_those_given_and_exact(client_of):
    async with client_of(always_allow=("/metrics",)) as client:
        assert (await got(client, "/metrics"))[0] == 200
        assert await got(client, "/healthz") == (403, "not you: /healthz\n")
        assert (await got(client, "/metrics/"))[0] == 403
        assert (await got(client, "/%6detrics"))[0] == 200  # the same path, spelt otherwise
    async with client_of(always_allow=()) as client:
        assert [(await got(client, path))[0] for path in OPEN] == [403] * 3


async def test_what_does_not_exist_is_told_only_to_those_who_may(client_of):
    async with client_of() as client:
        assert (await got(client, "/configz"))[0] == 403
        assert (await got(client, "/configz", Authorization="Bearer good"))[0] == 404
        async with client.post("/metrics", headers={"Authorization": "Bearer good"}) as response:
            assert response.status == 405


def options(**changes):
    return parse(["--cloud-provider=sim", *(f"--{name.replace('_', '-')}={value}" for name, value in changes.items())])


def test_self_signed_certificate():
    pem = _self_signed()
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    now = datetime.datetime.now(datetime.UTC)
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc
    assert pem != _self_signed()


@pytest.fixture
def pair(tmp_path):
    pem = _self_signed()
    head, _, tail = pem.partition(b"-----BEGIN CERTIFICATE-----")
    (tmp_path / "cloud-controller-manager.key").write_bytes(head)
    (tmp_path / "cloud-controller-manager.crt").write_bytes(b"-----BEGIN CERTIFICATE-----" + tail)
    return tmp_path, x509.load_pem_x509_certificate(pem).serial_number


@contextlib.asynccontextmanager
async def served(authorizer, **changes):
    """The address of a running server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = application({"ping": lambda: None}, {}, authorizer, OPEN)
    runner = await serve(app, options(bind_address="127.0.0.1", secure_port=port, **changes))
    try:
        yield port
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("how", ["files", "cert-dir", "self-signed"])
async def test_serves_https(authorizer, pair, how):
    directory, serial = pair
    files = {
        "tls_cert_file": directory / "cloud-controller-manager.crt",
        "tls_private_key_file": directory / "cloud-controller-manager.key",
    }
    changes = {"files": files, "cert-dir": {"cert_dir": directory}, "self-signed": {}}[how]
    async with served(authorizer, **changes) as port, aiohttp.ClientSession() as session:
        async with session.get(f"https://127.0.0.1:{port}/healthz", ssl=False) as response:
            assert (response.status, await response.text()) == (200, "ok")
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/healthz")
        pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    assert (x509.load_pem_x509_certificate(pem.encode()).serial_number == serial) is (how != "self-signed")


def test_old_tls_is_refused():
    assert tls_context(options()).minimum_version is ssl.TLSVersion.TLSv1_2


def test_certificates_that_cannot_be_used(tmp_path, pair):
    directory, _ = pair
    with pytest.raises(CertificateError, match=r"nowhere/cloud-controller-manager\.crt with key .* cannot be used"):
        tls_context(options(cert_dir=tmp_path / "nowhere"))
    junk = tmp_path / "junk.key"
    junk.write_text("no key")
    certificate = directory / "cloud-controller-manager.crt"
    with pytest.raises(CertificateError) as caught:
        tls_context(options(tls_cert_file=certificate, tls_private_key_file=junk))
    assert str(certificate) in str(caught.value)
    assert str(junk) in str(caught.value)
    assert "no key" not in str(caught.value)


async def test_a_port_that_is_taken(authorizer):
    async with served(authorizer) as port:
        app = application({}, {}, authorizer, OPEN)
        with pytest.raises(OSError, match="address already in use"):
            await serve(app, options(bind_address="127.0.0.1", secure_port=port))
