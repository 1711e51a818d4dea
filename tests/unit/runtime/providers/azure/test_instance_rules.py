# SPDX-License-Identifier: Apache-2.0
"""What a Node gets from rows of Azure's API, and which IDs are the same."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import InstanceState, Transient
from ccm.providers.azure import instance_rules as rules
from ccm.providers.azure import resource_ids

GROUP = "/subscriptions/S/resourceGroups/RG/providers"
ALONE = f"{GROUP}/Microsoft.Compute/virtualMachines/Vm-1"
IN_SET = f"{GROUP}/Microsoft.Compute/virtualMachineScaleSets/Pool/virtualMachines/7"
PUBLIC = f"{GROUP}/Microsoft.Network/publicIPAddresses/ip"


def machine(id: str = ALONE, **more: Any) -> dict[str, Any]:
    properties = {
        "hardwareProfile": {"vmSize": "Standard_D4s_v3"},
        "provisioningState": "Succeeded",
        "osProfile": {"computerName": "Worker-1"},
        "instanceView": {"platformFaultDomain": 2, "statuses": [{"code": "PowerState/running"}]},
    }
    row = {
        "id": id,
        "name": "Vm-1",
        "location": "WestEurope",
        "properties": {**properties, **more.pop("properties", {})},
    }
    return {**row, **more}


def configuration(address: str, *, primary: bool = False, public: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"privateIPAddress": address, "primary": primary}
    return {"properties": {**found, "publicIPAddress": {"id": public}} if public else found}


def interface(*configurations: dict[str, Any]) -> dict[str, Any]:
    return {"id": "nic", "properties": {"ipConfigurations": list(configurations)}}


NIC = interface(configuration("10.0.0.4"))


def test_a_machine_of_its_own() -> None:
    found = rules.instance(machine(zones=["2"]), NIC, {})
    assert found.provider_id == (
        "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/Vm-1"
    )
    assert (found.name, found.aliases, found.type) == ("worker-1", ("vm-1",), "Standard_D4s_v3")
    assert (found.zone, found.region, found.incomplete) == ("westeurope-2", "westeurope", "")


def test_a_machine_of_a_scale_set() -> None:
    found = rules.instance(machine(IN_SET, name="Pool_7", sku={"name": "Standard_D8s_v3"}), NIC, {})
    assert found.provider_id.endswith("/virtualMachineScaleSets/Pool/virtualMachines/7")
    assert (found.name, found.aliases, found.type, found.zone) == ("worker-1", (), "Standard_D8s_v3", "2")


def test_a_machine_from_a_specialised_disk_has_the_name_of_its_resource() -> None:
    assert rules.instance(machine(properties={"osProfile": None}), NIC, {}).names == ("vm-1",)


@pytest.mark.parametrize(
    ("id", "more", "zone", "incomplete"),
    [
        (ALONE, {"properties": {"instanceView": None}}, "0", ""),
        (ALONE, {"properties": {"instanceView": {"platformFaultDomain": 0}}}, "0", ""),
        (IN_SET, {"properties": {"instanceView": {}}}, "", "Azure shows no fault domain of it yet"),
        (IN_SET, {"properties": {"instanceView": {"platformFaultDomain": 4}}}, "4", ""),
        (IN_SET, {"properties": {"instanceView": {}}, "zones": ["3"]}, "westeurope-3", ""),
    ],
)
def test_zones(id: str, more: dict[str, Any], zone: str, incomplete: str) -> None:
    found = rules.instance(machine(id, sku={"name": "a"}, **more), NIC, {})
    assert (found.zone, found.incomplete) == (zone, incomplete)


ADDRESS = {PUBLIC.lower(): {"id": PUBLIC, "properties": {"ipAddress": "203.0.113.5"}}}


@pytest.mark.parametrize(
    ("configurations", "expected"),
    [
        ([configuration("10.0.0.4")], ["10.0.0.4"]),
        ([configuration("10.0.0.4", public=PUBLIC)], ["10.0.0.4", "203.0.113.5"]),
        ([configuration("10.0.0.4", public=PUBLIC.upper())], ["10.0.0.4", "203.0.113.5"]),
        ([configuration("10.0.0.4", public=f"{PUBLIC}-other")], ["10.0.0.4"]),
        ([configuration("10.0.0.4"), configuration("10.0.0.5", primary=True)], ["10.0.0.5"]),
        ([configuration("fd00::4"), configuration("10.0.0.4", public=PUBLIC)], ["10.0.0.4", "203.0.113.5", "fd00::4"]),
        ([configuration("fd00::4")], ["fd00::4"]),
    ],
)
def test_addresses_are_those_of_cloud_node_manager(configurations: list[Any], expected: list[str]) -> None:
    found = rules.instance(machine(), interface(*configurations), ADDRESS)
    assert [each.address for each in found.addresses] == ["worker-1", *expected]
    kinds = {"203.0.113.5": "ExternalIP", "worker-1": "Hostname"}
    assert all(each.type.value == kinds.get(each.address, "InternalIP") for each in found.addresses)


@pytest.mark.parametrize("nic", [None, interface(), interface(configuration(""))])
def test_a_machine_without_an_address_is_incomplete(nic: Any) -> None:
    assert rules.instance(machine(), nic, {}).incomplete == "Azure shows no address of it yet"


@pytest.mark.parametrize(
    ("power", "provisioning", "state"),
    [
        ("PowerState/running", "Succeeded", InstanceState.RUNNING),
        ("PowerState/stopped", "Succeeded", InstanceState.SHUTDOWN),
        ("PowerState/deallocated", "Succeeded", InstanceState.SHUTDOWN),
        ("powerstate/Deallocating", "succeeded", InstanceState.SUSPENDED),
        ("PowerState/stopping", "Succeeded", InstanceState.RUNNING),
        ("PowerState/deallocated", "Updating", InstanceState.RUNNING),
        ("ProvisioningState/succeeded", "Succeeded", InstanceState.RUNNING),
        (None, "Deleting", InstanceState.RUNNING),
    ],
)
def test_a_machine_is_down_as_in_cloud_provider_azure(power: Any, provisioning: str, state: InstanceState) -> None:
    view = {"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": power}]} if power else None
    row = machine(properties={"instanceView": view, "provisioningState": provisioning}, zones=["1"])
    assert rules.instance(row, NIC, {}).state is state


VIEW = {"statuses": [{"code": "PowerState/running"}]}
PLACED = {**VIEW, "platformFaultDomain": 0}


@pytest.mark.parametrize(
    ("more", "view", "expected"),
    [
        ({}, VIEW, VIEW),
        ({}, None, None),
        ({}, {}, None),
        ({"properties": {"availabilitySet": {"id": "a"}}}, VIEW, None),
        ({"properties": {"availabilitySet": {"id": "a"}}}, PLACED, PLACED),
        ({"properties": {"virtualMachineScaleSet": {"id": "a"}}}, VIEW, None),
        ({"properties": {"virtualMachineScaleSet": {"id": "a"}}, "zones": ["1"]}, VIEW, VIEW),
    ],
)
def test_which_machines_must_be_read_by_themselves(more: dict[str, Any], view: Any, expected: Any) -> None:
    assert rules.view_of(machine(**more), {"properties": {"instanceView": view}}) == expected
    assert rules.view_of(machine(**more), None) is None


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [
        (None, ""),
        ([], ""),
        ([{"id": "a"}], "a"),
        ([{"id": "a", "properties": {"primary": False}}, {"id": "b", "properties": {"primary": True}}], "b"),
        ([{"id": "a"}, {"id": "b"}], "a"),
    ],
)
def test_the_primary_interface(interfaces: Any, expected: str) -> None:
    row = machine(properties={"networkProfile": {"networkInterfaces": interfaces}})
    assert rules.primary_interface(row) == expected


def test_only_uniform_scale_sets_list_their_machines_themselves() -> None:
    rows = [
        {"name": "b", "properties": {"orchestrationMode": "Uniform"}},
        {"name": "a", "properties": {}},
        {"name": "c", "properties": {"orchestrationMode": "Flexible"}},
    ]
    assert rules.uniform_sets(rows) == ["a", "b"]


@pytest.mark.parametrize(
    "row",
    [
        {},
        [],
        machine("/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/a"),
        machine(location=None) | {"location": 5, "zones": ["a"]},
        machine(properties={"hardwareProfile": None}),
        machine(properties={"instanceView": {"platformFaultDomain": "a"}}),
        machine(IN_SET),
    ],
)
def test_a_row_of_another_form_says_nothing(row: Any) -> None:
    with pytest.raises(Transient):
        rules.instance(row, NIC, {})
    with pytest.raises(Transient):
        rules.by_id([{"name": "a"}])
    with pytest.raises(Transient):
        rules.instance(machine(), interface(configuration("10.0.0")), {})


@pytest.mark.parametrize(
    ("text", "scale_set", "name"),
    [
        (f"azure://{ALONE}", "", "Vm-1"),
        (f"azure://{IN_SET}", "Pool", "7"),
        (f"azure://{ALONE}".lower(), "", "vm-1"),
        (f"azure://{IN_SET.upper()}", "POOL", "7"),
    ],
)
def test_providerids(text: str, scale_set: str, name: str) -> None:
    found = resource_ids.of_provider_id(text)
    assert found is not None and (found.subscription, found.group) == ("s", "rg")
    assert (found.scale_set, found.name) == (scale_set, name)
    assert resource_ids.of_provider_id(found.provider_id) == found
    assert found.key == f"azure://{(IN_SET if scale_set else ALONE).lower()}"


@pytest.mark.parametrize(
    "text",
    [
        ALONE,
        "azure://",
        f"azure://{ALONE}/",
        f"azure://{ALONE}/extensions/a",
        f"AZURE://{ALONE}",
        "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/a b",
        "azure:///subscriptions//resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/a",
    ],
)
def test_other_providerids(text: str) -> None:
    assert resource_ids.of_provider_id(text) is None
