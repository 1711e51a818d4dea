# SPDX-License-Identifier: Apache-2.0
"""The API server's address and the client's identity: kubeconfigs, `--master`, and the Pod's ServiceAccount."""

import functools

import pytest

from ccm.engine import kubeconfig
from ccm.engine.api_errors import KubeConfigError
from ccm.engine.endpoints import Proxy, environment_proxy
from ccm.engine.kubeconfig import from_kubeconfig, load

from .kubeconfigs import CERT, b64, pair, write_kubeconfig


@pytest.fixture
def write(tmp_path):
    return functools.partial(write_kubeconfig, tmp_path)


async def test_token_and_impersonation(write):
    access = from_kubeconfig(write(user={"token": " t\n", "as": "a", "as-groups": ["g", "h"]}))
    assert access.server == "https://10.0.0.1:6443"
    assert await access.headers() == [
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "a"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
    ]


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
        from_kubeconfig(path)
    assert str(path) in str(caught.value) and "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", r"config, line 1: this is not YAML: expected the node content"),
        ("a: &a [*a]", "nested more than 20 deep"),
        ("[" * 5000, "this is not YAML"),
        ("a: 1\nb: {c: 1}\na: 2", r"config, line 1: a: duplicate key, set again in line 3"),
        ("\ncurrent-context: [x]", "config, line 2: current-context is list, not text"),
        ("[]", "the document is list, not a mapping"),
        ("", "the document is missing"),
        ("{}", "current-context is not set"),
        ("current-context: x", r"contexts has no entry 'x' \(existing entries: none\)"),
        ("{current-context: x, contexts: [{name: y, context: {}}]}", r"no entry 'x' \(existing entries: y\)"),
        ("{current-context: x, contexts: 5}", "contexts is not a list"),
        ("{current-context: x, contexts: [{name: x, context: [1]}]}", r"contexts\[x\].context is list"),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path, text, complaint):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeConfigError, match=complaint):
        load(str(path))


GOOD = """current-context: c
contexts:
- name: c
  context: {cluster: k, user: u}
clusters:
- name: k
  cluster:
    server: "https://10.0.0.1:6443"
    insecure-skip-tls-verify: true
users:
- user:
    as: me
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: "true"
  name: u
"""


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("cluster: k, ", "", 5),
        ("server: ", "server: nowhere#", 8),
        ("    insecure", "    proxy-url: socks5://x\n    insecure", 9),
        ("verify: true", "verify: maybe", 9),
        ("as: me", "as: 5", 12),
        ("as: me", "tokenFile: nowhere", 12),
        ("as: me", "client-key-data: x!", 12),
        ("io/v1", "io/v0", 14),
        ("      command", "      interactiveMode: Always\n      command", 15),
        ("\n      apiVersion: client.authentication.k8s.io/v1", "", 13),
    ],
)
def test_complaints_name_the_line(tmp_path, before, after, line):
    """An error names the line of the field, or of the enclosing mapping if the field is missing."""
    path = tmp_path / "config"
    path.write_text(GOOD)
    assert from_kubeconfig(path).insecure
    assert GOOD.count(before) == 1
    path.write_text(GOOD.replace(before, after))
    with pytest.raises(KubeConfigError, match=f"^kubeconfig {path}, line {line}: "):
        from_kubeconfig(path)


def test_a_kubeconfig_that_is_not_there(tmp_path):
    with pytest.raises(KubeConfigError, match=r"cannot read kubeconfig .*nope: No such file"):
        load(str(tmp_path / "nope"))


def test_master_replaces_the_server_and_stands_alone(write):
    assert load(str(write()), "https://10.9.9.9/prefix/").server == "https://10.9.9.9/prefix"
    assert load("", "127.0.0.1:8080").server == "http://127.0.0.1:8080"
    with pytest.raises(KubeConfigError, match="--master: 'https://' is not the URL"):
        load("", "https://")


@pytest.mark.parametrize(("host", "server"), [("10.96.0.1", "10.96.0.1"), ("fd00::1", "[fd00::1]")])
async def test_in_cluster(tmp_path, monkeypatch, host, server):
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT_DIR", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(KubeConfigError, match="automountServiceAccountToken"):
        load()
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text(CERT)
    access = load()
    assert access.server == f"https://{server}:443"
    assert await access.headers() == [("Authorization", "Bearer t")]
    assert len((await access.tls()).get_ca_certs()) == 1


def test_no_server_at_all_names_the_way_out(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeConfigError, match="Set --kubeconfig FILE"):
        load()


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
    assert environment_proxy(server, lambda: proxies) == expected


def test_proxy_url_of_the_kubeconfig_wins(write, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://env:1")
    assert load(str(write())).proxy == Proxy("http://env:1")
    assert load(str(write({"proxy-url": "http://own:2"}))).proxy == Proxy("http://own:2")
