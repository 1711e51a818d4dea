# SPDX-License-Identifier: Apache-2.0
"""A CloudStack virtual machine as an instance of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Conflict, InstanceState, Transient
from ccm.providers.cloudstack import instance_rules as rules

ID = "a5b7e7c4-5c2b-4f1a-9d39-0c1c3fd6d2d5"


def row(**changed: Any) -> dict[str, Any]:
    nic = {"id": "n", "networkid": "net-1", "ipaddress": "10.1.0.11", "isdefault": True}
    return {
        "id": ID,
        "name": "worker-1",
        "state": "Running",
        "zonename": "Zone 1",
        "serviceofferingname": "Medium Instance",
        "nic": [nic],
        **changed,
    }


def test_a_machine_is_an_instance() -> None:
    found = rules.instance(row(), "")
    assert found.provider_id == f"external-cloudstack://{ID}" and found.name == "worker-1"
    assert (found.zone, found.region, found.type) == ("Zone-1", "Zone-1", "MediumInstance")
    assert [(each.type.value, each.address) for each in found.addresses] == [
        ("InternalIP", "10.1.0.11"),
        ("Hostname", "worker-1"),
    ]
    assert found.state is InstanceState.RUNNING and not found.incomplete and found.aliases == ()


def test_addresses_of_all_interfaces_and_of_static_nat() -> None:
    nics = [
        {"networkid": "net-1", "ipaddress": "10.1.0.11", "ip6address": "2001:db8::11"},
        {"networkid": "net-2", "ipaddress": "10.2.0.11"},
    ]
    found = rules.instance(row(nic=nics, publicip="203.0.113.7"), "north")
    assert [(each.type.value, each.address) for each in found.addresses] == [
        ("InternalIP", "10.1.0.11"),
        ("Hostname", "worker-1"),
        ("InternalIP", "2001:db8::11"),
        ("InternalIP", "10.2.0.11"),
        ("ExternalIP", "203.0.113.7"),
    ]
    assert found.region == "north" and rules.networks(row(nic=nics)) == ("net-1", "net-2")


@pytest.mark.parametrize("nics", [[], [{"networkid": "net-1"}], None])
def test_a_machine_without_an_address_is_incomplete(nics: Any) -> None:
    assert "no address" in rules.instance(row(nic=nics), "").incomplete


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("Running", InstanceState.RUNNING),
        ("Starting", InstanceState.RUNNING),
        ("Migrating", InstanceState.RUNNING),
        ("Stopping", InstanceState.RUNNING),
        ("Unknown", InstanceState.RUNNING),
        ("Stopped", InstanceState.SHUTDOWN),
        ("Destroyed", InstanceState.SHUTDOWN),
        ("Expunging", InstanceState.SHUTDOWN),
        ("Error", InstanceState.SHUTDOWN),
    ],
)
def test_states(state: str, expected: InstanceState) -> None:
    """A destroyed machine can be recovered, so it exists while the API lists it."""
    assert rules.instance(row(state=state), "").state is expected


def test_a_node_may_have_the_name_in_small_letters() -> None:
    assert rules.instance(row(name="Worker-1"), "").names == ("Worker-1", "worker-1")


@pytest.mark.parametrize(
    "spoilt",
    [
        {"id": "a/b"},
        {"id": ID.upper()},
        {"nic": [{"ipaddress": "x"}]},
        {"nic": 5},
        {"publicip": "x"},
        {"name": None, "zonename": ...},
    ],
)
def test_another_form_says_nothing(spoilt: dict[str, Any]) -> None:
    changed = {key: value for key, value in row(**spoilt).items() if value is not ...}
    with pytest.raises(Transient):
        rules.instance(changed, "")


@pytest.mark.parametrize("part", ["state", "id", "name", "zonename"])
def test_a_missing_part_says_nothing(part: str) -> None:
    changed = {key: value for key, value in row().items() if key != part}
    with pytest.raises(Transient):
        rules.instance(changed, "")


@pytest.mark.parametrize(
    ("provider_id", "expected"),
    [
        (f"external-cloudstack://{ID}", ID),
        ("external-cloudstack://2600", "2600"),
        (f"cloudstack://{ID}", ID),
        (f"digitalocean://{ID}", None),
        (f"external-cloudstack:///{ID}", None),
        (f"external-cloudstack://{ID}/x", None),
        ("external-cloudstack://", None),
        (ID, None),
    ],
)
def test_provider_ids(provider_id: str, expected: str | None) -> None:
    assert rules.machine_id(provider_id) == expected
    if expected is None:
        with pytest.raises(Conflict):
            rules.known_id(provider_id)


@pytest.mark.parametrize(
    ("offering", "expected"),
    [("Medium Instance", "MediumInstance"), ("Compute-Micro_PRD.2", "ComputeMicroPRD2"), ("", ""), ("ä" * 80, "")],
)
def test_types_are_those_of_cloudstack_kubernetes_provider(offering: str, expected: str) -> None:
    assert rules.instance_type(offering) == expected
