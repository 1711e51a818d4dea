# SPDX-License-Identifier: Apache-2.0
"""A server as an instance, as hcloud-cloud-controller-manager describes it on Nodes."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Conflict, InstanceState, Transient
from ccm.providers.hetzner import instance_rules as rules

ROW: dict[str, Any] = {
    "id": 42,
    "name": "worker-1",
    "status": "running",
    "server_type": {"name": "cx22"},
    "location": {"name": "fsn1"},
    "public_net": {"ipv4": {"ip": "198.51.100.7"}, "ipv6": {"ip": "2001:db8:1::/64"}},
    "private_net": [{"network": 7, "ip": "10.0.0.2"}, {"network": 8, "ip": "10.1.0.2"}],
}


def addresses(family: str, network: int = 7, **changed: Any) -> list[str]:
    found = rules.instance(ROW | changed, network, family, True)
    return [f"{each.type.value} {each.address}" for each in found.addresses]


def test_identity_place_and_labels() -> None:
    found = rules.instance(ROW, 7, "ipv4", True)
    assert (found.provider_id, found.name, found.type) == ("hcloud://42", "worker-1", "cx22")
    assert (found.region, found.zone) == ("fsn1", "fsn1-dc14")
    assert found.labels == {"instance.hetzner.cloud/provided-by": "cloud"}
    assert rules.instance(ROW, 7, "ipv4", False).zone == ""


def test_a_name_in_capitals_is_found_as_the_kubelet_registers() -> None:
    found = rules.instance(ROW | {"name": "Worker-9"}, 7, "ipv4", True)
    assert found.is_named("worker-9") and found.is_named("Worker-9") and found.name == "Worker-9"
    assert rules.instance(ROW, 7, "ipv4", True).aliases == ()


@pytest.mark.parametrize(
    ("location", "zone"),
    [
        ("nbg1", "nbg1-dc3"),
        ("hel1", "hel1-dc2"),
        ("ash", "ash-dc1"),
        ("hil", "hil-dc1"),
        ("sin", "sin-dc1"),
        ("x", "x"),
    ],
)
def test_a_zone_is_the_data_center_that_the_location_had(location: str, zone: str) -> None:
    assert rules.instance(ROW | {"location": {"name": location}}, 0, "ipv4", True).zone == zone


def test_an_older_answer_has_its_location_in_the_data_center() -> None:
    row = ROW | {"location": None, "datacenter": {"location": {"name": "hel1"}}}
    assert rules.instance(row, 0, "ipv4", True).region == "hel1"


@pytest.mark.parametrize(
    ("family", "public"),
    [
        ("ipv4", ["ExternalIP 198.51.100.7"]),
        ("ipv6", ["ExternalIP 2001:db8:1::1"]),
        ("dualstack", ["ExternalIP 198.51.100.7", "ExternalIP 2001:db8:1::1"]),
    ],
)
def test_addresses_are_in_the_originals_order(family: str, public: list[str]) -> None:
    assert addresses(family) == ["Hostname worker-1", *public, "InternalIP 10.0.0.2"]


def test_only_the_configured_network_counts() -> None:
    assert addresses("ipv4", 0)[-1] == "ExternalIP 198.51.100.7"
    assert addresses("ipv4", 8)[-1] == "InternalIP 10.1.0.2"
    assert addresses("dualstack", 0, public_net={"ipv4": None, "ipv6": None}) == ["Hostname worker-1"]


@pytest.mark.parametrize("status", ["running", "initializing", "starting", "stopping", "deleting", "unknown", "off"])
def test_only_a_server_that_is_off_is_shut_down(status: str) -> None:
    state = rules.instance(ROW | {"status": status}, 0, "ipv4", True).state
    assert state is (InstanceState.SHUTDOWN if status == "off" else InstanceState.RUNNING)


@pytest.mark.parametrize("changed", [{"id": "x"}, {"public_net": None}, {"location": 1}, {"private_net": [{}]}])
def test_an_answer_of_another_form_proves_nothing(changed: dict[str, Any]) -> None:
    with pytest.raises(Transient, match="form that the API describes"):
        rules.instance(ROW | changed, 7, "ipv4", True)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("hcloud://1", 1),
        ("hcloud://9007199254740991", 9007199254740991),
        ("hcloud://bm-1", None),
        ("hrobot://1", None),
        ("hcloud://0", None),
        ("hcloud://", None),
        ("hcloud://1/2", None),
        ("xhcloud://1", None),
    ],
)
def test_only_cloud_servers_are_ours(text: str, number: int | None) -> None:
    assert rules.server_id(text) == number
    if number is None:
        with pytest.raises(Conflict, match="not of the form hcloud://ID"):
            rules.known_id(text)
    else:
        assert rules.known_id(text) == number
