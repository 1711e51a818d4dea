# SPDX-License-Identifier: Apache-2.0
"""What a mark says about a load balancer that outlives its Service, and which requests are refused."""

from __future__ import annotations

import dataclasses

import pytest

from ccm.cloud import Conflict, Kept, LoadBalancerSpec, Port
from ccm.cloud.toolkit import kept_load_balancers as kept

SPEC = LoadBalancerSpec("kube", "1-2-3-4", "shop", "web", (Port("p", "TCP", 80, 30080),))


@pytest.mark.parametrize(
    ("keep", "protected", "letters", "read"),
    [
        (None, False, "", None),
        (Kept.ADDRESS, False, "", None),
        (Kept.LOAD_BALANCER, False, "k", Kept.LOAD_BALANCER),
        (None, True, "n", None),
        (Kept.LOAD_BALANCER, True, "kn", Kept.LOAD_BALANCER),
    ],
)
def test_the_letters_of_a_mark(keep: Kept | None, protected: bool, letters: str, read: Kept | None) -> None:
    spec = dataclasses.replace(SPEC, keep=keep, protected=protected)
    assert kept.flags(spec) == letters
    assert kept.keep_of(letters) == read


@pytest.mark.parametrize(
    ("keep", "letters", "stays"),
    [
        (None, "", False),
        (None, "n", False),
        (None, "nk", True),
        (Kept.LOAD_BALANCER, "", True),
        (Kept.ADDRESS, "n", False),
    ],
)
def test_a_load_balancer_stays_if_the_service_or_the_mark_says_so(keep: Kept | None, letters: str, stays: bool) -> None:
    assert kept.is_to_be_kept(dataclasses.replace(SPEC, keep=keep), letters) is stays


def test_a_service_cannot_take_back_another_load_balancer_than_it_has() -> None:
    kept.check_same(SPEC, "front")
    kept.check_same(dataclasses.replace(SPEC, take_back="front"), "front")
    with pytest.raises(Conflict, match="has the load balancer front, and cannot take back rear"):
        kept.check_same(dataclasses.replace(SPEC, take_back="rear"), "front")


def test_the_errors_name_load_balancer_and_namespace() -> None:
    assert "no load balancer rear is kept for namespace shop" in str(
        kept.nothing_kept(dataclasses.replace(SPEC, take_back="rear"))
    )
    assert "load balancer rear is kept for namespace shop" in str(kept.kept_for_another("load balancer rear", "shop"))
