# SPDX-License-Identifier: Apache-2.0
"""Which next links in Azure's listings are followed with the token."""

from __future__ import annotations

import pytest

from ccm.cloud import ProviderConfig, Transient
from ccm.providers.azure.api import Api
from ccm.providers.azure.settings import Settings

CONFIG = """{"subscriptionId": "0b2a3c4d-1111-2222-3333-444455556666", "resourceGroup": "kube", "tenantId": "t",
"aadClientId": "c", "aadClientSecret": "s"}"""
PATH = "/subscriptions/x/virtualMachines"


@pytest.fixture
def api() -> Api:
    return Api(Settings.parse(ProviderConfig(CONFIG, "azure.json", {})))


@pytest.mark.parametrize("host", ["management.azure.com", "management.azure.com:443", "Management.Azure.com:443"])
def test_a_next_page_is_where_the_first_one_was(api: Api, host: str):
    link = f"https://{host}{PATH}?api-version=1&$skiptoken=a%20b"
    assert api._place(PATH, link) == (PATH, [("api-version", "1"), ("$skiptoken", "a b")])


@pytest.mark.parametrize(
    "start",
    [
        "https://management.azure.com:8443",
        "http://management.azure.com:443",
        "https://management.azure.com:99999",
        "https://management.azure.com.evil.example",
        "https://management.azure.com@evil.example",
        "",
    ],
)
def test_a_page_elsewhere_gets_no_token(api: Api, start: str):
    with pytest.raises(Transient, match="another host"):
        api._place(PATH, start + PATH)
