# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of the whole runtime: a `ccm` process, and short functions that read and change the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import jsonschema
import pytest

from ccm import cli
from ccm.engine.client import ApiError, KubeClient, NotFoundError
from ccm.engine.objects import Lease, Node, Service

T = TypeVar("T")
#: Seconds after which a waiting test fails. Waits usually take a moment, and no test depends on this number.
DEADLINE = 300.0

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
VOLUMES = "/api/v1/persistentvolumes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/cloud-controller-manager"
#: With these flags, a leader still leads if a busy machine starves it for seconds. `expire` ends a Lease earlier.
PATIENT = {"leader-elect-lease-duration": "120s", "leader-elect-renew-deadline": "100s"}
TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
CLUSTER_CIDR = "10.244.0.0/16"
SCHEMA = Path(__file__).parents[3] / "docs/reference/answers.schema.json"


async def eventually(check: Callable[[], Awaitable[T]], seconds: float = DEADLINE, what: str = "") -> T:
    """Return the first true answer of `check`. Fail with its last answer after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = await check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s: {what or check.__name__}; last answer: {answer!r}")
        await asyncio.sleep(0.05)


async def ask(*arguments: str) -> tuple[int, str, str]:
    """Run a command of `ccm` in a thread, which is quicker than a process. Return exit status, standard output and
    standard error.
    """
    out, err = io.StringIO(), io.StringIO()

    def run() -> int:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return cli.main(list(arguments))

    return await asyncio.to_thread(run), out.getvalue(), err.getvalue()


def documented(answer: Any) -> None:
    """Check the JSON of a command against the schema in docs/reference. Raises jsonschema.ValidationError."""
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(answer)


class Ccm:
    """A `ccm` process. `program`: what Python runs.

    A process does not release its Lease if a write to the cloud was under way. With `kube`, such a Lease is made to
    expire within a second, so that the next process need not wait.
    """

    kube: KubeClient | None = None

    def __init__(self, arguments: list[str], log: Path, port: int, program: Sequence[str] = ("-m", "ccm.cli")) -> None:
        self.log, self.port, self.arguments = log, port, arguments
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, *program, *arguments], stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def text(self) -> str:
        return self.log.read_text()

    async def wait(self, seconds: float = DEADLINE) -> int:
        """Wait until the process ends; return its exit status."""
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), seconds)

    async def until_logged(self, pattern: str, seconds: float = DEADLINE) -> None:
        async def logged() -> bool:
            if self.process.poll() is not None:
                pytest.fail(f"ccm ended with {self.process.returncode}:\n{self.text}")
            return re.search(pattern, self.text) is not None

        await eventually(logged, seconds, f"{pattern!r} in the log:\n{self.text}")

    async def leading(self) -> None:
        await self.until_logged(r"leading; controllers")

    async def get(self, path: str, token: str = "") -> tuple[int, str]:
        """Return status and text. A process that has just logged its first lines may not listen yet."""

        async def listens() -> bool:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", self.port)):
                return True
            return self.process.poll() is not None

        await eventually(listens, what="a process that listens")
        trust_all = ssl.create_default_context()
        trust_all.check_hostname, trust_all.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{self.port}{path}", ssl=trust_all, headers=headers) as answer,
        ):
            return answer.status, await answer.text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                await self.wait(60)
            except TimeoutError:
                self.process.kill()
                await self.wait()
        left = re.findall(r"the Lease kube-system/(\S+) is not released but expires", self.text)
        if self.kube is not None and left:
            with contextlib.suppress(ApiError):
                await expire(self.kube, *left)


def node_body(name: str, *, tainted: bool = True, number: int | None = None, **spec: Any) -> dict[str, Any]:
    if tainted:
        spec["taints"] = [TAINT]
    if number is not None:
        spec["podCIDR"] = f"10.244.{number}.0/24"
        spec["podCIDRs"] = [spec["podCIDR"]]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}


async def set_ready(kube: KubeClient, name: str, status: str) -> None:
    """Set the condition Ready as a kubelet (True) or kube-controller-manager (Unknown) does."""
    condition = {"type": "Ready", "status": status, "reason": "Test", "message": "", "lastHeartbeatTime": None}
    condition["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    await kube.patch(f"{NODES}/{name}/status", {"status": {"conditions": [condition]}}, strategic=True)


async def get_node(kube: KubeClient, name: str) -> Node | None:
    try:
        return await kube.get(f"{NODES}/{name}", Node)
    except NotFoundError:
        return None


def is_tainted(node: Node) -> bool:
    return any(taint.key == TAINT["key"] for taint in node.spec.taints)


async def initialised(kube: KubeClient, *names: str) -> bool:
    nodes = [await get_node(kube, name) for name in names]
    return all(
        node is not None and node.spec.provider_id and node.status.addresses and not is_tainted(node) for node in nodes
    )


async def get_lease(kube: KubeClient) -> Lease:
    return await kube.get(LEASE, Lease)


async def expire(kube: KubeClient, *names: str, seconds: int = 1) -> None:
    """Let the Leases of a killed process expire in `seconds`. Standbys read the duration from the Lease."""
    for name in names or (LEASE.rpartition("/")[2],):
        await kube.patch(f"{LEASES}/{name}", {"spec": {"leaseDurationSeconds": seconds}})


async def event_messages(kube: KubeClient, reason: str, name: str = "") -> list[str]:
    """Return the messages of Events with this reason, about this object if `name` is set."""
    selector = f"reason={reason}" + (f",involvedObject.name={name}" if name else "")
    events = await kube.get("/api/v1/events", dict, params={"fieldSelector": selector})
    return [event["message"] for event in events["items"]]


async def get_service(kube: KubeClient, name: str) -> Service:
    return await kube.get(f"{SERVICES}/{name}", Service)


@contextlib.asynccontextmanager
async def rights(kube: KubeClient, name: str, rules: list[dict[str, Any]]) -> AsyncIterator[None]:
    """Give the user `name` these rights by a ClusterRole, until the block is left."""
    rbac, group = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    meta = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    await kube.create(f"{rbac}/clusterroles", {**meta, "kind": "ClusterRole", "rules": rules})
    binding = {
        **meta,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "apiGroup": group, "name": name}],
    }
    await kube.create(f"{rbac}/clusterrolebindings", binding)
    yield
    await kube.delete(f"{rbac}/clusterrolebindings/{name}")
    await kube.delete(f"{rbac}/clusterroles/{name}")
