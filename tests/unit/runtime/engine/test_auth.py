# SPDX-License-Identifier: Apache-2.0
import base64
import datetime
import json
import os
import stat
import sys

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ccm.base.clock import FakeClock
from ccm.engine import auth
from ccm.engine.api_errors import KubeConfigError, UnavailableError
from ccm.engine.endpoints import Proxy


def pair(name: str = "me") -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    return (
        cert.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


CERT, KEY = pair()


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def write(tmp_path):
    """Write a kubeconfig with this cluster and user; its path."""

    def write(cluster=None, user=None, **top):
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
            "users": [{"name": "u", "user": user or {}}],
            **top,
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


async def test_token_and_impersonation(write):
    access = auth.from_kubeconfig(write(user={"token": " t\n", "as": "a", "as-groups": ["g", "h"]}))
    assert access.server == "https://10.0.0.1:6443"
    assert await access.headers() == [
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "a"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
    ]


async def test_client_certificate_as_data_leaves_no_file_behind(write, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = write(
        {"certificate-authority-data": b64(CERT), "tls-server-name": "kubernetes"},
        {"client-certificate-data": b64(CERT), "client-key-data": b64(KEY)},
    )
    access = auth.from_kubeconfig(path)
    context = await access.tls()
    assert context is await access.tls(), "made once"
    assert len(context.get_ca_certs()) == 1
    assert access.server_name == "kubernetes"
    assert list(tmp_path.iterdir()) == [path]


async def test_rotated_certificates_are_picked_up_and_broken_ones_are_not(write, tmp_path, caplog):
    crt, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    crt.write_text(CERT)
    key.write_text(KEY)
    # relative names start at the kubeconfig's folder
    path = write({"certificate-authority-data": b64(CERT)}, {"client-certificate": "tls.crt", "client-key": "tls.key"})
    access = auth.from_kubeconfig(path)
    first = await access.tls()
    other_cert, other_key = pair("other")
    crt.write_text(other_cert)  # the key does not fit yet: half of a rotation
    os.utime(crt, ns=(1, 1))
    assert await access.tls() is first and "keeping the old" in caplog.text
    key.write_text(other_key)
    os.utime(key, ns=(2, 2))
    assert await access.tls() is not first


async def test_token_file_is_read_again_when_it_changes_or_after_a_minute(write, tmp_path):
    file, clock = tmp_path / "token", FakeClock()
    file.write_text("one\n")
    access = auth.from_kubeconfig(write(user={"tokenFile": "token"}), clock=clock)

    async def token():
        return (await access.headers())[0][1].removeprefix("Bearer ")

    assert await token() == "one"
    seen = file.stat()
    file.write_text("two\n")
    assert await token() == "two"
    file.write_text("xxx\n")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert await token() == "xxx"
    file.unlink()
    assert await token() == "xxx", "a token file is missing for a moment while it is replaced"


def test_a_file_whose_stat_hides_the_change_is_read_after_a_minute_or_a_401(tmp_path):
    file, clock = tmp_path / "token", FakeClock()

    def put(text):
        file.write_text(text)
        os.utime(file, ns=(5, 5))

    put("one")
    reader = auth.FileText(file, clock)
    assert reader.get() == "one"
    put("two")
    assert reader.get() == "one"
    clock._move(clock.monotonic() + 60)
    assert reader.get() == "two"
    put("six")
    reader.invalidate()
    assert reader.get() == "six"


async def test_a_token_file_that_never_was_is_unavailable(tmp_path):
    access = auth.Access("http://x", token_file=auth.FileText(tmp_path / "none"))
    with pytest.raises(UnavailableError, match=r"token file .*none: No such file"):
        await access.headers()


@pytest.mark.parametrize(
    ("cluster", "user", "complaint"),
    [
        ({"server": ""}, {}, r"clusters\[k\].cluster.server: '' is not the URL"),
        ({"server": "ftp://x"}, {}, "'ftp://x' is not the URL"),
        ({"certificate-authority": "nope.crt"}, {}, r"cluster.certificate-authority names .*nope.crt.*No such file"),
        ({"certificate-authority-data": "%%"}, {}, "certificate-authority-data is not base64"),
        ({"certificate-authority-data": b64("x")}, {}, r"certificates of clusters\[k\].cluster or users\[u\].user"),
        ({"certificate-authority-data": b64(CERT), "insecure-skip-tls-verify": True}, {}, "exclude each other"),
        ({"insecure-skip-tls-verify": "yes"}, {}, "insecure-skip-tls-verify is not true or false"),
        ({"proxy-url": "socks5://x"}, {}, "proxy-url is 'socks5://x': only http"),
        ({}, {"client-certificate-data": b64(CERT)}, "needs both client-certificate and client-key"),
        ({}, {"client-certificate-data": b64(CERT), "client-key-data": b64(pair()[1])}, "cannot be used"),
        ({}, {"tokenFile": "nope"}, r"users\[u\].user.tokenFile names .*nope"),
        ({}, {"token": 5}, "token is int, not text"),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider is not supported.*exec plugin"),
        ({}, {"username": "root", "password": "geheim"}, "username is not supported"),
        ({}, {"as": "x", "as-user-extra": {"a": ["b"]}}, "as-user-extra is not supported"),
        ({}, {"exec": {"command": "true", "apiVersion": "v1alpha1"}}, "exec.apiVersion is 'v1alpha1': supported are"),
        (
            {},
            {"exec": {"command": "no-such", "apiVersion": "client.authentication.k8s.io/v1", "installHint": "Get it."}},
            "exec.command is 'no-such', which is not an executable here. Get it.",
        ),
        (
            {},
            {
                "exec": {
                    "command": "true",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Always",
                }
            },
            "interactiveMode is Always",
        ),
    ],
)
def test_complaints_name_file_and_field_and_no_secret(write, cluster, user, complaint):
    path = write(cluster, user)
    with pytest.raises(KubeConfigError, match=complaint) as caught:
        auth.from_kubeconfig(path)
    assert str(path) in str(caught.value) and "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", r"is not YAML \(line 1\)"),
        ("[]", "the document is list, not a mapping"),
        ("", "the document is missing"),
        ("{}", "current-context is not set"),
        ("current-context: x", r"contexts has no entry 'x' \(there are: none\)"),
        ("{current-context: x, contexts: [{name: y, context: {}}]}", r"no entry 'x' \(there are: y\)"),
        ("{current-context: x, contexts: 5}", "contexts is not a list"),
        ("{current-context: x, contexts: [{name: x, context: [1]}]}", r"contexts\[x\].context is list"),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path, text, complaint):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeConfigError, match=complaint):
        auth.load(str(path))


def test_a_kubeconfig_that_is_not_there(tmp_path):
    with pytest.raises(KubeConfigError, match=r"nope cannot be read: No such file"):
        auth.load(str(tmp_path / "nope"))


def test_master_replaces_the_server_and_stands_alone(write):
    assert auth.load(str(write()), "https://10.9.9.9/prefix/").server == "https://10.9.9.9/prefix"
    assert auth.load("", "127.0.0.1:8080").server == "http://127.0.0.1:8080"
    with pytest.raises(KubeConfigError, match="--master: 'https://' is not the URL"):
        auth.load("", "https://")


@pytest.mark.parametrize(("host", "server"), [("10.96.0.1", "10.96.0.1"), ("fd00::1", "[fd00::1]")])
async def test_in_cluster(tmp_path, monkeypatch, host, server):
    monkeypatch.setattr(auth, "SERVICE_ACCOUNT_DIR", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(KubeConfigError, match="automountServiceAccountToken"):
        auth.load()
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text(CERT)
    access = auth.load()
    assert access.server == f"https://{server}:443"
    assert await access.headers() == [("Authorization", "Bearer t")]
    assert len((await access.tls()).get_ca_certs()) == 1


def test_no_server_at_all_names_the_way_out(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeConfigError, match="Give --kubeconfig FILE"):
        auth.load()


class Plugin:
    """An exec plugin that counts its runs and prints what the test says."""

    def __init__(self, folder):
        self.folder = folder
        self.script = folder / "plugin"
        self.script.write_text(
            f"#!{sys.executable}\n"
            "import os, sys\n"
            f"os.chdir({str(folder)!r})\n"
            "open('runs', 'a').write('x')\n"
            "open('info', 'w').write(os.environ['KUBERNETES_EXEC_INFO'])\n"
            "open('argv', 'w').write(' '.join(sys.argv[1:]) + ' ' + os.environ.get('EXTRA', ''))\n"
            "exec(open('behaviour').read())\n"
        )
        self.script.chmod(0o755 | stat.S_IXUSR)

    def answers(self, version="client.authentication.k8s.io/v1", **status):
        answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
        self.does(f"print({answer!r})")

    def does(self, code):
        (self.folder / "behaviour").write_text(code)

    @property
    def runs(self):
        return len((self.folder / "runs").read_text())


@pytest.fixture
def plugin(tmp_path):
    return Plugin(tmp_path)


def exec_user(version="client.authentication.k8s.io/v1", **fields):
    # a relative command with a slash starts at the kubeconfig's folder
    return {"exec": {"command": "./plugin", "apiVersion": version, **fields}}


@pytest.mark.parametrize("version", ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"])
async def test_exec_plugin_is_kept_until_it_expires_or_a_401(write, plugin, version, tmp_path):
    clock = FakeClock()
    expiry = (clock.now() + datetime.timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    plugin.answers(version, token="one", expirationTimestamp=expiry)
    user = exec_user(version, args=["get", "token"], env=[{"name": "EXTRA", "value": "e"}], provideClusterInfo=True)
    access = auth.from_kubeconfig(write(user=user), clock=clock)
    assert await access.headers() == await access.headers() == [("Authorization", "Bearer one")]
    assert plugin.runs == 1
    assert (tmp_path / "argv").read_text() == "get token e"
    info = json.loads((tmp_path / "info").read_text())
    assert info["apiVersion"] == version
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://10.0.0.1:6443"}}
    await clock.advance(301)
    plugin.answers(version, token="two")
    assert await access.headers() == [("Authorization", "Bearer two")]
    plugin.answers(version, token="three")
    assert access.renewable
    access.invalidate()
    assert await access.headers() == [("Authorization", "Bearer three")]
    assert plugin.runs == 3


async def test_exec_plugin_may_give_a_client_certificate(write, plugin):
    plugin.answers(clientCertificateData=CERT, clientKeyData=KEY)
    access = auth.from_kubeconfig(write({"certificate-authority-data": b64(CERT)}, exec_user()))
    first = await access.tls()
    assert await access.tls() is first and await access.headers() == []
    cert, key = pair("other")
    plugin.answers(clientCertificateData=cert, clientKeyData=key)
    access.invalidate()
    assert await access.tls() is not first


@pytest.mark.parametrize(
    ("behaviour", "complaint"),
    [
        ("sys.stderr.write('log in first\\n'); sys.exit(3)", "exited with 3: log in first"),
        ("print('hello')", "did not print an ExecCredential"),
        ('print(\'{"apiVersion": "client.authentication.k8s.io/v1", "status": {}}\')', "with a token or a client"),
        ("import time; time.sleep(60)", "did not end within 0.5 s"),
    ],
)
async def test_exec_plugin_that_fails(write, plugin, behaviour, complaint, monkeypatch):
    monkeypatch.setattr(auth, "EXEC_TIMEOUT", 0.5)
    plugin.does(behaviour)
    access = auth.from_kubeconfig(write(user=exec_user()))
    with pytest.raises(UnavailableError, match=complaint):
        await access.headers()


@pytest.mark.parametrize(
    ("server", "no_proxy", "expected"),
    [
        ("https://api.example.com", "", "http://p:3128"),
        ("http://api.example.com", "", None),
        ("https://localhost:6443", "", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://10.96.0.1", "10.96.0.0/12", None),
        ("https://10.200.0.1", "10.96.0.0/12", "http://p:3128"),
        ("https://10.96.0.1", "10.96.0.1", None),
        ("https://api.example.com", ".example.com", None),
        ("https://api.example.com", "a, example.com", None),
        ("https://notexample.com", "example.com", "http://p:3128"),
        ("https://api.example.com", "*", None),
    ],
)
def test_proxy_of_the_environment(server, no_proxy, expected):
    proxies = {"https": "http://p:3128", "no": no_proxy}
    assert auth.environment_proxy(server, lambda: proxies) == expected


def test_proxy_url_of_the_kubeconfig_wins(write, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://env:1")
    assert auth.load(str(write())).proxy == Proxy("http://env:1")
    assert auth.load(str(write({"proxy-url": "http://own:2"}))).proxy == Proxy("http://own:2")
