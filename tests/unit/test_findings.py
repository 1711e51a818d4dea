# SPDX-License-Identifier: Apache-2.0
"""What reviews found at commit d7a87390, and the tests that would have shown it. Each test exists.

Each finding about the collection was reproduced on 2026-11-26: the functions, modules and playbooks of that commit
got its input, and their result was wrong, or they reported nothing. None of these findings comes from reading alone.

The findings about the runtime were reproduced with the runtime of that commit, too. The explorer found 1, 2 and F1
again. Tests that run on that runtime fail; for the other findings, its functions and controllers got the input. Two
findings come from reading: that labels of Nodes alone change nothing when load balancers are compared (F10), and that
keys that failed together return together (11), because the queue of that commit had no setting for that.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS, FORMATS = "tests/unit/plugins", "tests/unit/formats"
UTILS = f"{PLUGINS}/module_utils"
EXPLORER, RUNTIME = "tests/explore", "tests/unit/runtime"
CONTROLLERS, ENGINE, GATEWAY = f"{RUNTIME}/controllers", f"{RUNTIME}/engine", f"{RUNTIME}/gateway"
PROVIDERS, TOOLKIT = f"{RUNTIME}/providers", f"{RUNTIME}/cloud/toolkit"
EDIT, FACTS, HOST, PLAN = f"{UTILS}/edit", f"{UTILS}/facts", f"{UTILS}/host", f"{UTILS}/plan"
RESTORES = f"{PLUGINS}/modules/test_ccm_component_config_restores.py"

#: Tests by finding about the collection. F: files of other people. A: wrong or missing reports. B: what an operator
#: saw.
COLLECTION = {
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

#: Tests by finding about the runtime. F: public cases. Numbers: experiments with 500 load balancers. B: peers' tables.
CONTROLLER = {
    "F1 a refused change that freezes old Nodes": [
        f"{CONTROLLERS}/test_backends_follow.py::test_after_a_change_that_the_cloud_refuses",
        f"{CONTROLLERS}/test_backends_follow.py::test_after_a_change_that_a_rule_of_ours_refuses",
        f"{CONTROLLERS}/test_backends_follow.py::test_after_a_restart_and_a_change_that_was_refused_before",
        f"{PROVIDERS}/aws/test_nodes_only.py::test_what_does_not_concern_targets_does_not_keep_them_from_following",
        f"{PROVIDERS}/openstack/test_load_balancers.py::"
        "test_what_does_not_concern_members_does_not_keep_them_from_following",
        f"{EXPLORER}/test_findings_again.py",
    ],
    "F2 warnings that nobody hears": [
        f"{CONTROLLERS}/test_told_warnings.py::test_a_new_load_balancer",
        f"{CONTROLLERS}/test_told_warnings.py::test_backends_that_have_no_room",
    ],
    "F3 YAML scalars that become other secrets": [
        f"{FORMATS}/test_cloud_configs.py::test_yaml_means_what_yaml_v2_says",
        f"{FORMATS}/test_cloud_configs.py::test_a_value_is_read_as_it_was_written_or_refused_with_its_line",
    ],
    "F4 published with nothing behind it": [
        f"{PROVIDERS}/test_nothing_behind_it.py::test_a_port_without_a_node_port_is_refused",
        f"{PROVIDERS}/test_nothing_behind_it.py::test_ipv6_alone_is_refused_where_nodes_are_reached_with_ipv4",
        f"{PROVIDERS}/test_nothing_behind_it.py::test_a_second_family_is_reported",
        f"{TOOLKIT}/test_service_checks.py::test_nobody_serves_only_if_there_are_nodes_and_no_targets",
        f"{CONTROLLERS}/test_told_warnings.py::test_a_family_that_no_node_has",
        f"{PROVIDERS}/openstack/test_load_balancers.py::test_a_selector_that_no_node_has_is_reported_at_once_and_later",
    ],
    "F5 ::/0 opens IPv4": [
        f"{PROVIDERS}/test_nothing_behind_it.py::test_ranges_of_ipv6_never_open_ipv4",
        f"{PROVIDERS}/test_nothing_behind_it.py::test_ranges_of_ipv6_beside_others_change_nothing",
        f"{TOOLKIT}/test_service_checks.py::test_no_range_of_ipv6_opens_ipv4",
    ],
    "F6 a Service that moved while nobody led": [
        f"{CONTROLLERS}/test_moved_services.py::test_what_changed_while_nobody_led",
    ],
    "F7 settings for new ones that change later": [
        f"{PROVIDERS}/hetzner/test_load_balancer_rules.py::test_a_later_change_of_the_location_is_reported",
        f"{PROVIDERS}/test_nothing_behind_it.py::test_what_only_a_new_nlb_gets_is_reported_when_it_changes",
        f"{PROVIDERS}/test_nothing_behind_it.py::test_annotations_that_the_shared_probe_overrules_are_reported",
    ],
    "F8 secrets of cloud.conf that are cut": [
        f"{FORMATS}/test_cloud_configs.py::test_ini_means_what_gcfg_says",
        f"{FORMATS}/test_cloud_configs.py::test_a_comment_that_may_cut_a_secret_is_reported_and_none_behind_quotes",
        f"{FORMATS}/test_cloud_configs.py::test_no_untrue_problem_follows_a_value_that_cannot_be_read",
    ],
    "F9 names in capitals": [
        f"{PROVIDERS}/hetzner/test_instance_rules.py::test_a_name_in_capitals_is_found_as_the_kubelet_registers",
        f"{PROVIDERS}/libcloud/test_instance_rules.py::test_a_name_in_capitals_is_found_as_the_kubelet_registers",
    ],
    "F10 minor ones": [
        f"{PROVIDERS}/vsphere/test_settings.py::test_files_of_the_in_tree_provider_and_the_csi_driver_are_read",
        f"{PROVIDERS}/vsphere/test_settings.py::test_a_port_in_the_name_of_a_server_is_refused",
        f"{PROVIDERS}/openstack/test_instances.py::test_an_internal_network_that_no_server_is_in_is_reported_once",
        f"{PROVIDERS}/openstack/test_settings.py::test_a_section_that_is_nearly_known_gets_a_hint_and_no_untrue_problem",
        f"{CONTROLLERS}/test_node.py::"
        "test_a_node_with_the_provider_id_of_a_former_machine_is_told_which_one_has_its_name",
        f"{CONTROLLERS}/test_comparison.py::test_labels_of_nodes_alone_take_effect_when_the_load_balancer_is_compared",
        f"{PROVIDERS}/aws/load_balancers/network/test_annotations.py::"
        "test_a_text_that_reads_as_false_and_makes_a_load_balancer_internal_is_a_warning",
    ],
    "1 one namespace's failures stop all others": [
        f"{GATEWAY}/test_breaker.py::test_the_objects_of_one_namespace_hold_back_only_each_other",
        f"{GATEWAY}/test_breaker.py::test_a_new_object_of_another_namespace_is_served_at_once",
        f"{TOOLKIT}/test_json_api.py::test_an_unknown_refusal_of_the_cloud_itself_concerns_one_object",
        f"{PROVIDERS}/test_errors_of_one_object.py",
        f"{EXPLORER}/test_findings_again.py",
    ],
    "2 slow load balancers hold every slot": [
        f"{GATEWAY}/test_slots.py::test_slow_calls_of_other_groups_leave_slots_to_the_instances",
        f"{GATEWAY}/test_slots.py::test_a_group_holds_three_quarters_of_the_slots_at_most",
        f"{EXPLORER}/test_findings_again.py",
    ],
    "3 sessions of vCenter": [
        f"{PROVIDERS}/vsphere/test_session.py::test_at_most_one_session_is_open_for_any_sequence_of_failures",
        f"{PROVIDERS}/vsphere/test_session.py::test_a_machine_that_goes_while_it_is_read_costs_no_session",
    ],
    "4 instances that ever lived": [
        f"{PROVIDERS}/aws/test_instances.py::test_memory_stays_flat_while_20000_instances_are_replaced",
        f"{PROVIDERS}/test_nothing_grows.py",
    ],
    "5 dead connections": [
        f"{ENGINE}/test_dead_connections.py::test_one_request_finds_out_and_those_that_follow_use_new_connections",
        f"{EXPLORER}/test_explore.py::test_dead_connections_that_cost_the_lease_are_caught",
    ],
    "6 a new leader without instances": [
        f"{CONTROLLERS}/test_waiting_services.py::test_deletions_pass_while_instances_cannot_be_listed",
        f"{CONTROLLERS}/test_waiting_services.py::test_whatever_it_waits_for",
        f"{EXPLORER}/test_explore.py::test_an_outage_of_the_instances_that_holds_deletions_is_caught",
    ],
    "7 a Lease that is released before a write ends": [
        f"{ENGINE}/test_election.py::test_the_lease_expires_while_a_write_to_the_cloud_may_still_happen",
        f"{GATEWAY}/test_gateway.py::test_a_write_without_an_answer_may_happen_for_as_long_as_a_call_may_take",
    ],
    "8 listings that pile up": [
        f"{GATEWAY}/test_instance_directory.py::"
        "test_one_listing_is_in_progress_and_one_follows_for_all_who_ask_meanwhile",
        f"{GATEWAY}/test_instance_directory.py::test_the_pages_of_the_listing_in_progress_are_counted",
    ],
    "9 the status of a successor": [
        f"{CONTROLLERS}/test_moved_services.py::"
        "test_the_status_of_a_successor_never_has_the_address_of_its_predecessor",
        f"{CONTROLLERS}/test_moved_services.py::test_every_patch_names_the_uid",
    ],
    "10 a kubelet that claims a whole range": [
        f"{CONTROLLERS}/test_node_ipam_rules.py::test_a_node_that_claims_a_whole_range_is_named",
        f"{CONTROLLERS}/test_node_ipam_rules.py::test_a_claim_of_many_blocks_is_respected_and_named",
    ],
    "11 low ones": [
        f"{RUNTIME}/serving/test_webhooks.py::test_a_length_that_is_only_announced_keeps_nobody_out",
        f"{ENGINE}/test_election.py::test_a_candidate_that_is_cancelled_while_it_takes_the_lease_gives_it_back",
        f"{ENGINE}/test_client.py::test_pages_that_do_not_end_are_unavailable",
        f"{ENGINE}/test_api_credentials.py::"
        "test_a_token_file_that_is_written_in_place_keeps_its_token_while_it_is_empty",
        f"{CONTROLLERS}/test_outage.py::"
        "test_services_that_wait_for_the_end_of_an_outage_look_seldom_and_are_served_soon_after_it",
        f"{ENGINE}/test_queue_neighbours.py::test_500_keys_of_one_namespace_do_not_delay_another",
        f"{ENGINE}/test_queue_neighbours.py::test_keys_that_failed_together_do_not_return_together",
    ],
    "B1 what peers do otherwise": [
        f"{PROVIDERS}/openstack/test_desired_state.py::"
        "test_where_the_vip_of_an_internal_load_balancer_is_comes_from_the_annotation_first",
        f"{PROVIDERS}/gce/test_instance_rules.py::test_pod_cidrs_are_the_alias_ranges_of_all_interfaces",
        f"{PROVIDERS}/gce/test_instance_rules.py::test_pod_cidrs_have_the_first_112_of_the_ipv6_range",
    ],
    "B2 stricter than the peer": [
        f"{PROVIDERS}/openstack/test_settings.py::"
        "test_a_monitor_that_waits_longer_than_until_its_next_check_is_a_warning",
        f"{PROVIDERS}/hetzner/test_settings.py::test_what_needs_a_network_does_not_end_the_start",
        f"{PROVIDERS}/vsphere/test_settings.py::test_half_of_a_secret_beside_user_and_password_has_no_effect",
        f"{PROVIDERS}/aws/load_balancers/network/test_annotations.py::"
        "test_odd_items_of_tags_are_read_as_the_original_reads_them_and_reported",
    ],
}


def _names(letters: dict[str, range]) -> set[str]:
    return {f"{letter}{number}" for letter, numbers in letters.items() for number in numbers}


@pytest.mark.parametrize(
    ("shown_by", "letters"),
    [
        (COLLECTION, {"F": range(1, 13), "A": range(19), "B": range(1, 7)}),
        (CONTROLLER, {"F": range(1, 11), "": range(1, 12), "B": range(1, 3)}),
    ],
)
def test_no_finding_is_left_out(shown_by: dict[str, list[str]], letters: dict[str, range]) -> None:
    assert {finding.split()[0] for finding in shown_by} == _names(letters)


@pytest.mark.parametrize(("finding", "places"), [*COLLECTION.items(), *CONTROLLER.items()])
def test_a_finding_is_shown_by_tests_that_exist(finding: str, places: list[str]) -> None:
    for place in places:
        path, _, name = place.partition("::")
        parsed = ast.parse((ROOT / path).read_text())
        tests = {each.name for each in parsed.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in tests if name else any(test.startswith("test_") for test in tests), (finding, place)
