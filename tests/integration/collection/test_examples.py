# SPDX-License-Identifier: Apache-2.0
"""The EXAMPLES of every module and filter run as they are printed, and return what RETURN says.

They run in check mode in one playbook, against the API server of the tests and hosts of files. What an example assumes
(a plan, a Node called worker-1, a controller that leads) exists there. Only paths of files on the Ansible controller
are replaced.
"""

from __future__ import annotations

import ast
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccm.engine.client import KubeClient

from ..cluster import ApiServer
from .ansible import COLLECTION, REPOSITORY, Run
from .test_ccm_health_info import COMPLETE, NOTES, Rollout, rollout
from .test_layouts import FIXTURES, HOSTS, Cluster, cluster

__all__ = ["cluster", "rollout"]

PLUGINS = REPOSITORY / "plugins"
MODULES = sorted(path.stem for path in PLUGINS.glob("modules/*.py"))
FILTERS = sorted(path.stem for path in PLUGINS.glob("filter/*.py"))
IMAGE = "localhost/outoftree-ccm:0.1.0"
KUBEADM_CONFIG = (FIXTURES / "kubeadm-1.36" / "cluster-configuration.yaml").read_text()
TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "dict": (dict,),
    "float": (float, int),
    "int": (int,),
    "list": (list,),
    "str": (str,),
}


def documentation(kind: str, name: str, block: str) -> Any:
    """Return a block of a plugin's documentation, parsed."""
    tree = ast.parse((PLUGINS / kind / f"{name}.py").read_text())
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == block:
            return yaml.safe_load(ast.literal_eval(statement.value))
    raise AssertionError(f"{name} has no {block}")


def examples(kind: str, name: str) -> list[dict[str, Any]]:
    tasks = documentation(kind, name, "EXAMPLES")
    assert tasks and all(task.get("name") for task in tasks), f"an example of {name} has no name"
    return list(tasks)


def image_archive(path: Path) -> Path:
    """Write an archive with the part of `podman save`'s output that the module reads before it copies anything."""
    manifest = json.dumps([{"Config": "5f0c.json", "RepoTags": [IMAGE], "Layers": []}]).encode()
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.size = len(manifest)
        tar.addfile(info, io.BytesIO(manifest))
    return path


def replaced(task: Any, paths: dict[str, str]) -> Any:
    """Return an example with paths of the tests in place of its own."""
    text = json.dumps(task)
    for old, new in paths.items():
        text = text.replace(old, new)
    return json.loads(text)


async def prepare(cluster: Cluster, kube: KubeClient, rollout: Rollout) -> None:
    """Create a control plane and a worker with files and Nodes, a controller that leads, and one of another vendor."""
    control_plane = cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    cluster.add("worker-1", HOSTS["kubeadm-worker"])
    (control_plane.folder / "bin" / "ctr").write_text("#!/bin/sh\nexit 0\n")
    (control_plane.folder / "bin" / "ctr").chmod(0o755)
    for name in ("kubeadm-cp", "worker-1"):
        addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
        await kube.patch(f"/api/v1/nodes/{name}/status", {"status": {"addresses": addresses}})
    await rollout.daemonset("cloud-controller-manager", **COMPLETE)
    await rollout.pod("cloud-controller-manager-x7k2p", "cloud-controller-manager", "kubeadm-cp")
    now = {"last-cloud-success": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    # The renew time is an hour ahead, so that the Lease does not expire on a busy machine.
    await rollout.lease("cloud-controller-manager", "kubeadm-cp_6f1a", renewed=-3600, notes=NOTES | now)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ClusterConfiguration": KUBEADM_CONFIG}}
    await rollout.create("/api/v1/namespaces/kube-system/configmaps", "kubeadm-config", config)
    container = {"name": "ccm", "image": "example.com/other:1"}
    template = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "other"}}, "template": template}
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
    await rollout.create("/apis/apps/v1/namespaces/kube-system/deployments", "sim-cloud-controller-manager", other)


@pytest.fixture
async def run(apiserver: ApiServer, kube: KubeClient, cluster: Cluster, rollout: Rollout, tmp_path: Path) -> Run:
    """Run every example once."""
    await prepare(cluster, kube, rollout)
    manifest = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
    paths = {
        "/etc/kubernetes/admin.conf": str(apiserver.kubeconfig()),
        "build/images/outoftree-ccm-0.1.0.tar": str(image_archive(tmp_path / "image.tar")),
        "/srv/git/cluster/ccm": str(tmp_path / "rendered"),
    }
    # First on hosts, then where Ansible runs. Later examples use what earlier ones register; those that carry out a
    # plan are last.
    on_hosts = ["ccm_component_flags_info", "ccm_image", "ccm_journal_info"]
    first = ["ccm_cluster_info", "ccm_health_info", "rollback_plan", "rollback_verdict", "leader_migration_plan"]
    first.append("migration_plan")  # last, so that `plan` is its result
    here = [*first, *(name for name in [*MODULES, *FILTERS] if name not in [*on_hosts, *first, "ccm_component_config"])]

    def tasks(names: list[str]) -> list[dict[str, Any]]:
        kinds = {name: "modules" if name in MODULES else "filter" for name in names}
        # Results that no_log hides are compared here, too.
        shown = {"no_log": False}
        return [replaced(task, paths) | shown for name in names for task in examples(kinds[name], name)]

    base = {"gather_facts": False, "check_mode": True}
    steps = "plan.hosts['kubeadm-cp'].control_plane"
    step = f"{{{{ ({steps} | selectattr('component', 'equalto', 'kube-controller-manager'))[0] }}}}"
    detected = (
        "{{ dict(['kubeadm-cp', 'worker-1'] | zip(['kubeadm-cp', 'worker-1'] | map('extract', hostvars, 'flags'))) }}"
    )
    plays = [
        {
            **base,
            "hosts": "kube_control_plane:kube_node",
            "tasks": tasks(["ccm_component_flags_info", "ccm_journal_info"]),
        },
        {**base, "hosts": "kube_control_plane", "tasks": tasks(["ccm_image"])},
        {
            **base,
            "hosts": "localhost",
            "connection": "local",
            "module_defaults": {f"group/{COLLECTION}.api": {"kubeconfig": str(apiserver.kubeconfig())}},
            "vars": {"detected": detected, "objects": [{"kind": "DaemonSet"}], "secret": {"kind": "Secret"}},
            "tasks": tasks(here),
        },
        {
            **base,
            "hosts": "kube_control_plane",
            "vars": {"plan": "{{ hostvars['localhost'].plan }}", "step": step},
            "tasks": tasks(["ccm_component_config"]),
        },
    ]
    before = cluster.machines["kubeadm-cp"].text(manifest)
    done = await cluster.play("/dev/stdin", stdin=json.dumps(plays), seconds=500)
    assert done.status == 0, done.failures
    assert cluster.machines["kubeadm-cp"].text(manifest) == before
    return done


@pytest.mark.timeout(600)
async def test_examples_run_and_return_what_is_documented(run: Run):
    wrong = []
    for name in MODULES:
        mine = [task["name"] for task in examples("modules", name) if f"{COLLECTION}.{name}" in task]
        assert mine, f"no example of {name} calls it"
        for task in mine:
            result = run.named[task]
            for key, entry in documentation("modules", name, "RETURN").items():
                if entry["returned"] in ("always", "success"):
                    wrong += [f"{name} ({task}): {problem}" for problem in differences(key, entry, result)]
    assert not wrong, "\n".join(wrong)


def differences(key: str, entry: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """Return how a result differs from its documentation."""
    if key not in result:
        return [f"{key} is not returned"]
    value = result[key]
    if not isinstance(value, TYPES[entry["type"]]):
        return [f"{key} is {type(value).__name__}, not {entry['type']}"]
    if "contains" in entry and value:
        first = value[0] if isinstance(value, list) else value
        return [f"{key} has no {name}" for name in entry["contains"] if name not in first]
    return [f"{key}: the sample has {name}, the result has not" for name in missing(entry.get("sample"), value)]


def missing(sample: Any, value: Any) -> set[str]:
    """Return the keys that a sample has and the value does not. Of several dictionaries, only the first is compared."""
    if isinstance(sample, list) and isinstance(value, list) and sample and value:
        return missing(sample[0], value[0])
    if not isinstance(sample, dict) or not isinstance(value, dict):
        return set()
    if sample and all(isinstance(item, dict) for item in sample.values()):  # by path, or by component
        return missing(next(iter(sample.values())), next(iter(value.values()))) if value else set()
    return set(sample) - set(value) if value else set()
