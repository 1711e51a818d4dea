# SPDX-License-Identifier: Apache-2.0
"""Annotations of Services: which values are read, and which are refused with the key and what it expects."""

from __future__ import annotations

import pytest

from ccm.cloud import Invalid
from ccm.providers.aws.annotations import PREFIX
from ccm.providers.aws.load_balancers.classic import annotations as classic_annotations
from ccm.providers.aws.load_balancers.network import annotations as notes

CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/0a1"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("type", "nlb", "nlb"),
        ("internal", "0.0.0.0/0", True),
        ("internal", "false", False),
        ("internal", "", False),
        ("subnets", "subnet-1, public b", ("subnet-1", "public b")),
        ("target-node-labels", "pool=web,fast", {"pool": "web", "fast": None}),
        (
            "additional-resource-tags",
            "team=web, cost center = 7,empty=",
            {"team": "web", "cost center": "7", "empty": ""},
        ),
        ("ssl-cert", CERTIFICATE, CERTIFICATE),
        ("ssl-ports", "443,https", ("443", "https")),
        ("ssl-ports", "*", ()),
        ("backend-protocol", "SSL", "ssl"),
        ("cross-zone-load-balancing-enabled", "T", True),
        ("access-log-enabled", "0", False),
        ("healthcheck-protocol", "HTTP", "http"),
        ("healthcheck-port", "traffic-port", "traffic-port"),
        ("healthcheck-port", "10256", "10256"),
        ("healthcheck-interval", "5", 5),
        ("healthcheck-healthy-threshold", "10", 10),
        ("eip-allocations", "eipalloc-0a1,eipalloc-0a2", ("eipalloc-0a1", "eipalloc-0a2")),
        ("private-ipv4-addresses", "10.0.0.1, 10.0.1.1", ("10.0.0.1", "10.0.1.1")),
        ("target-group-attributes", "preserve_client_ip.enabled=false", {"preserve_client_ip.enabled": "false"}),
    ],
)
def test_what_is_read(name, text, value):
    assert notes.parse({PREFIX + name: text}).get(name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("subnets", ""),
        ("subnets", ",".join(f"subnet-{each}" for each in range(17))),
        ("additional-resource-tags", "kubernetes.io/cluster/other=owned"),
        ("additional-resource-tags", "ccm-outoftree/uid=1"),
        ("additional-resource-tags", "KubernetesCluster=other"),
        ("additional-resource-tags", "aws:x=1"),
        ("additional-resource-tags", "a\u0000b=1"),
        ("ssl-cert", "arn:aws:s3:::bucket"),
        ("backend-protocol", "quic"),
        ("cross-zone-load-balancing-enabled", "maybe"),
        ("healthcheck-protocol", "udp"),
        ("healthcheck-port", "0"),
        ("healthcheck-interval", "4"),
        ("healthcheck-interval", "301"),
        ("healthcheck-path", "healthz"),
        ("healthcheck-unhealthy-threshold", "11"),
        ("eip-allocations", "203.0.113.7"),
        ("private-ipv4-addresses", "2001:db8::1"),
        ("target-group-attributes", "stickiness.enabled=true"),
        ("target-group-attributes", "preserve_client_ip.enabled=yes"),
        ("target-group-attributes", "preserve_client_ip.enabled=true,preserve_client_ip.enabled=true"),
    ],
)
def test_what_is_refused(name, text):
    with pytest.raises(Invalid, match=f"annotation {PREFIX}{name}: .* is not "):
        notes.parse({PREFIX + name: text})


def test_all_problems_are_reported_at_once():
    given = {PREFIX + "internl": "true", PREFIX + "subnets": "", PREFIX + "extra-security-groups": "sg-1"}
    with pytest.raises(Invalid) as raised:
        notes.parse(given)
    told = str(raised.value)
    assert f"annotation {PREFIX}internl: unknown" in told
    assert f"annotation {PREFIX}subnets: '' is not" in told
    assert f"annotation {PREFIX}extra-security-groups: a Network Load Balancer" in told


def test_annotations_of_others_have_a_warning_and_no_effect():
    given = {PREFIX + "proxy-protocol": "*", PREFIX + "scheme": "internal", PREFIX + "name": "web"}
    assert notes.parse(given).problems == []
    classic, elsewhere = notes.warnings(given)
    assert "proxy_protocol_v2.enabled=true" in classic
    assert "...name, ...scheme: only" in elsewhere
    assert notes.warnings({PREFIX + "type": "nlb"}) == []


@pytest.mark.parametrize("page", [notes, classic_annotations])
@pytest.mark.parametrize("text", ["False", "FALSE", " false", "no", "0", "off", "f"])
def test_a_text_that_reads_as_false_and_makes_a_load_balancer_internal_is_a_warning(page, text):
    [sentence] = page.warnings({PREFIX + "internal": text})
    assert f"{PREFIX}internal: {text!r} means internal" in sentence
    assert all(page.warnings({PREFIX + "internal": meant}) == [] for meant in ("", "false", "true", "0.0.0.0/0"))


@pytest.mark.parametrize(
    ("text", "expected", "is_odd"),
    [
        ("a=b, c=,d", {"a": "b", "c": "", "d": ""}, False),
        ("K=V K1=V2,Key1====, =====, =Val, , 234,", {"K": "V K1", "Key1": "", "234": ""}, True),
        ("=lost", {}, True),
        ("a=b=c", {"a": "b"}, True),
    ],
)
@pytest.mark.parametrize("page", [notes, classic_annotations])
def test_odd_items_of_tags_are_read_as_the_original_reads_them_and_reported(page, text, expected, is_odd):
    given = {f"{PREFIX}additional-resource-tags": text}
    assert page.parse(given).get("additional-resource-tags", None) == expected
    assert any("additional-resource-tags: an item" in sentence for sentence in page.warnings(given)) == is_odd
