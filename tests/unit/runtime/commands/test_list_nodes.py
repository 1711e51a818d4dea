# SPDX-License-Identifier: Apache-2.0
"""What `ccm nodes` says of each Node, given one listing of the cloud."""

import msgspec
import pytest

from ccm import cli
from ccm.cloud import Address, AddressType, Instance
from ccm.commands.list_nodes import match, table
from ccm.engine.objects import Node
from ccm.gateway.instance_snapshot import Snapshot

NODE_IP = "alpha.kubernetes.io/provided-node-ip"


def node(name="w1", provider_id="", node_ip=None):
    annotations = {} if node_ip is None else {NODE_IP: node_ip}
    return msgspec.convert(
        {"metadata": {"name": name, "annotations": annotations}, "spec": {"providerID": provider_id}}, Node
    )


def instance(name, address="10.0.0.1", provider_id=""):
    return Instance(provider_id or f"sim://{name}", name, addresses=(Address(AddressType.INTERNAL_IP, address),))


CLOUD = [
    instance("w1"),
    instance("bastion", "10.0.0.9"),
    instance("twin", provider_id="sim://t1"),
    instance("twin", provider_id="sim://t2"),
]


def judge(found, cloud=CLOUD, unusable=""):
    (verdict,) = match([found], Snapshot.of(cloud, 0.0, 1, unusable), lambda text: text.startswith("sim://"))
    return verdict


@pytest.mark.parametrize(
    ("found", "verdict", "reason"),
    [
        (node(), "ok", ""),
        (node(node_ip="10.0.0.1"), "ok", ""),
        (node(provider_id="sim://w1"), "ok", ""),
        (node("renamed", "sim://w1"), "ok", ""),  # nobody else has its name
        (node(provider_id="k3s://w1"), "foreign", "its providerID k3s://w1 is not one of this provider's"),
        (node(provider_id="sim://bastion"), "mismatched", "'bastion', but instance sim://w1 has the Node's name: "),
        (node(provider_id="sim://gone"), "mismatched", "no instance sim://gone"),
        (node(provider_id="SIM://W1"), "foreign", "SIM://W1"),
        (node(node_ip="10.0.0.7"), "mismatched", "--node-ip 10.0.0.7 is not among the addresses that the cloud knows"),
        (node("nobody"), "mismatched", "no instance named 'nobody'"),
        (node("twin"), "mismatched", "2 instances are named 'twin'"),
    ],
)
def test_verdicts(found, verdict, reason):
    said = judge(found)
    assert said.verdict == verdict and reason in said.reason
    assert (said.instance == "sim://w1") == (verdict == "ok")


def test_what_a_listing_cannot_prove_is_unknown():
    assert judge(node(), []).verdict == "unknown"
    assert judge(node("nobody"), unusable="an entry without a name").verdict == "unknown"


def test_the_table_has_a_line_for_each_node():
    lines = table(match([node("w2"), node("w1")], Snapshot.of(CLOUD, 0.0, 1), bool))
    assert lines[0].split() == ["NODE", "VERDICT", "INSTANCE", "REASON"]
    assert lines[1].split() == ["w1", "ok", "sim://w1"]
    assert lines[2].startswith("w2    mismatched  -         the cloud lists no instance named 'w2'")


def test_what_kubelets_write_directs_no_terminal():
    """A kubelet chooses the providerID of its own Node."""
    hostile = node(provider_id="k3s://\x1b[2J\nw2  ok  sim://w1")
    lines = table(match([hostile], Snapshot.of(CLOUD, 0.0, 1), lambda id: False))
    assert len(lines) == 2 and all(line.isprintable() for line in lines)


def test_a_file_that_cannot_be_read_is_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert cli.main(["nodes", "--cloud-provider", "sim"]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
