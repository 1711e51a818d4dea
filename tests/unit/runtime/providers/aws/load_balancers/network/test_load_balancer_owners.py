# SPDX-License-Identifier: Apache-2.0
"""Which Service owns a load balancer, according to its tags."""

from __future__ import annotations

import dataclasses

import pytest

from ccm.cloud import Conflict, Kept, LoadBalancerSpec
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
    with pytest.raises(Conflict, match="is of cluster kube, not of cluster other"):
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


def test_one_that_is_kept_is_nobodys_and_its_namespace_gets_it_back():
    mine = {**THEIRS, **owners.mark_tags(dataclasses.replace(spec(), keep=Kept.LOAD_BALANCER), "one", dual_stack=True)}
    gone = LoadBalancerSpec("kube", UID, "", "", ())  # the namespace comes from the mark
    kept = {**mine, **owners.kept_tags(mine, gone)}
    assert owners.mark_of(kept) is None and not owners.is_own(kept, spec(), "kube")
    assert (owners.kept_for(kept, "kube"), owners.kept_for(kept, "other"), owners.kept_for(mine, "kube")) == (
        "default",
        "",
        "",
    )
    assert owners.flags_of(kept) == owners.DUAL_STACK, "what this provider may take away again"
    with pytest.raises(Conflict, match="kept for namespace default"):
        owners.check(kept, spec(), "kube")
    again = dataclasses.replace(spec(), uid="another")
    taken = {**kept, **owners.taken_back_tags(kept, again)}
    assert owners.is_own(taken, again, "kube") and not owners.is_own(taken, spec(), "kube")
    assert not owners.kept_for(taken, "kube") and owners.flags_of(taken) == owners.DUAL_STACK


def test_the_name_in_an_arn():
    arn = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/a1/0f1e"
    assert owners.name_of(arn) == "a1"


@pytest.mark.parametrize(("text", "half"), [("one-two", "one"), ("", ""), ("one", "one")])
def test_the_half_of_a_fingerprint_without_targets(text, half):
    assert owners.settings_of(text) == half


@pytest.mark.parametrize(
    ("name", "is_ours"), [(spec().default_name, True), ("web", False), ("a" * 32 + "0", False), ("b" + "0" * 31, False)]
)
def test_names(name, is_ours):
    assert bool(owners.NAME.fullmatch(name)) is is_ours
