# SPDX-License-Identifier: Apache-2.0
"""Batches of workers: bad settings are refused before a run starts, and the progress line estimates the remaining time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import batches

GOOD: dict[str, Any] = {"serial": [1, "10%", "25%"], "pause": 0, "command": [], "timeout": 300}


@pytest.mark.parametrize("setting", [
    {}, {"serial": 5}, {"serial": "5"}, {"serial": "100%"}, {"serial": [1]}, {"pause": 86400}, {"pause": "10"}, {"parallel": 1}, {"timeout": 1},
    {"parallel": "100"},
    {"command": ["/usr/bin/check"]}, {"command": ["/a program", "x"]}, {"command": ("check", "a b")},
])
def test_good_settings_are_accepted(setting: dict[str, Any]) -> None:
    assert batches.problems(**{**GOOD, **setting}) == []


@pytest.mark.parametrize(("setting", "name"), [
    *(({"serial": value}, "ccm_install_worker_serial") for value in (0, "0", -1, "x", "", None, [], [1, 0], "101%", "0%", "1.5", True, {"a": 1})),
    *(({"pause": value}, "ccm_install_batch_pause") for value in (-1, "x", "", None, 86401, 1.5, True, [1])),
    *(({"timeout": value}, "ccm_install_batch_command_timeout") for value in (0, -1, "x", "", None, 86401, True)),
    *(({"parallel": value}, "ccm_install_adopt_parallel") for value in (0, -1, 101, "x", "", None, True, 1.5)),
    *(({"command": value}, "ccm_install_batch_command") for value in ("check all", ["check all"], [""], [" "], [1], {"a": 1}, None, ["a", None])),
])
def test_bad_settings_are_named_with_their_value(setting: dict[str, Any], name: str) -> None:
    (problem,) = batches.problems(**{**GOOD, **setting})
    assert problem.startswith(name + " ")


def test_every_bad_setting_is_named_at_once() -> None:
    assert len(batches.problems(0, -1, "x", 0)) == 4


@pytest.mark.parametrize(("serial", "workers", "expected"), [
    ([1, "10%", "25%"], 50, [1, 5, 12, 12, 12, 8]),
    ("25%", 50, [12, 12, 12, 12, 2]),
    ([1, "10%", "25%"], 3, [1, 1, 1]),
    (5, 3, [3]),
    ([2, 3], 9, [2, 3, 3, 1]),
    ("100%", 7, [7]),
    ([1], 0, []),
])
def test_sizes_are_those_that_ansible_makes(serial: Any, workers: int, expected: list[int]) -> None:
    assert batches.sizes(serial, workers) == expected


@pytest.mark.parametrize("serial", [[], 0, "x", [1, "0%"]])
def test_sizes_without_a_valid_serial_are_an_error(serial: Any) -> None:
    with pytest.raises(ValueError, match="ccm_install_worker_serial"):
        batches.sizes(serial, 9)


def test_the_rest_is_estimated_from_a_fixed_time_and_one_for_each_worker() -> None:
    assert batches.seconds_left([], [], [5]) == 0.0
    assert batches.seconds_left([1], [10.0], [5, 5]) == 20.0  # nothing is known about the size yet
    assert batches.seconds_left([1, 5], [12.0, 20.0], [12, 12]) == pytest.approx(68.0)  # 10 s and 2 s for each worker
    assert batches.seconds_left([1, 5], [20.0, 12.0], [12]) == pytest.approx(16.0)  # a slow canary must not give a negative slope
    assert batches.seconds_left([10, 20], [10.0, 30.0], [10]) >= 0.0


def test_the_line_says_which_batch_it_is_and_what_is_left() -> None:
    serial = [1, "10%", "25%"]
    assert batches.progress(serial, 50, [0.0], 0.0) == "Worker 1 of 50 (batch 1 of 6)"
    assert batches.progress(serial, 50, [0.0, 12.0], 12.0) == "Workers 2 to 6 of 50 (batch 2 of 6): 12 s so far, at least 60 s left"
    assert batches.progress(serial, 50, [0.0, 12.0, 32.0], 32.0) == "Workers 7 to 18 of 50 (batch 3 of 6): 32 s so far, about 2 min left"
    # The mean time of batches of 30 workers is too long for the last 10 workers.
    assert batches.progress("30%", 100, [0.0, 60.0], 60.0) == "Workers 31 to 60 of 100 (batch 2 of 4): 60 s so far, about 3 min left"
    assert batches.progress(1, 2, [0.0, 100.0], 100.0) == "Worker 2 of 2 (batch 2 of 2): 2 min so far, about 2 min left"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (89.0, "89 s"), (90.0, "2 min"), (5399.0, "90 min"), (5400.0, "1.5 h")])
def test_durations_are_read_by_people(seconds: float, text: str) -> None:
    assert batches.duration(seconds) == text


@pytest.mark.parametrize(("serial", "workers", "forks", "gate", "node", "between", "expected"), [
    # A host waits for at most 5 gates; 30 workers with 5 forks take 6 rounds.
    pytest.param("100%", 30, 5, 180, 120, 0, 6 * 900 + 420, id="A17"),
    pytest.param([1, "10%", "25%"], 120, 5, 180, 120, 0, 6 * 900 + 420, id="the last step is the largest"),
    pytest.param([30, 1], 120, 5, 180, 120, 0, 6 * 900 + 420, id="the first step is the largest"),
    pytest.param(1, 120, 5, 180, 120, 0, 4 * 900 + 420, id="a control plane"),
    pytest.param("100%", 31, 5, 180, 120, 0, 7 * 900 + 420, id="a round that is not full"),
    pytest.param("100%", 30, 50, 180, 120, 900, 4 * 900 + 420 + 900, id="forks and a pause"),
    pytest.param("100%", 0, 5, 20, 120, 0, 4 * (60 + 180) + 420, id="no workers, and a short gate: systemctl has 90 s"),
    pytest.param("100%", 10, 0, 180, 0, 0, 10 * 900 + 300, id="no forks are one"),
])
def test_the_longest_batch(serial: Any, workers: int, forks: int, gate: int, node: int, between: int, expected: int) -> None:
    assert batches.longest(serial, workers, forks, gate, node, between) == expected


@pytest.mark.parametrize("gate", [20, 180, 600])
def test_a_run_waits_for_what_a_killed_run_left_as_long_as_that_can_take(gate: int) -> None:
    role = Path(__file__).parents[5] / "roles/ccm_install"
    template = yaml.safe_load((role / "vars/main.yml").read_text())["__ccm_install_abandoned_timeout"]
    # Other runs wait for the module of a killed run. It takes at most a host's longest time, without that host's own wait for another run.
    at_most = batches.longest([], 0, 1, gate, 0, 0) - batches.READING
    assert int(jinja2.Environment().from_string(template).render(ccm_install_gate_timeout=gate)) == at_most // batches.STEPS - gate
    for task in ("host_again", "host_with_copy"):
        assert "__ccm_install_abandoned_timeout" in (role / "tasks/detect" / (task + ".yml")).read_text()
