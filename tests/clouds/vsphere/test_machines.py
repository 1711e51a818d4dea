# SPDX-License-Identifier: Apache-2.0
"""What the provider reports about machines of a vCenter."""

from __future__ import annotations

from ccm.cloud import InstanceRef, InstanceState

from .conftest import RUNTIME
from .vcenter import done, machines, nic, rows, tag

LABELS = "[Labels]\nzone = k8s-zone\nregion = k8s-region\n"


def addresses(instance):
    return [f"{each.type.value}={each.address}" for each in instance.addresses]


async def test_a_table_of_machines(vcenter, connect):
    from pyVmomi import vim

    with vcenter.admin() as live:
        found = machines(live)
        several, silent, off, renamed = (found[name] for name in sorted(found))
        spec = vim.vm.CloneSpec(location=vim.vm.RelocateSpec(), powerOn=False, template=False)
        clone = done(several.CloneVM_Task(several.parent, "linked-clone", spec))
        template = done(several.CloneVM_Task(several.parent, "template", spec))
        template.MarkAsTemplate()
        interfaces = [nic("fe80::1", "10.0.0.5", "fd00::5"), nic("203.0.113.5"), nic("10.244.0.1", device=-1)]
        for each in (several, clone, template):
            vcenter.shape(
                each._moId, hostName="node-1", nics=interfaces, cpus=4, memoryMB=8192, guestId="ubuntu64Guest"
            )
        vcenter.shape(off._moId, hostName="node-off", nics=[nic("10.0.0.7")])
        done(off.PowerOffVM_Task())
        vcenter.shape(renamed._moId, hostName="node-2", nics=[nic("10.0.0.8")])
        done(renamed.Rename_Task("called otherwise"))
        hosts = [each for each in live.places.view if isinstance(each, vim.HostSystem)]
        tag(live, "k8s-zone", {"zone-a": hosts})
        tag(live, "k8s-region", {"region-1": [live.content.rootFolder]})
        uuids = {id: row.uuid for id, row in rows(live).items()}
        ids = [each._moId for each in (several, silent, off, renamed, clone, template)]
    cloud = await connect(vcenter.section("one", **{"ip-family": "ipv4"}) + LABELS + RUNTIME)
    page = await cloud.instances.list_page(None)
    assert page.unreachable == "" and len(page.instances) == 6
    by_id = {each.provider_id: each for each in page.instances}
    listed = [by_id[f"vsphere://{uuids[id]}"] for id in ids]
    several, silent, off, renamed, clone, template = listed

    assert addresses(several) == ["Hostname=node-1", "InternalIP=10.0.0.5", "ExternalIP=10.0.0.5"]
    assert several.type == "vsphere-vm.cpu-4.mem-8gb.os-ubuntu"
    assert (several.zone, several.region, several.incomplete) == ("zone-a", "region-1", "")
    assert silent.addresses == () and "no host name" in silent.incomplete
    assert off.state is InstanceState.SHUTDOWN and off.name == "node-off" and off.zone == "zone-a"
    assert renamed.name == "node-2" and addresses(renamed)[1] == "InternalIP=10.0.0.8"
    assert clone.name == "node-1" and clone.state is InstanceState.SHUTDOWN
    assert "is a template" in template.incomplete and template.name.startswith("template (vm-")
    for each in listed:
        assert await cloud.instances.get(InstanceRef("any", each.provider_id)) == each
    uuid = several.provider_id.removeprefix("vsphere://")
    assert await cloud.instances.get(InstanceRef("node-1", system_uuid=uuid)) == several
    assert await cloud.instances.get(InstanceRef("unnamed", system_uuid=silent.system_uuids[1])) == silent


async def test_both_families_and_a_datacenter(vcenter, connect):
    with vcenter.admin() as live:
        one = sorted(machines(live).items())[0][1]
        vcenter.shape(one._moId, hostName="node-1", nics=[nic("10.0.0.5", "fd00::5")])
    text = vcenter.section("one", **{"ip-family": "ipv6,ipv4", "datacenters": "DC0"}) + RUNTIME
    found = await (await connect(text)).instances.get(InstanceRef("node-1"))
    assert [each.address for each in found.addresses] == ["node-1", "fd00::5", "fd00::5", "10.0.0.5", "10.0.0.5"]
