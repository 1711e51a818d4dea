# SPDX-License-Identifier: Apache-2.0
"""The annotations of hcloud-cloud-controller-manager: the same keys, and each invalid value is reported."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Invalid
from ccm.providers.hetzner.annotations import PREFIX, TABLE, parse

#: The keys that the original documents, and one that it uses only in its own tests.
KEYS = """algorithm-type certificate-type disable-private-ingress disable-public-network health-check-http-domain
health-check-http-path health-check-http-validate-certificate health-check-interval health-check-port
health-check-protocol health-check-retries health-check-timeout hostname http-certificates http-cookie-lifetime
http-cookie-name http-managed-certificate-acme-staging http-managed-certificate-domains http-managed-certificate-name
http-redirect-http http-status-codes http-sticky-sessions http-timeout-idle id ipv4 ipv4-rdns ipv6 ipv6-disabled
ipv6-rdns location name network-zone node-selector private-ipv4 private-subnet-ip-range protocol type use-private-ip
uses-proxyprotocol"""
#: Further keys of this provider.
OWN_KEYS = ""


def test_all_keys_of_the_original_are_known_and_all_others_are_listed() -> None:
    assert sorted(TABLE.by_name) == sorted([*KEYS.split(), *OWN_KEYS.split()])


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("uses-proxyprotocol", "T", True),
        ("protocol", "HTTPS", "https"),
        ("algorithm-type", "Round_Robin", "round_robin"),
        ("certificate-type", "Managed", "managed"),
        ("http-cookie-lifetime", "24h", 86400),
        ("http-timeout-idle", "30s", 30),
        ("http-timeout-idle", "5m", 300),
        ("health-check-interval", "3s", 3),
        ("health-check-interval", "60s", 60),
        ("health-check-timeout", "1s", 1),
        ("health-check-retries", "5", 5),
        ("health-check-port", "65535", 65535),
        ("health-check-http-path", "/healthz?a=b", "/healthz?a=b"),
        ("http-status-codes", "2??, 404", ("2??", "404")),
        ("http-certificates", "my cert,17", ("my cert", "17")),
        ("http-managed-certificate-domains", "a.org, *.b.org", ("a.org", "*.b.org")),
        ("http-managed-certificate-domains", ",".join(["a.org"] * 50), ("a.org",) * 50),
        ("http-certificates", ",".join(["1"] * 50), ("1",) * 50),
        ("private-ipv4", "10.0.0.9", "10.0.0.9"),
        ("private-subnet-ip-range", "10.0.1.0/24", "10.0.1.0/24"),
        ("location", "", ""),
        ("name", "a" * 63, "a" * 63),
        ("type", "lb-11", "lb-11"),
    ],
)
def test_a_value_is_read(name: str, text: str, value: Any) -> None:
    assert parse({PREFIX + name: text}).get(name) == value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("uses-proxyprotocol", "yes", "true or false"),
        ("protocol", "udp", "one of tcp, http, https"),
        ("algorithm-type", "random", "one of round_robin, least_connections"),
        ("http-timeout-idle", "29s", "a duration in whole seconds from 30s to 300s"),
        ("http-timeout-idle", "301s", "a duration in whole seconds from 30s to 300s"),
        ("http-cookie-lifetime", "0s", "a duration in whole seconds from 1s to 86400s"),
        ("health-check-interval", "2s", "a duration in whole seconds from 3s to 60s"),
        ("health-check-interval", "15", "a duration in whole seconds from 3s to 60s"),
        ("health-check-timeout", "61s", "a duration in whole seconds from 1s to 60s"),
        ("health-check-retries", "6", "a whole number from 1 to 5"),
        ("health-check-port", "0", "a whole number from 1 to 65535"),
        ("health-check-http-path", "healthz", "a path that begins with /"),
        ("http-status-codes", "600", "at most 50 status codes, comma-separated"),
        ("http-certificates", "a,,b", "at most 50 names or IDs, comma-separated"),
        ("http-certificates", ",".join(["1"] * 51), "at most 50 names or IDs, comma-separated"),
        ("http-managed-certificate-domains", "a.org,a b", "at most 50 DNS names, comma-separated"),
        ("private-ipv4", "2001:db8::1", "an IPv4 address"),
        ("private-subnet-ip-range", "10.0.1.0/99", "a CIDR"),
        ("name", "a" * 64, "a name of at most 63 letters, digits and ._-"),
        ("location", "Fsn1/..", "a name of at most 63 small letters, digits and -"),
        (
            "node-selector",
            "a in b",
            "a label selector such as 'role=web,zone in (a,b),!drain', of at most 32 conditions",
        ),
    ],
)
def test_a_bad_value_is_named_with_what_is_expected(name: str, text: str, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse({PREFIX + name: text})
    assert str(caught.value).endswith(f"is not {expected}") and f"annotation {PREFIX}{name}: " in str(caught.value)


def test_all_problems_and_misspelled_names_are_reported_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        parse({f"{PREFIX}loction": "fsn1", f"{PREFIX}protocol": "x", "example.org/other": "y"})
    assert str(caught.value) == (
        f"annotation {PREFIX}protocol: 'x' is not one of tcp, http, https; annotation {PREFIX}loction: unknown"
    )
