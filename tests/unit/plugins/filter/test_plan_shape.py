# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of migration and rollback return the declared shape: no key is missing, and none is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.filter.leader_migration_plan import leader_migration_plan
from ansible_collections.outoftree.ccm.plugins.filter.migration_plan import migration_plan
from ansible_collections.outoftree.ccm.plugins.filter.rollback_plan import rollback_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import draft
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Edit, Plan, Report, RollbackPlan

FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"


def keys(kind: Any) -> tuple[set[str], set[str]]:
    """Return the required keys of a typed dictionary, and all its keys."""
    return set(kind.__required_keys__), set(kind.__required_keys__ | kind.__optional_keys__)


def fits(value: Any, kind: Any) -> bool:
    required, possible = keys(kind)
    return required <= set(value) <= possible


@pytest.mark.parametrize(("plan", "kind"), [(migration_plan, Plan), (leader_migration_plan, Plan), (rollback_plan, RollbackPlan)])
@pytest.mark.parametrize("version", ["v1.29.3", "v1.36.3", "v1.2.3"])
def test_a_plan_has_its_shape(plan: Any, kind: Any, version: str, host_facts: Any, cluster_facts: Any) -> None:
    facts = host_facts("cp-1", {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS=""\n'})
    made = plan({"cp-1": facts}, cluster_facts(("cp-1", "unmanaged"), version=version), ["cp-1"])
    assert fits(made, kind) and {"message", "table", "report"} <= set(made) and fits(made["report"], Report)


def test_an_edit_has_its_shape_whoever_plans_it(host_facts: Any, cluster_facts: Any) -> None:
    other = {"kind": "Deployment", "namespace": "kube-system", "name": "old-ccm", "image": "old:1", "managed": "", "pods": 1, "paused": False,
             "active": True, "cloud_provider": "", "cluster_name": "kubernetes", "lease": {}, "holder": "", "keeper": "", "port": 0}
    facts = {"w-1": host_facts("w-1", {FLAGS_ENV: 'KUBELET_KUBEADM_ARGS=""\n'})}
    made = migration_plan(facts, cluster_facts(("w-1", "unmanaged"), others=[other]), [], takeover=True)
    assert {edit["component"] for edit in made["edits"]} >= {"kubelet", "node", "takeover"}
    assert all(fits(edit, Edit) for edit in made["edits"])


def test_nothing_is_missing_in_a_plan_that_was_begun() -> None:
    assert set(draft.empty()) == keys(Plan)[0]
