# SPDX-License-Identifier: Apache-2.0
"""Annotations of Services with a Classic Load Balancer: what is read, what is refused, and what has no effect."""

from __future__ import annotations

import pytest

from ccm.cloud import Invalid
from ccm.providers.aws.annotations import PREFIX
from ccm.providers.aws.load_balancers.classic import annotations as notes


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("subnets", "subnet-1, public b", ("subnet-1", "public b")),
        ("backend-protocol", "HTTPS", "https"),
        ("proxy-protocol", "*", True),
        ("proxy-protocol", "", False),
        ("access-log-emit-interval", "5", 5),
        ("access-log-emit-interval", "60", 60),
        ("connection-draining-enabled", "true", True),
        ("connection-draining-timeout", "1", 1),
        ("connection-draining-timeout", "3600", 3600),
        ("connection-idle-timeout", "1", 1),
        ("connection-idle-timeout", "4000", 4000),
        ("security-groups", "sg-0a1, sg-0b2", ("sg-0a1", "sg-0b2")),
        ("extra-security-groups", "sg-0a1", ("sg-0a1",)),
        ("healthcheck-protocol", "ssl", "ssl"),
        ("healthcheck-port", "traffic-port", "traffic-port"),
        ("healthcheck-path", "/healthz", "/healthz"),
        ("healthcheck-interval", "5", 5),
        ("healthcheck-interval", "300", 300),
        ("healthcheck-timeout", "2", 2),
        ("healthcheck-timeout", "60", 60),
        ("healthcheck-healthy-threshold", "2", 2),
        ("healthcheck-unhealthy-threshold", "10", 10),
    ],
)
def test_what_is_read(name, text, value):
    assert notes.parse({PREFIX + name: text}).get(name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("backend-protocol", "udp"),
        ("proxy-protocol", "80"),
        ("access-log-emit-interval", "10"),
        ("connection-draining-enabled", "perhaps"),
        ("connection-draining-timeout", "0"),
        ("connection-draining-timeout", "3601"),
        ("connection-idle-timeout", "0"),
        ("connection-idle-timeout", "4001"),
        ("security-groups", "default"),
        ("extra-security-groups", "sg-0A1"),
        ("healthcheck-protocol", "udp"),
        ("healthcheck-path", "healthz"),
        ("healthcheck-interval", "4"),
        ("healthcheck-interval", "301"),
        ("healthcheck-timeout", "1"),
        ("healthcheck-timeout", "61"),
        ("healthcheck-healthy-threshold", "1"),
        ("healthcheck-unhealthy-threshold", "11"),
        ("target-group-attributes", "preserve_client_ip.enabled=false"),
        ("healthcheck-intervall", "10"),
    ],
)
def test_what_is_refused_is_named(name, text):
    with pytest.raises(Invalid, match=f"annotation {PREFIX}{name}: "):
        notes.parse({PREFIX + name: text})


def test_all_problems_are_reported_at_once():
    with pytest.raises(Invalid) as refused:
        notes.parse({f"{PREFIX}healthcheck-timeout": "1", f"{PREFIX}connection-idle-timeout": "0"})
    assert str(refused.value).count(f"annotation {PREFIX}") == 2


def test_annotations_without_effect_are_named_and_accepted():
    given = {f"{PREFIX}eip-allocations": "eipalloc-0a1", f"{PREFIX}private-ipv4-addresses": "10.0.0.1"}
    notes.parse(given)
    found = notes.warnings(given)
    assert len(found) == 2 and all("AWS chooses the addresses of a Classic Load Balancer" in each for each in found)
    assert notes.warnings({}) == []


def test_an_annotation_of_the_other_type_is_not_called_unknown():
    name = f"{PREFIX}target-group-attributes"
    with pytest.raises(Invalid) as refused:
        notes.parse({name: "preserve_client_ip.enabled=false"})
    assert str(refused.value) == f"annotation {name}: a Classic Load Balancer has no target groups"
