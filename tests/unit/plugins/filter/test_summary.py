# SPDX-License-Identifier: Apache-2.0
"""The summary says what happened to every host, also if the run ended early, and stays short for many hosts."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.filter.run_summary import run_summary
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import summary

DETECTED = {"__ccm_install_detected": {"node_name": "any"}}
STEP = {"control_plane": [], "kubelet": {"component": "kubelet"}}
PLAN = {"edits": [{"host": "w", "component": "kubelet"}, {"host": "w", "component": "kubelet"}, {"host": "w", "component": "node"}],
        "hosts": {"w": STEP}, "nodes": {"w": "n"}}
DONE = {"component": "kubelet", "changed": True, "seconds": 4.2}
NO_PLACE = {"failed": True, "msg": "Failed to create temporary directory. Failed command was: ( umask 77 && mkdir -p \"` echo ~/.ansible/tmp `\"&& mkdir "
                                   "), exited with result 1, stderr output: mkdir: cannot create directory '/home/x': Read-only file system"}
GONE = {"unreachable": True, "msg": "Failed to connect\nssh: no route to host"}


def changed(result: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**DETECTED, "__ccm_install_kubelet": result, **more}


@pytest.mark.parametrize(("facts", "state", "edits", "detail"), [
    ({}, "left out", 0, ""),
    ({"__ccm_install_detected": GONE}, "unreachable", 0, "Failed to connect ssh: no route to host"),
    ({"__ccm_install_detected": {"msg": "no python"}}, "failed", 0, "no python"),
    (DETECTED, "not begun", 0, ""),
    (changed(DONE), "changed", 2, ""),
    (changed({"component": "kubelet", "changed": False, "seconds": 0.1}), "nothing to do", 0, ""),
    (changed({"component": "kubelet", "failed": True, "restored": True, "msg": "did not come up\nlog"}), "restored", 0, "did not come up"),
    (changed({"component": "kubelet", "failed": True, "restored": False, "msg": ""}), "failed", 0, "no message"),
    (changed({"component": "kubelet", "failed": False, "tolerated": True, "changed": True, "msg": "no\nlog"}), "failed", 0, "no"),
    (changed(DONE, __ccm_install_ready={"failed": False, "missing": {"n": ["ready"]}}), "failed", 2, "its Node n is not Ready: missing ready"),
    (changed({**DONE, "restarted_at": "x"}, __ccm_install_ready={"failed": True, "missing": {"o": ["ready"]}}), "changed", 2, ""),
    (changed({**DONE, "restarted_at": "x"}, __ccm_install_ready={"skipped": True}), "half done", 2,
     "restarted; the run stopped before it checked that the Node is Ready"),
    (changed(NO_PLACE), "failed", 0, "Ansible has no place for its temporary files: cannot create directory '/home/x': Read-only file system. "
                                     "Set ansible_remote_tmp"),
    (changed(GONE), "unreachable", 0, "Failed to connect ssh: no route to host"),
    (changed(DONE, __ccm_install_ready={"failed": True, "msg": "not Ready"}), "failed", 2, "not Ready"),
    (changed({**DONE, "restarted_at": "x"}, __ccm_install_ready={"waited": 1.0}), "changed", 2, ""),
    (changed({**DONE, "restarted_at": "x"}), "half done", 2, "restarted; the run stopped before it checked that the Node is Ready"),
])
def test_the_state_of_a_host(facts: dict[str, Any], state: str, edits: int, detail: str) -> None:
    (entry,) = summary.summarise({"w": facts}, PLAN)
    assert (entry["state"], entry["edits"], entry["planned"], entry["detail"]) == (state, edits, 2, detail)


def test_components_of_a_control_plane_are_told_apart_and_seconds_are_added() -> None:
    steps = {"control_plane": [{}, {}], "kubelet": None}
    plan = {"edits": [{"host": "c", "component": "kube-apiserver"}, {"host": "c", "component": "kube-controller-manager"}], "hosts": {"c": steps}}
    first = {"component": "kube-controller-manager", "changed": True, "seconds": 1.5}
    second = {"component": "kube-apiserver", "changed": True, "seconds": 2.0}
    facts = {**DETECTED, "__ccm_install_kubelet": {"skipped": True, "changed": False}}
    (half,) = summary.summarise({"c": {**facts, "__ccm_install_applied": {"results": [first]}}}, plan)
    assert (half["state"], half["edits"], half["planned"]) == ("half done", 1, 2)
    (whole,) = summary.summarise({"c": {**facts, "__ccm_install_applied": {"results": [first, second]}}}, plan)
    assert (whole["state"], whole["edits"], whole["seconds"]) == ("changed", 2, 3.5)


def test_of_many_hosts_those_with_nothing_to_say_share_a_line() -> None:
    hosts = {f"w-{number}": DETECTED for number in range(49)} | {"w": changed(DONE)}
    lines = summary.table(summary.summarise(hosts, PLAN), 61.4)
    assert len(lines) == 4 and lines[1].split() == ["w", "changed", "2", "of", "2", "4.2"]
    assert lines[2:] == ["49 other host(s): nothing to do", "50 host(s) in 61 s: 1 changed, 49 nothing to do"]
    few = summary.table(summary.summarise({name: hosts[name] for name in ("w", "w-1")}, PLAN), 1.0)
    assert few[2].split() == ["w-1", "nothing", "to", "do", "0", "of", "0", "0.0"]


def test_a_run_that_did_not_get_as_far_as_a_plan_is_summed_up_too() -> None:
    assert [entry["state"] for entry in summary.summarise({"a": {"__ccm_install_detected": GONE}, "b": DETECTED}, {})] == [
        "unreachable", "nothing to do"]


def test_exactly_as_many_hosts_as_are_shown_are_all_shown() -> None:
    for count, shown in ((summary.MANY, summary.MANY), (summary.MANY + 1, 0)):
        lines = summary.table(summary.summarise({f"w-{number}": DETECTED for number in range(count)}, PLAN), 1.0)
        assert sum(line.startswith("w-") for line in lines) == shown
        assert any(line.startswith("HOST") for line in lines) is bool(shown)


def test_columns_stand_below_each_other_and_long_messages_are_cut() -> None:
    facts = {"a-host-with-a-long-name": changed({"component": "kubelet", "failed": True, "msg": "x" * 400}), "w": changed(DONE)}
    entries = summary.summarise(facts, PLAN)
    assert entries[0]["detail"] == "x" * 300
    head, first, second, unused = summary.table(entries, 1.0)
    assert first.index("failed") == second.index("changed") == head.index("STATE") == len("a-host-with-a-long-name") + 2
    (rounded,) = summary.summarise({"w": changed({**DONE, "seconds": 4.26})}, PLAN)
    assert rounded["seconds"] == 4.3


def test_many_hosts_with_the_same_failure_share_a_row() -> None:
    facts = {f"w-{n}": changed({"component": "kubelet", "failed": True, "restored": True, "seconds": float(n), "msg": f"kubelet on w-{n} is ill"})
             for n in range(30)}
    lines = summary.table(summary.summarise(facts, {}), 1.0)
    assert len(lines) == 3 and lines[1].startswith("30 hosts: w-0...w-29  restored") and "0.0 to 29.0" in lines[1]
    assert lines[1].endswith("kubelet on w-0 is ill")
    few = dict(list(facts.items())[:summary.MANY])
    assert len(summary.table(summary.summarise(few, {}), 1.0)) == summary.MANY + 2


# -- workers that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "workers", "expected"), [
    (0, 300, 0), (3, 300, 3), ("3", 300, 3), ("10%", 300, 30), ("10%", 9, 0), ("100%", 7, 7), (" 25 % ", 8, 2), ("5%", 0, 0)])
def test_how_many_workers_may_fail(limit: Any, workers: int, expected: int) -> None:
    assert summary.allowed(limit, workers) == expected


@pytest.mark.parametrize("limit", ["", "some", "-1", "1.5", "101%", None, True, "%"])
def test_a_number_of_workers_that_is_none(limit: Any) -> None:
    with pytest.raises(ValueError, match="ccm_install_max_failed_workers"):
        summary.allowed(limit, 10)


def entries(**states: str) -> list[dict[str, Any]]:
    return [{"host": host.replace("_", "-"), "state": state, "planned": 1, "edits": 0, "seconds": 0.0, "detail": ""} for host, state in states.items()]


def test_failed_hosts_are_named_with_the_limit_that_finishes_them() -> None:
    done = entries(cp_1="changed", w_1="restored", w_2="changed", w_3="unreachable")
    assert summary.failed(done) == ["w-1", "w-3"]
    (line,) = summary.retry(done)
    assert "w-1, w-3" in line and "--limit 'localhost:kube_control_plane:w-1:w-3'" in line
    assert summary.retry(entries(w_1="restored", w_2="not begun")) == [], "the run ended before: it is run again as a whole"
    assert summary.retry(entries(w_1="changed")) == []


KCM = {"host": "cp-1", "component": "kube-controller-manager", "flag": "--cloud-provider", "now": "aws", "then": "external"}


@pytest.mark.parametrize(("plan", "words"), [
    ({"edits": [KCM]}, "in-tree aws"),
    ({"takeover": [{"kind": "Deployment", "namespace": "kube-system", "name": "other"}]}, "Deployment kube-system/other is paused"),
    ({"edits": []}, "nothing ran these loops before"),
])
def test_a_run_that_ends_with_the_node_controller_alone_says_what_that_means(plan: dict[str, Any], words: str) -> None:
    text = " ".join(summary.node_only(plan, 12))
    assert "only its node controller" in text and words in text and "run site.yml again" in text
    for loop in ("service", "route", "node-lifecycle"):
        assert loop in text
    assert ("12 Service(s)" in text) is (plan != {"edits": []})


@pytest.mark.parametrize("changes", [{"component": "kubelet"}, {"flag": "--cloud-config"}, {"now": "external"}, {"now": ""}, {"now": None}])
def test_only_an_in_tree_provider_that_was_taken_away_is_missed(changes: dict[str, Any]) -> None:
    told = " ".join(summary.node_only({"edits": [{**KCM, **changes}]}, 12))
    assert "in-tree" not in told and told == " ".join(summary.node_only({"edits": []}, 12))


@pytest.mark.parametrize("strange", [
    {"__ccm_install_kubelet": {"seconds": "soon"}}, {"__ccm_install_kubelet": "text"}, {"__ccm_install_kubelet": [1]},
    {"__ccm_install_kubelet": {"component": ["kubelet"], "changed": True}}, {"__ccm_install_detected": 7},
    {"__ccm_install_applied": {"results": 3}}, {"__ccm_install_applied": {"results": [None]}},
    {"__ccm_install_ready": {"missing": {"w-1": 4}}}, None,
])
def test_what_one_host_returned_never_ends_the_summary_of_the_others(strange: Any) -> None:
    """A worker can return anything. The other hosts' rows stay complete, and the worker has its own row."""
    ok = {"__ccm_install_detected": {"node_name": "w-2"}}
    hosts = {"w-1": {"__ccm_install_detected": {"node_name": "w-1"}, **strange} if isinstance(strange, dict) else strange, "w-2": ok}
    found = run_summary(hosts, ["w-1", "w-2"], {"nodes": {"w-1": "w-1", "w-2": "w-2"}})
    assert [entry["host"] for entry in found["hosts"]] == ["w-1", "w-2"] and found["hosts"][1]["state"] == "nothing to do"
    bad = found["hosts"][0]
    assert bad["state"] == "failed" and bad["detail"].startswith("its results cannot be read (") and found["failed"] == ["w-1"]
