# SPDX-License-Identifier: Apache-2.0
"""Volumes of in-tree plug-ins on a real API server: which volumes are found and with which rights, and what preflight
says about them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.docs import kubernetes_versions
from tools.docs.commands import ROOT, commands

from ..cluster import ApiServer
from ..shell import shell
from .ansible import call, task
from .test_layouts import HOSTS, Cluster, cluster

__all__ = ["cluster"]

NODE = "kubeadm-cp"
PAGE = "docs/how-to/volumes.md"
EBS, DRIVER = "awsElasticBlockStore", "ebs.csi.aws.com"
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
#: What the user of a test may read: all resources that a plan needs, except six about volumes.
OTHERS = [
    *("nodes", "services", "configmaps", "secrets", "serviceaccounts", "deployments", "daemonsets", "leases"),
    *("roles", "rolebindings", "clusterroles", "clusterrolebindings", "certificatesigningrequests"),
    *("storageclasses", "statefulsets", "jobs"),
]


def named(kind: str, name: str, version: str = "v1", *, meta: dict[str, Any] | None = None, **fields: Any) -> Any:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name} | (meta or {}), **fields}


def persistent_volume(name: str, source: dict[str, Any], claim: str = "") -> Any:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **source}
    if claim:
        spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    return named("PersistentVolume", name, spec=spec)


def pod_spec(*volumes: dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"name": f"v{number}", **volume} for number, volume in enumerate(volumes)]
    return {"containers": [{"name": "main", "image": "registry.example.com/x:1"}], "volumes": listed, **more}


def workload(kind: str, name: str, version: str, *volumes: dict[str, Any]) -> Any:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(*volumes)}
    return named(kind, name, version, spec={"selector": {"matchLabels": labels}, "template": template})


EBS_CLAIM = {"persistentVolumeClaim": {"claimName": "vol-data"}}
CINDER = {"cinder": {"volumeID": "7f2c"}}
CSI = {"csi": {"driver": DRIVER, "volumeHandle": "vol-9"}}
JOB_SPEC = {"template": {"spec": pod_spec(CINDER, restartPolicy="Never")}}
OBJECTS = [
    persistent_volume("vol-bound", {EBS: {"volumeID": "vol-1"}}, "vol-data"),
    persistent_volume("vol-csi", CSI, "vol-other"),
    named(
        "StorageClass",
        "vol-gp2",
        "storage.k8s.io/v1",
        meta={"annotations": DEFAULT},
        provisioner="kubernetes.io/aws-ebs",
    ),
    named("StorageClass", "vol-unused", "storage.k8s.io/v1", provisioner="kubernetes.io/gce-pd"),
    named(
        "PersistentVolumeClaim",
        "vol-data",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "vol-gp2",
            "volumeName": "vol-bound",
        },
    ),
    named("Pod", "vol-db", spec=pod_spec(EBS_CLAIM, nodeName=NODE)),
    named("Pod", "vol-plain", spec=pod_spec({"emptyDir": {}}, nodeName=NODE)),
    workload("Deployment", "vol-web", "apps/v1", {"azureFile": {"secretName": "s", "shareName": "x"}}),
    named("CronJob", "vol-night", "batch/v1", spec={"schedule": "0 3 * * *", "jobTemplate": {"spec": JOB_SPEC}}),
]
SERVED = [
    named("CSIDriver", DRIVER, "storage.k8s.io/v1", spec={}),
    named("CSINode", NODE, "storage.k8s.io/v1", spec={"drivers": [{"name": DRIVER, "nodeID": "i-1"}]}),
]


BODIES: dict[str, dict[str, Any]] = {
    "gcePersistentDisk": {"gcePersistentDisk": {"pdName": "disk"}},
    "azureDisk": {"azureDisk": {"diskName": "disk", "diskURI": "/subscriptions/1/disks/disk", "kind": "Managed"}},
    "azureFile": {"azureFile": {"secretName": "s", "shareName": "x", "secretNamespace": "default"}},
    "cinder": CINDER,
    "vsphereVolume": {"vsphereVolume": {"volumePath": "[store] disk.vmdk"}},
}


@contextlib.contextmanager
def there(apiserver: ApiServer, objects: list[Any]) -> Iterator[None]:
    """Create the objects. Afterwards, delete them and remove their finalizers, which no controller does here."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    apiserver.kubectl("create", "-f", "-", input=text)
    try:
        yield
    finally:
        apiserver.kubectl("delete", "-f", "-", "--wait=false", "--grace-period=0", "--force", input=text)
        for each in objects:
            with contextlib.suppress(subprocess.CalledProcessError):  # gone already
                free = '{"metadata": {"finalizers": null}}'
                apiserver.kubectl("patch", each["kind"], each["metadata"]["name"], "--type=merge", "-p", free)


@pytest.fixture
def volumes(apiserver: ApiServer) -> Iterator[None]:
    with there(apiserver, OBJECTS):
        yield


async def test_every_object_with_such_a_volume_is_found(apiserver: ApiServer, kubeconfig: str, volumes: None) -> None:
    with there(apiserver, SERVED):
        unasked, asked = await call(kubeconfig, task("ccm_cluster_info"), task("ccm_cluster_info", volumes=True))
    assert unasked["volumes"] == {}
    assert asked["volumes"] == {
        "persistent": [{"name": "vol-bound", "source": EBS, "claim": "default/vol-data"}],
        "classes": [{"name": "vol-gp2", "source": EBS, "default": True, "claims": 1}],
        "inline": [
            {"kind": "CronJob", "namespace": "default", "name": "vol-night", "source": "cinder"},
            {"kind": "Deployment", "namespace": "default", "name": "vol-web", "source": "azureFile"},
        ],
        "pods": [{"namespace": "default", "name": "vol-db", "node": NODE, "sources": [EBS]}],
        "drivers": [DRIVER],
        "nodes": {NODE: [DRIVER]},
        "unread": [],
    }


async def test_a_missing_right_is_named_and_what_may_be_read_is_read(apiserver: ApiServer, volumes: None) -> None:
    rules = [{"apiGroups": ["*"], "resources": OTHERS, "verbs": ["get", "list"]}]
    subject = {"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "vol-reader", "apiGroup": "rbac.authorization.k8s.io"}
    version = "rbac.authorization.k8s.io/v1"
    rights = [
        named("ClusterRole", "vol-reader", version, rules=rules),
        named("ClusterRoleBinding", "vol-reader", version, roleRef=role, subjects=[subject]),
    ]
    reader = str(apiserver.kubeconfig("vol-reader", ["readers"]))
    with there(apiserver, rights):
        (found,) = await call(reader, task("ccm_cluster_info", volumes=True))
    assert not found.get("failed"), found["msg"]
    assert sorted(found["volumes"]["unread"]) == [
        "cronjobs.batch",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
    ]
    assert [item["name"] for item in found["volumes"]["classes"]] == ["vol-gp2"]
    assert [item["name"] for item in found["volumes"]["inline"]] == ["vol-web"]


async def test_preflight_is_a_no_go_until_the_operator_accepts_it(cluster: Cluster, volumes: None) -> None:
    cluster.add(NODE, HOSTS[NODE])
    run = await cluster.play("playbooks/preflight.yml")
    problem = (
        f"the run restarts the kubelet on Node {NODE}, where Pods use volumes of {EBS}, but the CSI driver {DRIVER} is "
        "not installed, and not registered there (CSINode). The kubelet could then neither unmount these volumes nor "
        f"mount them again: default/vol-db. Install the driver on Node {NODE}, then run again. If it need not be "
        f"there, add {DRIVER} to ccm_install_ignore"
    )
    assert run.status != 0 and run.failures[-1].startswith(f"Nothing was changed. {problem}"), run.output[-3000:]
    assert f"then run: ansible-playbook -i {cluster.folder}/inventory.ini outoftree.ccm.preflight" in run.failures[-1]
    assert cluster.report["problems"] == [problem]
    assert [row["source"] for row in cluster.report["volumes"]] == [EBS, "azureFile", "cinder"]
    assert sum("there is no such CSIDriver" in text for text in cluster.report["warnings"]) == 2

    page = cluster.folder / "report.html"
    accepted = {"ccm_install_ignore": [DRIVER], "ccm_install_report_file": str(page)}
    again = await cluster.play("playbooks/preflight.yml", **accepted)
    assert again.status == 0, again.failures
    text = page.read_text()
    assert "The run can start (GO)." in text and "ccm_install_ignore accepts this" in text
    assert (
        "PersistentVolume vol-bound; StorageClass vol-gp2 (default, 1 claim(s)); used by 1 Pod(s) on 1 Node(s)" in text
    )


async def test_the_commands_of_the_page_show_drivers_and_volumes(
    apiserver: ApiServer, volumes: None, tmp_path: Path
) -> None:
    versions = kubernetes_versions.load()
    shown = [each for each in commands(PAGE) if each.startswith("kubectl get")]
    plug_ins = [volume for volume in versions.IN_TREE_VOLUMES if volume.driver and volume.source != EBS]
    disks = [
        persistent_volume(f"vol-{volume.cloud.lower()}-{volume.source.lower()}", BODIES[volume.source])
        for volume in plug_ins
    ]
    drivers = [named("CSIDriver", volume.driver, "storage.k8s.io/v1", spec={}) for volume in plug_ins]
    with there(apiserver, SERVED + drivers + disks):
        answers = {each: await shell(each, tmp_path, apiserver) for each in shown}
    nodes, classes = (answers[each] for each in shown[:2])
    assert nodes.split()[-2:] == [NODE, DRIVER] and "kubernetes.io/aws-ebs" in classes
    assert [answer for command, answer in answers.items() if "jsonpath" in command] == ["vol-bound\n"] + [
        f"vol-{name}\n"
        for name in (
            "gce-gcepersistentdisk",
            "azure-azuredisk",
            "azure-azurefile",
            "openstack-cinder",
            "vsphere-vspherevolume",
        )
    ]
    for volume in versions.IN_TREE_VOLUMES:
        if volume.driver:
            (answer,) = (text for command, text in answers.items() if f" {volume.driver}" in command)
            assert volume.driver in answer.split()
            assert f"| `{volume.source}`, `{volume.provisioner}` | `{volume.driver}` |" in (ROOT / PAGE).read_text()
