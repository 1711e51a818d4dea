# SPDX-License-Identifier: Apache-2.0
"""azure.json of cloud-provider-azure, unchanged: what it means, and every mistake with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ccm.cloud import ConfigError, ProviderConfig
from ccm.providers.azure.settings import IGNORED, METADATA, Settings

SUBSCRIPTION = "0B1F6471-1BF0-4DDA-AEC3-CB9272F09590"
FOUND = {
    "tenantId": "72f988bf-86f1-41af-91ab-2d7cd011db47",
    "subscriptionId": SUBSCRIPTION,
    "resourceGroup": "Kube-RG",
    "aadClientId": "04b07795-8ddb-461a-bbee-02f9e1bf7b46",
    "aadClientSecret": "hush-secret",
}


def parse(variables: dict[str, str] | None = None, **more: Any) -> Settings:
    found = {name: value for name, value in {**FOUND, **more}.items() if value is not None}
    return Settings.parse(ProviderConfig(json.dumps(found, indent=1), "azure.json", variables or {}))


def problems(variables: dict[str, str] | None = None, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse(variables, **more)
    assert "hush" not in str(raised.value)
    return raised.value.problems


def test_a_file_with_a_secret() -> None:
    found = parse()
    assert (found.common.subscription_id, found.common.resource_group) == (SUBSCRIPTION.lower(), "Kube-RG")
    assert (found.tenant, found.client, found.secret) == (FOUND["tenantId"], FOUND["aadClientId"], "hush-secret")
    assert (found.endpoints.manager, found.metadata) == ("https://management.azure.com", METADATA)
    assert "hush" not in repr(found) and not found.uses_identity


def test_keys_have_any_case_and_yaml_is_read_too() -> None:
    text = f"tenantID: t\nsubscriptionID: {SUBSCRIPTION}\nRESOURCEGROUP: g\nuseManagedIdentityExtension: true\n"
    found = Settings.parse(ProviderConfig(text, "azure.yaml", {}))
    assert found.uses_identity and found.common.resource_group == "g"


def test_keys_without_effect_are_named_with_their_lines() -> None:
    found = parse(**dict.fromkeys(IGNORED, "x"), somethingNew={"a": [1]})
    assert len(found.ignored) == len(IGNORED) + 1
    assert found.ignored[0].startswith("line 7: location has no effect: each machine has its own")
    assert found.ignored[-1].endswith("somethingNew has no effect: this project does not know it")


@pytest.mark.parametrize(
    ("cloud", "manager", "authority"),
    [
        ("AzurePublicCloud", "https://management.azure.com", "https://login.microsoftonline.com"),
        ("AzureCloud", "https://management.azure.com", "https://login.microsoftonline.com"),
        ("AZURECHINACLOUD", "https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn"),
        ("AzureUSGovernmentCloud", "https://management.usgovcloudapi.net", "https://login.microsoftonline.us"),
    ],
)
def test_clouds(cloud: str, manager: str, authority: str) -> None:
    found = parse(cloud=cloud).endpoints
    assert (found.manager, found.authority) == (manager, authority) and found.audience.startswith("https://management.")


def test_an_endpoint_of_its_own_is_its_own_audience() -> None:
    found = parse(
        {"AZURE_AUTHORITY_HOST": "https://login.stack.example/"}, resourceManagerEndpoint="https://arm.example/"
    )
    assert found.endpoints == ("https://arm.example", "https://login.stack.example", "https://arm.example")


@pytest.mark.parametrize(
    ("more", "variables", "expected"),
    [
        (
            {},
            {"AZURE_CLIENT_SECRET": "other", "AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t"},
            ("t", "c", "other", "", ""),
        ),
        ({"aadClientSecret": None, "aadClientCertPath": "/c.pem"}, {}, (..., ..., "", "", "/c.pem")),
        ({"aadClientCertPath": "/c.pem"}, {}, (..., ..., ..., "", "")),
        ({}, {"AZURE_FEDERATED_TOKEN_FILE": "/token"}, (..., ..., ..., "/token", "")),
        (
            {"useFederatedWorkloadIdentityExtension": True, "aadFederatedTokenFile": "/token"},
            {},
            (..., ..., ..., "/token", ""),
        ),
        ({"aadFederatedTokenFile": "/token"}, {}, (..., ..., ..., "", "")),
        ({"useManagedIdentityExtension": True, "aadClientCertPath": "/c.pem"}, {}, (..., ..., ..., "", "")),
    ],
)
def test_which_credentials_count(more: dict[str, Any], variables: dict[str, str], expected: tuple[Any, ...]) -> None:
    found = parse(variables, **more)
    shown = (found.tenant, found.client, found.secret, found.federated_file, found.certificate_file)
    assert all(want in (..., have) for want, have in zip(expected, shown, strict=True))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"subscriptionId": "hush"}, "line 3: subscriptionId: expected a GUID"),
        ({"subscriptionId": None}, "line 1: subscriptionId: it is missing"),
        ({"resourceGroup": "a/hush"}, "line 4: resourceGroup: expected the name of a resource group"),
        ({"tenantId": None}, "line 1: tenantId: it is missing"),
        ({"aadClientId": None}, "line 1: aadClientId: it is missing"),
        ({"vmType": "hush"}, "line 7: vmType: expected vmss, standard or vmssflex"),
        ({"cloud": "AzureGermanCloud"}, "line 7: cloud: expected AzurePublicCloud"),
        ({"resourceManagerEndpoint": "https://a:hush@b"}, "line 7: resourceManagerEndpoint: expected https://HOST"),
        ({"useManagedIdentityExtension": ["hush"]}, "line 7: useManagedIdentityExtension: expected one value"),
        ({"runtime": {"callsPerSecond": 0}}, "line 8: runtime.callsPerSecond: expected a number greater than 0"),
        ({"runtime": {"callPerSecond": 1}}, "line 8: runtime.callPerSecond: unknown key"),
        ({"runtime": 1}, "line 7: runtime: expected an object"),
        ({"aadClientSecret": None}, "line 1: there are no credentials: set aadClientSecret"),
        ({"aadClientSecret": "hush\nhush"}, "line 1: aadClientSecret: expected one line of ASCII"),
        (
            {"aadClientSecret": None, "useFederatedWorkloadIdentityExtension": True},
            "line 1: aadFederatedTokenFile: it is missing, and so is AZURE_FEDERATED_TOKEN_FILE",
        ),
    ],
)
def test_a_mistake_has_its_line_and_no_value(more: dict[str, Any], problem: str) -> None:
    assert any(each.startswith(f"azure.json: {problem}") for each in problems(**more)), problems(**more)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"cloud": "hush", "subscriptionId": None, "tenantId": None, "aadClientSecret": None},
            ["subscriptionId: it is missing", "tenantId: it is missing", "there are no credentials", "cloud: expected"],
        ),
        ({"subscriptionId": "hush", "resourceGroup": ["hush"]}, ["subscriptionId: ", "resourceGroup: expected"]),
        ({"tenantId": "hush!", "aadClientId": None}, ["aadClientId: it is missing", "tenantId: expected"]),
        ({"aadClientSecret": ["hush"]}, ["aadClientSecret: expected one value"]),
        ({"aadClientSecret": None, "useFederatedWorkloadIdentityExtension": "hush"}, ["useFederatedWorkload"]),
        (
            {"useManagedIdentityExtension": "hush", "tenantId": None, "aadClientSecret": None, "resourceGroup": None},
            ["resourceGroup: it is missing", "useManagedIdentityExtension: expected"],
        ),
        ({"vmType": "hush", "aadClientSecret": "hush\nhush"}, ["aadClientSecret: expected one line", "vmType: "]),
    ],
)
def test_all_problems_are_reported_at_once_and_what_cannot_be_read_is_not_missing(
    more: dict[str, Any], expected: list[str]
) -> None:
    told = [each.partition(": line ")[2].partition(": ")[2] for each in problems(**more)]
    assert len(told) == len(expected) and all(map(str.startswith, sorted(told), sorted(expected))), told


@pytest.mark.parametrize("text", ["", "[]", "hush", "{", "a: b: c"])
def test_other_texts(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.parse(ProviderConfig(text, "azure.json", {}))
    assert "hush" not in str(raised.value)
