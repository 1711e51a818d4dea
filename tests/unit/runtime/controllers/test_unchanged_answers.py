# SPDX-License-Identifier: Apache-2.0
"""Pauses become longer while the answer stays the same, and only then."""

from __future__ import annotations

import pytest

from ccm.controllers.shared.unchanged_answers import UnchangedAnswers, added


@pytest.mark.parametrize(
    ("waited", "expected"),
    [(-1.0, 0.0), (0.0, 0.0), (15.9, 0.0), (16.0, 1.0), (80.0, 5.0), (399.0, 24.0), (400.0, 25.0), (1e9, 25.0)],
)
def test_what_a_wait_adds(waited, expected):
    assert added(waited) == expected


def test_another_answer_starts_again_and_other_keys_do_not_matter():
    answers = UnchangedAnswers[str]()
    assert answers.pause("a", "PENDING_UPDATE", 1.5, 0.0) == 1.5
    assert answers.pause("a", "PENDING_UPDATE", 1.5, 160.0) == 11.5
    assert answers.pause("b", "PENDING_UPDATE", 1.5, 160.0) == 1.5
    assert answers.pause("a", "3 steps left", 1.5, 170.0) == 1.5
    assert answers.pause("a", "PENDING_UPDATE", 1.5, 171.0) == 1.5
    answers.forget("a")
    answers.forget("never seen")
    assert answers.pause("a", "PENDING_UPDATE", 1.5, 400.0) == 1.5
