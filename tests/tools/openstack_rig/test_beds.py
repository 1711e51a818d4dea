# SPDX-License-Identifier: Apache-2.0
"""The OpenStack services (tools/clouds/openstack/rig) as the cloud of a test bed: addresses, the authority that clients
trust, and the files for the gateway.
"""

from __future__ import annotations

import importlib.util
import json
import ssl
import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rig import authority, beds, places
from rig.places import Ports, Record

from bed import plan, prerequisites
from bed.cluster import Bed
from bed.errors import BedError
from ccm_simcloud.forward import Rules

DEMO = plan.make("demo", "v1.36.3", cloud=False)


def test_clients_of_another_address_are_sent_there_with_tls_and_services_stay_on_loopback() -> None:
    ports = Ports(15000, "10.89.77.1")
    assert ports.tls and not Ports(15000).tls
    assert ports.public_url("compute") == "https://10.89.77.1:15005/v2.1"
    assert ports.internal_url("compute") == "http://127.0.0.1:15015/v2.1"


def test_what_a_rig_was_raised_as_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "DATA", tmp_path)
    with pytest.raises(BedError, match="there is no rig: run `make openstack`"):
        places.recorded()
    record = Record(Ports(15100, "10.89.77.1"), "demo")
    record.save()
    assert places.recorded() == record


def test_the_halves_of_a_beds_wire_hold_its_nodes_its_vips_and_its_floating_addresses() -> None:
    nodes, public = beds.networks(DEMO)
    assert not IPv4Network(nodes.cidr).overlaps(IPv4Network(public.cidr))
    assert all(IPv4Network(each.cidr).subnet_of(IPv4Network(DEMO.subnet)) for each in (nodes, public))
    assert (nodes.first, nodes.last) == ("10.89.77.64", "10.89.77.126")
    assert (public.first, public.last) == ("10.89.77.200", "10.89.77.250")
    assert IPv4Address(public.first) in IPv4Network(public.cidr) and IPv4Address(nodes.last) in IPv4Network(nodes.cidr)
    assert nodes.gateway == DEMO.gateway
    assert all(IPv4Address(node.address) < IPv4Address(nodes.first) for node in DEMO.nodes)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({}, "is a simulated cloud: raise the bed with --no-cloud"),
        ({"cloud": False, "workers": 60}, "demo-worker-53.*: nodes have addresses below 10.89.77.64"),
    ],
)
def test_beds_whose_cloud_it_cannot_be_are_refused(
    wanted: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prerequisites, "need_root", lambda doing: None)
    monkeypatch.setattr(Bed, "load", lambda name: SimpleNamespace(plan=plan.make(name, "v1.36.3", **wanted)))
    with pytest.raises(BedError, match=says):
        beds.plan_of("demo")


def test_the_authority_vouches_for_the_address_and_stays_the_same(tmp_path: Path) -> None:
    authority.server(tmp_path / "tls", "10.89.77.1")
    first = (tmp_path / "tls" / "ca.crt").read_text()
    authority.server(tmp_path / "tls", "10.89.77.1")
    assert (tmp_path / "tls" / "ca.crt").read_text() == first
    assert (tmp_path / "tls" / "server.pem").stat().st_mode & 0o777 == 0o600
    server, client = handshake(authority.server(tmp_path / "tls", "10.89.77.1"), first, "10.89.77.1")
    assert server.version() == client.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        handshake(authority.server(tmp_path / "tls", "10.89.77.1"), first, "10.89.77.2")


def handshake(context: ssl.SSLContext, trusted: str, address: str) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Do a TLS handshake in memory, and return both ends. Raises SSLError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(there, back, server_side=True)
    client = ssl.create_default_context(cadata=trusted).wrap_bio(back, there, server_hostname=address)
    waiting = [client, server]
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
    return server, client


@pytest.fixture(scope="module")
def fabric() -> ModuleType:
    """Import gateway/fabric.py, which is not part of a package because it runs alone in a container."""
    spec = importlib.util.spec_from_file_location("rig_fabric", places.RIG / "gateway" / "fabric.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BALANCER = {
    "address": "10.89.77.70",
    "ports": [
        {
            "protocol": "TCP",
            "port": 80,
            "members": [["10.89.77.12", 30080], ["10.89.77.13", 30080]],
            "allowed": ["10.0.0.0/8"],
            "sticky": True,
            "health_port": 31000,
        }
    ],
}


def test_a_floating_address_forwards_as_its_vip(fabric: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "balancer-1.json").write_text(json.dumps(BALANCER))
    network = {
        "routes": {"10.244.1.0/24": "10.89.77.12"},
        "floating": {"10.89.77.201": "10.89.77.70", "10.89.77.202": "10.89.77.12"},
    }
    (tmp_path / "network.json").write_text(json.dumps(network))
    (tmp_path / "network.half").write_text("{")  # a file that is still being written
    wanted = fabric.wanted(tmp_path)
    assert wanted.routes == network["routes"]
    assert wanted.addresses == {"10.89.77.70", "10.89.77.201"}, "a server's own floating address is not served"
    rules = Rules((("10.89.77.12", 30080), ("10.89.77.13", 30080)), ("10.0.0.0/8",), True, 31000)
    assert wanted.ports == {("TCP", address, 80): rules for address in wanted.addresses}


def test_nothing_is_wanted_before_the_drivers_wrote_anything(fabric: ModuleType, tmp_path: Path) -> None:
    wanted = fabric.wanted(tmp_path)
    assert (wanted.routes, wanted.addresses, wanted.ports) == ({}, frozenset(), {})
