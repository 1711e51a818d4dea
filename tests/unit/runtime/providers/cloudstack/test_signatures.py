# SPDX-License-Identifier: Apache-2.0
"""Signatures: what they cover, and that they equal libcloud's."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import pytest
from libcloud.common.cloudstack import CloudStackConnection

from ccm.providers.cloudstack.signatures import VALID, signature, signed

SECRET = "VDaACYb0LV9eNjTetIOElcVQkvJck_J"


def of_libcloud(fields: dict[str, str]) -> str:
    connection = CloudStackConnection.__new__(CloudStackConnection)
    connection.key = SECRET
    return str(connection._make_signature(dict(fields)).decode())


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "listVirtualMachines", "apiKey": "k", "response": "json"},
        {"command": "createLoadBalancerRule", "name": "a b", "cidrlist": "10.0.0.0/8,192.168.0.0/16"},
        {"command": "createTags", "tags[0].key": "ccm-outoftree/address", "tags[0].value": "x:y"},
        {"command": "updateLoadBalancerRule", "description": "ccm:v1:kubernetes:u-1:n:f::default"},
    ],
)
def test_libcloud_signs_in_the_same_way(fields: dict[str, str]) -> None:
    assert signature(fields, SECRET) == of_libcloud(fields)


def test_signs_are_encoded_as_java_does() -> None:
    """The management server encodes a tilde, but not an asterisk."""
    digest = hmac.digest(SECRET.encode(), b"a=%7e%20*-_.", "sha1")
    assert signature({"A": "~ *-_."}, SECRET) == base64.b64encode(digest).decode()


@pytest.mark.parametrize("changed", [{"command": "listZones"}, {"expires": "2030-01-01T00:00:00+0000"}, {"x": "y"}])
def test_a_signature_covers_every_field(changed: dict[str, Any]) -> None:
    fields = dict(signed("listNetworks", {"listall": "true"}, "key", SECRET, 1_700_000_000))
    found = fields.pop("signature")
    assert found == signature(fields, SECRET) != signature(fields | changed, SECRET)


def test_a_request_is_valid_for_ten_minutes() -> None:
    fields = dict(signed("listNetworks", {}, "key", SECRET, 1_700_000_000))
    assert VALID == 600 and fields["expires"] == "2023-11-14T22:23:20+0000"
    assert (fields["apiKey"], fields["signatureVersion"], fields["response"]) == ("key", "3", "json")
