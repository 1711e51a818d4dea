# SPDX-License-Identifier: Apache-2.0
"""Marks that name the owner of a load balancer, in each form that clouds can store."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Ingress, LoadBalancerSpec
from ccm.cloud.toolkit.ownership_marks import (
    LABEL_VALUE,
    Mark,
    choose,
    cluster_tag,
    digest,
    is_known,
    label_text,
    namespace_tag,
)

UID = "7f8a2b1c-0000-4000-8000-000000000001"
LABEL = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


def spec(cluster="kubernetes", uid=UID, namespace="shop", name="web", **fields):
    return LoadBalancerSpec(cluster, uid, namespace, name, (), **fields)


def mark(cluster="kubernetes", uid=UID, **fields):
    return Mark.made_for(spec(cluster, uid), "lb-of-web", fields.pop("fingerprint", "abc-def"), **fields)


CLUSTERS = st.text(min_size=1, max_size=300)


@given(cluster=CLUSTERS, flags=st.sampled_from(["", "f", "fkp"]))
def test_one_tag_comes_back_as_it_was(cluster, flags):
    made = mark(cluster, flags=flags)
    assert Mark.parse(str(made)) == made and made.is_of(cluster, UID)
    assert len(str(made)) <= 255


@given(cluster=CLUSTERS)
def test_labels_fit_and_say_whose_it_is(cluster):
    labels = mark(cluster).labels("ccm-")
    assert all(LABEL.fullmatch(value) and len(value) <= 63 for value in labels.values())
    found = Mark.from_labels({**labels, "other": "label"}, "ccm-")
    assert found.is_of(cluster, UID) and found.names("lb-of-web") and found.fingerprint == "abc-def"


def test_pairs_of_key_and_value_come_back():
    pairs = mark().pairs("ccm-")
    assert {"Key": "ccm-uid", "Value": UID} in pairs
    assert Mark.from_pairs([*pairs, {"Key": "Name", "Value": "x"}], "ccm-") == mark()
    lower = mark().pairs("ccm-", key="name", value="val")
    assert Mark.from_pairs(lower, "ccm-", key="name", value="val") == mark()


@pytest.mark.parametrize("other", [("other", UID), ("kubernetes", "another"), ("kubernete", UID), ("", UID)])
def test_it_is_nobody_elses(other):
    assert not mark().is_of(*other)
    assert not Mark.from_labels(mark().labels("p-"), "p-").is_of(*other)


@pytest.mark.parametrize(
    "tag", ["", "ccm:v1", "ccm:v1:a:b", "ccm:v2:a:b:c:d:e:f", "x-ccm:v1:a:b:c:d:e:f", "a:b:c:d:e:f"]
)
def test_other_tags_are_no_marks(tag):
    assert Mark.parse(tag) is None


@pytest.mark.parametrize("labels", [{}, {"p-uid": UID}, {"p-cluster": "kubernetes"}, {"q-uid": UID, "q-cluster": "k"}])
def test_other_labels_are_no_marks(labels):
    assert Mark.from_labels(labels, "p-") is None


def test_a_name_belongs_with_it_by_its_digest():
    assert mark().names("lb-of-web") and not mark().names("lb-of-we") and not mark().names(mark().name)


@pytest.mark.parametrize(("digits", "belongs"), [(8, True), (9, False), (16, True), (15, False), (0, False)])
def test_a_mark_of_an_older_version_has_a_shorter_digest(digits, belongs):
    assert Mark("kubernetes", UID, digest("lb-of-web", digits)).names("lb-of-web") is belongs


@pytest.mark.parametrize(
    ("tag", "namespace"), [("ccm:v1:a:b:c:d:e", ""), ("ccm:v1:a:b:c:d:e:f", "f"), ("ccm:v1:a:b:c:d:", "")]
)
def test_a_mark_of_before_there_was_a_namespace_is_read(tag, namespace):
    assert Mark.parse(tag).namespace == namespace


@pytest.mark.parametrize(("make", "longest"), [(cluster_tag, 80), (namespace_tag, 63)])
def test_a_name_stands_in_a_mark_as_it_is_where_it_fits(make, longest):
    assert make("a" * longest) == "a" * longest
    assert make("a" * (longest + 1)).startswith("sha256-")


def test_a_label_that_does_not_fit_is_a_digest_and_never_the_same_for_two():
    long, other = "a" * 64, "a" * 65
    assert label_text("a" * 63) == "a" * 63
    assert label_text(long) != label_text(other) and LABEL_VALUE.fullmatch(label_text(long))
    assert label_text("-odd") != "-odd"


ROWS = [{"id": "b", "at": 2, "own": True}, {"id": "a", "at": 1, "own": True}, {"id": "c", "at": 0, "own": False}]


def test_of_several_the_oldest_counts_and_the_others_are_superfluous():
    first, superfluous = choose(ROWS, lambda row: row["own"], lambda row: row["at"])
    assert (first["id"], [row["id"] for row in superfluous]) == ("a", ["b"])
    assert choose(ROWS, lambda row: False, lambda row: row["at"]) == (None, ())


def test_what_has_an_address_of_the_status_is_known():
    service = spec(ingress=(Ingress(ip="192.0.2.1"), Ingress(hostname="lb.example.com")))
    assert is_known(service, ["192.0.2.1"]) and not is_known(service, ["192.0.2.2", ""])
    assert not is_known(spec(), ["192.0.2.1", ""]) and is_known(spec(), ["192.0.2.1"], more=["192.0.2.1"])
