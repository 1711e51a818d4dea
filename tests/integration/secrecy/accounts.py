# SPDX-License-Identifier: Apache-2.0
"""An account for each provider: its configuration for a cloud at a URL, and the secrets in it.

A new provider needs an entry here; the test fails without one. The secrets contain characters that URLs, JSON and
YAML escape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

PASSWORD = "hush0pass+word/9="
GOOGLE_PEM = (
    rsa.generate_private_key(public_exponent=65537, key_size=2048)
    .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    .decode()
)
#: One line of the key in `GOOGLE_PEM`, because the lines of a key may be shown one by one.
GOOGLE_KEY = GOOGLE_PEM.splitlines()[5]
KEY = "hush1key5d41402abc4b2a76b9719d911017c592"


@dataclass(frozen=True)
class Account:
    """A provider's account. `conf`: returns the text of --cloud-config for the cloud's URL and a folder for more files.
    `environment`: returns variables for the cloud's URL. `tls`: whether the client requires TLS. `asks`: whether the
    provider calls a cloud at all. `sends`: whether it sends a credential to this cloud; a client of vCenter does so
    only after a correct answer."""

    conf: Callable[[str, Path], str]
    secrets: tuple[str, ...]
    environment: Callable[[str], Mapping[str, str]] = field(default=lambda url: {})
    tls: bool = False
    asks: bool = True
    sends: bool = True


def _static(url: str, folder: Path) -> str:
    """Return the configuration with an inventory, whose other variables may be secrets of others."""
    (folder / "inventory.yml").write_text(
        "all:\n  hosts:\n    worker-1:\n      ansible_host: 10.0.0.1\n"
        f"      ansible_password: {PASSWORD}\n      ansible_become_password: {KEY}\n"
    )
    return f"cluster: demo\ninventory_file: {folder}/inventory.yml\n"


def _gce(url: str, folder: Path) -> str:
    """Return the configuration with the key of a service account."""
    found = {
        "type": "service_account",
        "client_email": "ccm@kube.iam.gserviceaccount.com",
        "private_key": GOOGLE_PEM,
        "token_uri": f"{url}/token",
    }
    (folder / "key.json").write_text(json.dumps(found))
    return (
        f"[global]\nproject-id = kube\nlocal-zone = europe-west1-b\napi-endpoint = {url}/compute/v1\n"
        f"[Runtime]\ncredentials-file = {folder}/key.json\n"
    )


def _vsphere(url: str, folder: Path) -> str:
    host, _, port = url.rpartition("/")[2].partition(":")
    return (
        f'[Global]\nuser = "ccm@vsphere.local"\npassword = "{PASSWORD}"\nport = "{port}"\ninsecure-flag = "1"\n'
        f'[VirtualCenter "{host}"]\n'
    )


ACCOUNTS: Mapping[str, Account] = {
    "aws": Account(
        conf=lambda url, folder: "",
        secrets=(PASSWORD, KEY),
        environment=lambda url: {
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_SESSION_TOKEN": KEY,
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "eu-west-1",
        },
    ),
    "azure": Account(
        conf=lambda url, folder: json.dumps(
            {
                "resourceManagerEndpoint": url,
                "tenantId": "t",
                "subscriptionId": "0b1f6471-1bf0-4dda-aec3-cb9272f09590",
                "resourceGroup": "kube",
                "aadClientId": "c",
                "aadClientSecret": PASSWORD,
            }
        ),
        secrets=(PASSWORD,),
        environment=lambda url: {"AZURE_AUTHORITY_HOST": url},
    ),
    "cloudstack": Account(
        conf=lambda url, folder: f"[Global]\napi-url = {url}/client/api\napi-key = {KEY}\nsecret-key = {PASSWORD}\n",
        secrets=(KEY, PASSWORD, "signature="),
    ),
    # The secrets: a line of the key, and the start of each assertion that is signed with it.
    "gce": Account(conf=_gce, secrets=(GOOGLE_KEY, "eyJhbGciOiJSUzI1NiIs")),
    "hetzner": Account(
        conf=lambda url, folder: f"HCLOUD_TOKEN={KEY}\nHCLOUD_ENDPOINT={url}\n",
        secrets=(KEY,),
    ),
    "libcloud": Account(
        conf=lambda url, folder: (
            f"driver: cloudstack\napi_key: {KEY}\nsecret_key: {PASSWORD}\napi_url: {url}/client/api\n"
        ),
        secrets=(KEY, PASSWORD, "signature="),
    ),
    "openstack": Account(
        conf=lambda url, folder: (
            f'[Global]\nauth-url = "{url}/v3"\nusername = "u"\npassword = "{PASSWORD}"\ntenant-name = "p"\n'
            'domain-name = "Default"\nregion = "r1"\n'
        ),
        secrets=(PASSWORD,),
    ),
    "sim": Account(
        conf=lambda url, folder: f"endpoint: {url}\nproject: demo\ntoken: {KEY}\n",
        secrets=(KEY,),
    ),
    "static": Account(conf=_static, secrets=(PASSWORD, KEY), asks=False),
    "vsphere": Account(conf=_vsphere, secrets=(PASSWORD,), tls=True, sends=False),
}
