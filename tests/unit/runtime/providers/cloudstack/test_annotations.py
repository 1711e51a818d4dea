# SPDX-License-Identifier: Apache-2.0
"""The annotations of cloudstack-kubernetes-provider."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Invalid
from ccm.providers.cloudstack.annotations import PREFIX, parse


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("proxy-protocol", "true", True),
        ("proxy-protocol", "false", False),
        ("hostname", "lb.example.org", "lb.example.org"),
        ("hostname", "", ""),
        ("source-cidrs", "192.168.1.7/24, 10.0.0.0/8", ("10.0.0.0/8", "192.168.1.0/24")),
        ("ip-associated-by-controller", "true", True),
        ("node-selector", "pool=web, edge", {"pool": "web", "edge": None}),
    ],
)
def test_a_value_is_read(name: str, text: str, value: Any) -> None:
    assert parse({PREFIX + name: text}).get(name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proxy-protocol", "yes"),
        ("hostname", "LB.example.org"),
        ("source-cidrs", ""),
        ("source-cidrs", "10.0.0.0/8,nobody"),
        ("source-cidrs", "2001:db8::/32"),
        ("source-cidrs", ",".join(f"10.0.{part}.0/24" for part in range(51))),
        ("proxy", "true"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_name(name: str, text: str) -> None:
    with pytest.raises(Invalid, match=f"annotation {PREFIX}{name}"):
        parse({PREFIX + name: text})


def test_annotations_of_others_are_left_alone() -> None:
    parse({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"})
