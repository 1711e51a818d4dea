# SPDX-License-Identifier: Apache-2.0
"""A table of machines gives the same Nodes with cloud-provider-vsphere and our runtime, except for listed
differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.comparison import confirm

from .controllers import answered, conf, register, remove, shown
from .table import TABLE, build

# `make test-clouds` runs these tests, but CI does not, because another program must be compiled first.
pytestmark = pytest.mark.long

ZONES = "[Labels]\nzone = k8s-zone\nregion = k8s-region"
NETWORKS = """[Nodes]
internal-network-subnet-cidr = 192.0.2.0/24,10.0.0.0/16
external-vm-network-name = Outside
exclude-internal-network-subnet-cidr = 10.0.0.13/32
exclude-external-network-subnet-cidr = 10.9.0.0/16,203.0.113.0/28
"""
EXCLUDED = """[Nodes]
exclude-internal-network-subnet-cidr = 10.9.0.0/16
exclude-external-network-subnet-cidr = 10.0.0.11/32
"""
#: Sections of vsphere.conf, and keys of `[Global]`.
SETTINGS: dict[str, tuple[str, dict[str, str]]] = {
    "zones": (ZONES, {}),
    "both families": ("", {"ip-family": "ipv6,ipv4"}),
    "networks and port groups": (NETWORKS, {}),
    "excluded networks": (EXCLUDED, {}),
}
#: Nodes that differ, whatever the setting, and the row of docs/providers/vsphere.md that says why.
DIFFERENCES = {
    "guest-name": "its guest has another name",
    "capitals": "its guest's name has capital letters",
    "template": "its machine is a template",
    "cloud-init-unreadable": "`guestinfo.metadata` of its machine cannot be read",
}
PAGE = Path(__file__).parents[3] / "docs" / "providers" / "vsphere.md"


async def test_a_table_of_machines_gives_the_same_nodes(vcenter, proxy, controllers):
    uuids, kube = build(vcenter), controllers.kube
    found = {}
    for setting, (text, keys) in SETTINGS.items():
        for start in (controllers.theirs, controllers.ours):
            await register(kube, TABLE, uuids)
            program = start(conf(proxy, text, **keys))
            try:
                found[setting, start.__name__] = await answered(kube, program, TABLE)
            finally:
                await program.stop()
            await remove(kube)
    equal = 0
    for setting in SETTINGS:
        theirs, ours = (found[setting, whose] for whose in ("theirs", "ours"))
        different = {name: {"theirs": theirs[name], "ours": ours[name]} for name in ours if theirs[name] != ours[name]}
        assert different.keys() == DIFFERENCES.keys(), f"{setting}: {shown(different)}"
        equal += len(ours) - len(different)
    confirm("vsphere", "nodes equal", f"{equal} of {equal + len(SETTINGS) * len(DIFFERENCES)}, the others by design")


def test_the_page_lists_each_difference_and_no_other():
    rows = PAGE.read_text().partition("| Node | CPI |")[2].partition("\n\n")[0].splitlines()[2:]
    assert {row.split(" | ")[0].removeprefix("| ") for row in rows} == set(DIFFERENCES.values())
