# SPDX-License-Identifier: Apache-2.0
"""All providers spell the keys for limits as docs/providers/index.md says. Earlier names still work."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ccm.cloud import Cloud, ConfigError, ProviderConfig, registry

PAGE = Path(__file__).parents[4] / "docs/providers/index.md"
_SECTION = PAGE.read_text().partition("\n## Limits\n")[2].partition("\n## ")[0]
_CELLS = [[cell.strip() for cell in line.strip("|").split("|")] for line in _SECTION.splitlines() if line[:3] == "| `"]
#: Provider -> the cells of its row after "Where": rate, burst, concurrency, time-out, page.
ROWS = {row[0].strip("`"): row[2:] for row in _CELLS}
LIMITS = ("calls_per_second", "burst", "concurrency")

Values = Mapping[str, object]
Made = tuple[str, dict[str, str]]


def ini(head: str, section: str = "Runtime") -> Callable[[Values], Made]:
    return lambda values: ("\n".join([head, f"[{section}]", *(f"{key} = {text}" for key, text in values.items())]), {})


def yaml(head: str) -> Callable[[Values], Made]:
    return lambda values: ("\n".join([head, *(f"{key}: {text}" for key, text in values.items())]), {})


def azure(values: Values) -> Made:
    subscription = "0b1f6471-1bf0-4dda-aec3-cb9272f09590"
    document = {"subscriptionId": subscription, "resourceGroup": "g", "useManagedIdentityExtension": True}
    return json.dumps({**document, "runtime": values}), {}


#: Provider -> a function that writes a minimal configuration with these values.
WRITTEN: Mapping[str, Callable[[Values], Made]] = {
    "aws": ini("[Global]\nzone = eu-central-1a\nvpc = vpc-1"),
    "azure": azure,
    "cloudstack": ini("[Global]\napi-url = https://c.example/client/api\napi-key = k\nsecret-key = s"),
    "gce": ini(""),
    "hetzner": lambda values: ("HCLOUD_TOKEN=t", {key: str(text) for key, text in values.items()}),
    "libcloud": yaml("driver: linode\ntoken: t"),
    "openstack": ini("[Global]\nauth-url = https://k.example/v3\napplication-credential-id = i\n"
                     "application-credential-secret = s"),
    "sim": yaml("endpoint: http://127.0.0.1:1\nproject: p\ntoken: t"),
    "static": yaml("cluster: c\nmachines: [{name: n, addresses: [10.0.0.1]}]"),
    "vsphere": ini("[Global]\nserver = v\nuser = u\npassword = p"),
}  # fmt: skip
#: Provider -> an earlier name of a key, its current name, and a value.
FORMER = {
    "aws": ("CallsBurst", "Burst", 7),
    "azure": ("callsBurst", "burst", 7),
    "gce": ("calls-burst", "burst", 7),
    "hetzner": ("HCLOUD_CALLS_BURST", "HCLOUD_BURST", 7),
    "sim": ("timeout", "request_timeout", 2.5),
}


def made(provider: str, values: Values) -> Cloud:
    text, variables = WRITTEN[provider](values)
    return registry.load(provider)(ProviderConfig(text, "the-file", variables))


def warnings_of(cloud: Cloud) -> list[str]:
    return list(cloud._ignored)  # type: ignore[attr-defined]


def test_every_provider_has_a_row() -> None:
    assert sorted(ROWS) == sorted(WRITTEN) == sorted(registry.names())


@pytest.mark.parametrize("provider", sorted(ROWS))
def test_limits_are_set_by_the_keys_of_the_page(provider: str) -> None:
    """A cell of the table has a key, or the fixed value itself."""
    cells = dict(zip(LIMITS, ROWS[provider], strict=False))
    keys = {name: cell.strip("`") for name, cell in cells.items() if cell.startswith("`")}
    values = dict(zip(keys, (3, 7, 5), strict=False))
    limits = made(provider, {keys[name]: value for name, value in values.items()}).limits
    expected = {name: values.get(name) or float(cell) for name, cell in cells.items()}
    assert {name: getattr(limits, name) for name in LIMITS} == expected


@pytest.mark.parametrize("provider", sorted(set(ROWS) - {"static"}))
def test_a_longer_wait_for_an_answer_is_set_by_the_key_of_the_page(provider: str) -> None:
    timeout = re.findall(r"`([\w-]+)`", ROWS[provider][3])[-1 if provider == "libcloud" else 0]
    if provider == "openstack":
        text, _ = ini(WRITTEN[provider]({})[0].removesuffix("\n[Runtime]"), "Metadata")({timeout: "100s"})
        short, long = made(provider, {}), registry.load(provider)(ProviderConfig(text, "the-file", {}))
        assert long.limits.deadline - short.limits.deadline == 40
    elif provider == "sim":
        assert made(provider, {timeout: 2.5})._api.settings.request_timeout == 2.5  # type: ignore[attr-defined]
    else:
        short, long = (made(provider, {timeout: text}) for text in ("100s", "101s"))
        assert long.limits.deadline - short.limits.deadline >= 1


@pytest.mark.parametrize("provider", sorted(set(ROWS) - {"sim", "static"}))
def test_a_call_that_takes_too_long_names_the_key_of_the_page(provider: str) -> None:
    keys = re.findall(r"`([\w-]+)`", ROWS[provider][3])
    assert keys[-1 if provider == "libcloud" else 0] in made(provider, {}).limits.set_by.split(" ")[0].strip(",")


@pytest.mark.parametrize("provider", sorted(name for name, row in ROWS.items() if row[4].startswith("`")))
def test_a_page_is_set_by_the_key_of_the_page(provider: str) -> None:
    key = ROWS[provider][4].strip("`")
    assert made(provider, {key: 50}).limits.burst > 0
    with pytest.raises(ConfigError, match=r"(?i)whole number|greater than 0"):
        made(provider, {key: 0})


@pytest.mark.parametrize(("provider", "former", "name", "value"), [(key, *row) for key, row in FORMER.items()])
def test_an_earlier_name_is_read_with_a_warning(provider: str, former: str, name: str, value: float) -> None:
    old, new = made(provider, {former: value}), made(provider, {name: value})
    assert old.limits == new.limits and warnings_of(new) == []
    if provider == "sim":
        assert old._api.settings.request_timeout == value  # type: ignore[attr-defined]
    else:
        assert old.limits.burst == value
    [warning] = warnings_of(old)
    assert warning.endswith(f"{former} is deprecated: write {name}")
    assert provider == "hetzner" or warning.startswith("the-file: ")
    assert former in _SECTION, "the page names it"


@pytest.mark.parametrize(("provider", "former", "name", "value"), [(key, *row) for key, row in FORMER.items()])
def test_both_names_with_different_values_are_refused(provider: str, former: str, name: str, value: float) -> None:
    with pytest.raises(ConfigError):
        made(provider, {former: value, name: value + 1})


async def test_the_warning_is_logged_at_start(caplog: pytest.LogCaptureFixture) -> None:
    cloud = made("sim", {"timeout": 1})
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        await cloud.start()
    await cloud.close()
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [
        "the-file: timeout is deprecated: write request_timeout"
    ]


def test_an_earlier_name_in_the_file_of_hetzner_is_named_with_its_line() -> None:
    cloud = registry.load("hetzner")(ProviderConfig("HCLOUD_TOKEN=t\nHCLOUD_CALLS_BURST=9\n", "the-file", {}))
    assert warnings_of(cloud) == ["the-file: line 2: HCLOUD_CALLS_BURST is deprecated: write HCLOUD_BURST"]
    assert cloud.limits.burst == 9
