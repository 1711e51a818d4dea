# SPDX-License-Identifier: Apache-2.0
"""Which objects have volumes of in-tree cloud plug-ins: PersistentVolumes, StorageClasses, templates of Pods, and Pods."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import in_tree_volumes, versions

EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
CONTROLLED = [{"kind": "ReplicaSet", "name": "web-1", "controller": True}]
NAMED = {"namespace": "shop", "name": "web"}


def pod(*volumes: dict[str, Any], node: str = "w-1", phase: str = "Running", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "db-0", **meta},
            "spec": {"nodeName": node, "volumes": list(volumes)}, "status": {"phase": phase}}


def test_every_plug_in_is_known_by_its_field_and_its_provisioner() -> None:
    for volume in versions.IN_TREE_VOLUMES:
        assert in_tree_volumes.source_of({"name": "data", volume.source: {}}) == volume.source
        (found,) = in_tree_volumes.classes([{"metadata": {"name": "c"}, "provisioner": volume.provisioner}])
        assert found == {"name": "c", "source": volume.source, "default": False}
    assert in_tree_volumes.source_of({"csi": {"driver": "ebs.csi.aws.com"}, "cinder": None}) == ""


def test_the_table_of_plug_ins_is_consistent() -> None:
    """The plan assumes that no supported release mounts such a volume itself, and that no gate turns the translation off."""
    for volume in versions.IN_TREE_VOLUMES:
        assert volume.source and volume.provisioner.startswith("kubernetes.io/") and volume.cloud
        stages = [volume.on_in, volume.stable_in, volume.gate_gone_in]
        assert (volume.driver == "") == (stages == [None, None, None])
        known = [stage for stage in stages if stage is not None]
        assert known == sorted(known) and all(stage <= volume.plugin_gone_in for stage in known)
        locked = [fact.fatal_in for fact in versions.FACTS if fact.value == "CSIMigrationAzureFile=false"]
        assert volume.gate_gone_in is None or volume.gate_gone_in <= versions.SUPPORTED[0] or (
            volume.source == "azureFile" and set(locked) == {(1, 27)})
    assert len({volume.source for volume in versions.IN_TREE_VOLUMES}) == len(versions.IN_TREE_VOLUMES) == 7


def test_a_persistent_volume_has_its_claim() -> None:
    items = [
        {"metadata": {"name": "bound"}, "spec": {**EBS, "claimRef": {"namespace": "shop", "name": "data"}}},
        {"metadata": {"name": "free"}, "spec": {"cinder": {"volumeID": "7"}}},
        {"metadata": {"name": "csi"}, "spec": {"csi": {"driver": "ebs.csi.aws.com"}}},
        {"metadata": {"name": "odd"}},
    ]
    assert in_tree_volumes.persistent(items) == [
        {"name": "bound", "source": "awsElasticBlockStore", "claim": "shop/data"}, {"name": "free", "source": "cinder", "claim": ""}]


@pytest.mark.parametrize(("annotations", "default"), [
    (None, False),
    ({"storageclass.kubernetes.io/is-default-class": "true"}, True),
    ({"storageclass.beta.kubernetes.io/is-default-class": "true"}, True),
    ({"storageclass.kubernetes.io/is-default-class": "false"}, False),
])
def test_a_class_is_the_default_by_its_annotation(annotations: dict[str, str] | None, default: bool) -> None:
    items = [{"metadata": {"name": "gp2", "annotations": annotations}, "provisioner": "kubernetes.io/aws-ebs"},
             {"metadata": {"name": "gp3"}, "provisioner": "ebs.csi.aws.com"}, {"metadata": {"name": "none"}}]
    assert in_tree_volumes.classes(items) == [{"name": "gp2", "source": "awsElasticBlockStore", "default": default}]


def test_the_class_of_a_claim_is_in_its_spec_or_in_the_old_annotation() -> None:
    claims: list[dict[str, Any]] = [
        {"metadata": {"name": "a"}, "spec": {"storageClassName": "gp2"}},
        {"metadata": {"name": "b", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}, "spec": {"storageClassName": "gp2"}},
        {"metadata": {"name": "c"}, "spec": {"storageClassName": ""}}, {"metadata": {"name": "d"}},
    ]
    assert in_tree_volumes.class_names(claims) == ["gp2", "old"]


def test_only_classes_that_are_used_or_the_default_count() -> None:
    known = [{"name": "used", "default": False}, {"name": "default", "default": True}, {"name": "neither", "default": False}]
    assert in_tree_volumes.counted(known, ["used", "gp3", "used"]) == [
        {"name": "used", "default": False, "claims": 2}, {"name": "default", "default": True, "claims": 0}]


@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_a_workload_has_the_volumes_of_its_template(kind: str) -> None:
    template = {"template": {"spec": {"volumes": [{"name": "a", **EBS}, {"name": "b", **EBS}, {"name": "c", "azureFile": {}}, {"name": "d", "emptyDir": {}}]}}}
    spec = {"jobTemplate": {"spec": template}} if kind == "CronJob" else template
    workload = {"metadata": NAMED, "spec": spec}
    assert in_tree_volumes.templates(kind, [workload]) == [
        {"kind": kind, **NAMED, "source": "awsElasticBlockStore"}, {"kind": kind, **NAMED, "source": "azureFile"}]
    assert in_tree_volumes.templates(kind, [{**workload, "metadata": {**NAMED, "ownerReferences": CONTROLLED}}]) == []
    other = {"metadata": NAMED, "spec": template if kind == "CronJob" else {"jobTemplate": {"spec": template}}}
    assert in_tree_volumes.templates(kind, [other, {"metadata": NAMED}]) == []


@pytest.mark.parametrize("owner", [{"kind": "App", "name": "x"}, {"kind": "Prometheus", "name": "x", "controller": True}])
def test_a_workload_that_no_controller_of_kubernetes_controls_counts(owner: dict[str, Any]) -> None:
    workload = {"metadata": {**NAMED, "ownerReferences": [owner]}, "spec": {"template": {"spec": {"volumes": [EBS]}}}}
    owned = {**workload, "metadata": {**NAMED, "ownerReferences": CONTROLLED}}
    assert len(in_tree_volumes.templates("Job", [owned, workload, owned])) == 1


def test_a_pod_uses_what_it_names_and_what_its_claims_are_bound_to() -> None:
    claims = {"shop/data": "cinder", "shop/db-0-scratch": "gcePersistentDisk", "other/data": "azureDisk"}
    volumes = [{"name": "a", **EBS}, {"name": "b", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "scratch", "ephemeral": {}},
               {"name": "c", "persistentVolumeClaim": {"claimName": "csi"}}, {"name": "d", "emptyDir": {}}]
    inline = [{"kind": "Pod", "namespace": "shop", "name": "db-0", "source": "awsElasticBlockStore"}]
    whole = {"namespace": "shop", "name": "db-0", "node": "w-1", "sources": ["awsElasticBlockStore", "cinder", "gcePersistentDisk"], "inline": inline}
    assert in_tree_volumes.pods([pod(*volumes)], claims) == [whole]
    assert in_tree_volumes.pods([pod(*volumes, ownerReferences=CONTROLLED)], claims) == [{**whole, "inline": []}]
    assert in_tree_volumes.pods([pod(*volumes[1:2])], claims)[0]["inline"] == []
    assert in_tree_volumes.pods([pod(*volumes[3:]), {"metadata": {"namespace": "shop", "name": "x"}}], claims) == []


@pytest.mark.parametrize(("phase", "counts"), [("Running", True), ("Pending", True), ("Unknown", True), ("Succeeded", False), ("Failed", False)])
def test_a_pod_that_ended_uses_nothing(phase: str, counts: bool) -> None:
    found = in_tree_volumes.pods([pod(EBS, phase=phase), pod(EBS, name="last")], {})
    assert [each["name"] for each in found] == ["db-0", "last"][0 if counts else 1:]


def test_a_pod_without_a_node_is_known() -> None:
    waiting = pod(EBS, node="")
    del waiting["spec"]["nodeName"], waiting["status"]
    assert [found["node"] for found in in_tree_volumes.pods([waiting], {})] == [""]


def test_only_drivers_of_in_tree_volumes_are_kept() -> None:
    assert in_tree_volumes.drivers([{"metadata": {"name": name}} for name in ("ebs.csi.aws.com", "nfs.csi.k8s.io", "")]) == ["ebs.csi.aws.com"]
    nodes: list[dict[str, Any]] = [
        {"metadata": {"name": "w-1"}, "spec": {"drivers": [{"name": "ebs.csi.aws.com"}, {"name": "nfs.csi.k8s.io"}]}},
        {"metadata": {"name": "w-2"}, "spec": {"drivers": None}}, {"metadata": {"name": "w-3"}},
    ]
    assert in_tree_volumes.registered(nodes) == [
        {"name": "w-1", "drivers": ["ebs.csi.aws.com"]}, {"name": "w-2", "drivers": []}, {"name": "w-3", "drivers": []}]
