# SPDX-License-Identifier: Apache-2.0
"""Marks the long tests, and starts the longest files first, also those of tests/clouds and tests/soak that run with
them.
"""

from __future__ import annotations

import pytest

#: Files that take about a minute or more, the longest first, as `build/results/*/integration.xml` shows. They start
#: first, so that parallel runs end together.
LONGEST = (
    "test_chaos",
    "test_soak",
    "test_ccm_load_balancer_check",
    "test_cloud",
    "test_calls",
    "test_disruption",
    "test_lifecycle",
    "test_secrecy",
    "test_api_server",
    "test_replaced_nodes",
    "test_vendors",
    "test_runs",
    "test_suite",
    "test_services_and_routes",
    "test_informer",
    "test_wrong_api_server",
    "test_taking_over",
    "test_ccm_upgrade_condition",
    "test_asking_the_cloud",
    "test_answers",
    "test_mutants",
    "test_layouts",
    "test_in_tree_volumes",
    "test_examples",
)

#: Tests that take at least a minute of CPU, mostly for plays. `make test` leaves them to CI (`make test-ci`), and CI
#: leaves those of the collection, and the conformance kit's mutants, to `make test-all`.
MARKED_LONG = (
    "test_bad_files",
    "test_journal_copies",
    "test_soak",
    "collection/test_pages",
    "collection/test_render",
    "collection/test_lint",
    "collection/test_old_config",
    "collection/test_large",
    "conformance/test_mutants",
    "secrecy/test_trust",
    "test_after_a_killed_run_the_paused_one_comes_back_if_the_new_one_never_led",
    "test_no_task_on_the_operators_machine_wants_to_be_root",
    "test_every_layout_is_detected_planned_and_foretold_file_by_file",
    "test_it_follows_the_variable_and_leaves_nothing",
    "test_a_rollback_takes_nothing_away_before_every_host_is_restored",
    "test_the_new_one_takes_the_place_of_the_old_one_and_gives_it_back",
    "test_one_that_does_not_come_up_leaves_the_old_one_running",
    "test_what_is_written_is_what_was_foretold_and_comes_back_byte_for_byte",
    "test_a_worker_that_fails_ends_the_run_with_a_summary_of_every_host",
    "test_what_cannot_be_looked_at_is_named_before_anything_is_undone",
    "test_a_host_that_dies_in_the_middle_is_told_and_the_next_ones_are_not_begun",
    "test_a_worker_that_fails_takes_its_batch_along_and_that_is_said_once",
    "test_a_worker_that_may_fail_does_not_keep_the_others_from_being_done",
    "test_fifty_workers_are_followed_by_a_person",
    "test_one_worker_more_that_fails_than_may_ends_the_run",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(name in item.nodeid for name in MARKED_LONG):
            item.add_marker(pytest.mark.long)
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
