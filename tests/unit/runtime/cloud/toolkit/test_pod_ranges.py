# SPDX-License-Identifier: Apache-2.0
"""Pod ranges in a cloud's answer: a value that is no CIDR is left out, and the others are kept."""

from ccm.cloud.toolkit.pod_ranges import pod_ranges


def test_what_is_no_cidr_is_left_out():
    assert pod_ranges(["10.4.1.0/24", "/24", None, 7.5, "10.4.1.7/24", "nonsense", "fd00:0::/80", "10.4.2.9"]) == (
        "10.4.1.0/24",
        "fd00::/80",
        "10.4.2.9/32",
    )
