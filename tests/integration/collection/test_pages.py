# SPDX-License-Identifier: Apache-2.0
"""The commands of the pages for operators run as they are written, on hosts made of files and processes."""

from __future__ import annotations

import pytest
import yaml

from ccm.engine.client import KubeClient
from tools.docs.commands import command, commands

from ..cluster import ApiServer
from ..shell import shell
from .ansible import REPOSITORY
from .test_layouts import CONTROL_PLANES, Cluster, cluster
from .test_rollback import files, migrated, there

pytestmark = pytest.mark.timeout(900)  # several plays in each test; each takes seconds on an idle machine

__all__ = ["cluster", "migrated"]

UNINSTALL = "docs/how-to/uninstall.md"
MIGRATE = "docs/how-to/migrate.md"
WHEN_A_RUN_FAILS = "docs/how-to/when-a-run-fails.md"


def inventory(cluster: Cluster, apiserver: ApiServer) -> str:
    """Return the inventory of a cluster's hosts in the form that people write."""
    groups: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    for name, machine in cluster.machines.items():
        group = groups.setdefault("kube_control_plane" if name in CONTROL_PLANES else "kube_node", {"hosts": {}})
        group["hosts"][name] = dict(word.split("=", 1) for word in machine.variables.split())
    values = {
        "ccm_install_kubeconfig": str(apiserver.kubeconfig()),
        "ccm_install_provider_id_prefix": "sim://",
        "ccm_runtime_cloud_provider": "sim",
    }
    return yaml.safe_dump({"all": {"vars": values, "children": groups}})


async def test_what_the_pages_say_of_the_way_back(
    cluster: Cluster, kube: KubeClient, apiserver: ApiServer, migrated: dict[str, dict[str, bytes]]
) -> None:
    (cluster.folder / "inventory.yml").write_text(inventory(cluster, apiserver))
    copies = await shell(command(WHEN_A_RUN_FAILS, "kubectl"), cluster.folder, apiserver)
    assert all(f"outoftree-ccm-journal-{name}-" in copies for name in ("w-1", "w-2")), copies

    preview, back = commands(UNINSTALL)
    assert commands(MIGRATE)[-2:] == [preview, back]
    settings = f"export ANSIBLE_CONFIG={REPOSITORY / 'ansible.cfg'}\n"
    after = files(cluster)
    shown = await shell(settings + preview, cluster.folder, seconds=400)
    assert "/var/lib/kubelet/kubeadm-flags.env" in shown and "--cloud-provider=external" in shown, shown[-3000:]
    assert files(cluster) == after != migrated and await there(kube)
    await shell(settings + back, cluster.folder, seconds=400)
    assert files(cluster) == migrated and not await there(kube)
