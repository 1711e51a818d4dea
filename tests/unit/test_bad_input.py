# SPDX-License-Identifier: Apache-2.0
"""Wrong input to the collection, and the tests that show what the collection does with it. Each test exists.

The page docs/how-to/when-a-run-fails.md says the same for users.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT, WHOLE = "tests/unit/plugins", "tests/integration/collection"
EDIT, PLAN, MODULE = f"{UNIT}/module_utils/edit", f"{UNIT}/module_utils/plan", f"{UNIT}/modules"

#: The tests of each bad input. A molecule scenario is named by its folder.
SHOWN_BY = {
    "no candidate for the control plane": [
        f"{WHOLE}/test_refusals.py::test_an_inventory_without_a_control_plane_is_refused",
        f"{PLAN}/test_plan.py::test_bad_hosts_are_named_with_a_way_out",
    ],
    "two candidates for the control plane": [
        f"{PLAN}/test_plan.py::test_bad_hosts_are_named_with_a_way_out",
        f"{PLAN}/test_refusals.py::test_a_component_that_is_both_a_static_pod_and_a_unit",
        f"{PLAN}/test_refusals.py::test_a_control_plane_that_the_group_lacks",
        f"{PLAN}/test_refusals.py::test_servers_and_agents_in_the_wrong_group",
        f"{WHOLE}/test_layouts.py::test_hosts_that_cannot_be_changed_are_refused_before_the_first_change",
    ],
    "hosts that disagree about the version": [
        f"{PLAN}/test_refusals.py::test_control_planes_that_disagree_about_the_version",
        f"{PLAN}/test_refusals.py::test_kubelets_outside_the_version_skew",
        f"{PLAN}/test_plan.py::test_versions_without_facts_are_refused",
    ],
    "a host that dies mid-run": [
        f"{WHOLE}/test_runs.py::test_a_host_that_dies_in_the_middle_is_told_and_the_next_ones_are_not_begun",
        f"{WHOLE}/test_runs.py::test_hosts_that_cannot_be_looked_at_do_not_keep_the_others_from_being_reported",
        f"{PLAN}/test_plan.py::test_a_run_that_was_killed_after_writing_is_taken_up_again",
        "molecule/outage",
    ],
    "no space for backups": [
        f"{WHOLE}/test_layouts.py::test_hosts_that_cannot_be_changed_are_refused_before_the_first_change",
        f"{MODULE}/test_ccm_component_config.py::test_without_space_for_the_backup_nothing_is_written",
    ],
    "a read-only /etc/kubernetes": [
        f"{WHOLE}/test_layouts.py::test_hosts_that_cannot_be_changed_are_refused_before_the_first_change",
        f"{MODULE}/test_ccm_component_config.py::test_a_place_that_becomes_read_only_in_the_middle_leaves_every_file_as_it_was",
    ],
    "a managed service": [
        f"{PLAN}/test_refusals.py::test_a_managed_cluster_is_known_by_its_version",
        f"{PLAN}/test_refusals.py::test_a_managed_cluster_is_known_by_its_nodes",
    ],
    "a manifest with comments and anchors": [
        f"{EDIT}/test_manifest.py::test_comments_order_quotes_and_crlf_stay",
        f"{EDIT}/test_manifest.py::test_anchors_elsewhere_stay",
        f"{EDIT}/test_manifest.py::test_an_edit_that_an_alias_would_repeat_elsewhere_is_refused",
        f"{EDIT}/test_kubeadm.py::test_an_edit_that_an_alias_would_repeat_elsewhere_is_refused",
        f"{WHOLE}/test_bad_files.py::test_files_that_people_wrote_are_changed_in_place_and_come_back",
    ],
    "Windows line ends": [
        f"{PLAN}/test_refusals.py::test_line_ends_of_windows_stay_in_every_file",
        f"{WHOLE}/test_bad_files.py::test_files_that_people_wrote_are_changed_in_place_and_come_back",
    ],
    "a manifest that is a symbolic link": [
        f"{MODULE}/test_ccm_component_config.py::test_a_symbolic_link_stays_one",
        f"{WHOLE}/test_bad_files.py::test_files_that_people_wrote_are_changed_in_place_and_come_back",
    ],
    "kubelet flags in an unknown place": [
        f"{EDIT}/test_kubelet.py::test_unknown_layouts_are_refused_with_a_way_out",
        f"{EDIT}/test_kubelet.py::test_two_different_in_tree_providers_are_refused_with_both_places",
        f"{WHOLE}/test_layouts.py::test_hosts_that_cannot_be_changed_are_refused_before_the_first_change",
    ],
}


@pytest.mark.parametrize("case", SHOWN_BY)
def test_a_case_is_shown_by_tests_that_exist(case: str):
    for place in SHOWN_BY[case]:
        path, _, name = place.partition("::")
        if not name:
            assert (ROOT / path / "molecule.yml").exists(), place
            continue
        parsed = ast.parse((ROOT / path).read_text())
        assert name in {each.name for each in parsed.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
