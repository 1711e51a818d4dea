# SPDX-License-Identifier: Apache-2.0
"""The summary of attempts at a URL: how many failed, how long nothing answered, and the text that people read."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import disruption

URL = "http://203.0.113.7/"


def measured(*attempts: tuple[float, float, str]) -> dict[str, Any]:
    measurement = disruption.Measurement()
    for began, ended, error in attempts:
        measurement.add(began, ended, error)
    return measurement.result()


def test_without_a_failure_there_is_no_disruption() -> None:
    result = measured((0.0, 0.002, ""), (0.1, 0.11, ""), (0.2, 0.203, ""))
    assert (result["requests"], result["answered"], result["gap_count"], result["disrupted_ms"]) == (3, 3, 0, 0)
    assert (result["median_ms"], result["slowest_ms"], result["answers_now"]) == (3.0, 10.0, True)
    assert disruption.sentences(URL, result) == [f"{URL}: 3 of 3 requests answered in 0 s, median 3 ms, slowest 10 ms. No disruption."]


def test_a_gap_lasts_from_the_first_failure_to_the_next_answer() -> None:
    """A gap may contain requests that failed in different ways. Each gap counts, and the summary names the longest one."""
    result = measured((0.0, 0.01, ""), (0.1, 2.1, "timeout"), (2.2, 2.21, "refused"), (2.3, 2.31, ""), (2.4, 2.41, "refused"), (2.5, 2.52, ""))
    assert result["gaps"] == [
        {"at": 0.1, "ms": 2210, "requests": 2, "errors": {"timeout": 1, "refused": 1}},
        {"at": 2.4, "ms": 120, "requests": 1, "errors": {"refused": 1}},
    ]
    assert (result["gap_count"], result["disrupted_ms"], result["longest_ms"], result["answers_now"]) == (2, 2330, 2210, True)
    (text,) = disruption.sentences(URL, result)
    assert text.startswith(f"{URL}: 3 of 6 requests answered in 2 s")
    assert text.endswith("Disrupted for 2330 ms (2 refused, 1 timeout): 2 gap(s), the longest 2210 ms, 0 s after the start.")


@pytest.mark.parametrize("before", [[(0.0, 0.01, "")], []], ids=["it answered before", "it never answered"])
def test_a_gap_that_does_not_end_counts_up_to_the_last_attempt(before: list[tuple[float, float, str]]) -> None:
    result = measured(*before, (0.5, 0.6, "refused"), (1.0, 3.0, "timeout"))
    assert (result["longest_ms"], result["gap_count"], result["answers_now"]) == (2500, 1, False)
    assert disruption.sentences(URL, result)[0].endswith("It did not answer at the end.")


def test_no_more_gaps_are_listed_than_people_read_but_all_are_counted() -> None:
    attempts = [(float(second), second + (0.5 if second % 2 else 0.01), "refused" if second % 2 else "") for second in range(101)]
    result = measured(*attempts)
    assert len(result["gaps"]) == disruption.MOST_GAPS and result["gap_count"] == 50
    assert result["disrupted_ms"] == 50 * 1010


def test_what_was_not_measured_is_no_success() -> None:
    assert disruption.sentences(URL, {"why": "its process stopped early"}) == [f"{URL} was not measured: its process stopped early"]
    assert disruption.sentences(URL, measured()) == [f"{URL} was not measured: no request was sent"]
