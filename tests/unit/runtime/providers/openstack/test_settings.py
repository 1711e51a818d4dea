# SPDX-License-Identifier: Apache-2.0
"""cloud.conf: git's INI dialect, every key of cloud-provider-openstack, and all problems at once with their lines."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit import gcfg
from ccm.providers.openstack import settings_sections as config
from ccm.providers.openstack.credentials import cloud_region, sdk_options
from ccm.providers.openstack.settings import Settings
from ccm.providers.openstack.settings_sections import IGNORED, REFUSED, SECTIONS

GLOBAL = """[Global]
auth-url = https://keystone.example.com:5000/v3
username = ccm
password = very-secret
user-domain-name = Default
tenant-id = 8a2f
"""


def parse(text: str, environ: dict[str, str] | None = None) -> Settings:
    return Settings.parse(ProviderConfig(text, "cloud.conf"), environ or {})


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.problems


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("k = plain text  ", "plain text"),
        ("k=a # comment", "a"),
        ("k=a;comment", "a"),
        ('k = "  # kept ; "  # not kept', "  # kept ; "),
        ('k = a" b "c', "a b c"),
        (r'k = "quote \" and backslash \\ and tab \t"', 'quote " and backslash \\ and tab \t'),
        ("k =", ""),
        ("k", None),
        ("k # comment", None),
        ("K = upper", "upper"),
        ("k = one \\\n  two", "one   two"),
        (r'k = "ends in two \\"', "ends in two \\"),
        ("k = windows\r", "windows"),
    ],
)
def test_values(line: str, value: str | None) -> None:
    document = gcfg.read(f"[S]\n{line}\n")
    assert document.problems == []
    assert [(entry.name, entry.value) for entry in document.entries] == [("k", value)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("k = v", 1),
        ('[S]\nk = "open', 2),
        ("[S]\n\nk = \\x", 3),
        ("[S\nk = v", 1),
        ("[S]\n= open", 2),
        ("# c\n[[[ no configuration at all", 2),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line_and_never_quoted(text: str, line: int) -> None:
    found = gcfg.read(text).problems
    assert found[0][0] == line
    assert not any("open" in problem for _, problem in found)


def test_a_line_that_goes_on_counts_as_the_lines_it_has() -> None:
    document = gcfg.read("[S]\na = 1\\\n2\nb = 3\n")
    assert [(entry.name, entry.line) for entry in document.entries] == [("a", 2), ("b", 4)]


def test_all_kinds_of_values() -> None:
    settings = parse(
        GLOBAL
        + """tls-insecure = TRUE
os-endpoint-type = internalURL
[networking]
Public-Network-Name = dmz
public-network-name = internet
address-sort-order = 10.0.0.0/8, fd00::/8
ipv6-support-disabled
[Metadata]
request-timeout = 250ms
search-order = configDrive
[LoadBalancer]
monitor-delay = 1m30s
monitor-timeout = 2500ms500ms
max-shared-lb = 7
max-members = 0
lb-provider = ovn
lb-method = SOURCE_IP_PORT
[LoadBalancerClass "fast lane"]
network-id = n
[LoadBalancerClass "empty"]
[BlockStorage]
bs-version = v3
ignore-volume-az = yes
"""
    )
    assert settings.auth.tls_insecure and settings.auth.os_endpoint_type == "internal"
    assert settings.networking.public_network_name == ("dmz", "internet")
    assert settings.networking.ipv6_support_disabled
    assert settings.networking.address_sort_order == tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "fd00::/8")))
    assert settings.metadata.request_timeout == 0.25
    assert (settings.load_balancer.monitor_delay, settings.load_balancer.monitor_timeout) == (90, 3)
    assert (settings.load_balancer.max_shared_lb, settings.load_balancer.max_members) == (7, 0)
    assert {name: each.network_id for name, each in settings.load_balancer_classes.items()} == {
        "fast lane": "n",
        "empty": "",
    }
    assert settings.block_storage.ignore_volume_az
    assert [sentence.partition(" has")[0] for sentence in settings.ignored] == [
        "line 16: [Metadata] search-order",
        "line 28: [BlockStorage] bs-version",
    ]


def test_every_key_is_taken() -> None:
    """Each key is accepted with a valid value. Missing credentials are another problem."""
    samples = ("true", "1s", "7", "v2", "public", "10.0.0.0/8", "ROUND_ROBIN", "never", "hostname", "x")
    for section, cls in SECTIONS.items():
        header = f'[{section} "x"]' if section == "LoadBalancerClass" else f"[{section}]"
        for field in fields(cls):
            sample = next(each for each in samples if _takes(field.metadata["kind"], each))
            sample = "http://x" if field.name == "auth_url" else sample
            told = problems(f"{header}\n{field.name.replace('_', '-')} = {sample}\n")
            assert not any("unknown" in each or "expected" in each for each in told), (section, field.name)
    for section, spelt in (*IGNORED, *REFUSED):
        told = problems(f"[{section}]\n{spelt} = x\n")
        assert not any("unknown" in each for each in told), spelt
        assert any(f"{spelt}:" in each for each in told) == ((section, spelt) in REFUSED), spelt


#: Keys with only one valid value, which is the default: no code reads them. The values here are invalid.
ONE_VALUE = {"lb_version": "v1", "use_octavia": "false"}


def test_every_key_means_something() -> None:
    """The provider reads each documented key, except those in ONE_VALUE. A key without effect belongs in IGNORED."""
    others = [file for file in Path(config.__file__).parent.rglob("*.py") if file.name != "settings.py"]
    code = "\n".join(file.read_text() for file in others)
    for section, cls in SECTIONS.items():
        for field in fields(cls):
            if field.name in ONE_VALUE:
                spelt = field.name.replace("_", "-")
                told = problems(f"{GLOBAL}[{section}]\n{spelt} = {ONE_VALUE[field.name]}\n")
                assert len(told) == 1 and spelt in told[0], spelt
            else:
                assert re.search(rf"\.{field.name}\b", code), f"[{section}] {field.name}: nobody reads it"


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("Metadata", "request-timeout = 0", "expected a duration of more than 0, and at most 24h"),
        ("Metadata", "request-timeout = 25h", "expected a duration of more than 0, and at most 24h"),
        ("Metadata", "request-timeout = 99999999999h", "expected a duration with its unit, such as 5s or 1m30s"),
        ("LoadBalancer", "monitor-delay = 3500ms", "Octavia needs whole seconds, such as 5s or 1m30s"),
        ("LoadBalancer", "monitor-timeout = 1ns", "Octavia needs whole seconds, such as 5s or 1m30s"),
        ("LoadBalancer", "monitor-max-retries = 99", "expected a whole number from 1 to 10"),
        ("LoadBalancer", "monitor-max-retries-down = 11", "expected a whole number from 1 to 10"),
        ("LoadBalancer", "floating-subnet = ~[", "expected a glob, or ~ and an RE2 regular expression"),
        ("LoadBalancer", "floating-subnet = !~a{1001}", "expected a glob, or ~ and an RE2 regular expression"),
        ('LoadBalancerClass "x"', "floating-subnet = ~(", "expected a glob, or ~ and an RE2 regular expression"),
        ("LoadBalancer", "node-selector = a=b=c", "expected key=value or key, comma-separated, of at most 16 labels"),
    ],
)
def test_values_that_can_never_work(section: str, line: str, expected: str) -> None:
    key = line.partition(" ")[0]
    assert problems(f"{GLOBAL}[{section}]\n{line}\n") == [f"cloud.conf: line 8: [{section}] {key}: {expected}"]


def test_a_monitor_that_waits_longer_than_until_its_next_check_is_a_warning() -> None:
    section = f"{GLOBAL}[LoadBalancer]\nmonitor-delay = 10s\nmonitor-timeout = "
    assert parse(f"{section}10s\n").load_balancer.monitor_timeout == 10 and not parse(f"{section}10s\n").ignored
    found = parse(f"{section}11s\n")
    assert found.load_balancer.monitor_timeout == 11
    assert found.ignored == (
        "line 9: [LoadBalancer] monitor-timeout is longer than monitor-delay: a check may still wait when the next one "
        "is due",
    )


def _takes(kind: Any, sample: str) -> bool:
    try:
        kind(sample)
    except ValueError:
        return False
    return True


def test_every_problem_at_once_with_its_line() -> None:
    assert problems(
        """[Global]
auth-url = ftp://user:pass@x
usrname = very-secret
password = very-secret
application-credential-id = a
os-endpoint-type = very-secret
cert-file = /c
cloud = c
[Networking]
address-sort-order = 10.0.0.0/33
[LoadBalancer]
use-octavia = false
lb-provider = ovn
monitor-delay = 5
monitor-max-retries = 0
floating-subnet = ~(
lb-version = v1
[LoadBalancerClass]
[Route "x"]
[Nonsense]
key = value
"""
    ) == [
        "cloud.conf: line 2: [Global] auth-url: expected http://HOST:PORT/v3 or https://HOST:PORT/v3, "
        "without credentials",
        "cloud.conf: line 3: [Global] usrname: unknown key; did you mean username?",
        "cloud.conf: line 4: [Global] application-credential-secret, password: these are 2 ways to log in; keep one",
        "cloud.conf: line 6: [Global] os-endpoint-type: expected public, internal or admin",
        "cloud.conf: line 8: [Global] cloud: has an effect only with use-clouds=true",
        "cloud.conf: line 10: [Networking] address-sort-order: expected CIDRs separated by commas",
        "cloud.conf: line 12: [LoadBalancer] use-octavia=false: only Octavia is supported; remove the key",
        "cloud.conf: line 13: [LoadBalancer] lb-provider ovn supports only SOURCE_IP_PORT: set lb-method to it",
        "cloud.conf: line 14: [LoadBalancer] monitor-delay: expected a duration with its unit, such as 5s or 1m30s",
        "cloud.conf: line 15: [LoadBalancer] monitor-max-retries: expected a whole number from 1 to 10",
        "cloud.conf: line 16: [LoadBalancer] floating-subnet: expected a glob, or ~ and an RE2 regular expression",
        "cloud.conf: line 17: [LoadBalancer] lb-version: expected one of v2",
        'cloud.conf: line 18: [LoadBalancerClass]: must be written [LoadBalancerClass "name"]',
        "cloud.conf: line 19: [Route]: must be written [Route]",
        "cloud.conf: line 20: [nonsense]: unknown section; known sections are Global, Networking, Route, Metadata, "
        "LoadBalancer, LoadBalancerClass, BlockStorage, Runtime",
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", ["auth-url: is missing", "credentials are missing: set username and password, an application"]),
        ("auth-url=http://k/v3\npassword=p", ["tenant-id: is missing", "username: is missing (or user-id)"]),
        ("auth-url=http://k/v3\npassword=p\nusername=u\ntenant-id=t", ["username: names are unique only in a domain"]),
        (
            "auth-url=http://k/v3\npassword=p\nuser-id=u\ntenant-name=t",
            ["tenant-name: names are unique only in a domain"],
        ),
        ("auth-url=http://k/v3\napplication-credential-id=a", ["application-credential-secret: is missing"]),
        (
            "auth-url=http://k/v3\napplication-credential-name=a\napplication-credential-secret=s",
            ["username: is missing (or user-id)"],
        ),
        ("auth-url=http://k/v3\ntrust-id=t", ["trustee-id: is missing", "trustee-password: is missing (or password)"]),
        ("auth-url=http://k/v2.0\ntoken=t", ["auth-url: keystone removed API 2.0"]),
        ("use-clouds=true", ["use-clouds: cloud is missing"]),
        ("auth-url=http://k/v3\ntoken=t\nuser-id=a\nusername=b", ["username, user-id: set only one of them"]),
    ],
)
def test_credentials_that_lack_something(lines: str, expected: list[str]) -> None:
    told = problems(f"[Global]\n{lines}\n")
    assert [problem.partition("[Global] ")[2][: len(each)] for problem, each in zip(told, expected, strict=True)] == (
        expected
    )


@pytest.mark.parametrize(
    ("lines", "auth_type", "auth"),
    [
        (
            "password=p\nusername=u\ndomain-name=d\ntenant-name=t",
            "v3password",
            {"username": "u", "user_domain_name": "d", "project_name": "t", "project_domain_name": "d"},
        ),
        (
            "password=p\nusername=u\ndomain-id=d\nuser-domain-name=ud\ntenant-name=t\ntenant-domain-id=td",
            "v3password",
            {"username": "u", "user_domain_name": "ud", "project_name": "t", "project_domain_id": "td"},
        ),
        ("password=p\nuser-id=u\ndomain-id=d\ntenant-id=t", "v3password", {"user_id": "u", "project_id": "t"}),
        (
            "application-credential-id=a\napplication-credential-secret=s\ntenant-id=t",
            "v3applicationcredential",
            {"application_credential_id": "a", "application_credential_secret": "s"},
        ),
        (
            "application-credential-name=a\napplication-credential-secret=s\nusername=u\nuser-domain-id=d",
            "v3applicationcredential",
            {
                "application_credential_name": "a",
                "application_credential_secret": "s",
                "username": "u",
                "user_domain_id": "d",
            },
        ),
        ("trust-id=t\ntrustee-id=u\ntrustee-password=p", "v3password", {"trust_id": "t", "user_id": "u"}),
        ("trust-id=t\nuser-id=u\npassword=p", "v3password", {"trust_id": "t", "user_id": "u"}),
        (
            "trust-id=t\nusername=u\npassword=p\ndomain-name=d",
            "v3password",
            {"trust_id": "t", "username": "u", "user_domain_name": "d"},
        ),
        ("token=abc\ntenant-id=t", "v3token", {"token": "abc", "project_id": "t"}),
    ],
)
def test_ways_to_log_in(lines: str, auth_type: str, auth: dict[str, str]) -> None:
    options = sdk_options(parse(f"[Global]\nauth-url=http://k/v3\n{lines}\n").auth)
    assert options["auth_type"] == auth_type
    options["auth"].pop("password", None)
    assert options["auth"] == {"auth_url": "http://k/v3", **auth}
    assert options["interface"] == "public"


def test_what_clouds_yaml_says_is_left_to_it_and_explicit_keys_count_more() -> None:
    options = sdk_options(parse("[Global]\nuse-clouds=true\ncloud=c\nregion=north\ntls-insecure=true\n").auth)
    assert options == {"auth": {}, "region_name": "north", "verify": False, "insecure": True}
    options = sdk_options(
        parse("[Global]\nuse-clouds=true\ncloud=c\nos-endpoint-type=public\ntls-insecure=false\n").auth
    )
    assert options == {"auth": {}, "interface": "public", "verify": True, "insecure": False}
    assert sdk_options(parse("[Global]\nuse-clouds=true\ncloud=c\n").auth) == {"auth": {}}


@pytest.mark.parametrize("off", ["verify: false", "insecure: true"])
def test_explicit_keys_count_more_than_what_clouds_yaml_says(tmp_path: Path, off: str) -> None:
    """Most important is that certificates are verified, whichever key asks for it."""
    file = tmp_path / "clouds.yaml"
    auth = "auth_type: token, auth: {auth_url: 'http://k/v3', token: t}"
    file.write_text(f"clouds: {{c: {{{auth}, interface: internal, {off}}}}}")
    conf = f"[Global]\nuse-clouds = true\nclouds-file = {file}\ncloud = c\n"
    said_by_the_file = cloud_region(parse(conf))
    assert said_by_the_file.get_interface() == "internal"
    assert said_by_the_file.get_requests_verify_args()[0] is False
    explicit = cloud_region(parse(f"{conf}os-endpoint-type = public\ntls-insecure = false\n"))
    assert explicit.get_interface() == "public"
    assert explicit.get_requests_verify_args()[0] is True
    assert cloud_region(parse(f"{conf}ca-file = {file}\n")).get_requests_verify_args()[0] == str(file)


LINES = st.one_of(
    st.sampled_from(["[Global]", '[LoadBalancerClass "x"]', "[Networking]", "[LoadBalancer]", "# comment", "\\", '"']),
    st.builds(
        "{}{}{}".format,
        st.sampled_from([field.name.replace("_", "-") for cls in SECTIONS.values() for field in fields(cls)]),
        st.sampled_from(["=", " = ", "", " "]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    ),
)


@given(st.one_of(st.text(), st.lists(LINES, max_size=12).map("\n".join)))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        parse(text)
    except ConfigError as error:
        assert error.problems and all(problem.startswith("cloud.conf: ") for problem in error.problems)


def test_secrets_are_in_no_representation() -> None:
    assert "very-secret" not in repr(parse(GLOBAL))


def test_the_region_in_provider_ids_by_file_or_environment() -> None:
    assert not parse(GLOBAL).runtime.regional
    assert parse(GLOBAL, {"OS_CCM_REGIONAL": "true"}).runtime.regional
    assert parse(f"{GLOBAL}[Runtime]\nregional=true\n").runtime.regional


def test_a_key_twice_is_a_problem_only_if_it_says_two_things() -> None:
    assert parse(f"{GLOBAL}region = a\nregion = a\n").auth.region == "a"
    assert problems(f"{GLOBAL}region = a\nregion = b\n") == [
        "cloud.conf: line 8: [Global] region: duplicate key with different values"
    ]


@pytest.mark.parametrize(
    ("section", "meant"), [("Router", "Route"), ("LoadBalancers", "LoadBalancer"), ("Globl", "Global")]
)
def test_a_section_that_is_nearly_known_gets_a_hint_and_no_untrue_problem(section: str, meant: str) -> None:
    text = "[Global]\nauth-url=http://k/v3\nuser-id=u\ntenant-id=t\npassword=p\n"
    (problem,) = problems(f"{text}[{section}]\nrouter-id=x\n")
    assert problem.startswith("cloud.conf: line 6: ") and problem.endswith(f"unknown section; did you mean {meant}?")
