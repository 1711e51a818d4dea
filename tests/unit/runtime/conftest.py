# SPDX-License-Identifier: Apache-2.0
"""Restores what unit tests of the runtime may change for other tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_metrics_of_clouds() -> Iterator[None]:
    """Forget the metrics of each cloud, because a metric that has any does not show samples without the label `cloud`.
    """
    yield
    if metrics := sys.modules.get("ccm.base.cloud_metrics"):
        metrics._of_clouds.clear()
