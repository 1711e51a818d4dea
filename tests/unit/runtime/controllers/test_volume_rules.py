# SPDX-License-Identifier: Apache-2.0
"""Which PersistentVolumes the controller asks the cloud about, and what it adds to each."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import VolumeRef
from ccm.controllers.shared.rule_error import RuleError
from ccm.controllers.volumes.volume_rules import PROVISIONED_BY, REGION, ZONE, needs_labels, patch, reference
from ccm.engine.objects import PersistentVolume

CSI = {"csi": {"driver": "d.example", "volumeHandle": "v-1", "fsType": "ext4"}}
FOUND = {ZONE: "north-a", REGION: "north"}


def volume(spec: dict[str, Any] | None = None, **metadata: Any) -> PersistentVolume:
    raw = {
        "metadata": {"name": "pv", "uid": "u", "resourceVersion": "7"} | metadata,
        "spec": CSI if spec is None else spec,
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=PersistentVolume)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (CSI, VolumeRef("d.example", "v-1")),
        ({"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}, VolumeRef("kubernetes.io/aws-ebs", "aws://z/vol-1")),
        ({"cinder": {"volumeID": "c"}}, VolumeRef("kubernetes.io/cinder", "c")),
        ({"gcePersistentDisk": {"pdName": "disk"}}, VolumeRef("kubernetes.io/gce-pd", "disk")),
        ({"azureDisk": {"diskName": "n", "diskURI": "/s/x"}}, VolumeRef("kubernetes.io/azure-disk", "/s/x")),
        ({"vsphereVolume": {"volumePath": "[ds] a"}}, VolumeRef("kubernetes.io/vsphere-volume", "[ds] a")),
        ({"nfs": {"server": "s", "path": "/"}}, None),
        ({"hostPath": {"path": "/"}}, None),
    ],
)
def test_the_volume_behind(spec, expected):
    assert reference(volume(spec)) == expected
    assert needs_labels(volume(spec)) == (expected is not None)


@pytest.mark.parametrize(
    ("metadata", "wanting"),
    [
        ({}, True),
        ({"labels": {ZONE: "z"}}, True),
        ({"labels": FOUND}, False),
        ({"labels": {"failure-domain.beta.kubernetes.io/zone": "z", REGION: "r"}}, False),
        ({"annotations": {PROVISIONED_BY: "d.example"}}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
    ],
)
def test_who_is_asked_about(metadata, wanting):
    assert needs_labels(volume(**metadata)) is wanting


def affinity(changed: dict[str, Any]) -> list[dict[str, Any]]:
    (term,) = changed["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return term["matchExpressions"]


def test_labels_and_affinity():
    changed = patch(volume(), FOUND)
    assert changed["metadata"] == {"uid": "u", "resourceVersion": "7", "labels": FOUND}
    assert affinity(changed) == [
        {"key": REGION, "operator": "In", "values": ["north"]},
        {"key": ZONE, "operator": "In", "values": ["north-a"]},
    ]


def test_a_volume_in_two_zones():
    changed = patch(volume(), {ZONE: "b__a"})
    assert changed["metadata"]["labels"] == {ZONE: "b__a"}
    assert affinity(changed) == [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]


def test_an_affinity_that_is_there_stays():
    assert "spec" not in patch(volume({**CSI, "nodeAffinity": {"required": {"nodeSelectorTerms": []}}}), FOUND)


def test_a_label_that_is_there_is_not_overruled():
    assert patch(volume(labels={ZONE: "mine"}), FOUND)["metadata"]["labels"] == {REGION: "north"}
    assert patch(volume(labels={"failure-domain.beta.kubernetes.io/zone": "mine"}), {ZONE: "z"}) is None


@pytest.mark.parametrize("labels", [{}, {ZONE: ""}])
def test_nothing_found_writes_nothing(labels):
    assert patch(volume(), labels) is None


def test_an_empty_zone_among_several_is_refused():
    with pytest.raises(RuleError, match="a zone is empty"):
        patch(volume(), {ZONE: "a____b"})


@given(
    have=st.dictionaries(st.sampled_from([ZONE, REGION, "other"]), st.sampled_from(["a", "b"])),
    labels=st.dictionaries(st.sampled_from([ZONE, REGION, "more"]), st.sampled_from(["", "x", "y"])),
)
def test_once_is_enough_and_nothing_is_lost(have, labels):
    changed = patch(volume(labels=have), labels)
    after = have | (changed["metadata"]["labels"] if changed else {})
    assert after.items() >= have.items()
    assert after.keys() >= {key for key, value in labels.items() if value}
    assert patch(volume(labels=after), labels) is None
