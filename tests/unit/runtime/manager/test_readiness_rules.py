# SPDX-License-Identifier: Apache-2.0
"""When one of a process's clouds makes the process unready."""

import pytest

from ccm.manager.readiness_rules import Standing, verdict
from ccm.serving.health import Tolerated

WORKS, SILENT, REFUSED = Standing(), Standing("503", is_silent=True), Standing("401")


@pytest.mark.parametrize(
    ("cloud", "others", "expected"),
    [
        (WORKS, [], None),
        (SILENT, [], "503"),
        (REFUSED, [], "401"),
        (WORKS, [SILENT, REFUSED], None),
        (SILENT, [WORKS], Tolerated("503")),
        (SILENT, [REFUSED, WORKS], Tolerated("503")),
        (REFUSED, [WORKS], "401"),
        (SILENT, [SILENT], "503"),
        (SILENT, [REFUSED], "503"),
    ],
)
def test_verdict(cloud, others, expected):
    assert verdict(cloud, others) == expected
