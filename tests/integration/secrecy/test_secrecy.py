# SPDX-License-Identifier: Apache-2.0
"""One test for every provider: it shows no credential and connects to no instance metadata service.

The test searches log lines at --v=9, errors, Events, metrics, the output of `ccm explain`, `plan` and `doctor`, and
processes' arguments.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
import urllib.parse
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ccm.engine.client import KubeClient
from tests.ports import free_port

from ..cluster import ApiServer
from ..runtime.support import CLUSTER_CIDR, NODES, SERVICES, Ccm, eventually, node_body
from .accounts import ACCOUNTS, Account
from .metadata_watch import SOURCE
from .quoting_cloud import ISSUED, QuotingCloud, as_json, running

#: The test stops waiting after this many requests, on all paths together. Each path fails in another way at each
#: request, so these requests meet several kinds of failures, but not all.
ENOUGH = 8
#: A provider that gives up after the first answer makes fewer calls, with ever longer pauses. Its log must report this
#: many retries.
TRIES = 4
AGAIN = "trying again in"
#: Longest wait in seconds for a command to end, or for a provider to call the cloud: more than a busy machine needs.
LONGEST = 600.0
PROVIDERS = sorted(each.name for each in entry_points(group="ccm.providers") if each.value.startswith("ccm."))


def spellings(secret: str) -> Iterator[str]:
    """Yield a secret in all forms in which logs, JSON, URLs and headers may have it."""
    yield secret
    yield urllib.parse.quote(secret, safe="")
    yield urllib.parse.quote(secret)
    yield as_json(secret)[1:-1]
    yield base64.b64encode(secret.encode()).decode()


def found_in(text: str, secrets: tuple[str, ...]) -> list[str]:
    """Return the lines of a text that contain a secret."""
    spelt = {each for secret in secrets for each in spellings(secret)}
    return [line for line in text.splitlines() if any(each in line for each in spelt)]


def test_every_provider_has_an_account() -> None:
    assert set(PROVIDERS) <= set(ACCOUNTS), "add an account to accounts.py"


def test_secrets_are_found_in_every_spelling() -> None:
    secret = 'a+b/c="x"'
    for each in spellings(secret):
        assert found_in(f"nothing\nabout {each} here\n", (secret,)) == [f"about {each} here"]
    assert found_in("nothing\n", (secret,)) == []


async def test_a_connection_for_instance_metadata_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = _watch_metadata(tmp_path, monkeypatch)
    program = "import socket; s = socket.socket(); s.settimeout(0.01); s.connect_ex(('{}', 1))"
    for host, is_noticed in (("127.0.0.1", False), ("169.254.169.254", True)):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program.format(host))
        assert await process.wait() == 0
        assert watched.exists() is is_noticed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_nothing_shows_a_credential(
    name: str, apiserver: ApiServer, kube: KubeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = ACCOUNTS[name]
    async with running(tmp_path, account.tls) as cloud:
        for variable, text in account.environment(cloud.url).items():
            monkeypatch.setenv(variable, text)
        watched = _watch_metadata(tmp_path, monkeypatch)
        conf = tmp_path / "cloud.conf"
        conf.write_text(account.conf(cloud.url, tmp_path))
        shown = await _everything_shown(name, account, cloud, apiserver, kube, conf)
    secrets = (*account.secrets, ISSUED, apiserver.token)
    assert {place: found_in(text, secrets) for place, text in shown.items() if found_in(text, secrets)} == {}
    assert not watched.exists(), f"asked for instance metadata: {watched.read_text()}"
    if account.asks:
        assert cloud.asked, f"the provider never asked the cloud: {shown['log']}"
        assert _sent(account, cloud) is account.sends, "whether a request had a credential"


def _sent(account: Account, cloud: QuotingCloud) -> bool:
    """Return whether a request had a credential."""
    return any(found_in(each, (*account.secrets, ISSUED)) for each in cloud.asked)


def _watch_metadata(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Watch for connections to a metadata service; return the file that exists after one."""
    (folder / "watch").mkdir()
    (folder / "watch/sitecustomize.py").write_text(SOURCE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "watch"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("METADATA_WATCH", str(folder / "connections"))
    return folder / "connections"


async def _everything_shown(
    name: str, account: Account, cloud: QuotingCloud, apiserver: ApiServer, kube: KubeClient, conf: Path
) -> dict[str, str]:
    """Return all text that a person or another program may see, by place."""
    for namespace in ("default", "kube-system"):  # one request each: other tests left thousands of Events
        events = f"/api/v1/namespaces/{namespace}/events"
        await asyncio.to_thread(apiserver.kubectl, "delete", "--raw", events)
    await kube.create(NODES, node_body("worker-1", number=1))
    ports = [{"name": "p", "port": 80, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports}
    await kube.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec})
    port = free_port()
    flags: dict[str, Any] = {"cloud-provider": name, "cloud-config": conf, "kubeconfig": apiserver.kubeconfig(), "v": 9}
    flags["cluster-cidr"] = CLUSTER_CIDR
    own = {"bind-address": "127.0.0.1", "secure-port": port, "leader-elect": "false", "allow-untagged-cloud": "true"}
    ccm = Ccm([f"--{key}={value}" for key, value in {**flags, **own}.items()], conf.with_name("ccm.log"), port)
    shown: dict[str, str] = {}
    try:

        async def asked_at_all() -> bool:
            shown["arguments"] = _arguments(ccm.process.pid) or shown.get("arguments", "")
            if not account.asks:
                return "leading" in ccm.text
            asked = _sent(account, cloud) if account.sends else bool(cloud.asked)
            return asked or ccm.process.poll() is not None

        async def asked_enough() -> bool:
            is_over = ccm.process.poll() is not None
            return is_over or len(cloud.asked) >= ENOUGH or ccm.text.count(AGAIN) >= TRIES

        await eventually(asked_at_all, LONGEST)
        if account.asks:
            await eventually(asked_enough, LONGEST)
        for path in ("/metrics", "/configz", "/readyz?verbose"):
            shown[path] = await _served(ccm, path, apiserver.token)
        commands = ("explain node worker-1", "explain service web", "plan", "doctor")
        arguments = [f"--{key}={text}" for key, text in flags.items()]
        said = await asyncio.gather(*(_said(*command.split(), *arguments) for command in commands))
        shown |= {f"ccm {command}": text for command, text in zip(commands, said, strict=True)}
    finally:
        await ccm.stop()
    shown["log"] = ccm.text
    shown["events"] = as_json(await kube.get("/api/v1/events", dict))
    shown["nodes"] = as_json(await kube.get(NODES, dict))
    return shown


def _arguments(process: int) -> str:
    """Return the arguments of a process, "" if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", "\n")
    return ""


async def _served(ccm: Ccm, path: str, token: str) -> str:
    """Return what the process serves at a path, "" if it has ended."""
    while ccm.process.poll() is None:
        with contextlib.suppress(aiohttp.ClientConnectionError):  # the process does not listen yet, or just stopped
            return (await ccm.get(path, token))[1]
        await asyncio.sleep(0.1)
    return ""


async def _said(*command: str) -> str:
    """Run a command, and return all that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ccm.cli", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LONGEST):
            return (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
