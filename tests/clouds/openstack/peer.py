# SPDX-License-Identifier: Apache-2.0
"""The released cloud-provider-openstack as a process: same API server, same cloud.conf, same cluster name as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.comparison.peer_process import PeerProcess
from tests.integration.cluster import ApiServer
from tests.ports import free_port

NAME = "openstack-cloud-controller-manager"
#: The controllers that run. Only the tests delete Nodes, and routes have tests of their own.
CONTROLLERS = "*,-cloud-node-lifecycle-controller,-node-route-controller"


class Peer(PeerProcess):
    def __init__(self, apiserver: ApiServer, conf: str, cluster: str, folder: Path, *, syncs: int = 1) -> None:
        """Start the process. `syncs`: how many Services it handles at once; the vendor's default is 1."""
        port = free_port()
        config = folder / f"peer-{port}.conf"
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
        super().__init__(NAME, flags, folder / f"peer-{port}.log")
