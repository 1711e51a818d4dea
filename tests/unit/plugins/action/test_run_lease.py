# SPDX-License-Identifier: Apache-2.0
"""One run at a time: which run may take the Lease of a cluster's runs, and the message for the others."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.action import ccm_run_lease as action
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import run_lease, this_machine

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=timezone.utc)
ALICE, BOB = "alice@bastion (process 4242, started at 91234)", "bob@laptop (process 7, started at 5)"
PROCESS = {"machine": "boot pid:[1]", "pid": 4242, "start": "91234"}


def lease(holder: str = ALICE, age: float = 40, duration: int = 900) -> dict[str, Any]:
    found = run_lease.written(None, run_lease.CREATE, holder, PROCESS, duration, NOW - timedelta(seconds=age))
    found["metadata"].update(name="outoftree-ccm-run", resourceVersion="17")
    return found


@pytest.mark.parametrize(("current", "ended", "expected"), [
    (None, "", "create"), (lease(BOB), "", "renew"), (lease(), "", "refuse"), (lease(age=899), "", "refuse"), (lease(age=900), "", "take"),
    (lease(""), "", "take"), (lease(), ALICE, "take"), (lease(), "carol@bastion (process 1, started at 1)", "refuse"),
    ({"metadata": {}, "spec": {"holderIdentity": ALICE}}, "", "take"),
    ({"metadata": {}, "spec": {"holderIdentity": ALICE, "leaseDurationSeconds": 900}}, "", "take"),
    ({"metadata": {}, "spec": {"holderIdentity": ALICE, "renewTime": "2026-11-22T09:30:00.000000Z"}}, "", "take"),
    ({"metadata": {}}, "", "take"),
    (lease(age=-3600), "", "refuse"),
])
def test_who_may_take_it(current: Any, ended: str, expected: str) -> None:
    assert run_lease.decide(current, BOB, NOW, ended) == expected


def test_a_refusal_says_who_since_when_and_what_to_do() -> None:
    told = run_lease.refusal(lease(), "outoftree-ccm-run", NOW)
    for word in (ALICE, "since 2026-11-22T09:29:20Z", "40 s ago", "kubectl -n kube-system delete lease outoftree-ccm-run", "2026-11-22T09:44:20Z"):
        assert word in told, (word, told)


@pytest.mark.parametrize(("renewed", "acquired", "since", "age"), [
    ("2026-11-22T09:29:20Z", "2026-11-22T08:00:00Z", "2026-11-22T08:00:00Z", " 40 s "),
    ("2026-11-22T09:29:20Z", None, "2026-11-22T09:29:20Z", " 40 s "),
    ("2026-11-22T09:31:00Z", None, "2026-11-22T09:31:00Z", " 0 s "),  # the API server's clock went back
    (None, None, "2026-11-22T09:30:00Z", " 0 s "),
])
def test_a_refusal_says_what_the_lease_knows(renewed: str | None, acquired: str | None, since: str, age: str) -> None:
    spec = {"holderIdentity": ALICE, "renewTime": renewed, "acquireTime": acquired, "leaseDurationSeconds": 900}
    told = run_lease.refusal({"metadata": {}, "spec": spec}, "x", NOW)
    assert since in told and age in told


def test_a_renewal_keeps_since_when_and_a_take_over_counts() -> None:
    renewed = run_lease.written(lease(), run_lease.RENEW, ALICE, PROCESS, 60, NOW)
    assert "acquireTime" not in renewed["spec"] and renewed["spec"]["renewTime"] == "2026-11-22T09:30:00.000000Z"
    taken = run_lease.written(lease(), run_lease.TAKE, BOB, PROCESS, 60, NOW)
    assert taken["spec"]["leaseTransitions"] == 1 and taken["spec"]["acquireTime"] == taken["spec"]["renewTime"]
    assert renewed["metadata"]["resourceVersion"] == taken["metadata"]["resourceVersion"] == "17", "a change in between is a conflict"
    assert run_lease.process_of(lease()) == PROCESS
    again = run_lease.written({**lease(), **taken, "metadata": lease()["metadata"]}, run_lease.TAKE, ALICE, PROCESS, 60, NOW)
    assert again["spec"]["leaseTransitions"] == 2
    empty = run_lease.written({"metadata": {"resourceVersion": "1"}}, run_lease.TAKE, ALICE, PROCESS, 60, NOW)
    assert empty["spec"]["leaseTransitions"] == 1


def test_a_note_of_a_process_reads_the_same_each_time() -> None:
    noted = [run_lease.written(None, run_lease.CREATE, ALICE, process, 60, NOW) for process in (PROCESS, dict(reversed(PROCESS.items())))]
    assert noted[0] == noted[1]


@pytest.mark.parametrize("note", ["", "[]", "no JSON", None])
def test_a_note_of_another_form_proves_nothing(note: Any) -> None:
    assert run_lease.process_of({"metadata": {"annotations": {run_lease.ANNOTATION: note}}}) == {}


def test_a_run_has_ended_only_where_that_can_be_known() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        seen = {"machine": this_machine.machine(), "pid": process.pid, "start": this_machine.started(process.pid)}
        assert seen["start"] and not this_machine.has_ended(seen)
        assert this_machine.has_ended(dict(seen, start="1")), "its PID was given to another process"
        process.communicate(b"\n")
    assert this_machine.has_ended(seen)
    for lack in ({"machine": "another boot"}, {"machine": ""}, {"start": ""}):
        assert not this_machine.has_ended({**seen, **lack})
    assert not this_machine.has_ended({})


def test_a_run_is_the_process_that_started_this_one() -> None:
    holder, process = action.this_run()
    assert process["pid"] == os.getppid() and f"(process {os.getppid()}, " in holder and "@" in holder
