# SPDX-License-Identifier: Apache-2.0
"""Which EBS volume a PersistentVolume names, and which labels the PersistentVolume gets."""

from __future__ import annotations

import pytest

from ccm.cloud import Invalid, NotFound, NotImplementedByCloud, Transient, VolumeRef
from ccm.providers.aws.volume_rules import REGION, ZONE, labels, volume_id

CSI, IN_TREE = "ebs.csi.aws.com", "kubernetes.io/aws-ebs"
ID = "vol-0123456789abcdef0"


@pytest.mark.parametrize(
    ("driver", "handle", "id"),
    [
        (CSI, ID, ID),
        (CSI, "vol-12345678", "vol-12345678"),
        (IN_TREE, ID, ID),
        (IN_TREE, f"aws://eu-central-1a/{ID}", ID),
        (IN_TREE, f"aws:///{ID}", ID),
        (IN_TREE, f"aws://us-west-2-lax-1a/{ID}", ID),
    ],
)
def test_every_form_of_a_handle_means_its_volume(driver, handle, id):
    assert volume_id(VolumeRef(driver, handle)) == id


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "vol-",
        "vol-0123",
        "vol-0123456789ABCDEF0",
        f"{ID}\n",
        f"{ID},vol-12345678",
        "vol-*",
        "snap-0123456789abcdef0",
        f"aws://eu-central-1a/x/{ID}",
        f"aws:/{ID}",
        f"gce://eu-central-1a/{ID}",
        "aws:///i-0123456789abcdef0",
    ],
)
@pytest.mark.parametrize("driver", [CSI, IN_TREE])
def test_another_form_is_refused_before_any_call(driver, handle):
    with pytest.raises(Invalid, match="is not of the form vol-"):
        volume_id(VolumeRef(driver, handle))


@pytest.mark.parametrize("driver", ["", "efs.csi.aws.com", "kubernetes.io/cinder", "EBS.csi.aws.com"])
def test_volumes_of_others_are_none_of_ours(driver):
    with pytest.raises(NotImplementedByCloud, match="are not EBS volumes"):
        volume_id(VolumeRef(driver, ID))


@pytest.mark.parametrize("state", ["creating", "available", "in-use", "error"])
@pytest.mark.parametrize("zone", ["eu-central-1a", "eu-central-1-ham-1a"])
def test_a_volume_has_its_zone_and_the_region(state, zone):
    """The region is the Nodes' region, also in a local zone."""
    rows = {ID: {"VolumeId": ID, "AvailabilityZone": zone, "State": state}}
    assert labels(ID, rows, "eu-central-1") == {ZONE: zone, REGION: "eu-central-1"}


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ({}, NotFound),
        ({"vol-12345678": {"AvailabilityZone": "a", "State": "available"}}, NotFound),
        ({ID: {"AvailabilityZone": "a", "State": "deleting"}}, NotFound),
        ({ID: {"AvailabilityZone": "a", "State": "deleted"}}, NotFound),
        ({ID: {"State": "available"}}, Transient),
    ],
)
def test_what_has_no_labels(rows, error):
    with pytest.raises(error, match=ID):
        labels(ID, rows, "eu-central-1")
