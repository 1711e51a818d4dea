# SPDX-License-Identifier: Apache-2.0
"""ccm_runtime_vendor in plays, on a real API server: each vendor's objects, and what preflight reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.unit.ccm_runtime_role import rendered

from ..cluster import ApiServer
from .ansible import REPOSITORY, Run, playbook
from .test_layouts import HOSTS, Cluster, cluster
from .test_runs import LOOK, run

pytestmark = pytest.mark.timeout(600)

__all__ = ["cluster"]

FOLDER = REPOSITORY / "roles" / "ccm_runtime" / "files" / "vendors"
FILES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
SECRET = "n0b0dy-may-see-this"


def messages(run: Run) -> str:
    return " ".join(str(result["msg"]) for result in run if "rolls out" in str(result.get("msg")))


def complete(name: str) -> dict[str, Any]:
    """Return variables with everything that the vendor's controller may read."""
    return {
        "ccm_runtime_vendor": name,
        "ccm_runtime_name": f"{name}-ccm",
        "ccm_runtime_cloud_config": "" if FILES[name]["config"] == "none" else SECRET,
        "ccm_runtime_credentials": dict.fromkeys(FILES[name].get("credentials", {}), SECRET),
    }


def test_the_api_server_accepts_the_objects_of_each_vendor(apiserver: ApiServer):
    """The API server validates the objects in full and stores nothing."""
    objects = [
        document
        for name, file in FILES.items()
        for template in ("rbac.yaml.j2", "secret.yaml.j2", "daemonset.yaml.j2")
        for minor in [next(reversed(file.get("images", {"": ""})))]
        for document in rendered(template, **complete(name), ccm_runtime_kubernetes_version=minor)
    ]
    accepted = apiserver.kubectl(
        "create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-", input=yaml.safe_dump_all(objects)
    )
    assert len(accepted.split()) == len(objects) == 8 * len(FILES)


async def test_a_rollout_takes_the_image_for_the_api_servers_version(cluster: Cluster):
    """Even in check mode, the play reads the version, and sends all objects to the API server."""
    rollout = {
        "name": "Roll out",
        "ansible.builtin.include_role": {"name": "outoftree.ccm.ccm_runtime", "tasks_from": "rollout/controller"},
    }
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [rollout]}
    version = json.loads(cluster.apiserver.kubectl("version", "-o", "json"))["serverVersion"]
    # The vendor's newest release may be one minor behind the API server of the tests.
    images = FILES["hcloud"]["images"] | {
        f"{version['major']}.{version['minor']}": "example.com/hcloud:newest"
    }
    variables = complete("hcloud") | {
        "ccm_install_kubeconfig": str(cluster.apiserver.kubeconfig()),
        "__ccm_runtime_vendor": FILES["hcloud"] | {"images": images},
    }
    told = await playbook("/dev/stdin", "--check", "-e", json.dumps(variables), stdin=json.dumps([play]), seconds=480)
    assert told.status == 0, told.output[-3000:]
    assert SECRET not in told.output
    (daemonset,) = [
        result["result"]
        for result in told
        if isinstance(result.get("result"), dict) and result["result"].get("kind") == "DaemonSet"
    ]
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/hcloud:newest"


async def test_a_rollout_removes_what_somebody_added_to_the_node_selector(cluster: Cluster):
    """Somebody stopped the DaemonSet with a label that no Node has. An apply alone would leave that label."""
    variables = complete("hcloud") | {"ccm_runtime_name": "stopped", "ccm_runtime_kubernetes_version": "1.36"}
    (daemonset,) = rendered("daemonset.yaml.j2", **variables)
    wanted = dict(daemonset["spec"]["template"]["spec"]["nodeSelector"])
    daemonset["spec"]["template"]["spec"]["nodeSelector"]["example.com/nowhere"] = "true"
    cluster.apiserver.kubectl("create", "-f", "-", input=json.dumps(daemonset))
    rollout = {"name": "outoftree.ccm.ccm_runtime", "tasks_from": "rollout/controller"}
    tasks = [{"ansible.builtin.include_role": rollout}]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    variables["ccm_install_kubeconfig"] = str(cluster.apiserver.kubeconfig())
    try:
        told = await playbook("/dev/stdin", "--check", "-e", json.dumps(variables), stdin=json.dumps([play]))
    finally:
        cluster.apiserver.kubectl("-n", "kube-system", "delete", "daemonset", "stopped")
    assert told.status == 0, told.output[-3000:]
    (undone,) = [result for name, result in told.tasks if "Undo a stop of the controller" in name]
    assert undone["changed"] and undone["result"]["spec"]["template"]["spec"]["nodeSelector"] == wanted


async def test_preflight_reports_the_vendors_controller_or_all_that_it_needs(cluster: Cluster):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    known: dict[str, Any] = {"ccm_runtime_vendor": "hcloud", "ccm_runtime_kubernetes_version": "1.36"}
    told = await run(cluster, LOOK, **known, ccm_runtime_credentials={"token": SECRET})
    assert told.status == 0, told.output[-3000:]
    assert (
        "rolls out hcloud-cloud-controller-manager (ccm_runtime_vendor: hcloud) with the image "
        "docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.35.0 for Kubernetes 1.36." in messages(told)
    )
    assert SECRET not in told.output
    refused = await run(cluster, LOOK, **known | {"ccm_runtime_kubernetes_version": "1.29"})
    assert refused.status != 0
    (message,) = refused.failures
    assert "hcloud-cloud-controller-manager (ccm_runtime_vendor: hcloud) cannot be rolled out: " in message
    assert "no image for Kubernetes 1.29, set ccm_runtime_image (nearest: 1.32: " in message
    assert "; it requires credentials, set these keys of ccm_runtime_credentials: token." in message


async def test_a_vendor_that_nobody_knows_is_refused_with_the_known_ones(cluster: Cluster):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    told = await run(cluster, LOOK, ccm_runtime_vendor="hetzner")
    assert told.status != 0 and "Traceback" not in told.output
    assert "ccm_runtime_vendor" in told.output and ", ".join(FILES) in told.output and "hetzner" in told.output
