# SPDX-License-Identifier: Apache-2.0
"""Which addresses a Node gets: the same as with cloud-provider-vsphere."""

from __future__ import annotations

import base64
import gzip
import ipaddress

import pytest

from ccm.providers.vsphere.address_rules import LARGEST_METADATA, Nic, choose, static_addresses, usable
from ccm.providers.vsphere.settings_sections import Nodes

TWO = (Nic("inside", 4000, ("10.0.0.5", "fd00::5", "fe80::5")), Nic("outside", 4001, ("203.0.113.5", "2001:db8::5")))


def nets(*texts):
    return tuple(map(ipaddress.ip_network, texts))


def chosen(nics=TWO, families=("ipv4",), metadata="", encoding="", **nodes):
    found = choose(nics, families, Nodes(**nodes), metadata, encoding)
    return [(each.type.value, each.address) for each in found.addresses] or found.problem


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({}, ["Internal 10.0.0.5", "External 10.0.0.5"]),
        ({"internal_network_subnet_cidr": nets("203.0.113.0/24")}, ["Internal 203.0.113.5"]),
        ({"external_network_subnet_cidr": nets("203.0.113.0/24")}, ["External 203.0.113.5"]),
        (
            {
                "internal_network_subnet_cidr": nets("192.0.2.0/24", "10.0.0.0/8"),
                "external_network_subnet_cidr": nets("203.0.113.0/24"),
            },
            ["Internal 10.0.0.5", "External 203.0.113.5"],
        ),
        (
            {"internal_vm_network_name": "OUTSIDE", "external_vm_network_name": "inside"},
            ["Internal 203.0.113.5", "External 10.0.0.5"],
        ),
        (
            {"internal_network_subnet_cidr": nets("10.0.0.0/8"), "internal_vm_network_name": "outside"},
            ["Internal 10.0.0.5"],
        ),
        (
            {"exclude_internal_network_subnet_cidr": nets("10.0.0.0/8")},
            ["Internal 203.0.113.5", "External 10.0.0.5"],
        ),
        (
            {
                "exclude_internal_network_subnet_cidr": nets("10.0.0.0/8"),
                "internal_network_subnet_cidr": nets("10.0.0.0/8"),
            },
            ["Internal 203.0.113.5", "External 10.0.0.5"],
        ),
        (
            {"exclude_external_network_subnet_cidr": nets("10.0.0.0/8", "203.0.113.0/24")},
            ["Internal 10.0.0.5"],
        ),
    ],
)
def test_networks_then_port_groups_then_the_first(nodes, expected):
    pairs = [each.split() for each in expected]
    assert chosen(**nodes) == [(f"{kind}IP", address) for kind, address in pairs]


def test_families_in_their_order():
    both = [
        ("InternalIP", "fd00::5"),
        ("ExternalIP", "fd00::5"),
        ("InternalIP", "10.0.0.5"),
        ("ExternalIP", "10.0.0.5"),
    ]
    assert chosen(families=("ipv6", "ipv4")) == both
    assert chosen(families=("ipv6",)) == both[:2]


@pytest.mark.parametrize(
    ("nics", "families", "nodes", "problem"),
    [
        ((), ("ipv4",), {}, "no network interface"),
        ((Nic("x", -1, ("10.0.0.1",)),), ("ipv4",), {}, "no network interface"),
        ((Nic("x", 1, ("fe80::1", "127.0.0.1")),), ("ipv4",), {}, "no IP address"),
        ((Nic("x", 1, ("fd00::1",)),), ("ipv4",), {}, "no ipv4 address"),
        ((Nic("x", 1, ("10.0.0.1",)),), ("ipv4", "ipv6"), {}, "no ipv6 address"),
        (TWO, ("ipv4",), {"internal_vm_network_name": "a", "external_vm_network_name": "b"}, "is in 'a' or 'b'"),
    ],
)
def test_a_machine_without_usable_addresses(nics, families, nodes, problem):
    assert problem in chosen(nics, families, **nodes)


LOCAL = ["0.0.0.0", "127.0.0.9", "169.254.1.1", "224.0.0.251", "::", "::1", "fe80::1", "fe80::1%eth0", "ff02::1"]


@pytest.mark.parametrize("text", ["", "x", "010.0.0.1", "fd00::1%eth0", *LOCAL])
def test_what_only_the_machine_can_reach(text):
    assert usable(text) is None


@pytest.mark.parametrize("text", ["10.0.0.1", "172.17.0.1", "2001:db8::1", "ff05::1", "224.0.1.1"])
def test_what_others_can_reach(text):
    assert str(usable(text)) == text


def test_a_mapped_address_is_ipv4():
    assert usable("::ffff:10.0.0.1") == ipaddress.ip_address("10.0.0.1")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ETHERNETS = "ethernets:\n  a: {addresses: [203.0.113.5/24]}\n  b: {addresses: [10.0.0.5/8]}\n"
PLAIN = "network:\n  version: 2\n" + "".join(f"  {line}\n" for line in ETHERNETS.splitlines())
GZIPPED = base64.b64encode(gzip.compress(ETHERNETS.encode())).decode()


@pytest.mark.parametrize(
    "metadata",
    [
        PLAIN,
        f"network: {encoded(ETHERNETS)}\nnetwork.encoding: base64\n",
        f"network: {GZIPPED}\nnetwork.encoding: gzip+base64\n",
        f"network: {GZIPPED}\nnetwork.encoding: gz+b64\n",
    ],
    ids=["plain", "base64", "gzip", "gz"],
)
def test_addresses_of_cloud_init_come_first(metadata):
    expected = [("InternalIP", "203.0.113.5"), ("ExternalIP", "203.0.113.5")]
    assert chosen(metadata=encoded(metadata), encoding="base64") == expected
    assert chosen(metadata=encoded(metadata), encoding="") == chosen()


def test_those_of_cloud_init_keep_its_order_and_others_follow():
    nics = (Nic("x", 1, ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")),)
    metadata = encoded("network: {ethernets: {a: {addresses: [10.0.0.4/24, 10.0.0.3/24]}}}")
    options = {"exclude_external_network_subnet_cidr": nets("10.0.0.4/32"), "encoding": "base64", "metadata": metadata}
    assert chosen(nics, **options) == [("InternalIP", "10.0.0.4"), ("ExternalIP", "10.0.0.3")]
    options["exclude_external_network_subnet_cidr"] = nets("10.0.0.3/32", "10.0.0.4/32")
    assert chosen(nics, **options) == [("InternalIP", "10.0.0.4"), ("ExternalIP", "10.0.0.1")]


@pytest.mark.parametrize(
    "metadata",
    [
        "%%%",
        encoded("a: ["),
        encoded("- a"),
        encoded("network: '%%'\nnetwork.encoding: base64"),
        encoded(f"network: {encoded('no gzip')}\nnetwork.encoding: gzip+base64"),
    ],
)
def test_unreadable_metadata_is_a_warning(metadata):
    found = choose(TWO, ("ipv4",), Nodes(), metadata, "base64")
    assert [each.address for each in found.addresses] == ["10.0.0.5", "10.0.0.5"]
    assert len(found.warnings) == 1 and "guestinfo.metadata" in found.warnings[0]


@pytest.mark.parametrize("network", ["1", "{ethernets: 1}", "{ethernets: {a: 1}}", "{ethernets: {a: {addresses: 1}}}"])
def test_metadata_without_addresses(network):
    assert static_addresses(encoded(f"network: {network}"), "base64") == ([], "")


def test_metadata_that_are_too_large_are_refused_and_not_cut() -> None:
    """The document is valid up to the limit, because only a comment makes it too large."""
    whole = ETHERNETS + "# " + "a" * LARGEST_METADATA + "\n"
    text = f"network: {base64.b64encode(gzip.compress(whole.encode())).decode()}\nnetwork.encoding: gzip+base64"
    addresses, problem = static_addresses(encoded(text), "base64")
    assert addresses == [] and "cannot be read" in problem


def test_compressed_metadata_is_read_up_to_a_limit():
    bomb = gzip.compress(b"a" * (LARGEST_METADATA * 4))
    text = f"network: {base64.b64encode(bomb).decode()}\nnetwork.encoding: gzip+base64"
    assert static_addresses(encoded(text), "base64")[0] == []
