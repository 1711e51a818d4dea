# SPDX-License-Identifier: Apache-2.0
"""Measures the API server's own limit with the raw generator, which only sends prepared writes: how fast the API server
can be, and which way to write is cheapest (`wire.Form`).
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from ccm.cloud import Address, AddressType, Instance
from ccm.controllers.nodes import node_rules
from ccm.engine.objects import Node, decoder

from . import measure, objects, wire
from .cloud import internal_ip
from .cluster import NODES, Cluster
from .sides import BenchError

Run = dict[str, Any]

#: For the comparison of forms: how many Nodes are written at a time, and how many times each form is measured.
CONCURRENCY, ROUNDS = 16, 3


async def generate(
    cluster: Cluster, say: Callable[[str], None], size: int, concurrency: int, form: wire.Form = wire.FORMS[0]
) -> Run:
    """Measure only the writes that initialise `size` Nodes, as `form` sends them, from a process of their own."""
    await cluster.clear()
    await cluster.create(NODES, (objects.node(number) for number in range(size)))
    requests = [form.requests(target) for target in await targets(cluster)]
    with tempfile.TemporaryDirectory(prefix="ccm-bench-") as folder:
        file = Path(folder) / "requests"
        file.write_bytes(msgspec.msgpack.encode(requests))
        before, etcd = cluster.usage(), measure.usage(cluster.server.pid("etcd"))
        command = [sys.executable, "-m", "tools.bench.generator", str(cluster.kubeconfig), str(concurrency), str(file)]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await child.communicate()
        if child.returncode:
            raise BenchError(f"the generator ended with {child.returncode}")
        seconds, computed = map(float, output.split())
    run = {
        "side": "generator",
        "form": form.name,
        "tuning": f"{concurrency} at a time",
        "size": size,
        "seconds": seconds,
        "cpu": computed,
        "api_cpu": cluster.usage().cpu - before.cpu,
        "etcd_cpu": measure.usage(cluster.server.pid("etcd")).cpu - etcd.cpu,
        "bytes": sum(len(request.body) for requests_ in requests for request in requests_),
    }
    await _check(cluster, form)
    say(
        f"generator, {form.name}, {run['tuning']}: {size} Nodes in {seconds:.2f} s, CPU-s: API server and etcd "
        f"{run['api_cpu']:.1f}, of which etcd {run['etcd_cpu']:.1f}, generator {computed:.1f}"
    )
    return run


async def compare(cluster: Cluster, say: Callable[[str], None], size: int) -> AsyncIterator[Run]:
    """Measure every form once in each round: a machine that is slow for a while slows all forms."""
    for number in range(ROUNDS):
        for form in wire.FORMS:
            yield await generate(cluster, say, size, CONCURRENCY, form) | {"round": number}


async def targets(cluster: Cluster) -> list[wire.Target]:
    """Return the Nodes to initialise, with the patches that our runtime would send, except for the resourceVersion."""
    listed = (await cluster.request("GET", NODES))["items"]
    async with cluster.session.get(cluster.server.url + NODES, headers={"Accept": wire.PROTOBUF}) as answer:
        encoded = list(wire.items_of_list(await answer.read()))
    return [target(item, message) for item, message in zip(listed, encoded, strict=True)]


def target(item: dict[str, Any], encoded: bytes) -> wire.Target:
    name = item["metadata"]["name"]
    number = int(name.rpartition("-")[2])
    instance = Instance(
        provider_id=f"sim://north/i-{number:012x}",
        name=name,
        type="sim.small",
        zone="north-a",
        region="north",
        addresses=(Address(AddressType.INTERNAL_IP, internal_ip(number)),),
    )
    plan = node_rules.plan_initialisation(decoder(Node).decode(json.dumps(item).encode()), instance)
    status, node = (json.loads(json.dumps(patch)) for patch in (plan.status, plan.node))
    for patch in (status, node):
        patch.get("metadata", {}).pop("resourceVersion", None)
    return wire.Target(name, item, encoded, status, node)


async def _check(cluster: Cluster, form: wire.Form) -> None:
    """Raise BenchError if the form has not written complete Nodes, because a form that leaves something out would
    win."""
    for item in (await cluster.request("GET", f"{NODES}?limit=20"))["items"]:
        name = item["metadata"]["name"]
        number = int(name.rpartition("-")[2])
        expected = {
            "addresses": {"InternalIP": internal_ip(number), "Hostname": name},
            "zone": "north-a",
            "type": "sim.small",
            "providerID": f"sim://north/i-{number:012x}",
            # The taint that kube-apiserver's admission adds to a new Node.
            "taints": ["node.kubernetes.io/not-ready"],
            "pool": f"pool-{number % 5}",
        }
        labels = item["metadata"]["labels"]
        found = {
            "addresses": {entry["type"]: entry["address"] for entry in item["status"]["addresses"]},
            "zone": labels.get("topology.kubernetes.io/zone"),
            "type": labels.get("node.kubernetes.io/instance-type"),
            "providerID": item["spec"].get("providerID"),
            "taints": [taint["key"] for taint in item["spec"].get("taints", [])],
            "pool": labels.get("node-role.example/pool"),
        }
        if found != expected:
            raise BenchError(f"{form.name} made {found} of {name}, expected {expected}")
