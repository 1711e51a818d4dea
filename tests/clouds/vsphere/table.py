# SPDX-License-Identifier: Apache-2.0
"""A table of machines like those of users, and the Nodes that their kubelets register."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from ccm.controllers.nodes.node_rules import PROVIDED_NODE_IP
from ccm.providers.vsphere.instance_rules import other_byte_order
from tests.integration.runtime.support import TAINT

from .vcenter import VCenter, done, machines, nic, rows, tag

METADATA = """network:
  ethernets:
    eth0: {addresses: [10.0.0.71/24, 10.0.0.70/24]}
"""


@dataclass(frozen=True)
class Row:
    """A machine, and its Node with the name `node`, "" for no Node.

    `guest`: the host name that VMware Tools report, "" for the Node's name, None without the tools. `place`: where the
    machine runs, a key of `places` in `build`. `swapped`: the kubelet reports the UUID in the other byte order.
    `node_ip`: the kubelet's `--node-ip`.
    """

    node: str
    nics: tuple[dict[str, Any], ...] = ()
    guest: str | None = ""
    place: str = "host"
    is_on: bool = True
    is_template: bool = False
    is_linked: bool = False
    swapped: bool = False
    node_ip: str = ""
    inventory_name: str = ""
    metadata: str = ""
    title: str = ""

    @property
    def host_name(self) -> str:
        return self.node if self.guest == "" else self.guest or ""

    @property
    def name(self) -> str:
        """Return the machine's name in the inventory when it is created."""
        return f"vm-{self.title or self.node}"


def one(number: int) -> tuple[dict[str, Any], ...]:
    """Return one interface with an address of each family."""
    return (nic(f"10.0.0.{number}", f"fd00::{number}", network="inside"),)


TABLE = (
    Row(
        "several-interfaces",
        (
            nic("fe80::11", "10.0.0.11", "fd00::11", network="inside"),
            nic("203.0.113.11", "2001:db8::11", network="outside"),
            nic("10.244.0.1", device=-1),
        ),
    ),
    Row("excluded-network", (nic("10.9.0.12", "fd00:9::12"), nic("10.0.0.12", "fd00::12", network="inside"))),
    Row("only-ipv4", (nic("10.0.0.13"),)),
    Row("only-ipv6", (nic("fd00::14"),)),
    Row("no-tools", guest=None),
    Row("no-interfaces"),
    Row("local-addresses", (nic("169.254.0.16", "fe80::16", "127.0.0.1"),)),
    Row("powered-off", one(17), is_on=False),
    Row("inventory-name", one(18), inventory_name="called otherwise"),
    Row("guest-name", one(19), guest="another-name"),
    Row("capitals", one(20), guest="Capitals"),
    Row("other-byte-order", one(21), swapped=True),
    Row("node-ip", one(35), node_ip="10.0.0.35"),
    Row("node-ip-of-another", one(36), node_ip="10.0.0.35"),
    Row("10.0.0.22", one(22), guest="named-by-address"),
    Row("template", one(23), is_on=False, is_template=True),
    Row("has-template", one(24)),
    Row("", one(24), guest="has-template", is_on=False, is_template=True, title="template-of-a-node"),
    Row("linked-clone", one(25), is_linked=True),
    Row("two-of-a-name", one(26)),
    Row("", one(27), guest="two-of-a-name", title="second-of-a-name"),
    Row("cloud-init", (nic("10.0.0.69", "10.0.0.70", "fd00::70"), nic("10.0.0.71")), metadata=METADATA),
    Row("cloud-init-unreadable", one(29), metadata="network: ["),
    Row("zone-of-cluster", one(31), place="cluster"),
    Row("zone-of-host-and-cluster", one(30), place="both"),
    Row("zone-of-pool", one(32), place="pool"),
    Row("zone-of-machine", one(33), place="machine"),
    Row("no-zone", one(34), place="nowhere"),
)
#: Machines without peculiarities, for tests that do not use the table.
WORKERS = tuple(Row(f"worker-{n}", one(40 + n), place=("host", "cluster")[n % 2]) for n in range(11))


def build(vcenter: VCenter, table: tuple[Row, ...] = TABLE) -> dict[str, str]:
    """Replace all machines by these, with tags for zones and regions. Return the UUID of each machine, by
    `Row.name`."""
    from pyVmomi import vim

    with vcenter.admin() as live:
        present = machines(live)
        first = present[min(present)]
        hosts = {each.name: each for each in live.places.view if isinstance(each, vim.HostSystem)}
        tagged, plain, both, alone = (hosts[f"DC0_{name}"] for name in ("C0_H0", "C0_H1", "C0_H2", "H0"))
        pool = alone.parent.resourcePool.CreateResourcePool("tagged", vim.ResourceConfigSpec(**_shares()))
        at = {"host": tagged, "cluster": plain, "both": both, "machine": alone, "nowhere": alone}
        places = {name: (host, host.parent.resourcePool) for name, host in at.items()} | {"pool": (alone, pool)}
        made = {row.name: _create(vcenter, first, row, *places[row.place]) for row in table}
        for each in present.values():  # vcsim puts some of them on a host of its choice
            done(each.PowerOffVM_Task())
            done(each.Destroy_Task())
        zones = {"of-host": [tagged], "near": [both], "of-cluster": [plain.parent], "of-pool": [pool]}
        zones["of-machine"] = [made[row.name] for row in table if row.place == "machine"]
        tag(live, "k8s-zone", {f"zone-{name}": managed for name, managed in zones.items()})
        tag(live, "k8s-region", {"region-1": [live.content.rootFolder], "region-of-host": [tagged]})
        uuids = {id: row.uuid for id, row in rows(live).items()}
        return {name: uuids[machine._moId] for name, machine in made.items()}


def node_of(row: Row, uuid: str) -> dict[str, Any]:
    """Return the Node as the machine's kubelet registers it."""
    names = ("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion")
    names += ("kubeletVersion", "machineID", "operatingSystem", "osImage")
    info = dict.fromkeys(names, "") | {"systemUUID": other_byte_order(uuid) if row.swapped else uuid}
    ready = {"type": "Ready", "status": "True" if row.is_on else "Unknown", "reason": "Test", "message": ""}
    ready |= dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": row.node, "annotations": {PROVIDED_NODE_IP: row.node_ip} if row.node_ip else {}},
        "spec": {"taints": [TAINT]},
        "status": {"nodeInfo": info, "conditions": [ready]},
    }


def _create(vcenter: VCenter, first: Any, row: Row, host: Any, pool: Any) -> Any:
    from pyVmomi import vim

    location = vim.vm.RelocateSpec(host=host, pool=pool)
    if row.is_linked:
        done(first.CreateSnapshot_Task("base", "", False, False))
        location.diskMoveType = "createNewChildDiskBacking"
    spec = vim.vm.CloneSpec(location=location, powerOn=False, template=False)
    if row.is_linked:
        spec.snapshot = first.snapshot.currentSnapshot
    machine = done(first.CloneVM_Task(first.parent, row.name, spec))
    if row.is_on:  # vcsim's clones are off, whatever `powerOn` says
        done(machine.PowerOnVM_Task())
    options = []
    if row.metadata:
        text = base64.b64encode(row.metadata.encode()).decode()
        options = [{"key": "guestinfo.metadata", "value": text}]
        options += [{"key": "guestinfo.metadata.encoding", "value": "base64"}]
    if row.guest is not None:
        vcenter.shape(machine._moId, hostName=row.host_name, nics=list(row.nics), options=options)
    if row.is_template:
        machine.MarkAsTemplate()
    if row.inventory_name:
        done(machine.Rename_Task(row.inventory_name))
    return machine


def _shares() -> dict[str, Any]:
    from pyVmomi import vim

    def allocation() -> Any:
        shares = vim.SharesInfo(level="normal", shares=1)
        return vim.ResourceAllocationInfo(reservation=0, limit=-1, expandableReservation=True, shares=shares)

    return {"cpuAllocation": allocation(), "memoryAllocation": allocation()}
