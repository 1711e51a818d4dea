# SPDX-License-Identifier: Apache-2.0
"""Texts about many hosts are short, and no host and no difference is lost."""

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
    assert [hosts for unused, hosts in grouping.equal_edits([edit(name) for name in names[:4]])] == [[name] for name in names[:4]]


@pytest.mark.parametrize("difference", ["component", "file", "flag", "now", "then", "why", "risk"])
def test_an_edit_that_differs_in_anything_stays_apart(difference: str) -> None:
    edits = [edit(f"w-{n}") for n in range(5)] + [edit("odd", **{difference: "other"})]
    assert [hosts for unused, hosts in grouping.equal_edits(edits)] == [[f"w-{n}" for n in range(5)], ["odd"]]


def test_the_nodes_of_many_hosts_are_one_row() -> None:
    edits = [edit(f"w-{n}", component="node", file=f"Node/w-{n}") for n in range(6)]
    ((found, hosts),) = grouping.equal_edits(edits)
    assert found["file"] == "Node/NAME" and len(hosts) == 6


def test_equal_messages_name_their_hosts_once() -> None:
    texts = [f"w-{n}: its disk: is full" for n in range(5)] + ["no host says this: really", "w-9: other", "alone"]
    assert grouping.equal_messages(texts) == ["5 hosts: w-0...w-4: its disk: is full", *texts[5:]]
    assert grouping.equal_messages(texts[:2], "Nodes") == ["2 Nodes: w-0, w-1: its disk: is full"]
    assert grouping.equal_messages(texts[:2]) == ["2 hosts: w-0, w-1: its disk: is full"]
    assert grouping.equal_messages(texts[:1] * 3) == texts[:1]
    assert grouping.equal_messages([]) == []


KIND = "{0}: its kubelet should register as {1}, but the cluster has no such Node (it has 9 Nodes). Set ccm_install_node_name for this host"


@pytest.mark.parametrize("names", [
    pytest.param([(f"w-{n}", f"w-{n}.example.org") for n in range(120)], id="numbers"),
    pytest.param([(name, f"{name}.local") for name in ("alpha", "beta", "delta", "gamma", "omega")], id="words"),
])
def test_messages_that_differ_in_names_are_one_with_an_example(names: list[tuple[str, str]]) -> None:
    (line,) = grouping.equal_messages([KIND.format(*pair) for pair in names])
    assert line == f"{grouping.hosts([host for host, unused in names])}: {len(names)} of this kind, such as {KIND.format(*names[0])}"


def test_four_messages_that_differ_in_names_stay_apart_because_each_has_its_own_name() -> None:
    texts = [KIND.format(f"w-{n}", f"x-{n}") for n in range(4)]
    assert grouping.equal_messages(texts) == texts


def test_messages_without_a_host_name_what_differs() -> None:
    texts = [f"Node n-{n} is not in the inventory, so the run does not change its kubelet" for n in range(1, 121)]
    assert grouping.equal_messages(texts) == [texts[0] + " (and 119 more of this kind: n-2...n-120)"]
    texts = [f"Node n-{n % 3} is odd and number {n} of all the Nodes" for n in range(6)]
    assert grouping.equal_messages(texts) == [texts[0] + " (and 5 more of this kind)"]


def test_several_messages_of_one_host_are_one_line_and_name_it_once() -> None:
    texts = [f"w-1: cannot read /etc/kubernetes/manifests/{n}.yaml: it is not a file" for n in range(6)]
    assert grouping.equal_messages(texts) == ["w-1: 6 of this kind, such as " + texts[0]]


@pytest.mark.parametrize("texts", [
    [f"w-{n}: {word} is gone" for n, word in enumerate(["the old kubelet", "one file", "this", "all of it now", "its etcd member"])],
    [f"{a} one {b} two {c} three" for a, b, c in ("abc", "def", "ghi", "jkl", "mno")],
])
def test_messages_that_differ_in_more_stay_apart(texts: list[str]) -> None:
    assert grouping.equal_messages(texts) == texts


def test_a_message_that_ends_a_run_has_at_most_twenty_lines() -> None:
    texts = [" ".join(f"word{n}-{part}" for part in range(9)) for n in range(40)]
    assert grouping.few(texts[:20]) == texts[:20]
    assert grouping.few(texts) == texts[:19] + ["and 21 more. The table has all of them"]
    assert grouping.few([f"w-{n}: same" for n in range(600)]) == ["600 hosts: w-0...w-599: same"]


def test_only_some_kinds_are_compared_with_one_another_so_that_the_time_is_bounded() -> None:
    texts = [" ".join(f"{n}-{part}" for part in range(9)) for n in range(grouping.KINDS)]
    later = [f"alone among all kinds that came before number {n}" for n in range(5)]
    assert grouping.equal_messages(texts[1:] + later) == texts[1:] + [later[0] + " (and 4 more of this kind: 1...4)"]
    assert grouping.equal_messages(texts + later) == texts + later


@pytest.mark.parametrize(("names", "expected"), [
    ([], "no Nodes"), (["b", "a"], "2 Nodes: a, b"), ([f"n-{n}" for n in range(9, 0, -1)], "9 Nodes, such as n-1...n-9"),
    ([f"{letter}-x" for letter in "abcdefgh"], "8 Nodes, such as a-x, b-x, c-x"),
])
def test_a_sample_names_few(names: list[str], expected: str) -> None:
    assert grouping.sample(names, "Nodes") == expected
