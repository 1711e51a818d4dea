# SPDX-License-Identifier: Apache-2.0
"""The count of calls to the cloud: a busy hour leaves nothing wrong, with and without Nodes that drain."""

from __future__ import annotations

import pytest

from tools.bench import calls_a_day


@pytest.mark.parametrize("name", ["none of them", "all of them"])
def test_a_busy_hour_leaves_nothing_wrong(name):
    found = calls_a_day.measure(calls_a_day.FEATURES[name], busy=True, nodes=8, services=2, hours=1)
    assert found.problems == []
    assert found.day["load_balancers.set_targets"] > 0 and found.start["instances.list"] > 0
