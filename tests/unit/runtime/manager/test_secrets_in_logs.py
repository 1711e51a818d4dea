# SPDX-License-Identifier: Apache-2.0
"""`-v=9` with the configuration of each provider: no log line, error or metric name contains a secret.

The tests read everything that a provider and its libraries log while a cloud rejects their requests, fails, or answers
something else.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from aiohttp import web
from prometheus_client import generate_latest

from ccm.cloud import CloudError, ConfigError, ProviderConfig, registry
from ccm.gateway.gateway import Gateway
from ccm.manager import logs
from tests.listening import listening

CANARY = "s3cr3t-canary-7f1d"
#: Configuration by provider. PORT stands for the port of a cloud on this machine.
CONFIGS = {
    "sim": f"endpoint: http://127.0.0.1:PORT\ntoken: {CANARY}\nproject: demo\n",
    "openstack": (
        f"[Global]\nauth-url = http://127.0.0.1:PORT/v3\nusername = ccm\npassword = {CANARY}\n"
        "tenant-name = demo\ndomain-name = Default\nregion = north\n"
    ),
    "openstack, application credential": (
        f"[Global]\nauth-url = http://127.0.0.1:PORT/v3\napplication-credential-id = c0ffee\n"
        f"application-credential-secret = {CANARY}\nregion = north\n"
    ),
    "cloudstack": (
        f"[Global]\napi-url = http://127.0.0.1:PORT/client/api\napi-key = {CANARY}-key\nsecret-key = {CANARY}\n"
    ),
    "hetzner": f"HCLOUD_TOKEN={CANARY * 4}\nHCLOUD_ENDPOINT=http://127.0.0.1:PORT/v1\n",
    "vsphere": (
        f"global:\n  user: ccm\n  password: {CANARY}\n  port: PORT\n  insecureFlag: true\n"
        "vcenter:\n  one:\n    server: 127.0.0.1\n    datacenters: [dc]\n"
    ),
}
#: What the cloud answers to every request.
ANSWERS: dict[str, Callable[[web.Request], web.Response]] = {
    "rejects": lambda request: web.json_response({"error": {"code": 401, "message": "no"}}, status=401),
    "fails": lambda request: web.Response(status=503, text="overloaded"),
    "answers something else": lambda request: web.Response(text="<html>a proxy</html>", content_type="text/html"),
}


@pytest.fixture
async def cloud(request: pytest.FixtureRequest) -> AsyncIterator[tuple[int, list[str]]]:
    """Yield the port of a cloud that gives one of ANSWERS, and the method and path of each request."""
    asked: list[str] = []

    async def handle(got: web.Request) -> web.Response:
        asked.append(f"{got.method} {got.path}")
        await got.read()
        return ANSWERS[request.param](got)

    async with listening(web.route("*", "/{path:.*}", handle)) as url:
        yield int(url.rpartition(":")[2]), asked


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Yield the stream with everything that is logged at `-v=9`."""
    root, out = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr("sys.stderr", out)
    logs.configure("json", 9)
    yield out
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("cloud", ANSWERS, indirect=True)
@pytest.mark.parametrize("provider", CONFIGS)
async def test_no_secret_is_logged(provider: str, cloud: tuple[int, list[str]], written: io.StringIO):
    port, asked = cloud
    text = CONFIGS[provider].replace("PORT", str(port))
    built = registry.create(provider.partition(",")[0], ProviderConfig(text, "cloud.conf"))
    gateway = Gateway(built)
    said: list[str] = []
    try:
        for call in (built.start, lambda: built.instances.get(None) if built.instances else built.start()):
            try:
                await asyncio.wait_for(gateway.call("cloud.start", call), 120)
            except CloudError as error:
                said.append(f"{error!r} {error} {error.__cause__!r}")
    finally:
        await gateway.close()
    logged = written.getvalue()
    assert '"call": "cloud.start"' in logged, "the log has the calls"
    if provider != "vsphere":  # vsphere uses TLS, so this server cannot read its requests
        assert asked, "the provider asked the cloud"
    assert CANARY not in logged
    assert CANARY not in "".join(said) and said
    assert CANARY not in repr(built) and CANARY not in repr(vars(built).get("config", ""))
    assert CANARY.encode() not in generate_latest()


@pytest.mark.parametrize("provider", CONFIGS)
def test_a_wrong_configuration_is_reported_without_its_secret(provider: str, written: io.StringIO):
    """The key of the secret is misspelled: the message names the key but not its value."""
    wrong = re.sub(rf"(\w)(\s*[:=]\s*{CANARY})", r"\1x\2", CONFIGS[provider])
    assert wrong != CONFIGS[provider]
    with pytest.raises(ConfigError) as caught:
        registry.create(provider.partition(",")[0], ProviderConfig(wrong, "cloud.conf"))
    assert CANARY not in str(caught.value) and CANARY not in "".join(caught.value.problems)
    assert CANARY not in written.getvalue()
