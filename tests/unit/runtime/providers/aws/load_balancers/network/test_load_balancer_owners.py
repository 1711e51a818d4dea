# SPDX-License-Identifier: Apache-2.0
"""Which Service owns a load balancer, according to its tags."""

from __future__ import annotations

import dataclasses

import pytest

from ccm.cloud import Conflict
from ccm.providers.aws.load_balancers.network import load_balancer_owners as owners

from ...rows import UID, spec

THEIRS = {"kubernetes.io/cluster/kube": "owned", "kubernetes.io/service-name": "default/web"}


def test_our_mark_decides():
    tags = owners.mark_tags(spec(), "one-two")
    assert tags[owners.FINGERPRINT] == "one-two"
    assert owners.is_own(tags, spec(), "kube")
    owners.check(tags, spec(), "kube")
    another = dataclasses.replace(spec(), cluster="other")
    assert not owners.is_own({**THEIRS, **tags}, another, "kube")
    with pytest.raises(Conflict, match="is cluster kube, not of cluster other"):
        owners.check({**THEIRS, **tags}, another, "kube")


def test_without_a_mark_the_tags_of_the_original_decide():
    assert owners.is_own(THEIRS, spec(), "kube")
    assert not owners.is_own(THEIRS, spec(), "other")
    assert not owners.is_own({"kubernetes.io/cluster/kube": "owned"}, spec(), "kube")
    with pytest.raises(Conflict, match="nobody's by its tags"):
        owners.check({}, spec(), "kube")


def test_the_mark_has_the_service_and_no_fingerprint_until_the_end():
    mark = owners.mark_of(owners.mark_tags(spec()))
    assert mark is not None
    assert (mark.uid, mark.cluster, mark.fingerprint, mark.namespace) == (UID, "kube", "", "default")
    assert owners.FINGERPRINT not in owners.mark_tags(spec())


@pytest.mark.parametrize(("text", "half"), [("one-two", "one"), ("", ""), ("one", "one")])
def test_the_half_of_a_fingerprint_without_targets(text, half):
    assert owners.settings_of(text) == half


@pytest.mark.parametrize(
    ("name", "is_ours"), [(spec().default_name, True), ("web", False), ("a" * 32 + "0", False), ("b" + "0" * 31, False)]
)
def test_names(name, is_ours):
    assert bool(owners.NAME.fullmatch(name)) is is_ours
