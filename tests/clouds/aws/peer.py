# SPDX-License-Identifier: Apache-2.0
"""Runs the released cloud-provider-aws and our runtime as processes, with the same API server, cloud.conf and cluster
name."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from ccm.engine.client import KubeClient
from tests.comparison.peer_process import PeerProcess
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import Ccm
from tests.ports import free_port

from .account import CLUSTER, KEYS, REGION, Account
from .proxy import Proxy

NAME = "aws-cloud-controller-manager"
#: The controllers that run. Only the tests delete Nodes, and routes have tests of their own.
CONTROLLERS = "*,-cloud-node-lifecycle-controller,-node-route-controller"
#: The services of a ServiceOverride, and their names in signatures.
SERVICES = {
    "EC2": "ec2",
    "Elastic Load Balancing": "elasticloadbalancing",
    "Elastic Load Balancing v2": "elasticloadbalancing",
}
#: Environment variables that make both controllers call only the account, and not the instance metadata service.
ENVIRONMENT = {
    **KEYS,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1",
}
#: How many seconds must pass without a call before work counts as done.
QUIET = 2.5
PATIENCE = 120.0


def conf(account: Account, proxy: Proxy, more: str = "", cluster: str = "KubernetesClusterID") -> str:
    """Return the cloud.conf of both controllers. `more`: lines of Global. `cluster`: the key of the cluster's name."""
    lines = [
        "[Global]",
        f"Region = {REGION}",
        f"VPC = {account.vpc}",
        f"SubnetID = {account.subnets['public-a']}",
        f"{cluster} = {CLUSTER}",
        more,
    ]
    for service, signing in SERVICES.items():
        lines += [
            f'[ServiceOverride "{service}"]',
            f'Service = "{service}"',
            f"Region = {REGION}",
            f"URL = {proxy.url}",
            f"SigningRegion = {REGION}",
            f"SigningName = {signing}",
        ]
    return "\n".join([*lines, "[Runtime]", "CallsPerSecond = 10000", "Burst = 10000", ""])


class Two:
    """Starts one of the two controllers at a time, each with the same API server, account and proxy."""

    def __init__(self, apiserver: ApiServer, account: Account, proxy: Proxy, folder: Path) -> None:
        self.apiserver, self.account, self.proxy, self.folder = apiserver, account, proxy, folder

    @contextlib.asynccontextmanager
    async def running(self, which: str, text: str) -> AsyncIterator[Ccm | PeerProcess]:
        """Run one controller. `which`: "ours" or "theirs"; `text`: cloud.conf."""
        port = free_port()
        config, log = self.folder / f"{which}-{port}.conf", self.folder / f"{which}-{port}.log"
        config.write_text(text)
        flags: dict[str, Any] = {
            "cloud-provider": "aws",
            "cloud-config": config,
            "kubeconfig": self.apiserver.kubeconfig(),
            "cluster-name": CLUSTER,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "leader-elect": "false",
            "controllers": CONTROLLERS,
        }
        process: Ccm | PeerProcess
        if which == "theirs":
            theirs = {"webhook-secure-port": 0, "cert-dir": self.folder / f"theirs-{port}", "v": 2}
            process = PeerProcess(NAME, flags | theirs, log, ENVIRONMENT)
        else:
            process = Ccm([f"--{name}={value}" for name, value in flags.items()], log, port)
        try:
            yield process
        finally:
            await process.stop()
            print(process.text[-6000:])  # pytest shows it if the test fails

    async def quiet(self, since: int, *, some: bool = False) -> Counter[str]:
        """Wait until no call has come for a while, and return the calls. `some`: first wait for the first call."""
        seen, began = len(self.proxy.calls), time.monotonic()
        last = began
        while time.monotonic() - last < QUIET or (some and seen == since):
            assert time.monotonic() - began < PATIENCE, self.proxy.counted(since)
            await asyncio.sleep(0.1)
            if (now := len(self.proxy.calls)) != seen:
                seen, last = now, time.monotonic()
        return self.proxy.counted(since)


async def failures(kube: KubeClient, uid: str) -> Counter[str]:
    """Return the messages of Events that say why a Service is not served, and how many times each was written."""
    selector = f"reason=SyncLoadBalancerFailed,involvedObject.uid={uid}"
    events = (await kube.get("/api/v1/events", dict, params={"fieldSelector": selector}))["items"]
    found: Counter[str] = Counter()
    for each in events:
        found[each["message"]] += each.get("count") or 1
    return found


def writes(calls: Mapping[str, int]) -> Counter[str]:
    """Return the calls that are not reads."""
    return Counter({call: count for call, count in calls.items() if "Describe" not in call})
