# SPDX-License-Identifier: Apache-2.0
"""What two reviews found at commit d7a87390, and the tests that would have shown it: each of them exists.

Each finding was seen there on 2026-11-26: its input was given to the functions, modules and playbooks of that commit,
and what came out was wrong, or nothing was said. No finding is here by reading alone.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS, FORMATS = "tests/unit/plugins", "tests/unit/formats"
UTILS = f"{PLUGINS}/module_utils"
EDIT, FACTS, HOST, PLAN = f"{UTILS}/edit", f"{UTILS}/facts", f"{UTILS}/host", f"{UTILS}/plan"
RESTORES = f"{PLUGINS}/modules/test_ccm_component_config_restores.py"

#: Tests by finding: F are files of other people, A what was wrong or silent, B what an operator saw.
SHOWN_BY = {
    "F1 a quoted value over several lines": [
        f"{PLAN}/test_command_lines.py::test_the_classic_worker_of_an_in_tree_cloud",
        f"{PLAN}/test_command_lines.py::test_the_linter_reads_every_line_of_a_value",
        f"{EDIT}/test_unit.py::test_values_of_an_environment_file",
        f"{EDIT}/test_units_against_systemd.py::test_what_systemd_reads_is_what_was_planned",
    ],
    "F2 the CSI driver of RKE2": [f"{PLAN}/test_node_names.py::test_rke2_keeps_its_csi_driver"],
    "F3 a Node that gets another name": [
        f"{PLAN}/test_node_names.py::test_rke2_keeps_the_name_that_aws_implied",
        f"{PLAN}/test_node_names.py::test_a_kubelet_that_would_get_another_name_is_not_restarted",
    ],
    "F4 the only argument of a section of kubeadm": [
        f"{EDIT}/test_kubeadm.py::test_external_takes_the_place_of_all_that_goes",
        f"{FORMATS}/test_generated_kubeadm.py",
    ],
    "F5 credentials for images": [f"{PLAN}/test_image_pulls.py::test_credentials_that_the_run_ends_are_a_problem"],
    "F6 flags that a newer release refuses": [
        f"{FACTS}/test_versions.py::test_a_flag_is_fatal_from_a_release_on",
        f"{PLAN}/test_lint.py::test_flags_that_1_37_does_not_know_are_found_whoever_they_concern",
    ],
    "F7 an allocator of an in-tree cloud": [
        f"{PLAN}/test_cloud_loops.py::test_an_allocator_that_needs_an_in_tree_provider_is_a_problem",
        f"{HOST}/test_election.py::test_a_process_that_ends_when_it_leads_is_not_good",
    ],
    "F8 what the in-tree loops did": [
        f"{PLAN}/test_cloud_loops.py::test_load_balancers_keep_the_name_of_their_cluster",
        f"{PLAN}/test_cloud_loops.py::test_routes_go_on",
    ],
    "F9 the environment of k3s and RKE2": [
        f"{FACTS}/test_registration.py::test_the_environment_of_a_unit_is_its_own_and_then_that_of_its_files",
        f"{PLUGINS}/test_spoiled_files.py::test_flags_in_variables_that_nobody_reads_are_reported",
    ],
    "F10 a controller as a static Pod": [f"{PLAN}/test_other_places.py"],
    "F11 gates of patches and kube-proxy": [
        f"{EDIT}/test_patches.py::test_gates_of_a_patch_of_the_kubelets_configuration",
        f"{PLAN}/test_other_places.py::test_gates_of_kube_proxy_are_named",
    ],
    "F12 folders, leader migration, variables in words": [
        f"{EDIT}/test_kubeadm.py::test_a_volume_goes_whose_folder_has_the_cloud_config_and_stays_where_another_flag_needs_it",
        f"{EDIT}/test_manifest.py::test_the_volume_of_the_file_of_a_leader_migration_goes_with_its_flag",
        f"{PLAN}/test_command_lines.py::test_a_variable_inside_a_word",
    ],
    "A0 both flags side by side": [f"{PLAN}/test_command_lines.py::test_the_classic_worker_of_an_in_tree_cloud"],
    "A1 lines in quotes": [f"{EDIT}/test_unit.py::test_values_of_an_environment_file"],
    "A2 a backslash behind quotes": [f"{EDIT}/test_unit.py::test_values_of_an_environment_file"],
    "A3 a blank before quotes": [f"{PLAN}/test_command_lines.py::test_the_classic_worker_of_an_in_tree_cloud"],
    "A4 a line that goes on": [f"{EDIT}/test_unit.py::test_values_of_an_environment_file"],
    "A5 blanks in a list": [
        f"{FACTS}/test_versions.py::test_lists_keep_their_order_and_rest_and_go_only_when_nothing_is_left"
    ],
    "A6 quotes of a word": [f"{PLAN}/test_command_lines.py::test_a_quoted_word_keeps_its_quotes"],
    "A7 names of patches": [f"{EDIT}/test_patches.py::test_a_patch_is_known_by_kubeadms_rule_for_names"],
    "A8 one strange value": [
        f"{PLUGINS}/filter/test_isolation.py::test_an_odd_file_of_a_worker_is_at_most_its_own_problem",
        f"{FORMATS}/test_kubernetes_yaml.py::test_a_text_means_what_it_means_to_kubernetes",
    ],
    "A9 aliases that grow": [f"{FORMATS}/test_kubernetes_yaml.py::test_a_text_that_grows_is_refused_at_once"],
    "A10 a restore that failed": [
        f"{RESTORES}::test_a_file_that_somebody_else_writes_meanwhile_is_not_called_restored"
    ],
    "A11 chattr": [f"{HOST}/test_places.py::test_attributes_that_keep_a_file_from_being_replaced"],
    "A12 files in memory": [
        f"{HOST}/test_places.py::test_what_a_reboot_removes",
        f"{PLAN}/test_places.py::test_a_file_that_cannot_be_changed_is_a_problem_before_the_change",
    ],
    "A13 a variable inside a word": [f"{PLAN}/test_command_lines.py::test_a_variable_inside_a_word"],
    "A14 settings of the kubelet in JSON": [
        f"{FORMATS}/test_generated_kubelet.py::test_generated_kubelet_configurations"
    ],
    "A15 what the kubelet reads": [f"{FORMATS}/test_kubernetes_yaml.py::test_a_text_means_what_it_means_to_kubernetes"],
    "A16 releases in tags": [f"{FACTS}/test_versions.py::test_the_release_of_an_image_is_in_its_tag"],
    "A17 the longest batch": [f"{PLAN}/test_batches.py::test_the_longest_batch"],
    "A18 plays without a strategy": ["tests/unit/test_playbooks.py::test_every_play_names_its_strategy"],
    "B1 another cluster": [
        f"{PLAN}/test_inventory.py::test_a_cluster_with_none_of_the_hosts_is_one_problem",
        f"{PLAN}/test_inventory.py::test_no_problem_names_every_node_of_a_large_cluster",
    ],
    "B2 many equal problems": [f"{PLAN}/test_grouping.py::test_a_message_that_ends_a_run_has_at_most_twenty_lines"],
    "B3 advice that the next run refuses": [f"{PLAN}/test_unseen_hosts.py"],
    "B4 tags with which nothing is done": ["tests/unit/test_playbooks.py"],
    "B5 files in results": [
        f"{RESTORES}::test_a_result_has_files_only_if_a_difference_is_asked_for_and_never_a_password"
    ],
    "B6 a batch's items without their task": [
        "tests/integration/collection/test_grouped_output.py::"
        "test_items_of_a_loop_follow_the_name_of_their_task_in_each_batch"
    ],
}


def test_no_finding_is_left_out() -> None:
    names = {finding.split()[0] for finding in SHOWN_BY}
    assert names == {
        f"{letter}{number}"
        for letter, numbers in {"F": range(1, 13), "A": range(19), "B": range(1, 7)}.items()
        for number in numbers
    }


@pytest.mark.parametrize("finding", SHOWN_BY)
def test_a_finding_is_shown_by_tests_that_exist(finding: str) -> None:
    for place in SHOWN_BY[finding]:
        path, _, name = place.partition("::")
        parsed = ast.parse((ROOT / path).read_text())
        tests = {each.name for each in parsed.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in tests if name else any(test.startswith("test_") for test in tests), place
