# SPDX-License-Identifier: Apache-2.0
"""Which of several clouds owns a Node, according to the commands."""

import pytest

from ccm.cloud import Transient
from ccm.commands.asking.answers import Action
from ccm.commands.list_nodes import Listing, match_all
from ccm.commands.outlooks.judging import Judging
from ccm.commands.outlooks.ownership_outlook import owners, ownership_outlook
from ccm.controllers.nodes.ownership_rules import LABEL, Declarations, Owned
from ccm.gateway.instance_snapshot import Snapshot

from .looks import TAINT, instance, node

DECLARATIONS = Declarations(("sim", "metal"), {"metal": ["bm-*"]})
MACHINES = {
    "sim": [instance("a"), instance("twin"), instance("bm-twin")],
    "metal": [instance(name, provider_id=f"metal://{name}") for name in ("bm-1", "twin", "bm-twin")],
}


def owning(provider_id):
    return [cloud for cloud in MACHINES if provider_id.startswith(f"{cloud}://")]


def said(nodes, silent=()):
    return {
        cloud: Transient("503")
        if cloud in silent
        else Judging(nodes, Snapshot.of(machines, 0.0, 1), lambda text, cloud=cloud: cloud in owning(text))
        for cloud, machines in MACHINES.items()
    }


@pytest.mark.parametrize(
    ("judged", "silent", "expected"),
    [
        (node("a", "", TAINT), (), "sim"),
        (node("bm-1", "", TAINT), (), "metal"),
        (node("bm-twin", "", TAINT), (), "metal"),
        (node("x", "metal://x"), (), "metal"),
        (node("x", "metal://x"), ("metal",), "metal"),
        (node("x"), (), "sim"),
        (node("bm-1", "", TAINT), ("sim",), "metal"),
        (node("a", "", TAINT), ("metal",), (Action.UNKNOWN, "CloudNotAvailable")),
        (node("twin", "", TAINT), (), (Action.BLOCKED, "SeveralOwners")),
        (node("x", "", TAINT), (), (Action.BLOCKED, "InstanceNotFound")),
        (node("x", "k3s://x"), (), (Action.NOTHING, "ForeignProviderID")),
        (node("x", "k3s://x", TAINT), (), (Action.BLOCKED, "ForeignProviderID")),
        (node("a", "", TAINT, labels={LABEL: "vendor"}), (), (Action.NOTHING, "OtherController")),
        (node("a", "sim://a", labels={LABEL: "metal"}), (), (Action.BLOCKED, "OwnersContradict")),
    ],
)
def test_whose_a_node_is(judged, silent, expected):
    whose = owners([judged], said([judged], silent), owning, DECLARATIONS)[judged.metadata.name]
    if isinstance(expected, str):
        assert whose == Owned(expected)
    else:
        outlook = ownership_outlook(judged, whose)
        assert (outlook.action, outlook.reason) == expected
        assert outlook.because and bool(outlook.to_do) == (outlook.action is not Action.NOTHING)


def test_a_node_is_compared_with_its_own_cloud():
    nodes = [node("a", "sim://a"), node("bm-1", "", TAINT), node("twin", "", TAINT), node("x", "k3s://x")]
    listings = {
        cloud: Listing(Snapshot.of(machines, 0.0, 1), lambda text, cloud=cloud: cloud in owning(text))
        for cloud, machines in MACHINES.items()
    }
    found = [(each.name, each.cloud, each.verdict, each.instance) for each in match_all(nodes, listings, DECLARATIONS)]
    assert found == [
        ("a", "sim", "ok", "sim://a"),
        ("bm-1", "metal", "ok", "metal://bm-1"),
        ("twin", "", "mismatched", ""),
        ("x", "", "foreign", ""),
    ]
