# SPDX-License-Identifier: Apache-2.0
"""The summary says of every host what happened to it, also when the run ended early, and stays short for many hosts."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils import _summary

DETECTED = {"__ccm_install_detected": {"node_name": "any"}}
STEP = {"control_plane": [], "kubelet": {"component": "kubelet"}}
PLAN = {
    "edits": [
        {"host": "w", "component": "kubelet"},
        {"host": "w", "component": "kubelet"},
        {"host": "w", "component": "node"},
    ],
    "hosts": {"w": STEP},
}
DONE = {"component": "kubelet", "changed": True, "seconds": 4.2}
GONE = {"unreachable": True, "msg": "Failed to connect\nssh: no route to host"}


def changed(result: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**DETECTED, "__ccm_install_kubelet": result, **more}


@pytest.mark.parametrize(
    ("facts", "state", "edits", "detail"),
    [
        ({}, "left out", 0, ""),
        ({"__ccm_install_detected": GONE}, "unreachable", 0, "Failed to connect"),
        ({"__ccm_install_detected": {"msg": "no python"}}, "failed", 0, "no python"),
        (DETECTED, "not begun", 0, ""),
        (changed(DONE), "changed", 2, ""),
        (changed({"component": "kubelet", "changed": False, "seconds": 0.1}), "nothing to do", 0, ""),
        (
            changed({"component": "kubelet", "failed": True, "restored": True, "msg": "did not come up\nlog"}),
            "restored",
            0,
            "did not come up",
        ),
        (
            changed({"component": "kubelet", "failed": True, "restored": False, "msg": ""}),
            "failed",
            0,
            "it said nothing",
        ),
        (changed(GONE), "unreachable", 0, "Failed to connect"),
        (changed(DONE, __ccm_install_ready={"failed": True, "msg": "not Ready"}), "failed", 2, "not Ready"),
        (changed({**DONE, "restarted_at": "x"}, __ccm_install_ready={"waited": 1.0}), "changed", 2, ""),
        (
            changed({**DONE, "restarted_at": "x"}),
            "half done",
            2,
            "restarted; that its Node is Ready was not waited for any more",
        ),
    ],
)
def test_the_state_of_a_host(facts: dict[str, Any], state: str, edits: int, detail: str) -> None:
    (entry,) = _summary.summarise({"w": facts}, PLAN)
    assert (entry["state"], entry["edits"], entry["planned"], entry["detail"]) == (state, edits, 2, detail)


def test_components_of_a_control_plane_are_told_apart_and_seconds_are_added() -> None:
    steps = {"control_plane": [{}, {}], "kubelet": None}
    plan = {
        "edits": [{"host": "c", "component": "kube-apiserver"}, {"host": "c", "component": "kube-controller-manager"}],
        "hosts": {"c": steps},
    }
    first = {"component": "kube-controller-manager", "changed": True, "seconds": 1.5}
    second = {"component": "kube-apiserver", "changed": True, "seconds": 2.0}
    facts = {**DETECTED, "__ccm_install_kubelet": {"skipped": True, "changed": False}}
    (half,) = _summary.summarise({"c": {**facts, "__ccm_install_applied": {"results": [first]}}}, plan)
    assert (half["state"], half["edits"], half["planned"]) == ("half done", 1, 2)
    (whole,) = _summary.summarise({"c": {**facts, "__ccm_install_applied": {"results": [first, second]}}}, plan)
    assert (whole["state"], whole["edits"], whole["seconds"]) == ("changed", 2, 3.5)


def test_of_many_hosts_those_with_nothing_to_say_share_a_line() -> None:
    hosts = {f"w-{number}": DETECTED for number in range(49)} | {"w": changed(DONE)}
    lines = _summary.table(_summary.summarise(hosts, PLAN), 61.4)
    assert len(lines) == 4 and lines[1].split() == ["w", "changed", "2", "of", "2", "4.2"]
    assert lines[2:] == ["49 other host(s): nothing to do", "50 host(s) in 61 s: 1 changed, 49 nothing to do"]
    few = _summary.table(_summary.summarise({name: hosts[name] for name in ("w", "w-1")}, PLAN), 1.0)
    assert few[2].split() == ["w-1", "nothing", "to", "do", "0", "of", "0", "0.0"]


def test_a_run_that_did_not_get_as_far_as_a_plan_is_summed_up_too() -> None:
    assert [
        entry["state"] for entry in _summary.summarise({"a": {"__ccm_install_detected": GONE}, "b": DETECTED}, {})
    ] == ["unreachable", "nothing to do"]
