# SPDX-License-Identifier: Apache-2.0
"""Only missing tags are added. A tag that somebody else has set is never changed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.controllers.instance_tags.instance_tags_rules import (
    LENGTH,
    Difference,
    compare,
    is_news,
    other_message,
    parse_tags,
)
from ccm.engine.objects import Node, NodeSpec, ObjectMeta


def test_tags_of_the_flag():
    assert parse_tags(()) == {}
    assert parse_tags(["a=1", "b=", "c=d=e", "kubernetes.io/cluster/x=owned", "a=1"]) == {
        "a": "1",
        "b": "",
        "c": "d=e",
        "kubernetes.io/cluster/x": "owned",
    }
    assert parse_tags([f"{'k' * LENGTH}={'v' * LENGTH}"])


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["a"], "'a' is not KEY=VALUE"),
        (["=1"], "'=1' is not KEY=VALUE"),
        (["a=1", "a=2"], "'a' is given twice"),
        ([f"a={'v' * (LENGTH + 1)}"], "is longer than 255 characters"),
        ([f"{'k' * (LENGTH + 1)}=1"], "is longer than 255 characters"),
        (["a=\n"], "not printable"),
    ],
)
def test_texts_that_are_no_tags(texts, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_tags(texts)


@pytest.mark.parametrize(
    ("has", "expected"),
    [
        ({}, Difference({"a": "1", "b": "2"})),
        ({"a": "1", "b": "2", "c": "3"}, Difference()),
        ({"b": "2"}, Difference({"a": "1"})),
        ({"a": "x"}, Difference({"b": "2"}, {"a": "x"})),
        ({"a": "", "b": "1"}, Difference({}, {"a": "", "b": "1"})),
    ],
)
def test_what_is_missing(has, expected):
    assert compare({"a": "1", "b": "2"}, has) == expected


TAGS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"))


@given(wanted=TAGS, has=TAGS)
def test_nothing_of_others_changes_and_once_is_enough(wanted, has):
    difference = compare(wanted, has)
    after = {**has, **difference.missing}
    assert after.items() >= has.items()
    assert compare(wanted, after) == Difference({}, difference.other)
    assert after.keys() >= wanted.keys()


def test_the_message_names_both_values():
    text = other_message({"a": "1"}, Difference({}, {"a": "2"}), "fake://1")
    assert "instance fake://1 has a='2' instead of '1'" in text


def node(uid: str = "u", provider_id: str = "fake://1") -> Node:
    return Node(ObjectMeta("n", uid=uid), NodeSpec(provider_id))


@pytest.mark.parametrize(
    ("old", "new", "news"),
    [
        (None, node(), True),
        (None, node(provider_id=""), False),
        (node(), node(), False),
        (node(provider_id=""), node(), True),
        (node(), node("v"), True),
        (node(), None, False),
    ],
)
def test_which_changes_need_a_look(old, new, news):
    assert is_news(old, new) is news
