# SPDX-License-Identifier: Apache-2.0
"""Which tags EC2 allows, and to which instances they are added."""

from __future__ import annotations

import pytest

from ccm.cloud import Conflict, Invalid, NotFound
from ccm.providers.aws.instance_tag_rules import check, tags_by_provider_id, verdicts

from .rows import machine, tags

ID = "aws:///eu-central-1a/i-0a1b2c3d"
TERMINATED = {"Name": "terminated"}


@pytest.mark.parametrize(
    "tags", [{"k" * 128: "v" * 256}, {"a": ""}, {"kubernetes.io/cluster/kube": "owned"}, {"xaws:": "1"}]
)
def test_tags_that_are_allowed(tags):
    check(tags)


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ({"k" * 129: "1"}, "1 to 128 characters"),
        ({"a": "1", "": "1"}, "1 to 128 characters"),
        ({"a": "v" * 257}, "a value at most 256"),
        ({"a": "1", "aws:a": "1"}, "'aws:a': keys that begin with aws: belong to AWS"),
        ({"AWS:a": "1"}, "belong to AWS"),
    ],
)
def test_tags_that_are_not_allowed(tags, says):
    with pytest.raises(Invalid, match=says):
        check(tags)


def test_instances_that_are_gone_have_no_tags():
    rows = [machine(Tags=tags(a="1", b="")), machine("i-0a2"), machine("i-0a3", State=TERMINATED)]
    assert tags_by_provider_id(rows) == {ID: {"a": "1", "b": ""}, "aws:///eu-central-1a/i-0a2": {}}


@pytest.mark.parametrize(
    ("has", "verdict"),
    [({}, "i-0a1b2c3d"), ({"a": "1"}, "i-0a1b2c3d"), ({"a": "1", "b": "2"}, ""), ({"a": "1", "b": "2", "c": "3"}, "")],
)
def test_only_an_instance_without_some_of_the_tags_gets_them(has, verdict):
    rows = {"i-0a1b2c3d": machine(Tags=tags(**has))}
    assert verdicts([ID], rows, {"a": "1", "b": "2"}) == {ID: verdict}


def test_an_older_spelling_is_the_same_instance():
    old = "aws:////i-0a1b2c3d"
    assert verdicts([old], {"i-0a1b2c3d": machine()}, {"a": "1"}) == {old: "i-0a1b2c3d"}


def test_another_value_is_kept_and_named():
    rows = {"i-0a1b2c3d": machine(Tags=tags(a="1", c="9", b="9"))}
    (found,) = verdicts([ID], rows, {"c": "3", "a": "1", "b": "2", "d": "4"}).values()
    assert isinstance(found, Conflict)
    assert str(found) == "instance i-0a1b2c3d has another value for the tags 'b', 'c'"


@pytest.mark.parametrize(
    ("provider_id", "rows", "error"),
    [
        (ID, {}, NotFound),
        (ID, {"i-0a1b2c3d": machine(State=TERMINATED)}, NotFound),
        ("aws:///eu-central-1b/i-0a1b2c3d", {"i-0a1b2c3d": machine()}, NotFound),
        ("aws:///eu-central-1a/fargate-10.0.0.1", {"i-0a1b2c3d": machine()}, Conflict),
        ("sim://north/i-0a1b2c3d", {"i-0a1b2c3d": machine()}, Conflict),
    ],
)
def test_what_is_no_instance_gets_no_tags(provider_id, rows, error):
    found = verdicts([provider_id], rows, {"a": "1"})[provider_id]
    assert isinstance(found, error) and provider_id in str(found)
