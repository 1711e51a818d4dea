# SPDX-License-Identifier: Apache-2.0
"""Files that cannot be changed, or not for long, are problems only if the plan changes them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import places
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

ENV = "/var/lib/kubelet/kubeadm-flags.env"
IMMUTABLE = {"obstacle": ENV + " has the attribute i (immutable). Remove it with 'chattr -i " + ENV + "'"}
VOLATILE = {"volatile": "/run is empty after each start of the host"}


@pytest.fixture
def plan(host_facts: Any, cluster_facts: Any) -> Any:
    def build(flags: str, entry: dict[str, str]) -> list[str]:
        facts = host_facts("w-1", {ENV: f'KUBELET_KUBEADM_ARGS="{flags}"\n'}, [flags] if "cloud" in flags else [])
        facts["files"][ENV].update(entry)
        found: list[str] = make_plan({"w-1": facts}, cluster_facts(("w-1", "initialized"), kubeadm=""), [])["problems"]
        return found

    return build


def test_a_file_that_cannot_be_changed_is_a_problem_before_the_change(plan: Any) -> None:
    assert plan("--v=2", {}) == []
    assert plan("--v=2", IMMUTABLE) == [f"w-1: cannot change {ENV}: {IMMUTABLE['obstacle']}"]
    (problem,) = plan("--v=2", VOLATILE)
    assert problem.startswith(f"w-1: {ENV} would lose the change at the next start of the host: /run is empty")
    assert plan("--v=2", {**VOLATILE, **IMMUTABLE}) == plan("--v=2", IMMUTABLE)


@pytest.mark.parametrize("entry", [IMMUTABLE, VOLATILE])
def test_a_file_that_stays_as_it_is_may_be_anything(plan: Any, entry: dict[str, str]) -> None:
    assert plan("--cloud-provider=external", entry) == []


def test_a_rollback_restores_what_a_reboot_removes_but_not_what_it_cannot_change() -> None:
    steps = {"control_plane": [{"files": [{"path": "/a"}, {"path": "/kept", "keep": True}]}], "kubelet": {"files": [{"path": "/b"}]}}
    files = {"/a": IMMUTABLE, "/b": VOLATILE, "/kept": IMMUTABLE}
    plan: dict[str, Any] = {"problems": [], "hosts": {"w-1": steps}}
    places.check(plan, "w-1", {"files": files}, lasting=False)
    assert plan["problems"] == [f"w-1: cannot change /a: {IMMUTABLE['obstacle']}"]
    places.check(plan, "w-1", {"files": {}})
    assert len(plan["problems"]) == 1
