# SPDX-License-Identifier: Apache-2.0
"""The whole runtime as real processes, between a real kube-apiserver and the simulated cloud over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator, running_simulator
from tests.ports import free_port

from ..cluster import ApiServer
from .support import CLUSTER_CIDR, PATIENT, Ccm, rights

StartCcm = Callable[..., Ccm]


@pytest.fixture
async def cloud() -> AsyncIterator[Simulator]:
    """Run a simulated cloud with one empty project."""
    config = {
        "projects": [
            {
                "name": "demo",
                "token": "demo-token",
                "region": "north",
                "load_balancer_addresses": "203.0.113.10-203.0.113.99",
            }
        ]
    }
    async with running_simulator(config) as simulator:
        yield simulator


@pytest.fixture
async def start_ccm(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, tmp_path: Path
) -> AsyncIterator[StartCcm]:
    """Yield a function that starts `ccm` processes, which are stopped at the end."""
    started: list[Ccm] = []

    def start(
        *,
        conf: str | None = None,
        kubeconfig: Path | None = None,
        without: tuple[str, ...] = (),
        program: Sequence[str] = ("-m", "ccm.cli"),
        **flags: Any,
    ) -> Ccm:
        number, port = len(started), free_port()
        config = tmp_path / f"cloud-{number}.conf"
        config.write_text(cloud.conf() if conf is None else conf)
        values: dict[str, Any] = {
            "cloud-provider": "sim",
            "cloud-config": config,
            "kubeconfig": kubeconfig or apiserver.kubeconfig(),
            "cluster-cidr": CLUSTER_CIDR,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            **PATIENT,
        } | {name.replace("_", "-"): value for name, value in flags.items()}
        arguments = [f"--{name}={value}" for name, value in values.items() if name not in without]
        process = Ccm(arguments, tmp_path / f"ccm-{number}.log", port, program)
        process.kube = kube
        started.append(process)
        return process

    yield start
    for process in started:
        await process.stop()
        print(process.text)  # pytest shows it if the test fails


@pytest.fixture
def admin_token(apiserver: ApiServer) -> str:
    """Return a bearer token that may read everything."""
    return apiserver.token


@pytest.fixture
async def cluster_role_without(kube: KubeClient) -> AsyncIterator[None]:
    """Give the user `ccm-without-delete` all rights that the runtime needs, except deleting Nodes."""
    name = "ccm-without-delete"
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["nodes/status", "services/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    async with rights(kube, name, rules):
        yield
