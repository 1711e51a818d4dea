# SPDX-License-Identifier: Apache-2.0
"""No repr, error or log line contains a secret: each secret is a canary that the tests search for."""

import asyncio
import base64
import dataclasses
import inspect
import logging
import sys
import traceback

import pytest
import yaml

from ccm.engine import api_credentials, endpoints, kubeconfig
from ccm.engine.api_credentials import Access, ExecPlugin, FileText, Pem
from ccm.engine.api_errors import ApiError, KubeConfigError
from ccm.engine.client import KubeClient
from ccm.engine.endpoints import Proxy, proxy_of, server_url, without_credentials
from ccm.engine.objects import PartialObject

CANARY = "s3cr3t-canary"
#: The public fields that repr shows, of every dataclass that holds credentials: none has a secret.
HARMLESS = {
    "Access": {"server", "ca", "insecure", "server_name", "proxy", "cert", "key", "token_file", "exec", "impersonate"},
    "Pem": {"file"},
    "ExecPlugin": {"command", "api_version", "install_hint", "clock"},
    "Proxy": {"url"},
}
#: Private fields that repr shows, and that hold no secret.
PRIVATE = {"_ssl", "_expires"}


def everything():
    secret = Pem(CANARY.encode())
    plugin = ExecPlugin("/bin/true", [CANARY], {"PASSWORD": CANARY}, "v1", cluster={"proxy-url": CANARY})
    plugin._status = {"token": CANARY, "clientKeyData": CANARY}
    proxy = proxy_of(f"http://user:{CANARY}@proxy.example.com:3128", "proxy-url")
    access = Access("https://10.0.0.1", secret, proxy=proxy, cert=secret, key=secret, token=CANARY, exec=plugin)
    access._ssl_seen = ([], [CANARY.encode()])
    return access


def test_representations():
    access = everything()
    client = KubeClient(access)
    for each in (access, access.key, access.exec, access.proxy, client, vars(client), vars(access)):
        if not isinstance(each, dict):
            assert CANARY not in repr(each) + str(each) + f"{each}", type(each)
    assert CANARY not in repr(vars(client))


def test_every_field_that_is_shown_was_looked_at():
    """Every field that repr shows is in `HARMLESS` or `PRIVATE`, which list fields without secrets."""
    found = [
        each
        for module in (api_credentials, endpoints, kubeconfig)
        for _, each in inspect.getmembers(module, dataclasses.is_dataclass)
        if each.__module__ == module.__name__
    ]
    assert {each.__name__ for each in found} == set(HARMLESS)
    for each in found:
        shown = {field.name for field in dataclasses.fields(each) if field.repr}
        assert shown - PRIVATE == HARMLESS[each.__name__], each


def test_a_token_file_has_no_representation_of_its_text(tmp_path):
    (tmp_path / "token").write_text(CANARY)
    file = FileText(tmp_path / "token")
    assert file.get() == CANARY and CANARY not in repr(file) + str(file)


def written(tmp_path, cluster=None, user=None):
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


BAD_URLS = (
    f"socks5://user:{CANARY}@proxy:1",
    f"http://user:{CANARY}@proxy:99999",
    f"user:{CANARY}@proxy:port",
    f"http://user:{CANARY}@",
    f"http://us@er:{CANARY}@[::1",
)
ENCODED = base64.b64encode(CANARY.encode()).decode()


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        *[({"proxy-url": url}, {}) for url in BAD_URLS],
        *[({"server": url}, {}) for url in (*BAD_URLS, f"https://user:{CANARY}@10.0.0.1:6443")],
        ({}, {"token": f"{CANARY}\n\x01"}),
        ({}, {"password": CANARY, "username": "me"}),
        ({}, {"client-key-data": f"{CANARY}!"}),
        ({}, {"client-key-data": ENCODED}),
        ({}, {"client-key-data": ENCODED, "client-certificate-data": ENCODED}),
        ({}, {"auth-provider": {"config": {"access-token": CANARY}}}),
        ({}, {"exec": {"command": "no-such-program", "args": [CANARY], "apiVersion": "v9"}}),
        ({}, {"exec": {"command": "/bin/true", "env": [CANARY], "apiVersion": "client.authentication.k8s.io/v1"}}),
    ],
)
def test_complaints_about_a_kubeconfig(tmp_path, cluster, user):
    with pytest.raises(KubeConfigError) as caught:
        kubeconfig.from_kubeconfig(written(tmp_path, cluster, user))
    assert CANARY not in told(caught.value) and ENCODED not in told(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"token: *{CANARY}",
        f"token: !{CANARY} x",
        f"token: !!{CANARY} x",
        f"token: {CANARY}: x",
        f"token: '{CANARY}",
        f"token: @{CANARY}",
        f"- token: {CANARY}\n- {CANARY}\nx: {CANARY}",
        f"users: [{{name: u, user: {CANARY}}}]\ncurrent-context: u\ncontexts: {CANARY}",
    ],
)
def test_complaints_about_a_kubeconfig_that_is_no_yaml(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(KubeConfigError) as caught:
        kubeconfig.from_kubeconfig(path)
    assert CANARY not in told(caught.value)


@pytest.mark.parametrize("url", BAD_URLS)
def test_complaints_about_flags_and_the_environment(url, monkeypatch):
    with pytest.raises(KubeConfigError) as caught:
        kubeconfig.load(master=url)
    assert CANARY not in told(caught.value)
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, url)
    with pytest.raises(KubeConfigError) as caught:
        kubeconfig.load(master="https://10.0.0.1:6443")
    assert CANARY not in told(caught.value) and "environment" in str(caught.value)


def told(error):
    """Return all that a log could show of an error, including its causes."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.fixture
async def refusing_proxy():
    """Yield the port of a proxy that rejects its credentials with 407."""

    async def answer(reader, writer):
        await reader.readline()
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.mark.parametrize("server", ["https://10.0.0.1:6443", "http://10.0.0.1:6443"])
@pytest.mark.parametrize("there", [True, False], ids=["refuses", "absent"])
async def test_a_proxy_that_fails(refusing_proxy, server, there, caplog):
    caplog.set_level(logging.DEBUG)
    proxy = proxy_of(f"http://user:{CANARY}@127.0.0.1:{refusing_proxy if there else 9}", "proxy-url")
    client = KubeClient(Access(server, proxy=proxy, insecure=True, token=CANARY))
    with pytest.raises(ApiError) as caught:
        await client.get("/version", PartialObject, timeout=5)
    await client.close()
    assert CANARY not in told(caught.value) + caplog.text


@pytest.mark.parametrize(("scheme", "method"), [("http", b"GET"), ("https", b"CONNECT")])
async def test_a_proxy_gets_its_credentials(scheme, method):
    heads = []

    async def answer(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    proxy = proxy_of(f"http://us%40er:p%3Aw@127.0.0.1:{server.sockets[0].getsockname()[1]}", "")
    client = KubeClient(Access(f"{scheme}://10.0.0.1:80", proxy=proxy, insecure=True))
    with pytest.raises(ApiError):
        await client.get("/version", PartialObject, timeout=5)
    await client.close()
    server.close()
    expected = base64.b64encode(b"us@er:p:w").decode()
    assert heads[0].startswith(method) and f"Proxy-Authorization: Basic {expected}\r\n".encode() in heads[0]


@pytest.mark.parametrize("prints", ["{}", "not JSON", '{"status": {"token": "' + CANARY + '"}}', CANARY])
async def test_a_plugin_that_fails(prints):
    plugin = ExecPlugin(sys.executable, ["-c", f"print('''{prints}''')", CANARY], {"A": CANARY}, "v1")
    with pytest.raises(ApiError) as caught:
        await plugin.credentials()
    assert CANARY not in told(caught.value)


def test_urls():
    assert proxy_of("", "x") is None and proxy_of(None, "x") is None
    assert proxy_of("proxy:3128", "x") == Proxy("http://proxy:3128")
    assert proxy_of("https://u:p@proxy:3128/", "x") == Proxy("https://proxy:3128/", "Basic dTpw")
    assert server_url("10.0.0.1:8080", "x") == "http://10.0.0.1:8080"
    assert without_credentials("https://u:p@h:1/x") == "https://***@h:1/x"
    assert without_credentials("u:p@h:1") == "***@h:1"
    assert without_credentials("https://h:1/x") == "https://h:1/x"
