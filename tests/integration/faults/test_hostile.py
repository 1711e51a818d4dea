# SPDX-License-Identifier: Apache-2.0
"""Many hostile Services and Nodes that a real API server admits, beside healthy ones."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm.engine.client import ApiError, KubeClient
from ccm.engine.objects import Lease
from ccm_simcloud.testing import Simulator
from tests.ports import free_port
from tests.unit.runtime.loop_watch import HOPELESS, MOST

from ..cluster import ApiServer
from ..runtime.support import (
    CLUSTER_CIDR,
    NODES,
    PATIENT,
    SERVICES,
    Ccm,
    eventually,
    get_lease,
    initialised,
    node_body,
)
from ..runtime.test_services_and_routes import served, service_body
from .conftest import FAST, StartCcm

pytestmark = pytest.mark.threat("tenant-cannot-stop-the-controller")

RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
NODE_IP = "alpha.kubernetes.io/provided-node-ip"


def deep_fields(levels: int) -> str:
    return '{"f:metadata":' + '{"f:a":' * levels + "{}" + "}" * levels + "}"


def nested(body: dict[str, Any], levels: int = 9000) -> msgspec.Raw:
    """Return an object with `managedFields` that are `levels` deep. Everybody who may create the object may write
    them."""
    entry = {
        **{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"},
        **{"time": "2026-01-01T00:00:00Z", "fieldsV1": "FIELDS"},
    }
    document = {**body, "metadata": {**body["metadata"], "managedFields": [entry]}}
    return msgspec.Raw(json.dumps(document).replace('"FIELDS"', deep_fields(levels)).encode())


def cidrs(count: int) -> list[str]:
    return [f"{n >> 8 & 255}.{n & 255}.{n >> 16 & 255}.0/24" for n in range(count)]


def hostile_services(seed: int) -> list[Any]:
    random_one = random.Random(seed)
    texts = ["~(((.*)*)*)*X", "\x1b[2J", "a\nb", "\u202e", "9" * 5000, "${x}", "../..", "(" * 1000, "é" * 1000, "["]

    def text() -> str:
        return random_one.choice(texts)

    bodies: list[Any] = [
        nested(service_body("nested-0")),
        nested(service_body("nested-1", type="ClusterIP"), levels=1500),
        service_body("many-ranges", loadBalancerSourceRanges=cidrs(20_000)),
        service_body("same-range", loadBalancerSourceRanges=["10.0.0.0/8"] * 50_000),
        service_body("long-address", loadBalancerIP="1" * 700_000),
        service_body("lines", loadBalancerIP="\n2026-01-01T00:00:00Z INFO forged" * 10_000),
        service_body(
            "many-ports",
            allocateLoadBalancerNodePorts=False,
            ports=[{"name": f"p{n}", "port": n + 1, "protocol": "TCP"} for n in range(3000)],
        ),
    ]
    for number in range(100):
        body = service_body(
            f"hostile-{number}",
            random_one.randint(1, 65535),
            loadBalancerIP=random_one.choice(["", "", "", text(), "::ffff:10.0.0.1", "169.254.169.254"]),
            type=random_one.choice(["LoadBalancer"] * 4 + ["ClusterIP"]),
            allocateLoadBalancerNodePorts=random_one.choice([True, False]),
            sessionAffinity=random_one.choice(["None", "ClientIP"]),
        )
        body["metadata"]["annotations"] = {f"example.com/{n}": text() * random_one.randint(1, 5) for n in range(5)}
        if random_one.random() < 0.2:
            body["metadata"]["annotations"][RANGES] = ",".join(cidrs(random_one.choice([1, 500, 15_000])))
        if random_one.random() < 0.2:
            body["metadata"]["finalizers"] = [f"example.com/{n}" for n in range(random_one.choice([1, 2000]))]
        bodies.append(body)
    return bodies


def hostile_nodes(seed: int) -> list[Any]:
    random_one = random.Random(seed)
    bodies: list[Any] = [nested(node_body("nested-node"))]
    for number in range(50):
        body = node_body(
            f"hostile-node-{number}",
            tainted=random_one.random() < 0.7,
            providerID=random_one.choice(
                ["", "sim://north/i-ffffffffffff", "x" * 300_000, "\n\x1b[2J", "sim://north/../.."]
            ),
        )
        cidr = random_one.choice(["8.8.8.0/24", "169.254.169.254/32", "10.244.0.0/16", "0.0.0.0/0", ""])
        if cidr:
            body["spec"] |= {"podCIDR": cidr, "podCIDRs": [cidr]}
        body["metadata"]["annotations"] = {
            NODE_IP: random_one.choice(
                ["10.0.0.1", ",".join(["10.0.0.1"] * 20_000), "9" * 200_000, "\n\x1b[2J", "fe80::1%e"]
            )
        }
        hostname = [{"type": "Hostname", "address": "\x1b[2J\n" * random_one.choice([1, 10_000])}]
        many = [
            {"type": "InternalIP", "address": f"10.9.{n >> 8}.{n & 255}"}
            for n in range(random_one.choice([1, 1, 1, 3000]))
        ]
        body["status"] = {"addresses": many + hostname}
        bodies.append(body)
    return bodies


async def admit(kube: KubeClient, path: str, bodies: list[Any]) -> int:
    """Create objects, two at a time, so that the API server can do its other work; return how many it accepted."""
    slots = asyncio.Semaphore(2)

    async def one(body: Any) -> bool:
        async with slots:
            try:
                await kube.create(path, body)
            except ApiError as error:
                assert 400 <= error.status < 500, error
                return False
            return True

    return sum(await asyncio.gather(*map(one, bodies)))


class WatchedCcm(Ccm):
    def __init__(self, arguments: list[str], folder: Path, port: int) -> None:
        self.log, self.port, self.arguments = folder / "watched.log", port, arguments
        self.most = folder / "most.json"
        script = Path(__file__).with_name("watched_ccm.py")
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(script), str(self.most), *arguments], stdout=output, stderr=subprocess.STDOUT
            )


@pytest.fixture
async def ccm(apiserver: ApiServer, cloud: Simulator, kube: KubeClient, tmp_path: Path) -> AsyncIterator[WatchedCcm]:
    port = free_port()
    (tmp_path / "cloud.conf").write_text(cloud.conf())
    flags = {
        **{"cloud-provider": "sim", "cloud-config": tmp_path / "cloud.conf", "kubeconfig": apiserver.kubeconfig()},
        **{"cluster-cidr": CLUSTER_CIDR, "bind-address": "127.0.0.1", "secure-port": port},
        **PATIENT,
        **{name.replace("_", "-"): value for name, value in FAST.items()},
    }
    process = WatchedCcm([f"--{name}={value}" for name, value in flags.items()], tmp_path, port)
    yield process
    await process.stop()
    print(process.text[-20_000:])


async def test_healthy_ones_are_served_beside_hostile_ones(
    kube: KubeClient, cloud: Simulator, ccm: WatchedCcm, start_ccm: StartCcm
):
    await ccm.leading()
    cloud.add_instances(3, prefix="healthy-")
    await kube.create(NODES, node_body("healthy-0", number=1))
    await eventually(lambda: initialised(kube, "healthy-0"))
    ccm.signal(signal.SIGUSR1)  # do not count the start: imports, certificates
    before = await get_lease(kube)
    admitted = await admit(kube, SERVICES, hostile_services(7)), await admit(kube, NODES, hostile_nodes(7))
    assert admitted[0] > 60 and admitted[1] > 20, "the API server takes most of them"
    await kube.create(NODES, node_body("healthy-1", number=2))
    await kube.create(SERVICES, service_body("healthy"))
    await eventually(lambda: initialised(kube, "healthy-1"))
    service = await eventually(lambda: served(kube, "healthy"))

    async def renewed() -> Lease | None:
        """Return the Lease if its holder has renewed it since `last`, otherwise None."""
        lease = await get_lease(kube)
        return lease if lease.spec.renew_time != last.spec.renew_time else None

    last = await get_lease(kube)
    after = await eventually(renewed)
    assert after.spec.holder_identity == before.spec.holder_identity
    assert after.spec.lease_transitions == before.spec.lease_transitions
    assert ccm.process.poll() is None
    for line in ccm.text.splitlines():
        assert line.isprintable() and len(line) < 30_000
        assert not line.startswith("2026-01-01T00:00:00Z INFO forged")
    most = json.loads(ccm.most.read_text())
    (lines, what), (seconds, slowest) = most["lines"], most["seconds"]
    assert lines < MOST, f"{what} took the event loop for {lines:,} lines of Python"
    assert seconds < HOPELESS, f"{slowest} took the event loop for {seconds:.1f} s of CPU"
    owners = {balancer.tags["service_uid"] for balancer in _balancers(cloud) if "service_uid" in balancer.tags}
    assert service.metadata.uid in owners
    # A new leader lists all hostile objects.
    await ccm.stop()
    second = start_ccm(**FAST)
    await second.leading()
    await kube.create(NODES, node_body("healthy-2", number=3))
    await kube.create(SERVICES, service_body("healthy-again", 81))
    await eventually(lambda: initialised(kube, "healthy-2"))
    await eventually(lambda: served(kube, "healthy-again"))
    assert second.process.poll() is None


def _balancers(cloud: Simulator) -> list[Any]:
    table = cloud.project().load_balancers
    return [table.get(id_) for id_ in table.ids]
