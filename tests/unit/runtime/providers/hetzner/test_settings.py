# SPDX-License-Identifier: Apache-2.0
"""The variables of hcloud-cloud-controller-manager: read unchanged, all problems at once, each with its place."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import ConfigError, ProviderConfig
from ccm.providers.hetzner.settings import ROBOT_REFUSED, Settings


def parse(text: str = "", **variables: str) -> Settings:
    return Settings.parse(ProviderConfig(text, "hetzner.env", variables))


def problems(text: str = "", **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, **variables)
    return caught.value.problems


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("hcloud_endpoint", "http://127.0.0.1:1/v1/", "http://127.0.0.1:1/v1"),
        ("hcloud_network_routes_enabled", "F", False),
        ("hcloud_instances_address_family", "dualstack", "dualstack"),
        ("hcloud_load_balancers_algorithm_type", " Least_Connections ", "least_connections"),
        ("hcloud_load_balancers_disable_public_network", "1", True),
        ("hcloud_load_balancers_health_check_interval", "1m5s", 65),
        ("hcloud_load_balancers_health_check_retries", "5", 5),
        ("hcloud_load_balancers_target_selector", " a=b,!c ", "a=b,!c"),
        ("hcloud_calls_per_second", "0.5", 0.5),
        ("hcloud_load_balancers_type", "", ""),
    ],
)
def test_a_variable_is_read_from_the_environment_and_from_a_file(name: str, text: str, value: Any) -> None:
    assert getattr(parse(HCLOUD_TOKEN="t", **{name.upper(): text}).variables, name) == value
    in_file = f"# all\n\nexport HCLOUD_TOKEN = 't'\n{name.upper()}=\"{text}\"\n"
    assert getattr(parse(in_file).variables, name) == value


def test_what_nobody_sets_is_as_in_the_original() -> None:
    found = parse(HCLOUD_TOKEN="t").variables
    assert found.hcloud_endpoint == "https://api.hetzner.cloud/v1"
    assert found.hcloud_instances_address_family == "ipv4" and found.hcloud_instances_zone_label_enabled
    assert found.hcloud_network_routes_enabled and found.hcloud_load_balancers_enabled
    assert found.hcloud_load_balancers_uses_proxyprotocol is None
    assert found.hcloud_load_balancers_disable_public_network is None
    assert (found.hcloud_request_timeout, found.hcloud_calls_per_second, found.hcloud_burst) == (15, 1, 600)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("HCLOUD_ENDPOINT", "ftp://x", "expected https://HOST/PATH, without credentials"),
        ("HCLOUD_ENDPOINT", "https://user:pw@host", "expected https://HOST/PATH, without credentials"),
        ("HCLOUD_NETWORK_ROUTES_ENABLED", "yes", "expected true or false"),
        ("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", "1500ms", "expected a duration in whole seconds, such as 15s"),
        ("HCLOUD_LOAD_BALANCERS_TARGET_SELECTOR", "a in b", "expected a label selector"),
        ("HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", "10.0.0.0/24,10.0.1.0/24", "expected one CIDR"),
        ("HCLOUD_INSTANCES_ADDRESS_FAMILY", "IPv4", "expected one of ipv4, ipv6, dualstack"),
    ],
)
def test_an_invalid_value_is_named_with_its_variable_and_not_quoted(name: str, text: str, expected: str) -> None:
    (told,) = problems(HCLOUD_TOKEN="t", **{name: text})
    assert told.startswith(f"{name}: {expected}") and text not in told
    (told,) = problems(f"HCLOUD_TOKEN=t\n{name}={text}\n")
    assert told.startswith(f"hetzner.env: line 2: {name}: {expected}")


def test_all_problems_are_reported_at_once() -> None:
    told = problems("a word\nHCLOUD_NETWROK=kube\n", HCLOUD_INSTANCES_ADDRESS_FAMILY="5", ROBOT_ENABLED="true")
    assert told[0] == "hetzner.env: line 1: expected NAME=value, or a comment"
    assert told[1] == "hetzner.env: line 2: HCLOUD_NETWROK: unknown variable; did you mean HCLOUD_NETWORK?"
    assert told[2].startswith("HCLOUD_INSTANCES_ADDRESS_FAMILY: ") and told[3] == f"ROBOT_ENABLED: {ROBOT_REFUSED}"
    assert len(told) == 4  # no word about HCLOUD_TOKEN, which the unreadable first line may set


def test_contradictions_are_reported_with_wrong_values_and_a_token_in_an_unreadable_line_is_not_missing() -> None:
    both = {"HCLOUD_LOAD_BALANCERS_LOCATION": "fsn1", "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE": "eu-central"}
    wrong, zone, token = problems(HCLOUD_BURST="many", **both)
    assert "HCLOUD_BURST: " in wrong and "LOCATION is set, too" in zone and "HCLOUD_TOKEN: it is missing" in token
    (line,) = problems("HCLOUD_TOKEN: hush")
    assert "expected NAME=value" in line


def test_settings_that_contradict_each_other_are_refused() -> None:
    place = {"HCLOUD_LOAD_BALANCERS_LOCATION": "fsn1", "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE": "eu-central"}
    (told,) = problems(HCLOUD_TOKEN="t", **place)
    assert told == "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE: HCLOUD_LOAD_BALANCERS_LOCATION is set, too: remove one of them"
    for name, text in place.items():
        assert parse(HCLOUD_TOKEN="t", **{name: text})
    assert parse("HCLOUD_TOKEN=t\nHCLOUD_NETWORK='").variables.hcloud_network == "'"
    (told,) = problems("HCLOUD_TOKEN=t\nHCLOUD_TOKEN_FILE=/t")
    assert told == "hetzner.env: line 2: HCLOUD_TOKEN_FILE: HCLOUD_TOKEN is set, too: remove one of them"
    (told,) = problems(HCLOUD_TOKEN="t", HCLOUD_TOKEN_FILE="/t")
    assert told == "HCLOUD_TOKEN_FILE: HCLOUD_TOKEN is set, too: remove one of them"
    (told,) = problems(HCLOUD_TOKEN="two words")
    assert told == "HCLOUD_TOKEN: a token has only printable ASCII characters and no spaces"


@pytest.mark.parametrize(("name", "text"), [("USE_PRIVATE_IP", "true"), ("PRIVATE_SUBNET_IP_RANGE", "10.0.0.0/24")])
def test_what_needs_a_network_does_not_end_the_start(name: str, text: str) -> None:
    given = {"HCLOUD_TOKEN": "t", f"HCLOUD_LOAD_BALANCERS_{name}": text}
    (sentence,) = parse(**given).ignored
    assert sentence.startswith(f"HCLOUD_LOAD_BALANCERS_{name}") and "it needs HCLOUD_NETWORK" in sentence
    assert parse(**given, HCLOUD_NETWORK="n").ignored == ()
    (sentence,) = parse(f"HCLOUD_TOKEN=t\nHCLOUD_LOAD_BALANCERS_{name}={text}").ignored
    assert sentence.startswith(f"hetzner.env: line 2: HCLOUD_LOAD_BALANCERS_{name}")


def test_a_variable_in_both_places_has_one_value() -> None:
    assert parse("HCLOUD_TOKEN=t", HCLOUD_TOKEN="t").variables.hcloud_token == "t"
    told = problems("HCLOUD_TOKEN=t\nHCLOUD_TOKEN=u", HCLOUD_TOKEN="v")
    assert told == [
        "hetzner.env: line 1: HCLOUD_TOKEN: it is set again with another value: remove one of them",
        "hetzner.env: line 1: HCLOUD_TOKEN: it is set in the environment with another value: remove one of them",
    ]


def test_variables_without_effect_are_named() -> None:
    told = "HCLOUD_SERVICE_HOST: unknown variable; did you mean HCLOUD_SERVER_CACHE_MODE?"
    found = parse(HCLOUD_TOKEN="t", HCLOUD_DEBUG="true", ROBOT_ENABLED="false", HCLOUD_SERVICE_HOST="10.0.0.1")
    assert found.ignored == ("HCLOUD_DEBUG has no effect: use --v", told)
    (told,) = problems(HCLOUD_TOKEN="t", ROBOT_ENABLED="maybe")
    assert told == "ROBOT_ENABLED: expected true or false"


def test_no_representation_has_the_token() -> None:
    assert "s3cret" not in repr(parse(HCLOUD_TOKEN="s3cret"))
