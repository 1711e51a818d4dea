# SPDX-License-Identifier: Apache-2.0
"""The provider's own labels follow the instance. Labels that somebody set by hand never change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Instance
from ccm.controllers.nodes.node_label_rules import RECORD, followed


def record(**labels):
    return {RECORD: json.dumps(labels, sort_keys=True, separators=(",", ":"))} if labels else {}


def follow(present, annotations, **cloud):
    found = followed(Instance("fake://1", "n1", labels=cloud), present, annotations)
    return dict(found.labels), dict(found.record)


@pytest.mark.parametrize(
    ("present", "before", "cloud", "labels", "after"),
    [
        pytest.param({}, {}, {"a": "1"}, {"a": "1"}, {"a": "1"}, id="missing"),
        pytest.param({"a": "1"}, {"a": "1"}, {"a": "1"}, {}, None, id="nothing-to-do"),
        pytest.param({"a": "1"}, {}, {"a": "1"}, {}, {"a": "1"}, id="of-a-former-release"),
        pytest.param({"a": "1"}, {"a": "1"}, {"a": "2"}, {"a": "2"}, {"a": "2"}, id="changed-in-the-cloud"),
        pytest.param({"a": "x"}, {"a": "1"}, {"a": "2"}, {}, {}, id="changed-by-hand"),
        pytest.param({"a": "x"}, {}, {"a": "1"}, {}, None, id="set-by-hand-before"),
        pytest.param({}, {"a": "1"}, {"a": "1"}, {"a": "1"}, None, id="removed-by-hand-comes-back"),
        pytest.param({"a": "1"}, {"a": "1"}, {}, {"a": None}, {}, id="gone-in-the-cloud"),
        pytest.param({"a": "x"}, {"a": "1"}, {}, {}, {}, id="gone-in-the-cloud-and-changed-by-hand"),
        pytest.param({}, {"a": "1"}, {}, {}, {}, id="gone-on-both-sides"),
        pytest.param({"b": "x"}, {}, {}, {}, None, id="a-label-of-others"),
        pytest.param({}, {}, {"a": "not a value"}, {}, None, id="not-valid-on-a-node"),
    ],
)
def test_labels(present, before, cloud, labels, after):
    """`after`: the record that is written; None if nothing is written, {} if the record is removed."""
    written = {} if after is None else record(**after) or {RECORD: None}
    assert follow(present, record(**before), **cloud) == (labels, written)


RESERVED = ["node-restriction.kubernetes.io/team", "kubernetes.io/hostname", "x.k8s.io/y", "node.kubernetes.io/z"]


@pytest.mark.parametrize("key", RESERVED)
def test_a_kubelet_gets_no_label_changed_that_it_may_not_change_itself(key):
    """A kubelet can forge the annotation on its own Node. That must not make the controller change labels which
    NodeRestriction forbids the kubelet to change."""
    forged = {RECORD: json.dumps({key: "a"})}
    assert follow({key: "a"}, forged) == ({}, {})
    assert follow({key: "a"}, forged, **{key: "b"}) == ({}, {})


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a":1}', '{"a":null}', "[" * 5000, '{"a b":"1"}'])
def test_an_annotation_that_is_no_record_changes_nothing(text):
    labels, _ = follow({"a": "x", "a b": "1"}, {RECORD: text}, a="1")
    assert labels == {}


WORDS = st.dictionaries(st.sampled_from(["a", "b", "kubernetes.io/c"]), st.sampled_from(["", "1", "2", "no value"]))


@given(present=WORDS, before=WORDS, cloud=WORDS)
def test_it_settles_and_leaves_what_is_not_recorded(present, before, cloud):
    annotations = record(**before)
    labels, written = follow(present, annotations, **cloud)
    assert all(key not in present or present[key] == before.get(key) for key in labels)
    after = {key: value for key, value in {**present, **labels}.items() if value is not None}
    kept = {key: value for key, value in {**annotations, **written}.items() if value is not None}
    assert follow(after, kept, **cloud) == ({}, {})
