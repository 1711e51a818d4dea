# SPDX-License-Identifier: Apache-2.0
"""The ports and health checks of a whole process: W25, W24 (a blocked event loop), webhooks on their port."""

import asyncio
import contextlib
import json
import math
import re
import ssl
import time
import types

import aiohttp
import pytest

from ccm.base.clock import FakeClock
from ccm.base.start_error import StartError
from ccm.cloud import Webhook
from ccm.engine.queue import WorkQueue
from ccm.manager import loop_lag, readiness, room_settings
from ccm.manager.readiness_rules import Standing
from ccm.options.command_line import parse
from ccm.serving import ports
from tests.integration.cluster import Authority
from tests.ports import free_port

GATE = "--feature-gates=CloudControllerManagerWebhook=true"


def informer(name, *, synced=True, silence=0.0, last_error=""):
    return types.SimpleNamespace(name=name, synced=synced, silence=silence, last_error=last_error)


@pytest.mark.parametrize(
    ("informers", "reason"),
    [
        pytest.param([informer("nodes"), informer("services")], None, id="W25-fresh"),
        pytest.param(
            [informer("nodes"), informer("services", synced=False)], "services have not been listed", id="W25-unlisted"
        ),
        pytest.param([informer("nodes", silence=170)], None, id="W25-quiet"),
        pytest.param(
            [informer("nodes", silence=181, last_error="timeout")], "about nodes for 181 s: timeout", id="W25-stale"
        ),
        pytest.param([informer("nodes", silence=math.inf, synced=False)], "have not been listed", id="W25-never"),
    ],
)
def test_freshness_of_our_view(informers, reason):
    for item in informers:
        item.last_contact = time.monotonic() - item.silence
    found = readiness.stale(informers)
    assert (found is None) if reason is None else (reason in found)


async def test_W25_work_that_nobody_takes_makes_unready(monkeypatch):
    monkeypatch.setattr(readiness, "QUEUES", queues := set())
    clock = FakeClock()
    queue = WorkQueue("test-stuck", clock=clock)
    queues.add(queue)
    queue.add("key")
    await clock.advance(readiness.STUCK_AFTER - 1)
    assert readiness.stuck() is None
    await clock.advance(1)
    assert readiness.stuck() == f"work in the queue test-stuck has waited for {readiness.STUCK_AFTER:.0f} s"


def test_W25_what_each_path_looks_at(monkeypatch):
    monkeypatch.setattr(readiness, "QUEUES", set())
    keeper = types.SimpleNamespace(standing=lambda: Standing("down"))
    leadership = types.SimpleNamespace(main=object(), unhealthy=lambda: None)
    health = readiness.checks(leadership, [], keeper)
    assert health.all("readyz")[0] == 500 and health.all("readyz", exclude=["cloud"])[0] == 200
    assert [health.all(path)[0] for path in ("healthz", "livez")] == [200, 200]
    for path, names in {"healthz": ["ping", "leaderElection"], "readyz": ["informers", "queues", "cloud"]}.items():
        assert all(health.one(path, name) for name in names)
    leadership.main = None  # --leader-elect=false
    assert readiness.checks(leadership, [], keeper).one("healthz", "leaderElection") is None


async def test_W24_a_blocked_event_loop_is_told_with_the_calls_under_way(caplog, monkeypatch):
    monkeypatch.setattr(loop_lag, "EVERY", 0.01)
    monkeypatch.setattr(loop_lag, "TOO_LATE", 0.2)
    task = asyncio.create_task(loop_lag.watch(lambda: ["instances.list", "instances.list"]))
    await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251 -- what a provider must not do
    async with asyncio.timeout(60):
        while not caplog.records:
            await asyncio.sleep(0.01)
    task.cancel()
    told = caplog.records[0].getMessage()  # a busy machine blocks it again
    assert re.match(r"the event loop was blocked for \d+\.\d s; ", told)
    assert told.endswith("Cloud calls in progress: instances.list")


async def allow(request):
    return {"allowed": True}


@contextlib.asynccontextmanager
async def webhooks(*flags, offered=None):
    """Serve webhooks with these flags. Yields the port."""
    port = free_port()
    options = parse(
        [
            "--cloud-provider=sim",
            "--secure-port=0",
            "--webhook-bind-address=127.0.0.1",
            f"--webhook-secure-port={port}",
            *flags,
        ]
    )
    cloud = types.SimpleNamespace(webhooks={"one": Webhook("/one", allow)} if offered is None else offered)
    async with contextlib.AsyncExitStack() as cleanup:
        await ports.Serving(room_settings.serving(options), None, lambda: cloud.webhooks, cleanup).start(None)
        yield port


async def test_webhooks_on_their_port():
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}}
    async with webhooks(GATE, "--webhooks=*") as port, aiohttp.ClientSession() as session:
        headers = {"Content-Type": "application/json"}
        url = f"https://127.0.0.1:{port}/one"
        async with session.post(url, data=json.dumps(body), headers=headers, ssl=False) as response:
            assert (await response.json())["response"] == {"allowed": True, "uid": "u"}


@pytest.mark.parametrize(
    "flags", [[], [GATE], [GATE, "--webhooks=-one"], [GATE, "--webhooks=*", "--webhook-secure-port=0"]]
)
async def test_no_webhook_no_port(flags):
    async with webhooks(*flags) as port, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"https://127.0.0.1:{port}/one", ssl=False)


async def test_webhooks_that_the_provider_does_not_offer():
    with pytest.raises(StartError, match="--webhooks: unknown 'two': with this provider, there are one"):
        async with webhooks(GATE, "--webhooks=two"):
            pass
    with pytest.raises(StartError, match=r"cannot serve --webhook-secure-port .*: .*Free the port"):
        async with (
            webhooks(GATE, "--webhooks=*") as port,
            webhooks(GATE, "--webhooks=*", f"--webhook-secure-port={port}"),
        ):
            pass


async def test_webhooks_for_clients_with_a_certificate(tmp_path, caplog):
    """With `--webhook-client-ca-file` clients need a certificate. Without it, the log warns about a public port."""
    authority = Authority(tmp_path)
    for ending, data in zip(("crt", "key"), authority.issue("kube-apiserver"), strict=True):
        (tmp_path / f"client.{ending}").write_bytes(data)
    known = ssl.create_default_context()
    known.check_hostname, known.verify_mode = False, ssl.CERT_NONE
    known.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    everywhere = "--webhook-bind-address=0.0.0.0"
    flags = [GATE, "--webhooks=*", everywhere, f"--webhook-client-ca-file={authority.file}"]
    async with webhooks(*flags) as port, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://127.0.0.1:{port}/one", ssl=False)
        async with session.get(f"https://127.0.0.1:{port}/one", ssl=known) as response:
            assert response.status == 400  # not a POST
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    async with webhooks(GATE, "--webhooks=*", everywhere):
        assert "anyone who can reach 0.0.0.0 may call the webhooks: --webhook-client-ca-file" in caplog.text
    with pytest.raises(StartError, match="cannot read --webhook-client-ca-file /nowhere: No such file"):
        async with webhooks(GATE, "--webhooks=*", "--webhook-client-ca-file=/nowhere"):
            pass


@pytest.mark.threat("peer-reads-no-metrics")
@pytest.mark.parametrize("prefix", ["", "webhook_"])
def test_nothing_is_served_to_the_network_unless_asked_for(prefix):
    assert getattr(parse(["--cloud-provider=sim"]), f"{prefix}bind_address") == "127.0.0.1"
