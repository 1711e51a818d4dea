# SPDX-License-Identifier: Apache-2.0
"""The configuration: every problem at once, with its line, and no value in a problem."""

import pytest

from ccm.cloud import ConfigError, ProviderConfig
from ccm.providers.libcloud.drivers import DRIVERS
from ccm.providers.libcloud.settings import KEYS, Settings, known_keys


def parse(text):
    return Settings.parse(ProviderConfig(text, "c.yaml", {}))


def problems(text):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.problems


def test_a_configuration():
    found = parse("driver: linode\ntoken: hush-hush\nrequest_timeout: 3s\nburst: 7\n")
    assert (found.name, found.driver, found.arguments) == ("linode", DRIVERS["linode"], {"token": "hush-hush"})
    assert (found.request_timeout, found.burst, found.listing_timeout) == (3.0, 7, KEYS["listing_timeout"].default)
    assert (found.zones, found.files, found.endpoint) == ((), {}, "")
    assert "hush-hush" not in repr(found)


def test_a_secret_in_a_file():
    found = parse("driver: linode\ntoken_file: /etc/ccm/token\n")
    assert (found.files, found.arguments) == ({"token": "/etc/ccm/token"}, {})


def test_zones_become_a_part_of_the_path():
    found = parse("driver: scaleway\naccess_key: a\nsecret_key: b\nzones: [fr-par-1, nl-ams-2]\n")
    assert found.zones == ("fr-par-1", "nl-ams-2")
    assert found.endpoint == "https://api.scaleway.com"
    assert found.prefix("nl-ams-2") == "/instance/v1/zones/nl-ams-2"


def test_a_url_has_a_prefix():
    found = parse("driver: linode\ntoken: t\nurl: https://proxy.example:8443/linode/\n")
    assert (found.endpoint, found.prefix("")) == ("https://proxy.example:8443/linode", "/linode")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "c.yaml: line 1: expected keys and values, with `driver`: one of azure, cloudscale"),
        ("[]", "c.yaml: line 1: expected keys and values"),
        ("a: [", "c.yaml: line 1: not YAML"),
        ("token: x", "c.yaml: line 1: driver: it is missing: set it to one of azure"),
        ("driver: linod\ntoken: x", "c.yaml: line 1: driver: there is no such driver; did you mean linode?"),
        ("driver: linode", "c.yaml: line 1: token or token_file: it is missing: an API token of the account"),
        ("driver: linode\ntoken: x\ntokn: y", "c.yaml: line 3: tokn: unknown key; did you mean token?"),
        ("driver: linode\ntoken: [x]", "c.yaml: line 2: token: expected a text"),
        (
            "driver: linode\ntoken: x\ntoken_file: /y",
            "c.yaml: line 3: token_file: token is set, too: remove one",
        ),
        ("driver: linode\ntoken_file: y", "c.yaml: line 2: token_file: expected an absolute path"),
        ("driver: linode\ntoken: x\nburst: 0", "c.yaml: line 3: burst: expected a whole number greater than 0"),
        ("driver: linode\ntoken: x\nurl: ftp://x", "c.yaml: line 3: url: expected https://HOST/PATH"),
        ("driver: linode\ntoken: x\nzones: [a]", "c.yaml: line 3: zones: unknown key"),
        ("driver: scaleway\naccess_key: a\nsecret_key: b", "c.yaml: line 1: zones: it is missing"),
        ("driver: scaleway\naccess_key: a\nsecret_key: b\nzones: fr", "c.yaml: line 4: zones: expected a list"),
        ("driver: scaleway\naccess_key: a\nsecret_key: b\nzones: [x, x]", "c.yaml: line 4: zones: expected a list"),
        (
            "driver: cloudstack\napi_key: a\nsecret_key: b\napi_url: https://u:p@h/x",
            "c.yaml: line 4: api_url: expected https://HOST/PATH, without credentials",
        ),
        (
            "driver: cloudstack\napi_key: a\nsecret_key: b\napi_url: https://h/x\nurl: https://h",
            "c.yaml: line 5: url: unknown key",
        ),
    ],
)
def test_a_problem(text, expected):
    found = problems(text)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_all_problems_at_once_and_no_value_in_them():
    text = "driver: linode\ntoken: [hush-hush]\nurl: hush-hush\nburst: hush-hush\nhushed: hush-hush\n"
    found = problems(text)
    assert [each.split(": ")[1] for each in found] == ["line 2", "line 3", "line 4", "line 5"]
    assert "hush-hush" not in str(found)


def test_known_keys():
    assert known_keys(DRIVERS["linode"]) == {"driver", "token", "token_file", *KEYS}
    assert "zones" in known_keys(DRIVERS["scaleway"])
    assert "tenant_id_file" not in known_keys(DRIVERS["azure"])
