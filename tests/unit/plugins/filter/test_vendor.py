# SPDX-License-Identifier: Apache-2.0
"""The settings with which a vendor's controller is rolled out, and one message with everything that is missing."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.filter.vendor_rollout import vendor_rollout
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.vendor import rollout

IMAGES = {"1.9": "acme:1.9", "1.30": "acme:1.30", "1.32": "acme:1.32", "1.35": "acme:1.35"}
TOKEN = {"token": {"env": "ACME_TOKEN", "required": True}, "network": {"env": "ACME_NETWORK"}}


def problems(vendor: dict[str, Any], kubernetes: str = "1.35", **more: Any) -> list[str]:
    found: list[str] = rollout({"config": "none", **vendor}, kubernetes, **{"image": "any", **more})["problems"]
    return found


@pytest.mark.parametrize(("kubernetes", "minor", "image"), [
    ("1.35", "1.35", "acme:1.35"),
    ("v1.32.4+k3s1", "1.32", "acme:1.32"),
    ("v1.30.1-gke.100", "1.30", "acme:1.30"),
    ("v1.9.0", "1.9", "acme:1.9"),
    ("1.31", "1.31", ""),
    ("", "", ""),
    ("unknown", "", ""),
])
def test_the_image_is_that_of_the_kubernetes_minor(kubernetes: str, minor: str, image: str) -> None:
    found = rollout({"images": IMAGES}, kubernetes)
    assert (found["minor"], found["image"]) == (minor, image)
    assert rollout({"image": "acme:1"}, kubernetes)["image"] == "acme:1", "one for all"


@pytest.mark.parametrize(("kubernetes", "nearest"), [
    ("1.31", "1.30: acme:1.30, 1.32: acme:1.32"),
    ("1.36", "1.35: acme:1.35"),
    ("1.10", "1.9: acme:1.9, 1.30: acme:1.30"),
    ("1.8", "1.9: acme:1.9"),
    ("2.0", "1.35: acme:1.35"),
    ("1.32", "1.30: acme:1.30, 1.35: acme:1.35"),  # the user has set ccm_runtime_image to ""
])
def test_a_minor_without_an_image_has_its_neighbours(kubernetes: str, nearest: str) -> None:
    assert problems({"images": IMAGES}, kubernetes, image="") == [
        f"it has no image for Kubernetes {kubernetes}, set ccm_runtime_image (nearest: {nearest})"]
    assert problems({"images": IMAGES}, kubernetes, image="acme:own") == []


def test_a_cluster_of_unknown_version_needs_an_image_or_the_version() -> None:
    assert problems({"images": IMAGES}, "", image="") == [
        "the cluster's Kubernetes version is unknown, set ccm_runtime_kubernetes_version"]
    assert problems({"images": IMAGES}, "", image="acme:own") == []


@pytest.mark.parametrize(("config", "configured", "reads", "complaint"), [
    ({"config": "required"}, True, True, ""),
    ({"config": "required"}, False, True, "it requires a configuration file, set ccm_runtime_cloud_config to its content"),
    ({"config": "optional"}, True, True, ""),
    ({"config": "optional"}, False, False, ""),
    ({"config": "none"}, True, False, "it reads no configuration file, remove ccm_runtime_cloud_config"),
    ({"config": "none"}, False, False, ""),
    ({}, True, True, ""),  # this project's runtime, or another controller without a name
    ({}, False, True, "it requires a configuration file, set ccm_runtime_cloud_config to its content"),
])
def test_a_configuration_file_is_there_exactly_if_the_controller_reads_one(config: dict[str, str], configured: bool, reads: bool,
                                                                           complaint: str) -> None:
    found = rollout(config, "1.35", "any", configured)
    assert found["reads_config"] is reads and found["problems"] == ([complaint] if complaint else [])


def test_arguments_of_the_user_may_name_another_configuration() -> None:
    assert problems({"config": "required"}, own_args=True) == []


def test_the_environment_comes_from_the_secret_in_the_vendors_order() -> None:
    found = rollout({"credentials": TOKEN}, "1.35", credentials=["network", "token"])
    assert found["from_secret"] == [{"env": "ACME_TOKEN", "key": "token"}, {"env": "ACME_NETWORK", "key": "network"}]
    assert rollout({"credentials": TOKEN}, "1.35", credentials=["network"])["from_secret"] == [{"env": "ACME_NETWORK", "key": "network"}]


def test_a_variable_of_the_user_replaces_the_vendors_and_its_key() -> None:
    vendor = {"config": "none", "credentials": TOKEN}
    found = rollout(vendor, "1.35", "any", credentials=["network", "token"], environment=["ACME_TOKEN"])
    assert found["from_secret"] == [{"env": "ACME_NETWORK", "key": "network"}]
    assert problems(vendor, environment=["ACME_TOKEN"]) == []
    assert problems(vendor, environment=["ACME_NETWORK"]) == [
        "it requires credentials, set these keys of ccm_runtime_credentials: token"]


def test_all_problems_are_there_at_once() -> None:
    also = {"token": {"env": "A", "required": True}, "secret": {"env": "B", "required": True}, "zone": {"env": "C"}}
    vendor = {"config": "required", "credentials": also, "images": IMAGES}
    assert problems(vendor, "1.36", image="", credentials=["tokne", "zones"]) == [
        "it has no image for Kubernetes 1.36, set ccm_runtime_image (nearest: 1.35: acme:1.35)",
        "it requires a configuration file, set ccm_runtime_cloud_config to its content",
        "it requires credentials, set these keys of ccm_runtime_credentials: token, secret",
        "it does not read these keys of ccm_runtime_credentials: tokne, zones (it reads token, secret, zone)",
    ]


def test_a_vendor_without_keys_may_have_files_beside_its_configuration() -> None:
    assert problems({}, credentials=["ca.pem"]) == []


def test_the_filter_takes_what_templates_give_it_and_refuses_a_name() -> None:
    assert vendor_rollout({"images": {"1.36": "acme:1"}}, 1.36)["image"] == "acme:1"
    assert vendor_rollout({}, "", image="any", configured="yes")["problems"] == []
    with pytest.raises(AnsibleFilterError, match="description of a vendor"):
        vendor_rollout("aws", "1.36")
