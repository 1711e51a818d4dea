# SPDX-License-Identifier: Apache-2.0
"""Load balancers that pass clients' packets to nodes unchanged: the choice of the node, and a real kernel."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from ccm_simcloud import forward, pass_through
from ccm_simcloud.forward import Rules
from ccm_simcloud.model import LoadBalancerBody, LoadBalancerPatch, Port, Target
from ccm_simcloud.pass_through import Packet, Switch, parse
from ccm_simcloud.strict import convert
from ccm_simcloud.testing import running_simulator
from ccm_simcloud.world import Refusal

from .test_fabric import eventually, in_namespace, needs_root

VIP, NODES = "10.89.0.200", ("10.89.0.11", "10.89.0.12")
PROJECT = {"name": "demo", "token": "t", "load_balancer_addresses": "10.89.0.200-10.89.0.210"}
PASSES: dict[str, Any] = {"projects": [PROJECT | {"load_balancer_mode": "pass-through"}]}
SYN, ACK, FIN = 0x02, 0x10, 0x01
WEB = ("TCP", VIP, 80)


def packet(
    client: str = "192.0.2.7:40000", to: str = f"{VIP}:80", protocol: int = 6, flags: int = SYN, *, options: int = 0
) -> bytes:
    """Return an IPv4 packet. `options`: 32-bit words of options in its header."""
    (source, source_port), (address, port) = client.split(":"), to.split(":")
    ports = struct.pack("!HH", int(source_port), int(port))
    rest = ports + (bytes(9) + bytes([flags]) + bytes(6) if protocol == 6 else bytes(4))
    start = struct.pack("!BBHHHBBH", 0x45 + options, 0, 20 + 4 * options + len(rest), 0, 0, 64, protocol, 0)
    return start + socket.inet_aton(source) + socket.inet_aton(address) + bytes(4 * options) + rest


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (packet(), Packet(WEB, "192.0.2.7", 40000, True)),
        (packet(options=3), Packet(WEB, "192.0.2.7", 40000, True)),
        (packet(flags=SYN | ACK), Packet(WEB, "192.0.2.7", 40000, False)),
        (packet(flags=ACK), Packet(WEB, "192.0.2.7", 40000, False)),
        (packet(protocol=17), Packet(("UDP", VIP, 80), "192.0.2.7", 40000, False)),
        (packet(protocol=1), None),
        (packet()[:6] + b"\x00\x05" + packet()[8:], None),  # a later fragment
        (b"\x60" + packet()[1:], None),
        (b"\x41" + packet()[1:], None),
    ],
)
def test_what_a_packet_says(data: bytes, result: Packet | None) -> None:
    assert parse(data) == result


def test_no_packet_whatever_it_contains_is_an_error() -> None:
    drawn = random.Random(177)
    for whole in (packet(), packet(protocol=17), packet(options=10)):
        assert [parse(whole[:length]) for length in range(len(whole))] == [None] * len(whole)
        for _ in range(2000):
            data = bytearray(whole)
            data[drawn.randrange(len(data))] = drawn.randrange(256)
            Switch().target(bytes(data))


class Board:
    """A switch with one port, on a clock that the test moves."""

    def __init__(self, protocol: str = "TCP", **rules: Any) -> None:
        self.now, self.key = 1000.0, (protocol, VIP, 80)
        self.switch = Switch(clock=lambda: self.now)
        self.rules = Rules(tuple((node, 80) for node in NODES), passes=True, **rules)
        self.port = self.switch.listen(self.key, self.rules)
        self.number = {"TCP": 6, "UDP": 17}[protocol]

    def send(self, client: str = "192.0.2.7:40000", flags: int = SYN) -> str | None:
        return self.switch.target(packet(client, protocol=self.number, flags=flags))


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn health checks off: nothing answers at the targets, so the tests set health themselves."""

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(pass_through, "check_health", never)


async def test_connections_go_to_all_targets_in_turn_and_stay_where_they_began() -> None:
    board = Board()
    clients = [f"192.0.2.7:{port}" for port in range(40000, 40010)]
    first = [board.send(client) for client in clients]
    assert sorted(first) == [NODES[0]] * 5 + [NODES[1]] * 5
    assert [board.send(client, ACK) for client in clients] == first
    board.port.update(Rules(((NODES[0], 80),), passes=True))
    assert [board.send(client, ACK) for client in clients] == first, "a target that leaves keeps its connections"
    assert {board.send(client) for client in clients} == {NODES[0]}, "the same port of a client, again"
    assert {board.send(client, FIN | ACK) for client in clients} == {NODES[0]}
    board.port.update(Rules(board.rules.backends, passes=True, draining=frozenset({NODES[0]})))
    assert {board.send(client, ACK) for client in clients} == {NODES[0]}
    assert {board.send(client) for client in clients} == {NODES[1]}
    await board.port.close()


async def test_affinity_ranges_and_health_decide_about_new_connections() -> None:
    sticky = Board(sticky=True)
    for client in range(1, 20):
        assert len({sticky.send(f"192.0.2.{client}:{port}") for port in range(40000, 40005)}) == 1
    assert len({sticky.send(f"192.0.2.{client}:40000") for client in range(1, 20)}) == 2
    limited = Board(source_ranges=("192.0.2.0/29",))
    assert limited.send("192.0.2.7:1") in NODES and limited.send("192.0.2.8:1") is None
    opened = limited.send("192.0.2.7:2")
    limited.port.update(Rules(limited.rules.backends, ("192.0.2.8/32",), passes=True))
    assert opened in NODES and limited.send("192.0.2.7:2", ACK) is None, "also for connections that are open"
    board = Board()
    board.port.pool.backends[NODES[0], 80].healthy = False
    assert {board.send(f"192.0.2.7:{port}") for port in range(9)} == {NODES[1]}
    board.port.update(Rules((), passes=True))
    assert board.send("192.0.2.7:1") is None
    for each in (sticky, limited, board):
        await each.port.close()


async def test_udp_flows_move_when_idle_or_when_their_node_no_longer_serves() -> None:
    board = Board("UDP")
    first = board.send()
    assert {board.send() for _ in range(9)} == {first}
    board.now += forward.UDP_IDLE
    assert board.send() != first, "the next one's turn"
    moved = board.send()
    board.port.pool.backends[str(moved), 80].healthy = False
    assert board.send() == first
    board.port.update(Rules(((str(moved), 80),), passes=True))
    assert board.send() == moved
    await board.port.close()


async def test_a_closed_port_and_idle_connections_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    first = board.send()
    board.now += pass_through.TCP_IDLE
    assert board.send(flags=ACK) != first
    board.switch.forget(board.key)
    assert board.send() is None and board.switch.target(packet(to=f"{VIP}:81")) is None
    await board.port.close()
    monkeypatch.setattr(pass_through, "FLOWS", 2)
    full = Board()
    before = [full.send(f"192.0.2.7:{port}") for port in (1, 2, 3)]
    assert [full.send(f"192.0.2.7:{port}", ACK) for port in (2, 3)] == before[1:]
    assert len(full.switch._flows) == 2
    await full.port.close()


def body(*node_ports: int, **more: Any) -> LoadBalancerBody:
    ports = [{"port": 80 + number, "node_port": node_port} for number, node_port in enumerate(node_ports)]
    return convert({"name": "web", "ports": ports} | more, LoadBalancerBody, "")


async def test_only_pass_through_load_balancers_need_no_node_port() -> None:
    nothing = convert({"ports": [{"port": 80}]}, LoadBalancerPatch, "")
    async with running_simulator({"projects": [PROJECT]}) as cloud:
        with pytest.raises(Refusal, match=r"ports\[1\].node_port: expected int >= 1, got 0") as refused:
            cloud.project().create_load_balancer(body(30080, 0))
        assert (refused.value.status, refused.value.code) == (400, "invalid")
        row = cloud.project().create_load_balancer(body(30080))
        with pytest.raises(Refusal, match=r"ports\[0\].node_port"):
            cloud.project().change_load_balancer(row.id, nothing)
        assert row.mode == "proxy"
    async with running_simulator(PASSES) as cloud:
        row = cloud.project().create_load_balancer(body(30080, 0))
        assert row.mode == "pass-through"
        assert cloud.project().change_load_balancer(row.id, nothing).ports == (Port(80, 0),)


async def test_a_load_balancer_keeps_its_mode_whatever_others_get(tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    async with running_simulator({"projects": [PROJECT]}, state=state) as cloud:
        cloud.project().create_load_balancer(body(30080))
    async with running_simulator(PASSES, state=state) as cloud:
        cloud.project().create_load_balancer(body(0, name="other"))
        assert {row.name: row.mode for row in cloud.project().load_balancers.rows.values()} == {
            "web": "proxy",
            "other": "pass-through",
        }


async def test_the_fabric_diverts_packets_and_does_not_take_the_address() -> None:
    async with running_simulator(PASSES, fabric=True) as cloud:
        targets = tuple(Target(node) for node in NODES)
        row = cloud.project().create_load_balancer(body(0, targets=[{"address": each.address} for each in targets]))
        await eventually(lambda: cloud.kernel.diverted == {VIP} and cloud.forwards("TCP", VIP, 80))
        assert cloud.kernel.address_table == set()
        assert {cloud.kernel.target(packet(f"192.0.2.7:{port}")) for port in range(4)} == set(NODES)
        cloud.project().delete_load_balancer(row.id)
        await eventually(lambda: not cloud.kernel.diverted and not cloud.forwards("TCP", VIP, 80))
        assert cloud.kernel.target(packet()) is None


KERNEL = """
import contextlib, json, os, signal, subprocess, sys, time, urllib.error, urllib.request

def run(*words, within=None):
    inside = ["nsenter", f"--net=/proc/{within}/ns/net"] if within else []
    return subprocess.run([*inside, *words], check=True, capture_output=True, text=True, timeout=100).stdout

def eventually(function):
    deadline = time.monotonic() + 60
    while True:
        try:
            return function()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)

def call(method, path, body=None):
    url = "http://10.89.0.2:9440/v1/projects/demo" + path
    data, headers = json.dumps(body).encode(), {"Authorization": "Bearer t"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as answer:
        return json.loads(answer.read() or b"null")

# The server of each node. `node` gives the node the load balancer's address, as kube-proxy does, without ARP answers.
NODE = '''
import http.server, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        size = 200000 if self.path == "/large" else 0
        self.wfile.write(f"{sys.argv[1]} {self.client_address[0]} ".encode() + b"x" * size)
    def do_POST(self):
        length = len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(length).encode())
    def log_message(self, *_): pass
servers = [http.server.ThreadingHTTPServer(at, Handler) for at in (("10.89.0.200", 80), ("0.0.0.0", 10256))]
for server in servers: threading.Thread(target=server.serve_forever).start()
'''
CLIENT = '''
import sys, urllib.request
data = b"y" * int(sys.argv[3]) if len(sys.argv) > 3 else None
print(urllib.request.urlopen(sys.argv[1], data, timeout=int(sys.argv[2])).read().decode())
'''

def machine(number):
    process = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    started.append(process)
    pid = process.pid
    eventually(lambda: os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net") or 1 / 0)
    run("ip", "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run("ip", "link", "set", f"to{number}", "master", "lan", "up")
    run("ip", "link", "set", "lo", "up", within=pid)
    run("ip", "addr", "add", f"10.89.0.{number}/24", "dev", "eth0", within=pid)
    run("ip", "link", "set", "eth0", "up", within=pid)
    return pid

def node(number):
    pid = machine(number)
    for name, value in (("ignore", 1), ("announce", 2)):
        run("sh", "-c", f"echo {value} > /proc/sys/net/ipv4/conf/all/arp_{name}", within=pid)
    run("ip", "addr", "add", "10.89.0.200/32", "dev", "lo", within=pid)
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", NODE, f"node-{number}"]
    started.append(subprocess.Popen(command))
    return pid

def ask(client, path="/", *size, seconds=30):
    return run(sys.executable, "-c", CLIENT, f"http://10.89.0.200{path}", str(seconds), *size, within=client).strip()

def start():
    code = "import sys; from ccm_simcloud import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", code, *sys.argv[1:]])
    started.append(process)
    eventually(lambda: urllib.request.urlopen("http://10.89.0.2:9440/healthz").read())
    return process

def both():
    answers = {ask(client) for _ in range(6)}
    assert answers == {"node-11 10.89.0.50", "node-12 10.89.0.50"}, answers

def nobody():
    try:
        answer = ask(client, seconds=2)
    except subprocess.CalledProcessError:
        return
    raise AssertionError(answer)

started = []
try:
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "lan", "type", "bridge")
    run("ip", "addr", "add", "10.89.0.2/24", "dev", "lan")
    run("ip", "link", "set", "lan", "up")
    open("/proc/sys/net/ipv4/ip_forward", "w").write("1")
    node(11), node(12)
    client = machine(50)
    process = start()
    targets = [{"address": "10.89.0.11"}, {"address": "10.89.0.12"}]
    new = {"name": "web", "ports": [{"port": 80}], "targets": targets, "health_check": {"node_port": 10256}}
    balancer = call("POST", "/load-balancers", new)
    eventually(both)
    assert "10.89.0.200" not in run("ip", "addr")
    assert len(ask(client, "/large")) > 200000 and ask(client, "/", "300000") == "300000"
    call("PUT", f"/load-balancers/{balancer['id']}/targets", {"targets": targets[:1]})
    eventually(lambda: {ask(client) for _ in range(6)} == {"node-11 10.89.0.50"} or 1 / 0)
    call("PUT", f"/load-balancers/{balancer['id']}/targets", {"targets": targets})
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    nobody()
    process = start()
    eventually(both)
    call("DELETE", "/load-balancers/" + balancer["id"])
    eventually(nobody)
    assert "simcloud-lb" not in run("ip", "route"), run("ip", "route")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
finally:
    for each in started:
        each.kill()
        each.wait()
print("proven")
"""

CLOUD = """
projects:
- name: demo
  token: t
  load_balancer_addresses: 10.89.0.200-10.89.0.210
  load_balancer_mode: pass-through
"""


@needs_root
def test_clients_reach_every_node_with_their_own_address_through_a_real_kernel(tmp_path: Path) -> None:
    config = tmp_path / "cloud.yaml"
    config.write_text(CLOUD)
    state, fabric = str(tmp_path / "state.db"), ["--fabric", "--fabric-interface", "lan"]
    in_namespace(KERNEL, "--listen", "10.89.0.2:9440", "--config", str(config), "--state", state, *fabric)
