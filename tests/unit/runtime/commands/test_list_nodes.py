# SPDX-License-Identifier: Apache-2.0
"""What `ccm nodes` says about each Node, from one listing of the cloud."""

import msgspec
import pytest

from ccm import cli
from ccm.cloud import Address, AddressType, Instance
from ccm.commands.list_nodes import match, table
from ccm.engine.objects import Node, NodeStatus
from ccm.gateway.instance_snapshot import Snapshot

NODE_IP = "alpha.kubernetes.io/provided-node-ip"


def node(name="w1", provider_id="", node_ip=None):
    annotations = {} if node_ip is None else {NODE_IP: node_ip}
    return msgspec.convert(
        {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"providerID": provider_id},
        },
        Node,
    )


def instance(name, address="10.0.0.1", provider_id=""):
    return Instance(
        provider_id or f"sim://{name}",
        name,
        addresses=(Address(AddressType.INTERNAL_IP, address),),
    )


CLOUD = [
    instance("w1"),
    instance("bastion", "10.0.0.9"),
    instance("twin", provider_id="sim://t1"),
    instance("twin", provider_id="sim://t2"),
]


def judge(judged, cloud=CLOUD, unusable=""):
    (verdict,) = match(
        [judged],
        Snapshot.of(cloud, 0.0, 1, unusable),
        lambda text: text.startswith("sim://"),
    )
    return verdict


@pytest.mark.parametrize(
    ("judged", "verdict", "reason"),
    [
        (node(), "ok", ""),
        (node(node_ip="10.0.0.1"), "ok", ""),
        (node(provider_id="sim://w1"), "ok", ""),
        (node("renamed", "sim://w1"), "ok", ""),  # no instance has the Node's name
        (
            node(provider_id="k3s://w1"),
            "foreign",
            "its providerID k3s://w1 is not one of this provider's",
        ),
        (
            node(provider_id="sim://bastion"),
            "mismatched",
            "'bastion', but instance sim://w1 has the Node's name: ",
        ),
        (node(provider_id="sim://gone"), "mismatched", "no instance sim://gone"),
        (node(provider_id="SIM://W1"), "foreign", "SIM://W1"),
        (
            node(node_ip="10.0.0.7"),
            "mismatched",
            "--node-ip 10.0.0.7 is not among the addresses that the cloud knows",
        ),
        (node("nobody"), "mismatched", "no instance named 'nobody'"),
        (node("twin"), "mismatched", "2 instances are named 'twin'"),
    ],
)
def test_verdicts(judged, verdict, reason):
    said = judge(judged)
    assert said.verdict == verdict and reason in said.reason
    assert (said.instance == "sim://w1") == (verdict == "ok")


def test_what_a_listing_cannot_prove_is_unknown():
    assert judge(node(), []).verdict == "unknown"
    assert judge(node("nobody"), unusable="an entry without a name").verdict == "unknown"


UUID = "564d4f6c-0000-4000-8000-0000000000aa"


@pytest.mark.parametrize("others", [[], [instance("w1"), instance("w1", provider_id="sim://w1-again")]])
def test_the_smbios_uuid_decides_where_the_name_does_not(others):
    by_uuid = msgspec.structs.replace(
        node(),
        status=msgspec.convert({"nodeInfo": {"systemUUID": UUID.upper()}}, NodeStatus),
    )
    machine = Instance(
        "sim://vm",
        "w1" if others else "vm-of-w1",
        addresses=CLOUD[0].addresses,
        system_uuids=(UUID,),
    )
    said = judge(by_uuid, [*others, machine])
    assert (said.verdict, said.instance, said.reason) == ("ok", "sim://vm", "")


@pytest.mark.parametrize(
    ("judged", "verdict", "reason"),
    [
        (node(), "mismatched", "not initialised: its guest tools are silent"),
        (
            node(provider_id="sim://w1"),
            "unknown",
            "its guest tools are silent",
        ),  # the Node is already initialised and remains so
    ],
)
def test_an_instance_that_the_cloud_cannot_describe_is_not_ok(judged, verdict, reason):
    silent = Instance("sim://w1", "w1", incomplete="its guest tools are silent")
    said = judge(judged, [silent])
    assert (said.verdict, said.reason) == (verdict, reason)


@pytest.mark.parametrize("spelling", ["sim://w1", "sim:///w1"])
def test_of_two_nodes_with_one_provider_id_only_the_holder_is_ok(spelling):
    nodes = [node("a-copy", spelling), node("w1", "sim://w1")]
    snapshot = Snapshot.of(CLOUD, 0.0, 1, canonical=lambda text: text.replace(":///", "://"))
    copy, holder = match(nodes, snapshot, lambda text: text.startswith("sim://"))
    assert (copy.verdict, holder.verdict) == ("mismatched", "ok")
    assert "also belongs to node w1, which keeps it because it has the instance's name" in copy.reason


def test_the_table_has_a_line_for_each_node():
    lines = table(match([node("w2"), node("w1")], Snapshot.of(CLOUD, 0.0, 1), bool))
    assert lines[0].split() == ["NODE", "VERDICT", "INSTANCE", "REASON"]
    assert lines[1].split() == ["w1", "ok", "sim://w1"]
    assert lines[2].startswith("w2    mismatched  -         the cloud lists no instance named 'w2'")


def test_what_kubelets_write_directs_no_terminal():
    """A kubelet chooses its Node's providerID, which may contain control characters."""
    hostile = node(provider_id="k3s://\x1b[2J\nw2  ok  sim://w1")
    lines = table(match([hostile], Snapshot.of(CLOUD, 0.0, 1), lambda id: False))
    assert len(lines) == 2 and all(line.isprintable() for line in lines)


def test_a_file_that_cannot_be_read_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert cli.main(["nodes", "--cloud-provider", "sim"]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("now", "cloud", "before", "after"),
    [
        ([("InternalIP", "10.0.0.1")], "10.0.0.1", ["10.0.0.1"], ["10.0.0.1"]),
        ([("InternalIP", "192.168.0.7")], "10.0.0.1", ["192.168.0.7"], ["10.0.0.1"]),
        (
            [("ExternalIP", "203.0.113.7"), ("InternalIP", "10.0.0.1")],
            "10.0.0.1",
            ["10.0.0.1"],
            ["10.0.0.1"],
        ),
        (
            [
                ("InternalIP", "10.0.0.1"),
                ("InternalIP", "10.0.0.2"),
                ("ExternalIP", "2001:DB8::1"),
            ],
            "10.0.0.1",
            ["10.0.0.1", "2001:db8::1"],
            ["10.0.0.1"],
        ),
        ([("Hostname", "w1"), ("InternalIP", "no IP")], "10.0.0.1", [], ["10.0.0.1"]),
    ],
)
def test_the_primary_addresses_now_and_after(now, cloud, before, after):
    """The primary address is the first internal one of each family, else an external one: kube-proxy 1.37 exits when
    it changes."""
    addresses = [{"type": kind, "address": address} for kind, address in now]
    status = msgspec.convert({"addresses": addresses}, NodeStatus)
    said = judge(msgspec.structs.replace(node(), status=status), [instance("w1", cloud)])
    assert (said.primary, said.primary_after) == (before, after)


def test_a_cloud_without_addresses_changes_none():
    status = msgspec.convert({"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}, NodeStatus)
    found = msgspec.structs.replace(node(provider_id="sim://w1"), status=status)
    said = judge(found, [Instance("sim://w1", "w1")])
    assert said.primary == said.primary_after == ["10.0.0.1"]
