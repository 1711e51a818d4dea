# SPDX-License-Identifier: Apache-2.0
"""The released cloud-provider-openstack as a process: same API server, same cloud.conf, same cluster name as ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.ports import free_port

from ..integration.cluster import ApiServer

sys.path.insert(0, str(Path(__file__).parents[1] / "bed"))
from bed import go_programs
from bed.progress import Progress

NAME = "openstack-cloud-controller-manager"
#: The lifecycle of Nodes stays with the tests, and routes have tests of their own.
CONTROLLERS = "*,-cloud-node-lifecycle-controller,-node-route-controller"


class Peer:
    """One process, without leader election. Waits while Go compiles it, minutes where the cache lacks it."""

    def __init__(self, apiserver: ApiServer, conf: str, cluster: str, folder: Path, *, syncs: int = 1) -> None:
        """`syncs`: how many Services it handles at once; the vendor's default is 1."""
        port = free_port()
        config, self.log = folder / f"peer-{port}.conf", folder / f"peer-{port}.log"
        config.write_text(conf)
        flags: dict[str, Any] = {
            "cloud-provider": "openstack",
            "cloud-config": config,
            "kubeconfig": apiserver.kubeconfig(),
            "cluster-name": cluster,
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "webhook-secure-port": 0,
            "cert-dir": folder / f"peer-{port}",
            "leader-elect": "false",
            "controllers": CONTROLLERS,
            "concurrent-service-syncs": syncs,
        }
        program = go_programs.ensure(NAME, Progress())
        with self.log.open("wb") as log:
            command = [str(program), *(f"--{name}={value}" for name, value in flags.items())]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    async def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                await asyncio.to_thread(self.process.wait, 10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                await asyncio.to_thread(self.process.wait)
