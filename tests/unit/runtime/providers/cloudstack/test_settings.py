# SPDX-License-Identifier: Apache-2.0
"""The cloud-config of cloudstack-kubernetes-provider: read unchanged, all problems at once, each with its line."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import ConfigError, ProviderConfig
from ccm.providers.cloudstack.settings import Settings

#: The example in cloudstack-kubernetes-provider's README.
THEIRS = """\
[Global]
api-url = https://cloud.example/client/api
api-key = the-key
secret-key = the-secret
project-id = a5b7e7c4-5c2b-4f1a-9d39-0c1c3fd6d2d5
zone = zone-1
ssl-no-verify = true
"""
LEAST = "[Global]\napi-url = https://cloud.example/client/api\napi-key = k\n"
MINIMAL = f"{LEAST}secret-key = s\n"


def parse(text: str) -> Settings:
    return Settings.parse(ProviderConfig(text, "cloud-config", {}))


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.problems


def test_their_file_is_read_as_it_is() -> None:
    found = parse(THEIRS)
    common = found.common
    assert (common.api_url, common.api_key) == ("https://cloud.example/client/api", "the-key")
    assert (common.secret_key, common.ssl_no_verify) == ("the-secret", True)
    assert common.project_id == "a5b7e7c4-5c2b-4f1a-9d39-0c1c3fd6d2d5"
    assert found.ignored == ("line 6: [Global] zone has no effect: each Node has the zone of its machine",)
    assert found.files == []


def test_what_nobody_sets() -> None:
    found = parse(MINIMAL)
    assert not found.common.ssl_no_verify and not found.common.project_id and not found.common.region
    assert found.balancers.enabled and not found.balancers.network_id
    assert (found.runtime.request_timeout, found.runtime.page_size) == (15.0, 100)


@pytest.mark.parametrize(
    ("section", "name", "text", "value"),
    [
        ("Global", "region", "north", "north"),
        ("Global", "project-id", "42", "42"),
        ("LoadBalancer", "enabled", "false", False),
        ("LoadBalancer", "network-id", "a5b7e7c4-5c2b-4f1a-9d39-0c1c3fd6d2d5", "a5b7e7c4-5c2b-4f1a-9d39-0c1c3fd6d2d5"),
        ("Runtime", "page-size", "20", 20),
        ("Runtime", "request-timeout", "1m5s", 65.0),
    ],
)
def test_a_key_is_read(section: str, name: str, text: str, value: Any) -> None:
    found = parse(f"{MINIMAL}[{section}]\n{name} = {text}\n")
    parts = {"Global": found.common, "LoadBalancer": found.balancers, "Runtime": found.runtime}
    assert getattr(parts[section], name.replace("-", "_")) == value


def test_secrets_and_authorities_in_files_are_watched() -> None:
    found = parse(f"{LEAST}secret-key-file = /etc/ccm/secret\nca-file = /etc/ccm/ca.pem\n")
    assert found.files == ["/etc/ccm/secret", "/etc/ccm/ca.pem"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "cloud-config: it is empty: the provider cloudstack needs a cloud-config"),
        (LEAST, "cloud-config: [Global] secret-key: it is missing, and so is secret-key-file"),
        ("[Global]\nsecret-key = s\n", "cloud-config: [Global] api-url: it is missing"),
        ("[Global]\nsecret-key = s\n", "cloud-config: [Global] api-key: it is missing"),
        ("[Global]\nsecret-key = s\napi-key =\n", "cloud-config: line 3: [Global] api-key: it is missing"),
        (
            f"{MINIMAL}secret-key-file = /s\n",
            "cloud-config: line 5: [Global] secret-key-file: secret-key is set, too: remove one of them",
        ),
        (
            f"{MINIMAL}ssl-no-verify = true\nca-file = /ca\n",
            "cloud-config: line 5: [Global] ssl-no-verify: ca-file is set, too: remove one of them",
        ),
        (
            f"{LEAST}secret-key = a b\n",
            "cloud-config: line 4: [Global] secret-key: a key has only letters, digits and signs",
        ),
        (
            f"{MINIMAL}api-url = https://u:p@cloud.example/\n",
            "cloud-config: line 5: [Global] api-url: expected https://HOST/client/api, without credentials",
        ),
        (
            f"{MINIMAL}secret-key-file = s\n",
            "cloud-config: line 5: [Global] secret-key-file: expected an absolute path",
        ),
        (f"{MINIMAL}regon = z\n", "cloud-config: line 5: [Global] regon: unknown key; did you mean region?"),
        (f"{MINIMAL}[Loadbalancers]\n", "unknown section; did you mean LoadBalancer?"),
        (f"{MINIMAL}project-id = mine\n", "project-id: expected an ID"),
    ],
)
def test_a_problem_has_its_place(text: str, expected: str) -> None:
    found = problems(text)
    assert any(expected in each for each in found), found


def test_problems_come_together_and_quote_no_value() -> None:
    found = problems("[Global]\napi-url = ftp://secret.example\nsecret-key = also secret\nproject-id = secret\n")
    assert len(found) == 3, found
    assert not any("secret.example" in each or "also secret" in each for each in found)
    assert "the-secret" not in repr(parse(THEIRS)) and "the-key" not in repr(parse(THEIRS))
