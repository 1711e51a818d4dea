# SPDX-License-Identifier: Apache-2.0
"""Strangers try to exhaust a port, over real sockets: with silent, slow or too many connections."""

import asyncio
import contextlib
import ssl
import time
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from ccm.options.command_line import parse
from ccm.serving.certificates import ServingTls
from ccm.serving.connection_rules import Limits, make_room, peer_of
from ccm.serving.secure_port import serve
from tests.ports import free_port

CLOSED = "ccm_serving_connections_closed_total"
#: Limits so long that no test waits for them.
LONG = Limits(total=40, per_peer=30, handshake=60, idle=60, request=60, unread=60)


def client_tls():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@contextlib.asynccontextmanager
async def served(limits, handler=None, address="127.0.0.1"):
    """Yield the port of a server. `/healthz` answers ok, and so does `/other` if there is no `handler` for it."""

    async def ok(request):
        return web.Response(text="ok")

    app, port = web.Application(client_max_size=1024), free_port()
    app.router.add_get("/healthz", ok)
    app.router.add_route("*", "/other", handler or ok)
    tls = ServingTls(parse(["--cloud-provider=sim"]).tls())
    server = await serve(app, address, port, tls, limits=limits, name="test")
    try:
        yield port
    finally:
        await server.cleanup()


@contextlib.asynccontextmanager
async def connections(port, number, *, tls=False, sources=("127.0.0.1",), first=b""):
    """Open `number` connections that send only `first`. Yields their readers."""
    opened = []
    for count in range(number):
        source = (sources[count % len(sources)], 0)
        context = {"ssl": client_tls(), "server_hostname": ""} if tls else {}
        opened.append(await asyncio.open_connection("127.0.0.1", port, local_addr=source, **context))
        opened[-1][1].write(first)
    try:
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def is_closed(reader, patience=60.0):
    """Return whether the server closes this connection within `patience` seconds."""
    try:
        async with asyncio.timeout(patience):
            while await reader.read(65536):
                pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


async def probe(port):
    """Return the status of a probe that opens a new connection, as the kubelet's probes do."""
    limit = aiohttp.ClientTimeout(total=60)
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.get(f"https://127.0.0.1:{port}/healthz", ssl=False) as response,
    ):
        return response.status


async def still_serves(port):
    """Wait until a probe gets 200: a port with short limits may close the first connections of a busy machine."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                assert await probe(port) == 200
                return


def closed(reason):
    return REGISTRY.get_sample_value(CLOSED, {"port": "test", "reason": reason}) or 0


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize("sources", [("127.0.0.1",), ("127.0.0.2",), tuple(f"127.0.1.{n}" for n in range(1, 101))])
async def test_200_silent_connections_do_not_keep_a_probe_out(sources):
    """The silent connections come from the prober's own address, from another one, or from many."""
    async with served(LONG) as port, connections(port, 200, sources=sources) as held:
        for _ in range(5):
            assert await probe(port) == 200
        # As many connections as the limits allow remain open.
        still = 30 if len(sources) == 1 else 40
        ends = [asyncio.create_task(is_closed(reader, 3600)) for reader in held]
        async with asyncio.timeout(60):
            while sum(end.done() for end in ends) < 200 - still:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        assert still - 5 <= 200 - sum(end.done() for end in ends)
        for end in ends:
            end.cancel()


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize(
    ("tls", "first", "limits", "reason"),
    [
        pytest.param(False, b"", Limits(handshake=0.3), "handshake", id="no-handshake"),
        pytest.param(False, b"\x16\x03\x01", Limits(handshake=0.3), "handshake", id="half-a-handshake"),
        pytest.param(True, b"", Limits(idle=0.3), None, id="no-request"),
        pytest.param(True, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-", Limits(idle=0.3), None, id="half-the-headers"),
        pytest.param(
            True,
            b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
            Limits(request=0.3),
            "request",
            id="half-a-body",
        ),
    ],
)
async def test_who_says_nothing_more_is_closed(tls, first, limits, reason):
    async def reads(request):
        return web.Response(body=await request.read())

    before = closed(reason)
    async with served(limits, reads) as port, connections(port, 20, tls=tls, first=first) as held:
        assert all(await asyncio.gather(*map(is_closed, held)))
        if reason:
            assert closed(reason) == before + 20
        await still_serves(port)


@pytest.mark.threat("tenant-cannot-stop-the-controller")
async def test_headers_that_come_one_byte_at_a_time():
    async with served(Limits(idle=0.5)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls(), server_hostname="")
        drip = asyncio.create_task(_drip(writer))
        assert await is_closed(reader)
        drip.cancel()


async def _drip(writer):
    writer.write(b"GET /healthz HTTP/1.1\r\nX-A: ")
    while True:
        writer.write(b"a")
        await asyncio.sleep(0.02)


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /healthz HTTP/1.1\r\nX-Large: " + b"a" * 100_000,
        b"GET /healthz?" + b"a" * 100_000,
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % number for number in range(10_000)),
        b"\x00\xff garbage\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["header", "line", "many-headers", "garbage", "length"],
)
async def test_heads_that_are_too_large_or_no_http(request_head, caplog):
    async with served(LONG) as port, connections(port, 1, tls=True, first=request_head) as (reader,):
        with contextlib.suppress(ConnectionError):  # closed while we are still sending
            assert b" 400 " in await reader.readline()
        assert await is_closed(reader)
        assert await probe(port) == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("address", ["::", "0.0.0.0", "localhost"])
async def test_addresses(address):
    """The kubelet probes 127.0.0.1, so that address is served with every bind address."""
    async with served(LONG, address=address) as port:
        assert await probe(port) == 200


async def test_a_compressed_body_is_not_decompressed():
    async def reads(request):
        return web.Response(text=str(len(await request.read())))

    async with served(LONG, reads) as port, aiohttp.ClientSession() as session:
        url, body = f"https://127.0.0.1:{port}/other", b"x" * 100
        async with session.post(url, data=body, headers={"Content-Encoding": "gzip"}, ssl=False) as response:
            assert (response.status, await response.text()) == (200, "100")


@pytest.mark.threat("tenant-cannot-stop-the-controller")
async def test_who_does_not_read_the_answer_is_closed():
    async def large(request):
        return web.Response(body=b"x" * 10_000_000)

    before = closed("unread")
    async with served(Limits(unread=0.3), large) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls(), server_hostname="", limit=1024)
        writer.write(b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n" * 5)
        async with asyncio.timeout(30):
            while closed("unread") == before:
                await asyncio.sleep(0.05)
        writer.transport.abort()


async def test_a_connection_in_use_is_not_closed_for_others():
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(request):
        started.set()
        await release.wait()
        return web.Response(text="done")

    async with served(LONG, slow) as port, aiohttp.ClientSession() as session:
        answer = asyncio.create_task(session.get(f"https://127.0.0.1:{port}/other", ssl=False))
        await started.wait()
        async with connections(port, 100):
            assert await probe(port) == 200
            release.set()
            assert await (await answer).text() == "done"


async def test_connections_are_kept_for_the_next_request():
    seen = set()

    async def who(request):
        seen.add(request.transport.get_extra_info("peername"))
        return web.Response(text="ok")

    async with served(LONG, who) as port, aiohttp.ClientSession() as session:
        for _ in range(3):
            async with session.get(f"https://127.0.0.1:{port}/other", ssl=False) as response:
                await response.read()
    assert len(seen) == 1


async def test_work_for_a_client_that_has_gone_is_ended():
    ended = asyncio.Event()

    async def slow(request):
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    request = b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n"
    async with served(LONG, slow) as port:
        async with connections(port, 1, tls=True, first=request) as (reader,):
            assert not await is_closed(reader, 0.2)
        await asyncio.wait_for(ended.wait(), 60)


async def test_the_end_does_not_wait_for_anybody():
    async with contextlib.AsyncExitStack() as stack:
        async with served(LONG) as port:
            await stack.enter_async_context(connections(port, 5))
            await stack.enter_async_context(connections(port, 5, tls=True))
            begun = time.monotonic()
        assert time.monotonic() - begun < LONG.idle


@pytest.mark.parametrize("library", ["asyncio", "uvloop"])
def test_either_event_loop(library):
    """The other tests run in asyncio's loop; the image uses uvloop."""
    loops = pytest.importorskip(library)

    async def check():
        small = Limits(total=10, per_peer=5, handshake=0.3, idle=0.3)
        async with served(small) as port:
            for tls in (False, True):
                async with connections(port, 20 if not tls else 4, tls=tls) as held:
                    await still_serves(port)
                    assert all(await asyncio.gather(*map(is_closed, held)))

    loops.run(check())


@dataclass
class Held:
    peer: str
    since: float
    busy: bool = False


def test_who_loses_a_connection():
    limits = Limits(total=4, per_peer=3)
    a, b, c = Held("a", 1), Held("a", 2), Held("b", 0)
    assert make_room([], "a", limits) == (True, None)
    assert make_room([a, b, c], "b", limits) == (True, None)
    # A peer at its own limit loses its longest waiting connection.
    assert make_room([b, a, Held("a", 3)], "a", limits) == (True, a)
    # On a full port, the peer with the most connections loses its longest waiting one, not the oldest of all.
    assert make_room([c, b, a, Held("c", 3)], "d", limits) == (True, a)
    # Connections in use are kept.
    a.busy = True
    assert make_room([c, b, a, Held("c", 3)], "d", limits) == (True, b)
    busy = [Held("a", 1, busy=True) for _ in range(3)]
    assert make_room(busy, "a", limits) == (False, None)
    assert make_room([*busy, c], "d", limits) == (True, c)
    assert make_room([*busy, Held("b", 1, busy=True)], "d", limits) == (False, None)


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("2001:db8::ffff", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("?", "?"),
    ],
)
def test_whom_an_address_belongs_to(address, peer):
    assert peer_of(address) == peer
