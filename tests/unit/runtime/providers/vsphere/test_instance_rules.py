# SPDX-License-Identifier: Apache-2.0
"""Machines of vCenters as instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ccm.cloud import Address, AddressType, Instance, InstanceState
from ccm.providers.vsphere import instance_rules as rules
from ccm.providers.vsphere.address_rules import Nic
from ccm.providers.vsphere.guest_systems import guest_system
from ccm.providers.vsphere.instance_rules import Machine
from ccm.providers.vsphere.settings_sections import Nodes
from ccm.providers.vsphere.zone_rules import Place

UUID, SWAPPED = "422e4956-ad22-1139-6d72-59cc8f26bc90", "56492e42-22ad-3911-6d72-59cc8f26bc90"
VM = Machine(
    vcenter="vc",
    id="vm-12",
    uuid=UUID,
    inventory_name="machine 12",
    place=Place("h"),
    host_name="node-1",
    guest_id="ubuntu64Guest",
    cpus=4,
    memory_mb=8191,
    nics=(Nic("n", 4000, ("10.0.0.1",)),),
)


def of(*machines: Machine, places=None) -> list[Instance]:
    return rules.instances(machines, places, Nodes())


def test_a_machine():
    assert of(VM, places={VM: ("zone-a", "region-1")}) == [
        Instance(
            provider_id=f"vsphere://{UUID}",
            name="node-1",
            type="vsphere-vm.cpu-4.mem-7gb.os-ubuntu",
            zone="zone-a",
            region="region-1",
            addresses=(
                Address(AddressType.HOSTNAME, "node-1"),
                Address(AddressType.INTERNAL_IP, "10.0.0.1"),
                Address(AddressType.EXTERNAL_IP, "10.0.0.1"),
            ),
            system_uuids=(UUID, SWAPPED),
        )
    ]


@pytest.mark.parametrize(
    ("power", "state"), [("poweredOff", InstanceState.SHUTDOWN), ("suspended", InstanceState.SUSPENDED)]
)
def test_a_machine_that_does_not_run_is_shut_down_or_suspended(power, state):
    assert of(replace(VM, power=power))[0].state is state
    assert of(VM)[0].state is InstanceState.RUNNING


@pytest.mark.parametrize(
    ("machine", "places", "problem"),
    [
        (replace(VM, host_name=""), None, "no host name"),
        (replace(VM, nics=()), None, "no network interface"),
        (replace(VM, is_template=True), None, "is a template"),
        (VM, {}, "no tags of both categories"),
        (VM, {VM: ("zone a", "r")}, "'zone a' is not a valid value"),
        (VM, {VM: ("a", "r" * 64)}, "is not a valid value"),
    ],
)
def test_no_node_is_initialised_from_it(machine, places, problem):
    [found] = of(machine, places=places)
    assert problem in found.incomplete and "'machine 12' of vc" in found.incomplete
    assert found.provider_id == f"vsphere://{UUID}"


def test_a_machine_that_is_complete():
    assert of(VM)[0].incomplete == of(VM, places={VM: ("a", "r")})[0].incomplete == ""


@pytest.mark.parametrize("machine", [replace(VM, host_name=""), replace(VM, nics=())])
def test_silent_guest_tools_change_no_address(machine):
    assert of(machine)[0].addresses == ()


@pytest.mark.parametrize("machine", [replace(VM, host_name=""), replace(VM, is_template=True)])
def test_a_template_or_silent_machine_has_a_name_that_no_node_has(machine):
    name = of(machine)[0].name
    assert name == "machine 12 (vm-12)"
    assert (found := rules.UNNAMED.fullmatch(name)) and found["id"] == "vm-12"


@pytest.mark.parametrize(
    "other",
    [
        replace(VM, id="vm-99", power="poweredOff", host_name="copy"),
        replace(VM, id="vm-99", is_template=True, host_name="copy"),
        replace(VM, id="vm-99", vcenter="vc2", power="poweredOff", host_name="copy"),
    ],
)
def test_of_copies_with_one_uuid_the_one_that_runs_counts(other):
    assert of(other, VM) == of(VM, other) == of(VM)


def test_two_that_run_with_one_uuid_are_nobodys():
    [found] = of(VM, replace(VM, id="vm-99", vcenter="vc2"))
    assert "vm-99 of vc2" in found.incomplete and found.addresses == ()


def test_a_machine_without_uuid_is_left_out():
    assert of(replace(VM, uuid="")) == []


@pytest.mark.parametrize(
    ("spelt", "uuid"),
    [
        (f"vsphere://{UUID}", UUID),
        (f"vsphere://{UUID.upper()}", UUID),
        (f"VSPHERE://{UUID}", None),
        (UUID, None),
        (f"vsphere:///{UUID}", None),
        (f"vsphere://{UUID}0", None),
        (f"vsphere://{UUID}\n", None),
    ],
)
def test_provider_ids(spelt, uuid):
    assert rules.uuid_of(spelt) == uuid


def test_a_kubelet_reports_the_uuid_in_one_of_two_byte_orders():
    assert rules.spellings(UUID.upper()) == (UUID, SWAPPED)
    assert set(rules.spellings(SWAPPED)) == {UUID, SWAPPED}
    assert rules.spellings("x") == rules.spellings("") == ()


@pytest.mark.parametrize(
    ("guest_id", "name"),
    [
        ("ubuntu64Guest", "ubuntu"),
        ("centos64Guest", "centos64"),
        ("rhel9_64Guest", "rhel9"),
        ("rhel9Guest", "unknown"),
        ("otherGuest64", "other"),
        ("other3xLinux64Guest", "linux"),
        ("vmwarePhoton64Guest", "photon"),
        ("debian11_64Guest", "unknown"),
        ("windows9Server64Guest", "win10server"),
        ("", "unknown"),
    ],
)
def test_guest_systems(guest_id, name):
    assert guest_system(guest_id) == name
