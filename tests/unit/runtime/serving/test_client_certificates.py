# SPDX-License-Identifier: Apache-2.0
"""Client certificates as Go accepts them (crypto/x509 with ExtKeyUsageClientAuth), in real handshakes."""

import asyncio
import contextlib
import datetime
import socket
import ssl

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
from cryptography.x509.oid import NameOID

from ccm.options.command_line import parse
from ccm.serving.authorization import MASTERS, Authorizer
from ccm.serving.certificates import ServingTls
from ccm.serving.health import Health
from ccm.serving.secure_port import application, serve
from tests.ports import free_port

NOW = datetime.datetime.now(datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def name(common=None, *organisations):
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations]
    common = [common] if isinstance(common, str) else common or []
    return x509.Name([*parts, *(x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common)])


class Authority:
    """A CA, or with `parent` an intermediate CA. Like those of handmade CAs, its certificates have no Authority Key
    Identifier."""

    def __init__(self, parent=None):
        self.parent, self.key = parent, ec.generate_private_key(ec.SECP256R1())
        self.name = name("intermediate" if parent else "root")
        signer = parent or self
        self.cert = (
            _builder(self.name, signer.name, self.key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer.key, hashes.SHA256())
        )
        self.pem = self.cert.public_bytes(serialization.Encoding.PEM)

    def issue(self, file, subject, *, usages=(Usage.CLIENT_AUTH,), until=NOW + HOUR):
        """Write the certificate, the intermediate CA if there is one, and the key to `file`. Returns the file."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self.name, key, until)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        pem = builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(pem + (self.pem if self.parent else b"") + private)
        return file


def _builder(subject, issuer, key, until=NOW + HOUR):
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 2 * HOUR)
        .not_valid_after(until)
    )


class Api:
    """An API server that allows jane and the group ops, and knows no token."""

    def __init__(self):
        self.asked = []

    async def ask(self, path, body, type, **_):
        spec = body["spec"]
        self.asked.append(spec)
        allowed = spec.get("user") == "jane" or "ops" in spec.get("groups", ())
        return _review(type, allowed)


def _review(type, allowed):
    answer = type()
    answer.status.allowed = allowed
    return answer


@contextlib.asynccontextmanager
async def served(*authorities, required=False, api=None):
    """Yield the port of a server that accepts client certificates of these CAs."""
    bundle = b"".join(each.pem for each in authorities)
    app = application(Health(healthz={"ping": lambda: None}), Authorizer(api or Api()), ("/healthz",), dict)
    tls = ServingTls(parse(["--cloud-provider=sim"]).tls(), lambda: bundle, required=required)
    port = free_port()
    server = await serve(app, "127.0.0.1", port, tls)
    try:
        yield port
    finally:
        await server.cleanup()


def client_tls(file=None):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if file:
        context.load_cert_chain(file)
    return context


async def status(port, file=None, path="/metrics"):
    """Return the HTTP status of a request with that certificate; None if the connection fails."""
    url = f"https://127.0.0.1:{port}{path}"
    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=client_tls(file)) as response:
            return response.status
    except aiohttp.ClientError:
        return None


@pytest.fixture
def root():
    return Authority()


@pytest.mark.threat("peer-reads-no-metrics")
@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        pytest.param(name("jane"), 200, id="user"),
        pytest.param(name("john", "dev", "ops"), 200, id="second-group"),
        pytest.param(name("john", "dev"), 403, id="neither"),
        pytest.param(name(["john", "jane"]), 200, id="last-common-name"),
        pytest.param(name(["jane", "john"]), 403, id="not-the-first-common-name"),
        pytest.param(name("root", MASTERS), 200, id="masters"),
        pytest.param(name(None, MASTERS), 403, id="masters-without-a-common-name"),
        pytest.param(name(None, "ops"), 403, id="group-without-a-common-name"),
        pytest.param(name(None), 403, id="empty-subject"),
    ],
)
async def test_who_a_certificate_is(root, tmp_path, subject, expected):
    """The bearer of a certificate without a common name is anonymous, as in Go."""
    api = Api()
    async with served(root, api=api) as port:
        assert await status(port, root.issue(tmp_path / "c.pem", subject)) == expected
    users = {spec["user"] for spec in api.asked}
    assert users <= {"jane", "john", "system:anonymous"}


@pytest.mark.threat("peer-reads-no-metrics")
@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ((Usage.CLIENT_AUTH,), 200),
        ((Usage.SERVER_AUTH, Usage.CLIENT_AUTH), 200),
        ((), 200),  # no restriction
        ((Usage.SERVER_AUTH,), None),
        ((Usage.CODE_SIGNING,), None),
    ],
    ids=["client", "both", "unrestricted", "server", "code-signing"],
)
async def test_what_a_certificate_may_be_used_for(root, tmp_path, usages, expected):
    file = root.issue(tmp_path / "c.pem", name("jane"), usages=usages)
    async with served(root) as port:
        assert await status(port, file) == expected
        assert await status(port, path="/healthz") == 200


async def test_certificates_of_intermediate_authorities(root, tmp_path):
    """The client sends the intermediate and the bundle has the root, or the bundle has only the intermediate."""
    intermediate = Authority(root)
    file = intermediate.issue(tmp_path / "c.pem", name("jane"))
    for trusted in (root, intermediate):
        async with served(trusted) as port:
            assert await status(port, file) == 200


@pytest.mark.parametrize("until", [NOW - HOUR], ids=["expired"])
async def test_certificates_that_are_not_valid(root, tmp_path, until):
    async with served(root) as port:
        assert await status(port, root.issue(tmp_path / "old.pem", name("jane"), until=until)) is None
        assert await status(port, Authority().issue(tmp_path / "other.pem", name("jane"))) is None


async def test_nobody_is_trusted_before_a_ca_is_known(root, tmp_path):
    async with served() as port:
        assert await status(port, root.issue(tmp_path / "c.pem", name("jane"))) is None
        assert await status(port, path="/healthz") == 200


def test_the_checks_do_not_depend_on_the_version_of_python(root):
    """Python 3.13 sets VERIFY_X509_STRICT and VERIFY_X509_PARTIAL_CHAIN by default; earlier versions set neither."""
    context = ServingTls(parse(["--cloud-provider=sim"]).tls(), lambda: root.pem).context
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN


async def test_a_connection_does_not_outlive_its_certificate():
    certificate = {"subject": ((("commonName", "jane"),),), "notAfter": "Jan  1 00:00:00 2020 GMT"}
    api = Api()
    assert (await Authorizer(api).check("/metrics", certificate=certificate))[0] == 403
    assert [spec["user"] for spec in api.asked] == ["system:anonymous"]
    assert (await Authorizer(api).check("/metrics", certificate=certificate | {"notAfter": _later()}))[0] == 200


def _later():
    return (NOW + 24 * HOUR).strftime("%b %d %H:%M:%S %Y GMT")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_resumed_session_brings_no_certificate(root, tmp_path, version):
    """A session's certificate was verified at its start, perhaps against CAs that are no longer trusted."""
    context = client_tls(root.issue(tmp_path / "c.pem", name("jane")))
    context.maximum_version = context.minimum_version = version

    def ask(port, session):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=60) as raw,
            context.wrap_socket(raw, session=session) as tls,
        ):
            tls.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = tls.recv(65536)
            return int(answer.split()[1]), tls.session

    async with served(root) as port:
        answered, session = await asyncio.to_thread(ask, port, None)
        assert answered == 200
        again, _ = await asyncio.to_thread(ask, port, session)
        # A client that does not resume shows its certificate again; a client that resumes is anonymous.
        assert again == (200 if version is ssl.TLSVersion.TLSv1_3 else 403)


async def test_a_certificate_that_is_required(root, tmp_path):
    async with served(root, required=True) as port:
        assert await status(port, path="/healthz") is None
        assert await status(port, Authority().issue(tmp_path / "other.pem", name("jane")), "/healthz") is None
        assert await status(port, root.issue(tmp_path / "c.pem", name("jane")), "/healthz") == 200
    async with served(required=True) as port:
        assert await status(port, tmp_path / "c.pem", "/healthz") is None
