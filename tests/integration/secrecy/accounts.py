# SPDX-License-Identifier: Apache-2.0
"""An account for each provider: its configuration for a cloud at a URL, and the secrets in it.

A new provider needs an entry here; the test fails without one. The secrets have characters that URLs, JSON and YAML
spell in other ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PASSWORD = "hush0pass+word/9="
KEY = "hush1key5d41402abc4b2a76b9719d911017c592"


@dataclass(frozen=True)
class Account:
    """`conf`: the text of --cloud-config, from the cloud's URL and a folder for further files. `environment`: from the
    cloud's URL. `tls`: the client speaks nothing else. `asks`: whether it asks a cloud at all. `sends`: whether
    it sends a credential to this cloud; a client of vCenter does so only after an answer that fits."""

    conf: Callable[[str, Path], str]
    secrets: tuple[str, ...]
    environment: Callable[[str], Mapping[str, str]] = field(default=lambda url: {})
    tls: bool = False
    asks: bool = True
    sends: bool = True


def _static(url: str, folder: Path) -> str:
    """Variables of an inventory are secrets of others."""
    (folder / "inventory.yml").write_text(
        "all:\n  hosts:\n    worker-1:\n      ansible_host: 10.0.0.1\n"
        f"      ansible_password: {PASSWORD}\n      ansible_become_password: {KEY}\n"
    )
    return f"cluster: demo\ninventory_file: {folder}/inventory.yml\n"


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
    "cloudstack": Account(
        conf=lambda url, folder: f"[Global]\napi-url = {url}/client/api\napi-key = {KEY}\nsecret-key = {PASSWORD}\n",
        secrets=(KEY, PASSWORD, "signature="),
    ),
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
