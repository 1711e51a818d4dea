# SPDX-License-Identifier: Apache-2.0
"""Hosts that could not be inspected: one problem for each reason, and only advice that the next run accepts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import unseen_hosts

CONTROL_PLANE = ["cp-1", "cp-2", "cp-3"]
ROUTE = {"msg": "Failed to connect to the host via ssh: ssh: connect to host 10.0.0.1 port 22: No route to host", "unreachable": True}
PYTHON = {"msg": "MODULE FAILURE: No start of json char found", "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found", "rc": 127}


def problems(unseen: dict[str, Any], control_plane: list[str]) -> list[str]:
    return unseen_hosts.problems(unseen_hosts.reasons(unseen), control_plane)


def rollback_problems(unseen: dict[str, Any], control_plane: list[str]) -> list[str]:
    return unseen_hosts.rollback_problems(unseen_hosts.reasons(unseen), control_plane)


def limits(text: str) -> list[str]:
    return re.findall("--limit '([^']+)'", text)


def test_hosts_with_one_reason_are_one_problem_and_one_limit_excludes_all_of_them() -> None:
    unseen = {"w-1": ROUTE, "w-2": PYTHON, "w-3": ROUTE}
    first, second = problems(unseen, CONTROL_PLANE)
    assert first.startswith("2 hosts: w-1, w-3: could not be inspected: connect to host 10.0.0.1 port 22: No route to host. Fix this, or exclude")
    assert second.startswith("w-2: could not be inspected: it has no Python at /usr/bin/python3.")
    # If a problem's advice excluded only its own hosts, the next run would refuse the others.
    assert limits(first) == limits(second) == ["all:!w-1:!w-2:!w-3"]


def test_many_hosts_are_one_short_problem() -> None:
    (problem,) = problems({f"w-{n}": ROUTE for n in range(300)}, CONTROL_PLANE)
    assert problem.startswith("300 hosts: w-0...w-299: ") and len(problem) < 300 and limits(problem) == []


@pytest.mark.parametrize("host", CONTROL_PLANE)
def test_a_migration_excludes_no_control_plane(host: str) -> None:
    control, worker = problems({host: ROUTE, "w-1": ROUTE}, CONTROL_PLANE)
    assert control.startswith(host + ": ") and "--limit" not in control
    assert limits(worker) == ["all:!w-1"]


def test_a_rollback_excludes_the_planner_only_after_another_one_has_its_place() -> None:
    (first,) = rollback_problems({"cp-1": ROUTE}, CONTROL_PLANE)
    assert first.index("put another control plane first in the group") < first.index("--limit 'all:!cp-1'")
    (second,) = rollback_problems({"cp-2": ROUTE}, CONTROL_PLANE)
    assert limits(second) == ["all:!cp-2"] and "put another" not in second
    both = rollback_problems({"w-1": ROUTE, "cp-1": ROUTE}, CONTROL_PLANE)
    assert [limits(text) for text in both] == [["all:!w-1"], ["all:!cp-1:!w-1"]]
    (only,) = rollback_problems({"cp-1": ROUTE}, ["cp-1"])
    assert "--limit" not in only and "plans on this host" in only
    assert rollback_problems({"w-1": {"problems": ["the kubelet does not run"]}}, [])[0].startswith(
        "w-1: could not be inspected: the kubelet does not run. Fix this, or exclude")
