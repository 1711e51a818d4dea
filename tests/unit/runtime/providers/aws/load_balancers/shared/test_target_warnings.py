# SPDX-License-Identifier: Apache-2.0
"""What is reported about the targets of a load balancer."""

from __future__ import annotations

import pytest

from ccm.providers.aws.load_balancers.shared import target_warnings

from .targets import MANY, Desired, backend


def test_a_selector_that_no_node_has_is_named() -> None:
    assert target_warnings.no_targets(Desired(), [backend(1)]) == ()
    (warning,) = target_warnings.no_targets(Desired({"pool": "web"}), [backend(1)])
    assert "target-node-labels" in warning


def test_a_limit_that_is_kept_is_not_reported() -> None:
    assert target_warnings.of(Desired(most=4), MANY) == ()


@pytest.mark.parametrize(("most", "is_reported"), [(0, False), (1, True), (9, True), (10, False), (11, False)])
def test_with_local_a_limit_that_is_not_kept_is_reported(most: int, is_reported: bool) -> None:
    assert bool(target_warnings.of(Desired(most=most, local=True), MANY)) is is_reported


def test_the_warning_has_both_numbers() -> None:
    (warning,) = target_warnings.of(Desired(most=4, local=True), MANY)
    assert "10 instances" in warning and "allows 4" in warning
