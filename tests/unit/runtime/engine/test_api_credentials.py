# SPDX-License-Identifier: Apache-2.0
"""Tokens, certificates and credential plugins, and what happens when they are replaced while the process runs."""

import asyncio
import datetime
import functools
import json
import os
import stat
import sys

import pytest

from ccm.base.clock import FakeClock
from ccm.engine import api_credentials
from ccm.engine.api_errors import UnavailableError
from ccm.engine.kubeconfig import from_kubeconfig

from .kubeconfigs import CERT, KEY, b64, pair, write_kubeconfig


@pytest.fixture
def write(tmp_path):
    return functools.partial(write_kubeconfig, tmp_path)


async def test_client_certificate_as_data_leaves_no_file_behind(write, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = write(
        {"certificate-authority-data": b64(CERT), "tls-server-name": "kubernetes"},
        {"client-certificate-data": b64(CERT), "client-key-data": b64(KEY)},
    )
    access = from_kubeconfig(path)
    context = await access.tls()
    assert context is await access.tls(), "made once"
    assert len(context.get_ca_certs()) == 1
    assert access.server_name == "kubernetes"
    assert list(tmp_path.iterdir()) == [path]


async def test_rotated_certificates_are_picked_up_and_broken_ones_are_not(write, tmp_path, caplog):
    crt, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    crt.write_text(CERT)
    key.write_text(KEY)
    # relative paths are relative to the kubeconfig's folder
    path = write({"certificate-authority-data": b64(CERT)}, {"client-certificate": "tls.crt", "client-key": "tls.key"})
    access = from_kubeconfig(path)
    first = await access.tls()
    other_cert, other_key = pair("other")
    crt.write_text(other_cert)  # halfway through a rotation: the key does not match yet
    os.utime(crt, ns=(1, 1))
    assert await access.tls() is first and "keeping the old" in caplog.text
    key.write_text(other_key)
    os.utime(key, ns=(2, 2))
    assert await access.tls() is not first


async def test_token_file_is_read_again_when_it_changes_or_after_a_minute(write, tmp_path):
    file, clock = tmp_path / "token", FakeClock()
    file.write_text("one\n")
    access = from_kubeconfig(write(user={"tokenFile": "token"}), clock=clock)

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
    reader = api_credentials.FileText(file, clock)
    assert reader.get() == "one"
    put("two")
    assert reader.get() == "one"
    clock._move(clock.monotonic() + 60)
    assert reader.get() == "two"
    put("six")
    reader.invalidate()
    assert reader.get() == "six"


async def test_a_token_file_that_never_was_is_unavailable(tmp_path):
    access = api_credentials.Access("http://x", token_file=api_credentials.FileText(tmp_path / "none"))
    with pytest.raises(UnavailableError, match=r"token file .*none: No such file"):
        await access.headers()


class Plugin:
    """An exec plugin that counts its runs and prints what the test sets."""

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
    # a command with a slash is relative to the kubeconfig's folder
    return {"exec": {"command": "./plugin", "apiVersion": version, **fields}}


async def test_a_request_that_gives_up_leaves_the_plugin_running_for_the_next_one(write, plugin):
    plugin.does(
        "import json, pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'status': {'token': 'slow'}}))"
    )
    access = from_kubeconfig(write(user=exec_user()))
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await access.headers()
    (plugin.folder / "go").touch()
    found = await asyncio.gather(access.headers(), access.headers())
    assert found == [[("Authorization", "Bearer slow")]] * 2 and plugin.runs == 1


async def test_a_plugin_that_fails_is_run_again_by_the_next_request(write, plugin):
    plugin.does("raise SystemExit('no network')")
    access = from_kubeconfig(write(user=exec_user()))
    for _ in range(2):
        with pytest.raises(UnavailableError, match="no network"):
            await access.headers()
    assert plugin.runs == 2


@pytest.mark.parametrize("version", ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"])
async def test_exec_plugin_is_kept_until_it_expires_or_a_401(write, plugin, version, tmp_path):
    clock = FakeClock()
    expiry = (clock.now() + datetime.timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    plugin.answers(version, token="one", expirationTimestamp=expiry)
    user = exec_user(version, args=["get", "token"], env=[{"name": "EXTRA", "value": "e"}], provideClusterInfo=True)
    access = from_kubeconfig(write(user=user), clock=clock)
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
    access = from_kubeconfig(write({"certificate-authority-data": b64(CERT)}, exec_user()))
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
    ],
)
async def test_exec_plugin_that_fails(write, plugin, behaviour, complaint):
    plugin.does(behaviour)
    access = from_kubeconfig(write(user=exec_user()))
    with pytest.raises(UnavailableError, match=complaint):
        await access.headers()


async def test_exec_plugin_that_does_not_end(write, plugin, monkeypatch):
    monkeypatch.setattr(api_credentials, "EXEC_TIMEOUT", 0.5)
    plugin.does("import time; time.sleep(60)")
    with pytest.raises(UnavailableError, match=r"did not finish within 0\.5 s"):
        await from_kubeconfig(write(user=exec_user())).headers()


async def test_a_token_file_that_is_written_in_place_keeps_its_token_while_it_is_empty(tmp_path, caplog):
    path, clock = tmp_path / "token", FakeClock()
    path.write_text("one\n")
    access = api_credentials.Access("http://x", token_file=api_credentials.FileText(path, clock))
    assert await access.headers() == [("Authorization", "Bearer one")]
    for text in ("", "\n", "  "):
        path.write_text(text)
        access.invalidate()
        assert await access.headers() == [("Authorization", "Bearer one")]
        await clock.advance(api_credentials.REREAD)
        assert await access.headers() == [("Authorization", "Bearer one")]
    assert caplog.messages == [f"cannot use the new content of {path}, keeping the previous one: it is empty"]
    path.write_text("two")
    assert await access.headers() == [("Authorization", "Bearer two")]
    caplog.clear()
    for problem in ("No such file or directory", "it is not text"):
        path.unlink() if problem.startswith("No") else path.write_bytes(b"\xff")
        access.invalidate()
        assert await access.headers() == await access.headers() == [("Authorization", "Bearer two")]
        assert [each.rpartition(": ")[2] for each in caplog.messages] == [problem]
        caplog.clear()


@pytest.mark.parametrize("text", ["", "\n"])
async def test_a_token_file_that_never_had_a_token_sends_no_anonymous_request(tmp_path, text):
    (tmp_path / "token").write_text(text)
    access = api_credentials.Access("http://x", token_file=api_credentials.FileText(tmp_path / "token"))
    with pytest.raises(UnavailableError, match="it contains no token"):
        await access.headers()
