# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that only cloud.conf of OpenStack has."""

from __future__ import annotations

import ipaddress

import pytest

from ccm.providers.openstack import settings_sections as sections


@pytest.mark.parametrize(("raw", "value"), [("1", 1), ("9", 9), ("10", 10)])
def test_a_number_of_checks_is_what_octavia_accepts(raw: str, value: int) -> None:
    assert sections.attempts(raw) == value


@pytest.mark.parametrize("raw", ["0", "11", "100", "-1", "1.0", "", " 1"])
def test_other_numbers_of_checks_are_refused(raw: str) -> None:
    with pytest.raises(ValueError, match="expected a whole number from 1 to 10"):
        sections.attempts(raw)


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ("", ()),
        (" , ", ()),
        ("*", ("*",)),
        ("default, timeout-client-data", ("default", "timeout-client-data")),
        ("proxy-protocol,,lb-method", ("proxy-protocol", "lb-method")),
    ],
)
def test_allowed_annotations_are_names_without_their_prefix(raw: str, names: tuple[str, ...]) -> None:
    assert sections.annotation_names(raw) == names


@pytest.mark.parametrize("raw", ["timeout", "default, timeout", "*, Default", "loadbalancer.openstack.org/lb-method"])
def test_unknown_annotations_are_refused_even_beside_known_ones(raw: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        sections.annotation_names(raw)


def test_addresses_that_services_may_request() -> None:
    assert sections.addresses("any") == (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
    assert sections.addresses("none") == ()
    assert sections.addresses("203.0.113.0/24") == (ipaddress.ip_network("203.0.113.0/24"),)
    with pytest.raises(ValueError, match="expected"):
        sections.addresses("everything")
