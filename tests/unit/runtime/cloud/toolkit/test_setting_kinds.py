# SPDX-License-Identifier: Apache-2.0
"""Values of a provider's configuration: what each kind accepts, and what it refuses."""

import ipaddress

import pytest

from ccm.cloud.toolkit.setting_kinds import (
    count,
    duration,
    matching,
    names,
    networks,
    number,
    one_of,
    path,
    port,
    url,
    whole_number,
)


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        (number, "0.5", 0.5),
        (number, "1e3", 1000.0),
        (count, "1", 1),
        (duration, "24h", 86400.0),
        (duration, "1ns", 1e-9),
        (duration, "1.4ns", 1e-9),  # as in Go, fractions of a nanosecond are dropped
        (one_of("a", "b"), "b", "b"),
        (networks, "10.0.0.1/8, ,fd00::/8,", (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))),
        (networks, "", ()),
        (whole_number(5, 1000), "5", 5),
        (whole_number(5, 1000), "1000", 1000),
        (port, "65535", 65535),
        (path, "/etc/ccm", "/etc/ccm"),
        (url, "http://127.0.0.1:5000/v1/", "http://127.0.0.1:5000/v1"),
        (matching("[ab]+", "letters"), "ab", "ab"),
        (names, "", ()),
        (names, "a, b", ("a, b",)),
    ],
)
def test_a_value_is_accepted(kind, raw, expected):
    assert kind(raw) == expected


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (number, "0"),
        (number, "-1"),
        (number, "inf"),
        (count, "0"),
        (whole_number(5, 1000), "4"),
        (whole_number(5, 1000), "1001"),
        (whole_number(5, 1000), "5.5"),
        (whole_number(5, 1000), "\u0665"),
        (port, "0"),
        (port, "65536"),
        (path, "etc/ccm"),
        (url, "https://user:pw@h.example"),
        (url, "ftp://h.example"),
        (url, "https://h.example/?q"),
        (matching("[ab]+", "letters"), "abc"),
        (duration, "0s"),
        (duration, "0.4ns"),
        (duration, "-1s"),
        (duration, "24h0m1s"),
        (one_of("a", "b"), "c"),
        (networks, "10.0.0.0/33"),
    ],
)
def test_a_value_is_refused_and_not_quoted(kind, raw):
    with pytest.raises(ValueError) as caught:
        kind(raw)
    assert f"{raw!r}" not in str(caught.value)
