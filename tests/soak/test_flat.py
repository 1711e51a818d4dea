# SPDX-License-Identifier: Apache-2.0
"""Growth is noticed, and noise is not mistaken for growth."""

from __future__ import annotations

import random

import pytest

from .flat import judge, table

NOISE = random.Random(1)


def samples(slope: float, noise: float = 0.0, warm_up: float = 0.0) -> list[tuple[float, float]]:
    """Return samples over 100 seconds that rise by `slope` a second, and also by `warm_up` a second in the first 20."""
    return [(float(t), 50 + min(t, 20) * warm_up + slope * t + NOISE.uniform(-noise, noise)) for t in range(101)]


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        pytest.param(samples(0), True, id="constant"),
        pytest.param(samples(0, noise=10), True, id="noise"),
        pytest.param(samples(0, warm_up=5), True, id="filling-caches"),
        pytest.param(samples(0.2), False, id="leak"),
        pytest.param(samples(0.2, noise=5), False, id="leak-in-noise"),
        pytest.param(samples(-1), True, id="shrinking"),
    ],
)
def test_growth(values: list[tuple[float, float]], flat: bool) -> None:
    verdict = judge("x", values, tolerance=8.0)
    assert verdict.flat is flat
    assert ("GROWS" in table([verdict])) is not flat


def test_too_few_samples_prove_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge("x", samples(0)[:5], tolerance=8.0)
