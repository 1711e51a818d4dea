# SPDX-License-Identifier: Apache-2.0
"""Several vCenters: an unreachable one never makes a machine look gone. vCenters are replaced by fixed readings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ccm.cloud import Conflict, InstanceRef, NotFound, ProviderConfig, Transient, Unauthorized
from ccm.providers.vsphere.api import Reading
from ccm.providers.vsphere.instances import VSphereInstances
from ccm.providers.vsphere.settings import Settings

from .test_instance_rules import UUID, VM

OTHER = replace(VM, id="vm-2", vcenter="two", uuid="00000000-0000-0000-0000-000000000002", host_name="node-2")
CONF = '[Global]\nuser = u\npassword = p\n[VirtualCenter "one"]\n[VirtualCenter "two"]\n'
DOWN = Transient("vCenter two: no answer in time")


class Answers:
    """A vCenter with these machines, or one that raises an error. `unknown`: what its readings leave open."""

    def __init__(self, *machines, error=None, unknown=()):
        self.machines, self.error, self.unknown = machines, error, unknown

    async def start(self):
        if self.error:
            raise self.error

    async def ask(self, question):
        await self.start()
        found = SimpleNamespace(
            all=lambda: self.machines,
            with_uuid=lambda uuid: [each for each in self.machines if each.uuid == uuid],
            with_name=lambda name, uuids: [
                each for each in self.machines if each.host_name.lower() == name.lower() or each.uuid in uuids
            ],
            with_reference=lambda id: [each for each in self.machines if each.id == id],
        )
        return Reading(tuple(question(found)), {}, self.unknown)


@pytest.fixture
def instances():
    def create(*vcenters):
        found = VSphereInstances(Settings.parse(ProviderConfig(CONF, "vsphere.conf", {})))
        found._vcenters = list(vcenters)
        return found

    return create


async def test_all_vcenters_are_one_listing(instances):
    page = await instances(Answers(VM), Answers(OTHER)).list_page(None)
    assert [each.name for each in page.instances] == ["node-1", "node-2"]
    assert (page.next, page.unreachable) == (None, "")


async def test_one_vcenter_down_is_said_and_its_machines_are_unknown(instances):
    found = instances(Answers(VM), Answers(error=DOWN))
    page = await found.list_page(None)
    assert [each.name for each in page.instances] == ["node-1"] and "vCenter two" in page.unreachable
    assert (await found.get(InstanceRef("node-1", f"vsphere://{UUID}"))).name == "node-1"
    for ref in (InstanceRef("node-2"), InstanceRef("node-2", f"vsphere://{OTHER.uuid}")):
        with pytest.raises(Transient, match=r"unknown whether .* vCenter two"):
            await found.get(ref)


async def test_a_name_is_not_sure_while_a_vcenter_is_down(instances):
    with pytest.raises(Transient):
        await instances(Answers(VM), Answers(error=DOWN)).get(InstanceRef("node-1"))


@pytest.mark.parametrize("ref", [InstanceRef("x"), InstanceRef("x", f"vsphere://{UUID}")])
async def test_all_down_is_the_error_itself(instances, ref):
    refused = Unauthorized("vCenter one: it refuses user and password")
    found = instances(Answers(error=refused), Answers(error=refused))
    for call in (found.list_page(None), found.get(ref), found.start()):
        with pytest.raises(Unauthorized):
            await call


async def test_a_start_needs_one_vcenter(instances):
    assert await instances(Answers(VM), Answers(error=DOWN)).start() == [str(DOWN)]
    assert await instances(Answers(VM), Answers()).start() == []


async def test_a_machine_without_uuid_makes_the_listing_partial(instances):
    found = instances(Answers(VM, unknown=tuple(f"broken (vm-{number})" for number in range(7))), Answers())
    unreachable = (await found.list_page(None)).unreachable
    assert "broken (vm-0)" in unreachable and "and 2 more" in unreachable


async def test_absence_needs_every_vcenter(instances):
    found = instances(Answers(VM), Answers(OTHER))
    for ref in (InstanceRef("node-3"), InstanceRef("NODE-1"), InstanceRef("node-1", "vsphere://" + "0" * 8 + UUID[8:])):
        with pytest.raises(NotFound):
            await found.get(ref)


async def test_names_that_two_guests_share(instances):
    found = instances(Answers(VM), Answers(replace(OTHER, host_name="node-1")))
    with pytest.raises(Conflict, match="2 virtual machines"):
        await found.get(InstanceRef("node-1"))
    assert (await found.get(InstanceRef("node-1", system_uuid=UUID.upper()))).provider_id == f"vsphere://{UUID}"
    assert (await found.get(InstanceRef("other", system_uuid=UUID))).provider_id == f"vsphere://{UUID}"


async def test_a_machine_without_name_is_found_by_what_the_listing_calls_it(instances):
    found = instances(
        Answers(replace(VM, host_name="")), Answers(replace(OTHER, inventory_name="x", id="vm-12", host_name=""))
    )
    listed = (await found.list_page(None)).instances
    assert [await found.get(InstanceRef(each.name)) for each in listed] == listed
    assert [each.name for each in listed] == ["machine 12 (vm-12)", "x (vm-12)"]


def test_ids(instances):
    found = instances(Answers())
    assert found.owns(f"vsphere://{UUID}") and not found.owns("vsphere://x")
    assert found.canonical(f"vsphere://{UUID.upper()}") == f"vsphere://{UUID}"
    assert found.canonical("vsphere://x") is None
