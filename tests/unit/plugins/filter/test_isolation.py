# SPDX-License-Identifier: Apache-2.0
"""One of many hosts returns something unforeseen: the plan has one problem, with the host and the file, and plans the other hosts."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.filter.leader_migration_plan import leader_migration_plan
from ansible_collections.outoftree.ccm.plugins.filter.lint_findings import lint_findings
from ansible_collections.outoftree.ccm.plugins.filter.migration_plan import migration_plan
from ansible_collections.outoftree.ccm.plugins.filter.rollback_plan import rollback_plan
from ansible_collections.outoftree.ccm.plugins.filter.rollback_verdict import rollback_verdict
from ansible_collections.outoftree.ccm.plugins.filter.verification import verification
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import isolation, summary

CONFIG = "/var/lib/kubelet/config.yaml"
HEALTH = {"reasons": [], "daemonset": {"ready": 1, "desired": 1}, "lease": {"holder": "cp-1_x"}, "unjudged": []}
GOOD = "kind: KubeletConfiguration\nfeatureGates: {X: true}\n"
ALIASES = "\n".join(f"k{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 12) if level else '1'}]" for level in range(8))
#: Odd contents of a worker's KubeletConfiguration.
ODD = {
    "aliases": ALIASES + "\nfeatureGates: *x7\n",
    "levels": "a: " + "[" * 5000,
    "a date that is none": "updated: 2024-31-12\n",
    "gates in a list": "featureGates: [a, b]\n",
    "gates that are data": "featureGates: {X: {a: b}}\n",
    "a text": "text\n",
    "a tag": "a: !!python/object/apply:os.system [id]\n",
    "nothing": "",
    "a program": "\x7fELF\x00\x01",
    "a second document": GOOD + "---\n[",
    "duplicate keys": GOOD + GOOD,
}


def worker(host_facts: Any, name: str, text: str = GOOD) -> dict[str, Any]:
    facts: dict[str, Any] = host_facts(name, {CONFIG: text, "/etc/default/kubelet": 'KUBELET_EXTRA_ARGS="--v=2"\n'}, running=[])
    facts["kubelet"]["config_files"] = [CONFIG]
    return facts


@pytest.fixture
def cluster(host_facts: Any, cluster_facts: Any) -> Any:
    """Return a function that builds what was detected on many workers, one of which has an odd file."""

    def build(text: str, number: int = 10) -> tuple[dict[str, Any], dict[str, Any]]:
        names = [f"w-{index}" for index in range(number)]
        detected = {name: worker(host_facts, name, text if name == "w-7" else GOOD) for name in names}
        return detected, cluster_facts(*[(name, "initialized") for name in names], kubeadm="")

    return build


@pytest.mark.threat("worker-cannot-change-others")
@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_an_odd_file_of_a_worker_is_at_most_its_own_problem(cluster: Any, text: str) -> None:
    detected, found = cluster(text)
    plan = migration_plan(detected, found, [])
    assert len(plan["problems"]) <= 1 and all(problem.startswith("w-7: ") and CONFIG in problem for problem in plan["problems"])
    assert len({edit["host"] for edit in plan["edits"]}) >= 9
    assert not [problem for problem in rollback_plan(detected, found, [])["problems"] if not problem.startswith("w-7: ")]
    assert all(unread.startswith("w-7: ") for unread in lint_findings(detected, found)["unread"])


def unforeseen(facts: dict[str, Any]) -> None:
    """Fail as a fault of the planner itself would, if the file's content is `boom`."""
    if base64.b64decode(facts["files"][CONFIG]["content"]) == b"boom":
        raise LookupError("nobody\x1b[31m foresaw this")


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each planner fail for a host whose file's content is `boom`."""
    original = isolation.host_facts.sorted_out

    def sorted_out(detected: dict[str, Any]) -> Any:
        for facts in detected.values():
            if "files" in facts:
                unforeseen(facts)
        return original(detected)

    monkeypatch.setattr(isolation.host_facts, "sorted_out", sorted_out)


@pytest.mark.threat("worker-cannot-change-others")
@pytest.mark.usefixtures("fault")
def test_an_unforeseen_fault_is_one_problem_that_names_host_and_file(cluster: Any) -> None:
    detected, found = cluster("boom", 30)
    words = f"its file {CONFIG} cannot be planned (LookupError: nobody?[31m foresaw this)"
    plan = migration_plan(detected, found, [])
    assert len(plan["problems"]) == 1 and plan["problems"][0].startswith("w-7: could not be inspected: " + words)
    assert "--limit 'all:!w-7'" in plan["problems"][0]
    assert len(plan["hosts"]) == 29
    problems = rollback_plan(detected, found, [])["problems"]
    assert len(problems) == 1 and problems[0].startswith("w-7: could not be inspected: " + words)
    assert lint_findings(detected, found)["unread"] == ["w-7: " + words + ". Correct it, and report this as a fault of this collection"]


@pytest.mark.threat("worker-cannot-change-others")
@pytest.mark.usefixtures("fault")
def test_an_unforeseen_fault_ends_neither_a_verdict_nor_a_leader_migration(cluster: Any) -> None:
    detected, found = cluster("boom")
    words = f"w-7: could not be inspected: its file {CONFIG} cannot be planned (LookupError: "
    verdict = verification(detected, found, HEALTH, [])
    assert [check["detail"].startswith(words) for check in verdict["checks"] if check["name"] == "hosts"] == [True] and not verdict["ok"]
    assert "w-6: runs with" in verdict["lines"][2] or "9 hosts" in verdict["lines"][2], "the other hosts are still judged"
    plan = leader_migration_plan(detected, {**found, "version": "v1.30.4"}, [])
    assert len([problem for problem in plan["problems"] if problem.startswith(words)]) == 1
    waiting = rollback_verdict(rollback_plan(detected, found, []), detected, list(detected))["waiting"]
    assert len(waiting) == 1 and waiting[0].startswith(words.replace("inspected", "inspected again"))


@pytest.mark.usefixtures("fault")
def test_a_fault_that_is_no_hosts_stays_one(cluster: Any) -> None:
    detected, found = cluster(GOOD)
    with pytest.raises(KeyError):
        migration_plan(detected, {**found, "nodes": [{}]}, [])


@pytest.mark.usefixtures("fault")
@pytest.mark.parametrize(("limit", "control_plane", "go"), [(0, [], False), (1, [], True), ("10%", [], True), ("9%", [], False), (1, ["w-7"], False)])
def test_a_worker_is_left_out_as_far_as_workers_may_fail(cluster: Any, limit: Any, control_plane: list[str], go: bool) -> None:
    detected, found = cluster("boom")
    plan = migration_plan(detected, found, control_plane, max_failed=limit)
    left_out = plan.get("left_out", {})
    assert list(left_out) == (["w-7"] if go else [])
    assert any(problem.startswith("w-7: could not be inspected") for problem in plan["problems"]) != go
    if go:
        assert plan["go"] and plan["hosts"]["w-7"] == {"control_plane": [], "kubelet": None} and "w-7" not in plan["adopt"]
        assert any(warning.startswith("w-7: ") and "ccm_install_max_failed_workers" in warning for warning in plan["warnings"])
        hosts = {host: {"__ccm_install_detected": facts} for host, facts in detected.items()}
        entries = {entry["host"]: entry for entry in summary.summarise(hosts, plan)}
        assert entries["w-7"]["state"] == "failed" and CONFIG in entries["w-7"]["detail"]


@pytest.mark.usefixtures("fault")
@pytest.mark.parametrize(("limit", "go"), [(1, False), (2, True)])
def test_workers_with_the_same_fault_are_left_out_together(cluster: Any, limit: int, go: bool) -> None:
    detected, found = cluster("boom")
    detected["w-8"]["files"] = detected["w-7"]["files"]
    plan = migration_plan(detected, found, [], max_failed=limit)
    assert list(plan.get("left_out", {})) == (["w-7", "w-8"] if go else [])
    assert plan["go"] == go and len(plan["problems"]) == (0 if go else 1)


@pytest.mark.usefixtures("fault")
def test_the_problem_of_a_worker_that_did_not_answer_stays_beside_those_that_are_left_out(cluster: Any) -> None:
    detected, found = cluster("boom")
    detected["w-9"] = {"msg": "no route", "unreachable": True}
    plan = migration_plan(detected, found, [], max_failed=5)
    assert list(plan["left_out"]) == ["w-7"] and not plan["go"]
    assert plan["problems"] == ["w-9: could not be inspected: no route. Fix this, or exclude the host with --limit 'all:!w-9'"]


def test_a_worker_that_did_not_answer_is_not_left_out(cluster: Any) -> None:
    detected, found = cluster(GOOD)
    detected["w-7"] = {"msg": "no route", "unreachable": True}
    assert not migration_plan(detected, found, [], max_failed=5)["go"]


@pytest.mark.parametrize("facts", [None, "text", 7, [], {"node_name": 7}, {"node_name": "w-7", "files": {"a": None}}, {"node_name": "w-7", "problems": {}}])
def test_anything_may_come_from_a_worker(cluster: Any, facts: Any) -> None:
    detected, found = cluster(GOOD)
    detected["w-7"] = facts
    plan = migration_plan(detected, found, [], max_failed=1)
    assert len(plan["problems"]) + len(plan.get("left_out", {})) == 1, plan["problems"]
    assert len(rollback_plan(detected, found, [])["problems"]) == 1
    assert len(lint_findings(detected, found)["unread"]) == 1
    assert "w-7: " in verification(detected, found, HEALTH, [])["failures"][0]
    assert [text[:5] for text in rollback_verdict(rollback_plan(detected, found, []), detected, list(detected))["waiting"]] == ["w-7: "]
    assert [text[:5] for text in leader_migration_plan(detected, {**found, "version": "v1.30.4"}, [])["problems"]].count("w-7: ") == 1
