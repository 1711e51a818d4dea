# SPDX-License-Identifier: Apache-2.0
"""botocore in threads against aiobotocore, as clients of a server on this machine: `python tools/bench/aws_clients.py`.

Installs both, with one version of botocore, into a temporary environment by `uv`. The server is a separate process.
It answers every call after the same delay, with texts in the form of EC2's and Elastic Load Balancing's answers, so
that both clients wait equally long. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

SIDES = {"threads": "botocore in threads", "aiobotocore": "aiobotocore"}
#: The number of connections to each AWS service, and of threads: the same as in the provider.
CONNECTIONS = 10
#: Seconds until the server answers: about the latency of an AWS region.
DELAY = 0.02
INSTANCES = 100
PAGES, SMALL = 200, 2000
ROUNDS = 5
#: Seconds between two measurements of how late the event loop is.
BEAT = 0.005
ARN = "arn:aws:elasticloadbalancing:eu-central-1:123456789012"

# The server


def instances(count: int) -> str:
    """Return a page of DescribeInstances. Each instance has one network interface and five tags."""
    return _response("DescribeInstances", f"<reservationSet>{''.join(map(_instance, range(count)))}</reservationSet>")


def _response(operation: str, body: str) -> str:
    namespace = "http://ec2.amazonaws.com/doc/2016-11-15/"
    return f'<{operation}Response xmlns="{namespace}"><requestId>r-1</requestId>{body}</{operation}Response>'


def _instance(number: int) -> str:
    address, id = f"10.0.{number // 250}.{number % 250 + 1}", f"i-{number:017x}"
    group = "<groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>nodes</groupName></item></groupSet>"
    tags = "".join(f"<item><key>example.com/tag-{each}</key><value>value of {id}</value></item>" for each in range(5))
    interface = f"""<item><networkInterfaceId>eni-{number:017x}</networkInterfaceId><subnetId>subnet-1</subnetId>
<vpcId>vpc-1</vpcId><ownerId>123456789012</ownerId><status>in-use</status><macAddress>0a:00:00:00:00:01</macAddress>
<privateIpAddress>{address}</privateIpAddress><privateDnsName>ip-{number}.internal</privateDnsName>{group}
<sourceDestCheck>true</sourceDestCheck><attachment><attachmentId>eni-attach-1</attachmentId><deviceIndex>0</deviceIndex>
<status>attached</status><attachTime>2026-01-01T00:00:00.000Z</attachTime><deleteOnTermination>true</deleteOnTermination>
</attachment><privateIpAddressesSet><item><privateIpAddress>{address}</privateIpAddress><primary>true</primary></item>
</privateIpAddressesSet><ipv6AddressesSet/><interfaceType>interface</interfaceType></item>"""
    return f"""<item><reservationId>r-{number}</reservationId><ownerId>123456789012</ownerId><groupSet/><instancesSet>
<item><instanceId>{id}</instanceId><imageId>ami-0123456789abcdef0</imageId><instanceState><code>16</code><name>running</name>
</instanceState><privateDnsName>ip-{number}.internal</privateDnsName><dnsName/><reason/><keyName>key</keyName>
<amiLaunchIndex>0</amiLaunchIndex><productCodes/><instanceType>m5.large</instanceType>
<launchTime>2026-01-01T00:00:00.000Z</launchTime><placement><availabilityZone>eu-central-1a</availabilityZone>
<groupName/><tenancy>default</tenancy></placement><monitoring><state>disabled</state></monitoring>
<subnetId>subnet-1</subnetId><vpcId>vpc-1</vpcId><privateIpAddress>{address}</privateIpAddress>
<sourceDestCheck>true</sourceDestCheck>{group}<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType>
<rootDeviceName>/dev/xvda</rootDeviceName><virtualizationType>hvm</virtualizationType><clientToken>token</clientToken>
<tagSet>{tags}</tagSet><hypervisor>xen</hypervisor><networkInterfaceSet>{interface}</networkInterfaceSet>
<ebsOptimized>true</ebsOptimized><enaSupport>true</enaSupport></item></instancesSet></item>"""


def _elastic(operation: str, body: str, version: str = "2015-12-01") -> str:
    namespace = f"http://elasticloadbalancing.amazonaws.com/doc/{version}/"
    return (
        f'<{operation}Response xmlns="{namespace}"><{operation}Result>{body}</{operation}Result>'
        f"<ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></{operation}Response>"
    )


def answers() -> dict[str, bytes]:
    """Return the server's answer to each operation."""
    balancer = f"{ARN}:loadbalancer/net/a0b2a3c4d11112222333344445555666/1"
    tags = "".join(f"<member><Key>tag-{each}</Key><Value>value</Value></member>" for each in range(6))
    health = "".join(
        f"<member><HealthCheckPort>30080</HealthCheckPort><TargetHealth><State>healthy</State></TargetHealth><Target>"
        f"<Id>i-{each:017x}</Id><Port>30080</Port></Target></member>"
        for each in range(3)
    )
    network = f"""<member><LoadBalancerArn>{balancer}</LoadBalancerArn><Scheme>internet-facing</Scheme>
<LoadBalancerName>a0b2a3c4d11112222333344445555666</LoadBalancerName><VpcId>vpc-1</VpcId><Type>network</Type>
<CreatedTime>2026-01-01T00:00:00.000Z</CreatedTime><DNSName>a0b2.elb.eu-central-1.amazonaws.com</DNSName>
<State><Code>active</Code></State><IpAddressType>ipv4</IpAddressType></member>"""
    found = {
        "DescribeInstances": instances(INSTANCES),
        "DescribeLoadBalancers": _elastic("DescribeLoadBalancers", f"<LoadBalancers>{network}</LoadBalancers>"),
        "DescribeTags": _elastic(
            "DescribeTags",
            f"<TagDescriptions><member><ResourceArn>{balancer}</ResourceArn><Tags>{tags}</Tags></member></TagDescriptions>",
        ),
        "DescribeTargetHealth": _elastic(
            "DescribeTargetHealth", f"<TargetHealthDescriptions>{health}</TargetHealthDescriptions>"
        ),
        "AddTags": _elastic("AddTags", ""),
    }
    return {operation: text.encode() for operation, text in found.items()}


async def serve(delay: float) -> None:
    """Print the port, then answer until the process ends."""
    texts = answers()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                body = await reader.readexactly(int(length.partition(b":")[2]))
                (operation,) = parse_qs(body.decode())["Action"]
                await asyncio.sleep(delay)
                text = texts[operation]
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n" % len(text) + text
                )
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# The clients

Call = Callable[[str, str, dict[str, Any]], Awaitable[Any]]
OPTIONS = {"max_pool_connections": CONNECTIONS, "retries": {"total_max_attempts": 1, "mode": "standard"}}
KEYS = {"aws_access_key_id": "AKIATESTTESTTESTTEST", "aws_secret_access_key": "correct-horse-battery-staple"}
SERVICES = ("ec2", "elbv2", "elb")


@contextlib.asynccontextmanager
async def threads(url: str) -> Any:
    """Return a client that runs botocore in threads, as the provider's modules `session` and `api` do."""
    import botocore.session
    from botocore.config import Config

    session = botocore.session.Session()
    clients = {
        name: session.create_client(name, "eu-central-1", endpoint_url=url, config=Config(**OPTIONS), **KEYS)
        for name in SERVICES
    }
    pool, loop = ThreadPoolExecutor(CONNECTIONS), asyncio.get_running_loop()

    async def call(service: str, operation: str, arguments: dict[str, Any]) -> Any:
        return await loop.run_in_executor(pool, lambda: getattr(clients[service], operation)(**arguments))

    yield call
    pool.shutdown()


@contextlib.asynccontextmanager
async def aiobotocore(url: str) -> Any:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import AioSession

    session = AioSession()
    async with contextlib.AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(
                session.create_client(name, "eu-central-1", endpoint_url=url, config=AioConfig(**OPTIONS), **KEYS)
            )
            for name in SERVICES
        }

        async def call(service: str, operation: str, arguments: dict[str, Any]) -> Any:
            return await getattr(clients[service], operation)(**arguments)

        yield call


async def measure(side: str, url: str, pages: int = PAGES, small: int = SMALL) -> dict[str, float]:
    """Run both loads, one after the other, with all calls of a load at once. Return seconds, and `peak` in MiB.

    `start`: until the client is ready. For each load: `wall`, `cpu`, and `late`, the largest delay of the event loop.
    """
    import aiohttp  # noqa: F401  the runtime has it anyway

    begun = time.perf_counter()
    found: dict[str, float] = {}
    async with {"threads": threads, "aiobotocore": aiobotocore}[side](url) as call:
        found["start"] = time.perf_counter() - begun
        for load, calls in (("pages", _pages(call, pages)), ("small", _small(call, small))):
            wall, cpu = time.perf_counter(), time.process_time()
            async with _beating() as late:
                await calls
            found |= {
                f"{load} wall": time.perf_counter() - wall,
                f"{load} cpu": time.process_time() - cpu,
                f"{load} late": max(late),
            }
    return {**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


async def _pages(call: Call, count: int) -> None:
    async def one() -> int:
        answer = await call("ec2", "describe_instances", {"MaxResults": INSTANCES})
        return sum(len(each["Instances"]) for each in answer["Reservations"])

    seen = sum(await asyncio.gather(*(one() for _ in range(count))))
    assert seen == count * INSTANCES, seen


async def _small(call: Call, count: int) -> None:
    """Send the calls that a change of a load balancer makes."""
    arn = f"{ARN}:loadbalancer/net/a0b2a3c4d11112222333344445555666/1"
    kinds: list[tuple[str, str, dict[str, Any], str]] = [
        ("elbv2", "describe_load_balancers", {"Names": ["a0b2a3c4d11112222333344445555666"]}, "LoadBalancers"),
        ("elbv2", "describe_tags", {"ResourceArns": [arn]}, "TagDescriptions"),
        ("elbv2", "describe_target_health", {"TargetGroupArn": arn}, "TargetHealthDescriptions"),
        ("elbv2", "add_tags", {"ResourceArns": [arn], "Tags": [{"Key": "a", "Value": "b"}]}, ""),
    ]

    async def one(number: int) -> None:
        service, operation, arguments, rows = kinds[number % len(kinds)]
        answer = await call(service, operation, arguments)
        assert not rows or answer[rows], answer

    await asyncio.gather(*map(one, range(count)))


@contextlib.asynccontextmanager
async def _beating() -> Any:
    """Yield a list that collects how late the event loop was at each beat, in seconds."""
    late = [0.0]

    async def beat() -> None:
        while True:
            due = time.perf_counter() + BEAT
            await asyncio.sleep(BEAT)
            late.append(time.perf_counter() - due)

    task = asyncio.create_task(beat())
    try:
        yield late
    finally:
        task.cancel()


# The comparison


@contextlib.contextmanager
def server(delay: float = DELAY) -> Iterator[str]:
    """Run the server until the block is left; yield its URL."""
    command = [sys.executable, __file__, "--serve", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def install(folder: Path) -> tuple[Path, dict[str, float], dict[str, str]]:
    """Install both clients. Return the Python, the MiB that each client adds to a runtime without it, and the
    versions.
    """
    python, sizes, versions = folder / "bin" / "python", {}, {}
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, folder], check=True)
    for package in ("aiohttp", "botocore", "aiobotocore"):
        subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, package], check=True)
        (installed,) = folder.glob("lib/python*/site-packages")
        files = [each for each in installed.rglob("*") if each.is_file() and each.suffix != ".pyc"]
        sizes[package] = sum(each.stat().st_size for each in files) / 2**20
        command = ["uv", "pip", "list", "--format=json", "--python", python]
        listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        found = {each["name"]: each["version"] for each in listed}
        versions[f"with {package} installed"] = ", ".join(
            f"{name} {found[name]}" for name in ("aiohttp", "botocore", "aiobotocore") if name in found
        )
    added = {"threads": sizes["botocore"], "aiobotocore": sizes["aiobotocore"]}
    return python, {side: size - sizes["aiohttp"] for side, size in added.items()}, versions


def rows(runs: dict[str, list[dict[str, float]]], sizes: dict[str, float]) -> Iterator[list[str]]:
    yield ["", *SIDES.values(), "ratio"]
    what = {"start": ("from the import to three clients", "s", 2), "peak": ("peak memory", "MiB", 0)}
    for load, title in (
        ("pages", f"{PAGES} pages of {INSTANCES} instances"),
        ("small", f"{SMALL:,} small calls"),
    ):
        what[f"{load} wall"] = (f"{title}: wall", "s", 2)
        what[f"{load} cpu"] = (f"{title}: CPU", "s", 2)
        what[f"{load} late"] = (f"{title}: maximum delay of the event loop", "ms", 0)
    for key, (title, unit, digits) in what.items():
        scale = 1000 if unit == "ms" else 1
        typical = {side: statistics.median(run[key] for run in found) * scale for side, found in runs.items()}
        shown = []
        for side in SIDES:
            values = [run[key] * scale for run in runs[side]]
            shown.append(f"{typical[side]:.{digits}f} {unit} ({min(values):.{digits}f}-{max(values):.{digits}f})")
        yield [title, *shown, f"{typical['aiobotocore'] / typical['threads']:.2f}x"]
    shown = [f"{sizes[side]:.1f} MiB" for side in SIDES]
    yield ["installed files", *shown, f"{sizes['aiobotocore'] / sizes['threads']:.2f}x"]


def compare(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="ccm-aws-clients-") as folder, server() as url:
        python, sizes, versions = install(Path(folder) / "venv")
        runs: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        environment = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}
        for number in range(-1, rounds):  # the first one compiles
            for side in sorted(SIDES, reverse=bool(number % 2)):
                command = [python, __file__, "--measure", side, url]
                done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
                found = json.loads(done.stdout)
                print(number, side, {key: round(value, 3) for key, value in found.items()}, file=sys.stderr, flush=True)
                if number >= 0:
                    runs[side].append(found)
    head, *others = rows(runs, sizes)
    for row in (head, ["---"] * len(head), *others):
        print(f"| {' | '.join(row)} |")
    print(f"\nPython {sys.version.split()[0]}; {'; '.join(f'{name}: {version}' for name, version in versions.items())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve))
    elif options.measure:
        print(json.dumps(asyncio.run(measure(*options.measure))))
    else:
        compare(options.rounds)
