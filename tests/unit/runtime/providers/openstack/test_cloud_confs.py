# SPDX-License-Identifier: Apache-2.0
"""Files as deployment tools write them are accepted and mean the same as with cloud-provider-openstack.

The tools are Magnum, kubespray, Cluster API, Gardener, OpenShift and the vendor's Helm chart on RKE2. Other programs
read `shared.conf`, too. The values are made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccm.cloud import ProviderConfig
from ccm.providers.openstack.credentials import sdk_options
from ccm.providers.openstack.settings import Settings

FILES = Path(__file__).parent / "cloud_confs"
KEYSTONE = "https://keystone.example.com:5000/v3"
USER = {"username": "kubernetes", "password": "secret"}
CREDENTIAL = {"application_credential_id": "c0ffee", "application_credential_secret": "s3cret"}
#: File -> the login, and the keys that have no effect.
EXPECTED: dict[str, tuple[dict[str, str], list[str]]] = {
    "magnum": ({"user_id": "7d2f", "password": "of-the-trustee", "trust_id": "a1b2"}, ["[BlockStorage] bs-version"]),
    "kubespray": (
        {**USER, "password": "se;cr#et", "user_domain_id": "default", "project_id": "0f3e"},
        ["[Global] tenant-name", "[Metadata] search-order"],
    ),
    "kubespray-credential": (CREDENTIAL, ["[Global] application-credential-name"]),
    "cluster-api": (
        {**USER, "user_domain_id": "default", "project_id": "0f3e"},
        ["[Global] tenant-name", "[Global] domain-name"],
    ),
    "gardener": (
        CREDENTIAL,
        ["[Global] application-credential-name", "[LoadBalancer] floating-subnet", "[Metadata] dhcp-domain"],
    ),
    "openshift": ({}, []),
    "rancher": (CREDENTIAL, []),
    "shared": (
        {**USER, "user_domain_name": "Default", "project_name": "cluster", "project_domain_name": "Default"},
        [
            "[BlockStorage] trust-device-path",
            "[BlockStorage] ignore-volume-microversion",
            "[BlockStorage] rescan-on-resize",
            "[KeyManager]",
        ],
    ),
}


def settings(name: str) -> Settings:
    return Settings.parse(ProviderConfig((FILES / f"{name}.conf").read_text(), f"{name}.conf"), {})


def test_every_file_is_expected() -> None:
    assert {path.stem for path in FILES.iterdir()} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_it_logs_in_as_cloud_provider_openstack_does(name: str) -> None:
    auth, ignored = EXPECTED[name]
    found = settings(name)
    assert sdk_options(found.auth)["auth"] == ({"auth_url": KEYSTONE, **auth} if auth else {})
    assert sorted(_key(each) for each in found.ignored) == sorted(ignored)


def _key(sentence: str) -> str:
    """Return ``[Section] key`` of a message about a key without effect. Fails if the message names no line."""
    line, _, rest = sentence.partition(": ")
    assert int(line.removeprefix("line ")) > 0
    return rest.partition(" has no effect: ")[0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("magnum", {"create_monitor": True, "monitor_delay": 60.0, "monitor_timeout": 30.0, "monitor_max_retries": 3}),
        ("kubespray", {"create_monitor": False, "manage_security_groups": False, "lb_provider": "octavia"}),
        ("kubespray-credential", {"create_monitor": True, "enable_ingress_hostname": True, "max_shared_lb": 5}),
        ("gardener", {"monitor_delay": 60.0, "floating_subnet_id": "77aa", "floating_subnet": ""}),
        ("openshift", {"max_shared_lb": 1, "manage_security_groups": True}),
        ("shared", {"create_monitor": True, "subnet_id": "5c0e"}),
    ],
)
def test_load_balancers_are_what_the_file_says(name: str, expected: dict[str, Any]) -> None:
    section = settings(name).load_balancer
    assert {key: getattr(section, key) for key in expected} == expected


def test_a_class_may_have_a_name_and_tags_of_subnets() -> None:
    """A subnet must match both, as with cloud-provider-openstack."""
    found = settings("gardener").load_balancer_classes["internet"]
    assert (found.floating_subnet, found.floating_subnet_tags) == ("public*", "edge")
