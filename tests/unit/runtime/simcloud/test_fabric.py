# SPDX-License-Identifier: Apache-2.0
"""The simulator as a network: forwarding on loopback, and the routes and rules in the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ccm_simcloud import forward
from ccm_simcloud.forward import Pool, Rules
from ccm_simcloud.model import InstanceBody, LoadBalancerBody, LoadBalancerPatch, RouteBody, TargetsBody
from ccm_simcloud.strict import convert
from ccm_simcloud.testing import Simulator, running_simulator
from tests.later import jump
from tests.ports import free_port

VIP = "127.0.77.1"
BACKENDS = ("127.0.78.1", "127.0.78.2", "127.0.78.3")
CONFIG: dict[str, Any] = {
    "projects": [{"name": "demo", "token": "t", "load_balancer_addresses": "127.0.77.1-127.0.77.9"}]
}
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def tcp_backend(address: str, port: int, handler: Handler | None = None) -> AsyncIterator[asyncio.Server]:
    """Run a TCP backend. By default it sends its address and closes the connection."""

    async def say_who(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(address.encode())
        writer.close()

    server = await asyncio.start_server(handler or say_who, address, port)
    try:
        yield server
    finally:
        server.close()


async def ask(port: int, *, source: str | None = None) -> str:
    """Return what the load balancer's backend sends; "" if the connection is closed without data."""
    local = (source, 0) if source else None
    reader, writer = await asyncio.open_connection(VIP, port, local_addr=local)
    try:
        return (await reader.read()).decode()
    except ConnectionError:
        return ""
    finally:
        writer.close()


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            met = condition()
            if met if isinstance(met, bool) else await met:
                return
            await asyncio.sleep(0.01)


async def balance(cloud: Simulator, port: int, node_port: int, *addresses: str, **more: Any) -> str:
    """Create a load balancer, wait until it forwards, and return its ID. `protocol`: TCP by default."""
    protocol = more.pop("protocol", "TCP")
    ports = [{"port": port, "node_port": node_port, "protocol": protocol}]
    body = {"name": "web", "ports": ports, "targets": [{"address": each} for each in addresses]} | more
    row = cloud.project().create_load_balancer(convert(body, LoadBalancerBody, ""))
    await eventually(lambda: cloud.forwards(protocol, row.ip, port))
    return row.id


async def test_connections_go_round_robin() -> None:
    port, node_port = free_port(), free_port()
    async with running_simulator(CONFIG, fabric=True) as cloud, contextlib.AsyncExitStack() as stack:
        for address in BACKENDS:
            await stack.enter_async_context(tcp_backend(address, node_port))
        await balance(cloud, port, node_port, *BACKENDS)
        answers = [await ask(port) for _ in range(9)]
        assert {answer: answers.count(answer) for answer in answers} == dict.fromkeys(BACKENDS, 3)


async def test_no_client_sees_an_error_while_one_backend_works() -> None:
    port, node_port = free_port(), free_port()
    async with running_simulator(CONFIG, fabric=True) as cloud, tcp_backend(BACKENDS[1], node_port):
        await balance(cloud, port, node_port, *BACKENDS)
        assert await asyncio.gather(*(ask(port) for _ in range(20))) == [BACKENDS[1]] * 20


async def test_backends_that_fail_and_come_back() -> None:
    port, node_port = free_port(), free_port()
    async with running_simulator(CONFIG, fabric=True) as cloud, tcp_backend(BACKENDS[0], node_port):
        async with tcp_backend(BACKENDS[1], node_port):
            await balance(cloud, port, node_port, *BACKENDS[:2])
            assert {await ask(port) for _ in range(4)} == set(BACKENDS[:2])
        assert {await ask(port) for _ in range(4)} == {BACKENDS[0]}
    async with running_simulator(CONFIG, fabric=True) as cloud:
        await balance(cloud, port, node_port, *BACKENDS[:1])
        assert await ask(port) == ""
        async with tcp_backend(BACKENDS[0], node_port):  # unhealthy, but tried as the last resort
            assert await ask(port) == BACKENDS[0]


async def test_half_close_and_large_bodies_pass_both_ways() -> None:
    port, node_port = free_port(), free_port()
    size = 5_000_000

    async def count_then_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = len(await reader.read())  # until the client's half-close
        writer.write(str(received).encode().ljust(size, b"."))
        await writer.drain()
        writer.close()

    async with running_simulator(CONFIG, fabric=True) as cloud, tcp_backend(BACKENDS[0], node_port, count_then_answer):
        await balance(cloud, port, node_port, BACKENDS[0])
        reader, writer = await asyncio.open_connection(VIP, port)
        writer.write(b"x" * size)
        writer.write_eof()
        answer = await reader.read()
        assert len(answer) == size and answer.startswith(str(size).encode() + b".")
        writer.close()


@pytest.mark.parametrize("drains", [True, False])
async def test_connections_outlive_draining_and_end_with_their_target_and_the_load_balancer(drains: bool) -> None:
    port, node_port = free_port(), free_port()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async def ends(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""

    async with contextlib.AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(running_simulator(CONFIG, fabric=True))
        await stack.enter_async_context(tcp_backend(BACKENDS[0], node_port, echo))
        await stack.enter_async_context(tcp_backend(BACKENDS[1], node_port))
        id_ = await balance(cloud, port, node_port, BACKENDS[0])
        reader, writer = await asyncio.open_connection(VIP, port)
        writer.write(b"before\n")
        assert await reader.readline() == b"before\n"

        async def move(*old: dict[str, Any]) -> None:
            targets = convert({"targets": [*old, {"address": BACKENDS[1]}]}, TargetsBody, "")
            cloud.project().change_load_balancer(id_, targets)

        async def moved() -> bool:
            return [await ask(port) for _ in range(4)] == [BACKENDS[1]] * 4

        if drains:
            await move({"address": BACKENDS[0], "draining": True})
            await eventually(moved)
            writer.write(b"after\n")
            assert await reader.readline() == b"after\n"
            cloud.project().delete_load_balancer(id_)
            await ends(reader)
            with pytest.raises(ConnectionRefusedError):
                await ask(port)
        else:
            await move()
            await ends(reader)
            await eventually(moved)
        writer.close()


async def test_a_broken_backend_breaks_its_client_and_not_the_forwarder() -> None:
    port, node_port = free_port(), free_port()

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.transport.abort()

    async with running_simulator(CONFIG, fabric=True) as cloud, tcp_backend(BACKENDS[0], node_port, reset):
        await balance(cloud, port, node_port, BACKENDS[0])
        for _ in range(3):
            reader, writer = await asyncio.open_connection(VIP, port)
            writer.write(b"hello\n")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()


async def test_source_ranges_are_enforced_and_can_change() -> None:
    port, node_port = free_port(), free_port()
    async with running_simulator(CONFIG, fabric=True) as cloud, tcp_backend(BACKENDS[0], node_port):
        id_ = await balance(cloud, port, node_port, BACKENDS[0], source_ranges=["127.0.99.0/24"])
        assert await ask(port, source="127.0.99.7") == BACKENDS[0]
        assert await ask(port, source="127.0.98.7") == ""
        cloud.project().change_load_balancer(id_, convert({"source_ranges": []}, LoadBalancerPatch, ""))

        async def let_in() -> bool:
            return await ask(port, source="127.0.98.7") == BACKENDS[0]

        await eventually(let_in)


async def test_session_affinity_keeps_a_client_on_its_backend() -> None:
    port, node_port = free_port(), free_port()
    async with running_simulator(CONFIG, fabric=True) as cloud, contextlib.AsyncExitStack() as stack:
        for address in BACKENDS:
            await stack.enter_async_context(tcp_backend(address, node_port))
        await balance(cloud, port, node_port, *BACKENDS, session_affinity="ClientIP")
        by_client = [{await ask(port, source=f"127.0.99.{client}") for _ in range(3)} for client in range(1, 13)]
        assert all(len(answers) == 1 for answers in by_client)
        assert len(set().union(*by_client)) == 3


async def test_the_health_port_decides_where_new_connections_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "CHECK_EVERY", 0.02)
    port, node_port, health_port = free_port(), free_port(), free_port()
    codes = {BACKENDS[0]: 503, BACKENDS[1]: 200}

    def health(address: str) -> Handler:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert (await reader.readline()).startswith(b"GET /healthz ")
            writer.write(f"HTTP/1.1 {codes[address]} x\r\n\r\n".encode())
            writer.close()

        return answer

    async with running_simulator(CONFIG, fabric=True) as cloud, contextlib.AsyncExitStack() as stack:
        for address in codes:
            await stack.enter_async_context(tcp_backend(address, node_port))
            await stack.enter_async_context(tcp_backend(address, health_port, health(address)))
        await balance(cloud, port, node_port, *codes, health_check={"node_port": health_port})

        async def only(address: str) -> bool:
            return {await ask(port) for _ in range(4)} == {address}

        await eventually(lambda: only(BACKENDS[1]))
        codes.update({BACKENDS[0]: 200, BACKENDS[1]: 503})
        await eventually(lambda: only(BACKENDS[0]))


class UdpEcho(asyncio.DatagramProtocol):
    """Answers each datagram with its own address and the data."""

    def __init__(self, address: str) -> None:
        self.address = address

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, client: Any) -> None:
        self.transport.sendto(self.address.encode() + b" " + data, client)


class UdpClient:
    def __init__(self, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.connect((VIP, port))

    async def __call__(self, data: bytes) -> str:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.socket, data)
        async with asyncio.timeout(60):
            return (await loop.sock_recv(self.socket, 65536)).decode()


async def udp_backend(address: str, port: int) -> asyncio.DatagramTransport:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: UdpEcho(address), local_addr=(address, port))
    return transport


async def test_udp_flows_stay_on_their_backend_and_move_when_it_refuses() -> None:
    port, node_port = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_DGRAM)
    async with running_simulator(CONFIG, fabric=True) as cloud:
        backends = {address: await udp_backend(address, node_port) for address in BACKENDS[:2]}
        await balance(cloud, port, node_port, *BACKENDS, protocol="UDP")  # nothing listens on the third
        clients = [UdpClient(port) for _ in range(6)]
        first = [(await client(b"one")).split() for client in clients]
        assert {address for address, _ in first} == set(BACKENDS[:2])
        assert [(await client(b"two")).split() for client in clients] == [[address, "two"] for address, _ in first]
        backends[BACKENDS[0]].close()
        client = next(client for client, (address, _) in zip(clients, first, strict=True) if address == BACKENDS[0])

        async def moved() -> bool:
            """Send a datagram. Return whether the second backend answered: a flow moves after a refusal."""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    return (await client(b"three")).startswith(BACKENDS[1])
            return False

        await eventually(moved)
        backends[BACKENDS[1]].close()
        for each in clients:
            each.socket.close()


async def test_udp_flows_end_when_idle_and_with_their_backend() -> None:
    port, node_port = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_DGRAM)
    backends = [await udp_backend(address, node_port) for address in BACKENDS[:2]]
    listener = forward.UdpListener(Rules(((BACKENDS[0], node_port),)), idle=60)
    await listener.open(VIP, port)
    client = UdpClient(port)
    assert await client(b"x") == f"{BACKENDS[0]} x"
    (flow,) = listener.flows.values()
    flow.last -= 60
    jump(30)  # the time between two looks
    await eventually(lambda: not listener.flows)
    assert await client(b"y") == f"{BACKENDS[0]} y"
    listener.update(Rules(((BACKENDS[1], node_port),)))
    assert not listener.flows
    assert await client(b"z") == f"{BACKENDS[1]} z"
    listener.update(Rules(((BACKENDS[1], node_port),), source_ranges=("10.0.0.0/8",)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client(b"shut out")
    client.socket.close()
    await listener.close()
    for backend in backends:
        backend.close()


async def test_udp_replies_do_not_mix_clients() -> None:
    port, node_port = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_DGRAM)
    async with running_simulator(CONFIG, fabric=True) as cloud:
        backend = await udp_backend(BACKENDS[0], node_port)
        await balance(cloud, port, node_port, BACKENDS[0], protocol="UDP")
        clients = [UdpClient(port) for _ in range(20)]
        answers = await asyncio.gather(*(client(str(number).encode()) for number, client in enumerate(clients)))
        assert answers == [f"{BACKENDS[0]} {number}" for number in range(20)]
        backend.close()
        for client in clients:
            client.socket.close()


def test_a_pool_prefers_what_works_and_forgets_an_ejection() -> None:
    now = 0.0
    pool = Pool(Rules((("a", 1), ("b", 1), ("c", 1))), clock=lambda: now)
    a, b, _ = pool.backends.values()
    pool.eject(a)
    b.healthy = False
    assert [each.address for each in pool.order("x")] == ["c", "a", "b"]
    pool.update(Rules((("a", 1), ("b", 1), ("d", 1))))
    assert pool.backends["b", 1] is b and not b.healthy
    now = forward.EJECTION
    assert {each.address for each in pool.order("x")[:2]} == {"a", "d"}
    pool.update(Rules((("a", 1), ("b", 1), ("d", 1)), draining=frozenset({"a"})))
    assert [each.address for each in pool.order("x")] == ["d", "b"], "also if nothing else works"


async def test_routes_follow_the_cloud_into_the_kernel() -> None:
    async with running_simulator(CONFIG, fabric=True) as cloud:
        project = cloud.project()
        one = cloud.add_instance("w1", addresses=[{"type": "InternalIP", "address": "10.0.0.1"}])
        bare = cloud.add_instance("w2")
        project.create_route(RouteBody("10.244.1.0/24", one.id))
        project.create_route(RouteBody("10.244.2.0/24", bare.id))
        await eventually(lambda: cloud.kernel.route_table == {"10.244.1.0/24": "10.0.0.1"})
        project.change_instance(
            bare.id,
            convert({"name": "w2", "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}, InstanceBody, ""),
        )
        await eventually(lambda: cloud.kernel.route_table.get("10.244.2.0/24") == "10.0.0.2")
        project.delete_instance(one.id)  # the route becomes a blackhole
        await eventually(lambda: cloud.kernel.route_table == {"10.244.2.0/24": "10.0.0.2"})


async def test_a_route_leads_to_the_address_of_its_own_family() -> None:
    async with running_simulator(CONFIG, fabric=True) as cloud:
        project = cloud.project()
        old = {"type": "InternalIP", "address": "10.0.0.1"}
        both = cloud.add_instance("w1", addresses=[old, {"type": "InternalIP", "address": "fd00::1"}])
        only_old = cloud.add_instance("w2", addresses=[old | {"address": "10.0.0.2"}])
        for number, instance in enumerate((both, only_old), 1):
            project.create_route(RouteBody(f"fd00:10:244:{number}::/64", instance.id))
            project.create_route(RouteBody(f"10.244.{number}.0/24", instance.id))
        await eventually(lambda: len(cloud.kernel.route_table) == 3)
        assert cloud.kernel.route_table == {
            "10.244.1.0/24": "10.0.0.1",
            "10.244.2.0/24": "10.0.0.2",
            "fd00:10:244:1::/64": "fd00::1",
        }


async def test_a_port_that_is_taken_is_opened_as_soon_as_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccm_simcloud.fabric.RETRY", 0.02)
    port, node_port = free_port(), free_port()
    async with running_simulator(CONFIG, fabric=True) as cloud, tcp_backend(BACKENDS[0], node_port):
        with socket.socket() as squatter:
            squatter.bind((VIP, port))
            squatter.listen()
            body = {
                "name": "web",
                "ports": [{"port": port, "node_port": node_port}, {"port": free_port(), "node_port": node_port}],
                "targets": [{"address": BACKENDS[0]}],
            }
            row = cloud.project().create_load_balancer(convert(body, LoadBalancerBody, ""))
            await eventually(lambda: cloud.forwards("TCP", VIP, row.ports[1].port))  # not blocked by the other port
            assert not cloud.forwards("TCP", VIP, port)
        await eventually(lambda: cloud.forwards("TCP", VIP, port))
        assert await ask(port) == BACKENDS[0]


NETLINK = """
import asyncio, subprocess, sys
from ccm_simcloud.kernel import KernelError, NetlinkKernel

def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout

async def main():
    ip("link", "add", "lan", "type", "bridge")
    ip("addr", "add", "10.89.0.2/24", "dev", "lan")
    ip("link", "set", "lan", "up")
    open("/proc/sys/net/ipv4/ip_forward", "w").write("1")
    ip("route", "add", "10.244.9.0/24", "via", "10.89.0.9")
    for wrong in ("eth7",):
        try:
            await NetlinkKernel(wrong).open()
        except KernelError as error:
            assert "lan" in str(error), error
        else:
            raise AssertionError("opened a missing interface")
    kernel = NetlinkKernel("lan")
    await kernel.open()
    assert await kernel.routes() == {} and await kernel.addresses() == set()
    for gateway in ("10.89.0.11", "10.89.0.12"):
        await kernel.set_route("10.244.1.0/24", gateway)
    await kernel.set_route("10.244.9.0/24", "10.89.0.11")  # a foreign route to the same place stays
    assert await kernel.routes() == {"10.244.1.0/24": "10.89.0.12", "10.244.9.0/24": "10.89.0.11"}
    await kernel.remove_route("10.244.9.0/24")
    await kernel.remove_route("10.244.9.0/24")
    assert "10.244.9.0/24 via 10.89.0.9" in ip("route"), ip("route")
    ip("addr", "add", "fd00:89::2/64", "dev", "lan", "nodad")
    for gateway in ("fd00:89::11", "fd00:89::12"):
        await kernel.set_route("fd00:10:244:1::/64", gateway)
    assert (await kernel.routes())["fd00:10:244:1::/64"] == "fd00:89::12"
    assert ip("-6", "route").count("fd00:10:244:1::/64") == 1, ip("-6", "route")
    await kernel.remove_route("fd00:10:244:1::/64")
    assert "fd00:10:244" not in ip("-6", "route")
    for _ in range(2):
        await kernel.add_address("10.89.0.200")
    await kernel.close()
    kernel = NetlinkKernel("lan")  # a restart finds what is ours
    await kernel.open()
    assert await kernel.addresses() == {"10.89.0.200"}
    assert await kernel.routes() == {"10.244.1.0/24": "10.89.0.12"}
    for _ in range(2):
        await kernel.remove_address("10.89.0.200")
    assert "10.89.0.2/24" in ip("addr") and "10.89.0.200" not in ip("addr")
    try:
        await kernel.set_route("10.244.1.0/24", "203.0.113.1")
    except KernelError as error:
        assert "10.244.1.0/24 via 203.0.113.1" in str(error), error
    else:
        raise AssertionError("routed through an unreachable gateway")
    await kernel.close()
    print("proven")

asyncio.run(main())
"""


PROCESS = """
import json, signal, socket, subprocess, sys, threading, time, urllib.request

def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout

def call(method, path, body=None):
    url = "http://10.89.0.2:9440/v1/projects/demo" + path
    data, headers = json.dumps(body).encode(), {"Authorization": "Bearer t"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as answer:
        return json.loads(answer.read() or b"null")

def eventually(function):
    deadline = time.monotonic() + 60
    while True:
        try:
            return function()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)

def served():
    with socket.create_connection(("10.89.0.200", 80), 5) as client:
        data = client.recv(100)
    assert data == b"hello", data

def forgotten():
    assert "10.244.1.0/24" not in ip("route") and "10.89.0.200" not in ip("addr")

def start():
    code = "import sys; from ccm_simcloud import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", code, *sys.argv[1:]])
    eventually(lambda: urllib.request.urlopen("http://10.89.0.2:9440/healthz").read())
    return process

def stop(process):
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0

ip("link", "set", "lo", "up")
ip("link", "add", "lan", "type", "bridge")
ip("addr", "add", "10.89.0.2/24", "dev", "lan")
ip("link", "set", "lan", "up")
open("/proc/sys/net/ipv4/ip_forward", "w").write("1")
backend = socket.create_server(("10.89.0.2", 30080))

def serve():
    while True:
        connection, _ = backend.accept()
        connection.sendall(b"hello")
        connection.close()

threading.Thread(target=serve, daemon=True).start()
process = start()
instance = call("GET", "/instances")["items"][0]["id"]
route = call("POST", "/routes", {"destination": "10.244.1.0/24", "instance_id": instance})
targets = [{"instance_id": instance, "address": "10.89.0.2"}]
ports = [{"port": 80, "node_port": 30080}]
balancer = call("POST", "/load-balancers", {"name": "web", "ports": ports, "targets": targets})
eventually(served)
assert "10.244.1.0/24 via 10.89.0.11" in ip("route"), ip("route")
stop(process)
ip("route", "flush", "proto", "177")
process = start()
eventually(served)
assert "10.244.1.0/24 via 10.89.0.11" in ip("route"), ip("route")
call("DELETE", "/load-balancers/" + balancer["id"])
call("DELETE", "/routes/" + route["id"])
eventually(forgotten)
stop(process)
print("proven")
"""

CLOUD = """
projects:
- name: demo
  token: t
  load_balancer_addresses: 10.89.0.200-10.89.0.210
  instances: [{name: w1, addresses: [{type: InternalIP, address: 10.89.0.11}]}]
"""

needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="root is needed for a network namespace of its own"
)


def no_namespaces() -> NoReturn:
    """Fail in CI, skip elsewhere: some machines forbid network namespaces even to root."""
    why = "network namespaces may not be made here"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def in_namespace(script: str, *arguments: str) -> None:
    """Run a script in a new network namespace. The script must print only "proven"."""
    command = ["unshare", "--net", sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    if "unshare failed" in done.stderr:
        no_namespaces()
    assert done.stdout == "proven\n", done.stderr
    assert "Traceback" not in done.stderr and " ERROR " not in done.stderr, done.stderr


@needs_root
def test_routes_and_addresses_in_a_real_kernel() -> None:
    in_namespace(NETLINK)


@needs_root
def test_the_whole_command_is_a_network_and_is_it_again_after_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "cloud.yaml"
    config.write_text(CLOUD)
    state = str(tmp_path / "state.db")
    fabric = ["--fabric", "--fabric-interface", "lan"]
    in_namespace(PROCESS, "--listen", "10.89.0.2:9440", "--config", str(config), "--state", state, *fabric)


@needs_root
def test_a_machine_that_cannot_be_a_network_says_why() -> None:
    code = "import sys; from ccm_simcloud import main; sys.exit(main(sys.argv[1:]))"
    command = ["unshare", "--net", sys.executable, "-c", code, "--listen", "127.0.0.1:0", "--fabric"]
    done = subprocess.run([*command, "--fabric-interface", "eth7"], capture_output=True, text=True, timeout=280)
    if "unshare failed" in done.stderr:
        no_namespaces()
    assert done.returncode == 1
    assert "ip_forward=1" in done.stderr or "interface 'eth7' does not exist" in done.stderr
    assert "Traceback" not in done.stderr
