# SPDX-License-Identifier: Apache-2.0
"""Zones and regions, from the tags of a machine's parents in the inventory."""

from __future__ import annotations

import pytest

from ccm.providers.vsphere.settings_sections import Labels
from ccm.providers.vsphere.zone_rules import DEEPEST, Place, Tag, ancestors, place_labels

LABELS = Labels("zone", "region")
PARENTS = {"host": "cluster", "cluster": "dc", "dc": "root", "pool": "cluster", "vm": "folder", "folder": "dc"}
VM = Place("host", "pool", "vm", "folder")


def tags(**texts_of):
    return {each: [Tag(*text.split("=")) for text in texts.split()] for each, texts in texts_of.items()}


@pytest.mark.parametrize(
    ("attached", "expected"),
    [
        (tags(host="zone=a region=r"), ("a", "r")),
        (tags(host="zone=a", dc="region=r"), ("a", "r")),
        (tags(cluster="zone=a", root="region=r"), ("a", "r")),
        (tags(host="zone=a", cluster="zone=b", dc="region=r"), ("b", "r")),
        (tags(host="zone=a region=r", cluster="zone=b region=q"), ("a", "r")),
        (tags(host="other=x zone=a", dc="region=r"), ("a", "r")),
        (tags(pool="zone=p region=q", host="zone=a"), ("p", "q")),
        (tags(folder="zone=f region=q"), ("f", "q")),
        (tags(vm="zone=v", folder="region=q"), ("v", "q")),
        (tags(host="zone=a", folder="region=q"), None),
        (tags(host="zone=a"), None),
        ({}, None),
    ],
)
def test_host_then_pool_then_folders(attached, expected):
    assert place_labels(VM, PARENTS, attached, LABELS) == expected


def test_unknown_places_are_left_out():
    assert list(Place("", "pool", "vm", "").starts) == ["pool", "vm"]


def test_a_loop_ends():
    assert len(ancestors("a", {"a": "b", "b": "a"})) == DEEPEST
    assert ancestors("host", PARENTS) == ["host", "cluster", "dc", "root"]
