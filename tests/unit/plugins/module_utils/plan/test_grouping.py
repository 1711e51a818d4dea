# SPDX-License-Identifier: Apache-2.0
"""Many hosts take few words, and no host and no difference is lost."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping


@pytest.mark.parametrize(("names", "expected"), [
    ([], []),
    (["a"], ["a"]),
    (["w-1", "w-2"], ["w-1", "w-2"]),
    (["w-1", "w-2", "w-3"], ["w-1...w-3"]),
    (["w-08", "w-09", "w-10"], ["w-08...w-10"]),
    (["w-8", "w-9", "w-10"], ["w-8...w-10"]),
    (["w-1", "w-2", "w-4", "x-5", "x-6", "x-7"], ["w-1", "w-2", "w-4", "x-5...x-7"]),
    (["n1.z1", "n2.z1", "n3.z1"], ["n1.z1", "n2.z1", "n3.z1"]),
    (["w-09", "w-010", "w-011"], ["w-09", "w-010", "w-011"]),
    (["w-99", "w-100", "w-101"], ["w-99...w-101"]),
    (["w-1a", "w-2a", "w-3a"], ["w-1a...w-3a"]),
    (["w-1a", "w-2b", "w-3c"], ["w-1a", "w-2b", "w-3c"]),
])
def test_consecutive_numbers_are_a_range(names: list[str], expected: list[str]) -> None:
    assert grouping.spans(names) == expected


def test_of_many_names_the_first_are_named_and_the_others_counted() -> None:
    names = [f"{letter}-x" for letter in "abcdefghijk"]
    assert grouping.compact(names) == "a-x, b-x, c-x, d-x, e-x, f-x, g-x, h-x and 3 more"
    assert grouping.compact(names[:8]) == ", ".join(names[:8])
    assert grouping.compact([f"w-{n}" for n in range(1, 301)] + names) == "w-1...w-300, a-x, b-x, c-x, d-x, e-x, f-x, g-x and 4 more"
    assert grouping.hosts(["w-1", "w-2", "w-3"]) == "3 hosts: w-1...w-3"


def test_names_are_sorted_by_their_numbers() -> None:
    assert sorted(["w-10", "cp", "w-9", "w-100", "2", "w"], key=grouping.in_order) == ["2", "cp", "w", "w-9", "w-10", "w-100"]


def edit(host: str, **more: Any) -> dict[str, Any]:
    found = {"host": host, "component": "kubelet", "file": "/f", "flag": "--a", "now": None, "then": "b", "why": "w", "risk": "r"}
    return {**found, **more}


def test_equal_edits_of_five_hosts_are_one_and_of_four_are_not() -> None:
    names = [f"w-{n}" for n in range(5)]
    assert grouping.equal_edits([edit(name) for name in names]) == [(edit("w-0"), names)]
    assert [hosts for _, hosts in grouping.equal_edits([edit(name) for name in names[:4]])] == [[name] for name in names[:4]]


@pytest.mark.parametrize("difference", ["component", "file", "flag", "now", "then", "why", "risk"])
def test_an_edit_that_differs_in_anything_stays_apart(difference: str) -> None:
    edits = [edit(f"w-{n}") for n in range(5)] + [edit("odd", **{difference: "other"})]
    assert [hosts for _, hosts in grouping.equal_edits(edits)] == [[f"w-{n}" for n in range(5)], ["odd"]]


def test_the_nodes_of_many_hosts_are_one_row() -> None:
    edits = [edit(f"w-{n}", component="node", file=f"Node/w-{n}") for n in range(6)]
    ((found, hosts),) = grouping.equal_edits(edits)
    assert found["file"] == "Node/NAME" and len(hosts) == 6


def test_equal_messages_name_their_hosts_once() -> None:
    texts = [f"w-{n}: its disk: is full" for n in range(5)] + ["no host says this: really", "w-9: other", "alone"]
    assert grouping.equal_messages(texts) == ["5 hosts: w-0...w-4: its disk: is full", *texts[5:]]
    assert grouping.equal_messages(texts[:4]) == texts[:4]
    assert grouping.equal_messages([]) == []
