# SPDX-License-Identifier: Apache-2.0
"""The action plugins take only a host's own step from the plan, and do not template the plan."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible_collections.outoftree.ccm.plugins.plugin_utils import handover

STEP = {"component": "kubelet", "files": [{"path": "/f", "content": "e3sgbm90IGEgdGVtcGxhdGUgfX0="}], "flags": ["--a=b"], "flags_before": [],
        "restart": True, "service": {}}


def variables(**plan: Any) -> dict[str, Any]:
    hosts = {"w": {"control_plane": [], "kubelet": STEP}, "idle": {"control_plane": [], "kubelet": None}, "cp": {"control_plane": [STEP]}}
    return {"__ccm_install_plan": {"hosts": hosts, "nodes": {"w": "node-w", "idle": "node-idle", "cp": "node-cp"}, **plan},
            "__ccm_install_run": {"id": "20261123T090000Z"}}


def test_the_step_has_the_options_of_the_module_and_the_run() -> None:
    assert handover.planned_step(variables(), "w") == {**STEP, "run_id": "20261123T090000Z"}
    restored = {**STEP, "state": "restored", "reason": "for people only"}
    plan = variables()
    plan["__ccm_install_plan"]["hosts"]["w"]["kubelet"] = restored
    assert handover.planned_step(plan, "w") == {**STEP, "state": "restored", "run_id": "20261123T090000Z"}


def test_a_control_plane_takes_its_steps_by_number() -> None:
    assert handover.planned_step(variables(), "cp", 0) == {**STEP, "run_id": "20261123T090000Z"}
    assert handover.planned_step(variables(), "cp", 1) is None and handover.planned_step(variables(), "w", 0) is None


def test_a_host_without_a_step_is_skipped_and_a_run_without_a_plan_is_refused() -> None:
    assert handover.planned_step(variables(), "idle") is None
    assert handover.planned_step(variables(), "unknown") is None
    with pytest.raises(AnsibleError, match="There is no plan"):
        handover.planned_step({}, "w")


def test_a_lost_journal_is_handed_over_with_the_step() -> None:
    lost = {**variables(), "__ccm_install_copies": {"hosts": {"w": {"content": "COPY"}, "cp": {"content": ""}}, "stale": []}}
    assert (handover.planned_step(lost, "w") or {})["journal_copy"] == "COPY"
    assert handover.lost_journal(lost, "cp") == handover.lost_journal({}, "w") == ""


@pytest.mark.parametrize(("host", "more", "stale", "changes"), [
    ("w", {}, [], True),
    ("idle", {}, [], False),
    ("idle", {}, ["idle"], True),
    ("cp", {}, [], True),
    ("idle", {"forget": ["idle"]}, [], True),
    ("idle", {"kubeadm_config": {"content": "x"}}, [], False),
    ("unknown", {}, ["unknown"], False),
])
def test_whose_journal_a_run_writes(host: str, more: dict[str, Any], stale: list[str], changes: bool) -> None:
    found = {**variables(**more), "__ccm_install_copies": {"hosts": {}, "stale": stale}}
    assert handover.journal_changes(found, host, ["cp"]) is changes


def test_a_control_plane_writes_its_journal_for_kubeadms_configuration() -> None:
    assert handover.journal_changes(variables(kubeadm_config={"content": "x"}), "idle", ["idle"])
    assert not handover.journal_changes({}, "idle", ["idle"])


class HostVars(dict):  # type: ignore[type-arg]
    """Behaves as Ansible's hostvars: an index evaluates templates, raw_get does not."""

    def __getitem__(self, name: str) -> Any:
        raise AssertionError("the plan was templated")

    def raw_get(self, name: str) -> Any:
        return dict.get(self, name)


def test_stored_variables_are_read_as_they_are() -> None:
    assert handover.stored({"hostvars": HostVars(cp={"a": 1})}, "cp") == {"a": 1}
    assert handover.stored({"hostvars": HostVars()}, "cp") == {}
