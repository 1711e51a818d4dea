# SPDX-License-Identifier: Apache-2.0
"""C18-C20 of docs/reference/parity.md: the parts that need no API server."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import subprocess
import sys
import types

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from cryptography import x509

from ccm.options.command_line import parse
from ccm.serving import certificates
from ccm.serving.authorization import user_of
from ccm.serving.certificates import CIPHERS, CertificateError, ServingTls
from ccm.serving.health import Health
from ccm.serving.secure_port import application, serve
from ccm.serving.x509_certificates import self_signed
from tests.integration.cluster import Authority
from tests.ports import free_port

OPEN = ("/healthz", "/livez", "/readyz")


class FakeAuthorizer:
    def __init__(self):
        self.asked = []

    async def check(self, path, authorization, certificate, *, verb, peer):
        self.asked.append((authorization, path))
        self.certificate, self.verb = certificate, verb
        return (200, "") if authorization == "Bearer good" else (403, f"not you: {path}")


@pytest.fixture
def authorizer():
    return FakeAuthorizer()


@pytest.fixture
def state():
    return types.SimpleNamespace(live=None, cloud=None)


@pytest.fixture
def client_of(authorizer, state):
    """Return a context manager for a client of an application whose checks answer what `state` holds."""

    @contextlib.asynccontextmanager
    async def client_of(always_allow=OPEN):
        live = {"ping": lambda: None, "leaderElection": lambda: state.live}
        ready = {**live, "cloud": lambda: state.cloud}
        health = Health(healthz=live, livez=live, readyz=ready)
        app = application(health, authorizer, always_allow, lambda: {"kind": "Options"})
        async with TestClient(TestServer(app)) as client:
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
        assert await got(client, "/livez?verbose") == (200, live + "livez check passed\n")
        assert await got(client, "/healthz?verbose=1") == (200, live + "healthz check passed\n")
        assert await got(client, "/readyz") == (500, live + "[-]cloud failed: reason withheld\nreadyz check failed\n")
        assert await got(client, "/readyz?exclude=cloud") == (200, "ok")
        assert await got(client, "/readyz?exclude=cloud&exclude=ping&verbose") == (
            200,
            "[+]ping excluded: ok\n[+]leaderElection ok\n[+]cloud excluded: ok\nreadyz check passed\n",
        )


async def test_reasons_are_for_those_who_may_read_the_path_by_their_own_right(client_of, state, authorizer):
    state.cloud = "503 from https://cloud.internal"
    async with client_of() as client:
        for headers in ({}, {"Authorization": "Bearer bad"}):
            assert "cloud.internal" not in (await got(client, "/readyz?verbose", **headers))[1]
        assert "cloud.internal" in (await got(client, "/readyz", Authorization="Bearer good"))[1]


async def test_single_checks(client_of, state):
    """The path of a single check, such as /readyz/cloud, needs authorization, unlike /healthz and /readyz. Upstream
    answers 404 for such paths."""
    state.cloud = "503"
    good = {"Authorization": "Bearer good"}
    async with client_of() as client:
        assert (await got(client, "/readyz/cloud"))[0] == 403
        assert await got(client, "/readyz/cloud", **good) == (500, "internal server error: 503\n")
        assert await got(client, "/healthz/ping", **good) == (200, "ok")
        assert (await got(client, "/healthz/cloud", **good))[0] == 404


async def test_C20_configz(client_of):
    async with client_of() as client:
        assert (await got(client, "/configz"))[0] == 403
        async with client.get("/configz", headers={"Authorization": "Bearer good"}) as response:
            assert await response.json() == {"cloudcontrollermanager.config.k8s.io": {"kind": "Options"}}


async def test_C18_checks_do_not_block_one_another(client_of):
    async with client_of() as client:
        answers = await asyncio.gather(*(got(client, path) for path in OPEN * 10))
    assert answers == [(200, "ok")] * 30


async def test_slis_are_metrics_of_their_own(client_of):
    async with client_of() as client:
        await got(client, "/livez")
        assert (await got(client, "/metrics/slis"))[0] == 403
        text = (await got(client, "/metrics/slis", Authorization="Bearer good"))[1]
    assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in text
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="livez"}' in text
    assert "python_info" not in text


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
        assert (await got(client, "/%6detrics"))[0] == 200  # the same path in another spelling
    async with client_of(always_allow=()) as client:
        assert [(await got(client, path))[0] for path in OPEN] == [403] * 3


async def test_what_does_not_exist_is_told_only_to_those_who_may(client_of):
    async with client_of() as client:
        assert (await got(client, "/secrets"))[0] == 403
        assert (await got(client, "/secrets", Authorization="Bearer good"))[0] == 404
        async with client.post("/metrics", headers={"Authorization": "Bearer good"}) as response:
            assert response.status == 405


def options(**changes):
    return parse(["--cloud-provider=sim", *(f"--{name.replace('_', '-')}={value}" for name, value in changes.items())])


def test_self_signed_certificate():
    pem = self_signed()
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    now = datetime.datetime.now(datetime.UTC)
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc
    assert pem != self_signed()


@pytest.fixture
def pair(tmp_path):
    pem = self_signed()
    head, _, tail = pem.partition(b"-----BEGIN CERTIFICATE-----")
    (tmp_path / "cloud-controller-manager.key").write_bytes(head)
    (tmp_path / "cloud-controller-manager.crt").write_bytes(b"-----BEGIN CERTIFICATE-----" + tail)
    return tmp_path, x509.load_pem_x509_certificate(pem).serial_number


@contextlib.asynccontextmanager
async def served(authorizer, cas=None, tls=None, **changes):
    """Yield the port of a running server."""
    port = free_port()
    health = Health(healthz={"ping": lambda: None})
    app = application(health, authorizer, OPEN, dict)
    runner = await serve(app, "127.0.0.1", port, tls or ServingTls(options(**changes).tls(), cas))
    try:
        yield port
    finally:
        await runner.cleanup()


async def serial_of(port, server_name=None):
    """Return the serial number of the certificate that the port presents."""

    def ask():
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as raw,
            context.wrap_socket(raw, server_hostname=server_name) as tls,
        ):
            return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True)).serial_number

    return await asyncio.to_thread(ask)


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
        assert (await serial_of(port) == serial) is (how != "self-signed")


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def write(authority, directory, name, *hosts, groups=()):
    """Write certificate and key files. Returns the serial number."""
    cert, key = authority.issue(name, groups, hosts)
    for ending, data in (("crt", cert), ("key", key)):
        (directory / f"{name}.{ending}").write_bytes(data)
    return x509.load_pem_x509_certificate(cert).serial_number


async def test_certificates_by_server_name(authorizer, authority, tmp_path):
    serials = {
        "default": write(authority, tmp_path, "default", "localhost"),
        "named": write(authority, tmp_path, "named", "x"),
        "own": write(authority, tmp_path, "own", "own.example.org", "*.wild.example.org"),
    }
    pairs = {name: f"{tmp_path}/{name}.crt,{tmp_path}/{name}.key" for name in serials}
    found = options(tls_cert_file=tmp_path / "default.crt", tls_private_key_file=tmp_path / "default.key").tls()
    sni = parse(
        [
            "--cloud-provider=sim",
            f"--tls-sni-cert-key={pairs['named']}:a.example.org",
            f"--tls-sni-cert-key={pairs['own']}",
        ]
    ).tls_sni_cert_key
    tls = ServingTls(msgspec.structs.replace(found, sni=sni))
    async with served(authorizer, tls=tls) as port:
        for name, expected in {
            None: "default",
            "b.example.org": "default",
            "x": "default",
            "a.example.org": "named",
            "A.Example.org": "named",
            "own.example.org": "own",
            "one.wild.example.org": "own",
            "one.two.wild.example.org": "default",
        }.items():
            assert await serial_of(port, name) == serials[expected], name


async def test_rotated_certificates_count_from_the_next_connection_on(authorizer, authority, tmp_path, caplog):
    first = write(authority, tmp_path, "cloud-controller-manager", "localhost")
    async with served(authorizer, cert_dir=tmp_path) as port:
        assert await serial_of(port) == first
        second = write(authority, tmp_path, "cloud-controller-manager", "localhost")
        assert await serial_of(port) == second
        (tmp_path / "cloud-controller-manager.crt").write_text("half of a fi")
        for _ in range(3):
            assert await serial_of(port) == second
        told = [record for record in caplog.records if "cannot reload the serving certificates" in record.getMessage()]
        assert len(told) == 1
        third = write(authority, tmp_path, "cloud-controller-manager", "localhost")
        assert await serial_of(port) == third


async def test_client_certificates(authorizer, authority, tmp_path):
    """A client certificate is optional, one of another authority is refused, and a new authority needs no restart."""
    other_place = tmp_path / "other"
    other_place.mkdir()
    other = Authority(other_place)
    write(authority, tmp_path, "jane", groups=("ops",))
    write(other, other_place, "john", groups=("spies",))
    bundle = {"now": authority.file.read_bytes()}

    async def whoami(place, name):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if name:
            context.load_cert_chain(place / f"{name}.crt", place / f"{name}.key")
        url = f"https://127.0.0.1:{port}/metrics"
        patience = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(timeout=patience) as session, session.get(url, ssl=context) as response:
            await response.read()
        return user_of(authorizer.certificate or {})

    async with served(authorizer, lambda: bundle["now"]) as port:
        assert await whoami(tmp_path, None) is None
        jane = await whoami(tmp_path, "jane")
        assert (jane.name, jane.groups, authorizer.verb) == ("jane", ("ops", "system:authenticated"), "get")
        with pytest.raises(aiohttp.ClientError):
            await whoami(other_place, "john")
        bundle["now"] = other.file.read_bytes()
        assert (await whoami(other_place, "john")).name == "john"
        with pytest.raises(aiohttp.ClientError):
            await whoami(tmp_path, "jane")


async def test_without_client_cas_none_is_asked_for(authorizer, authority, tmp_path):
    async with (
        served(authorizer) as port,
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}/metrics", ssl=False) as response,
    ):
        assert response.status == 403
    assert authorizer.certificate is None


def context_of(**changes):
    return ServingTls(options(**changes).tls()).context


def test_tls_versions_and_cipher_suites():
    assert context_of().minimum_version is ssl.TLSVersion.TLSv1_2
    assert context_of(tls_min_version="VersionTLS13").minimum_version is ssl.TLSVersion.TLSv1_3
    suites = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256"
    old = {c["name"] for c in context_of(tls_cipher_suites=suites).get_ciphers() if c["protocol"] == "TLSv1.2"}
    assert old == {"ECDHE-RSA-AES256-GCM-SHA384"}


def test_every_cipher_suite_is_one_that_openssl_knows():
    for name in CIPHERS:
        context_of(tls_cipher_suites=name)


def test_certificates_that_cannot_be_used(tmp_path, pair):
    directory, _ = pair
    with pytest.raises(CertificateError, match=r"nowhere/cloud-controller-manager\.crt cannot be used: No such file"):
        context_of(cert_dir=tmp_path / "nowhere")
    junk = tmp_path / "junk.key"
    junk.write_text("no key")
    certificate = directory / "cloud-controller-manager.crt"
    with pytest.raises(CertificateError) as caught:
        context_of(tls_cert_file=certificate, tls_private_key_file=junk)
    assert str(certificate) in str(caught.value)
    assert str(junk) in str(caught.value)
    assert "no key" not in str(caught.value)
    with pytest.raises(CertificateError, match=r"junk\.key cannot be used"):
        context_of(tls_sni_cert_key=f"{junk},{junk}")


async def test_a_port_that_is_taken(authorizer):
    async with served(authorizer) as port:
        app, tls = application(Health(), authorizer, OPEN, dict), ServingTls(options().tls())
        with pytest.raises(OSError, match="address already in use"):
            await serve(app, "127.0.0.1", port, tls)
        with pytest.raises(OSError, match="address already in use"):  # both servers must set share_port
            await serve(app, "127.0.0.1", port, tls, share_port=True)


async def test_a_port_that_is_shared(authorizer):
    tls = ServingTls(options().tls())
    port = free_port()
    runners = [
        await serve(application(Health(), authorizer, OPEN, dict), "127.0.0.1", port, tls, share_port=True)
        for _ in range(2)
    ]
    for runner in runners:
        await runner.cleanup()


def test_what_creates_a_self_signed_certificate_is_not_imported():
    """The library `cryptography` takes 13 MiB, which the process would keep."""
    create = "import sys; from ccm.serving import certificates as c; print(len(c.self_signed()), *sys.modules)"
    printed = subprocess.run([sys.executable, "-c", create], capture_output=True, text=True, check=True).stdout.split()
    assert int(printed[0]) > 500 and "cryptography" not in printed


@pytest.mark.parametrize("program", ["", "/nowhere/python", "/bin/false"])
def test_a_self_signed_certificate_where_no_process_can_create_it(monkeypatch, program):
    monkeypatch.setattr(sys, "executable", program)
    certificates.self_signed.cache_clear()
    try:
        assert x509.load_pem_x509_certificate(certificates.self_signed())
    finally:
        certificates.self_signed.cache_clear()
