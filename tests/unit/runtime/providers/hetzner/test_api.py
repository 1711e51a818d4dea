# SPDX-License-Identifier: Apache-2.0
"""Special forms of Hetzner's API: limits in headers, errors with fields, pages, and actions."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import ConfigError, ProviderConfig, Transient
from ccm.providers.hetzner import HetznerCloud, api


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"RateLimit-Reset": "1007"}, 7.0),
        ({"X-RateLimit-Reset": "1007"}, 7.0),
        ({"RateLimit-Reset": "4600"}, 30.0),
        ({"RateLimit-Reset": "900"}, 1.0),
        ({"RateLimit-Reset": "soon"}, None),
        ({}, None),
    ],
)
def test_a_pause_is_as_long_as_the_headers_say_but_never_an_hour(headers: dict[str, str], seconds: float) -> None:
    assert api.pause(headers, 1000.0) == seconds


def test_an_error_names_the_fields() -> None:
    fields = [{"name": "name", "messages": ["is too long", "is odd"]}, {"name": "type", "messages": None}]
    error = {"code": "invalid_input", "message": "invalid", "details": {"fields": fields}}
    assert api.failure({"error": error}) == ("invalid_input", "invalid; name: is too long, is odd; type: ")
    assert api.failure({"error": {"code": "locked", "message": "m", "details": None}}) == ("locked", "m")


def test_an_action_that_failed_or_is_missing_is_no_success() -> None:
    assert api.action_of({"action": {"status": "running"}}, "x")["status"] == "running"
    failed = {"status": "error", "error": {"code": "c", "message": "m"}}
    for answer in (None, {}, {"action": {}}, {"action": failed}):
        with pytest.raises(Transient, match=r"^x: "):
            api.action_of(answer, "x")


async def test_a_token_file_is_read_at_the_start_and_watched(tmp_path: Any) -> None:
    path = tmp_path / "token"
    cloud = HetznerCloud(
        ProviderConfig("", "", {"HCLOUD_TOKEN_FILE": str(path), "HCLOUD_ENDPOINT": "http://127.0.0.1:9"})
    )
    assert cloud.watched_files == [str(path)]
    with pytest.raises(ConfigError, match="HCLOUD_TOKEN_FILE: cannot read"):
        await cloud.start()
    path.write_text("two words\n")
    with pytest.raises(ConfigError, match="contains no token"):
        await cloud.start()
    path.write_text("abc\n")
    with pytest.raises(Transient):  # nothing listens
        await cloud.start()
    await cloud.close()
    assert "abc" not in repr(cloud) + repr(vars(cloud))


def test_capabilities_follow_the_configuration() -> None:
    def made(**variables: str) -> HetznerCloud:
        return HetznerCloud(ProviderConfig("", "", {"HCLOUD_TOKEN": "t", **variables}))

    assert made().routes is None and made().load_balancers is not None
    assert made(HCLOUD_NETWORK="kube").routes is not None
    assert made(HCLOUD_NETWORK="kube", HCLOUD_NETWORK_ROUTES_ENABLED="false").routes is None
    assert made(HCLOUD_LOAD_BALANCERS_ENABLED="false").load_balancers is None
    limits = made(HCLOUD_REQUEST_TIMEOUT="5s", HCLOUD_CALLS_PER_SECOND="2", HCLOUD_BURST="9").limits
    assert (limits.calls_per_second, limits.burst, limits.deadline) == (2.0, 9, 13.0)
