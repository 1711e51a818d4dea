# SPDX-License-Identifier: Apache-2.0
"""Providers forget deleted machines, ports and load balancers, however many come and go."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ccm.cloud import Page
from ccm.cloud.toolkit import shared_reads
from ccm.providers.hetzner.load_balancer_steps import Change
from ccm.providers.hetzner.load_balancers import HetznerLoadBalancers
from ccm.providers.openstack import routes as openstack_routes
from ccm.providers.openstack.load_balancers import desired_states, security_groups
from ccm.providers.openstack.load_balancers import load_balancers as octavia
from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark
from ccm.providers.openstack.load_balancers.memory import Memory
from ccm.providers.openstack.load_balancers.security_groups import SecurityGroups
from ccm.providers.openstack.routes import OpenStackRoutes
from ccm.providers.openstack.settings_sections import LoadBalancerSection
from ccm.providers.vsphere.api import Inventory

from .hetzner.wants import row, spec
from .openstack import test_shared_balancers as shared_balancers
from .openstack.fake_cloud import running
from .openstack.octavia_in_memory import FakeOpenStack


class _Machine:
    _wsdlName = "VirtualMachine"

    def __init__(self, number: int) -> None:
        self._moId = f"vm-{number}"


def virtual_machine(number: int, *, has_uuid: bool = True) -> Any:
    uuid = [SimpleNamespace(name="summary.config.uuid", val=f"UUID-{number}")]
    return SimpleNamespace(obj=_Machine(number), propSet=uuid if has_uuid else [])


class Listings(Inventory):
    """The inventory of a vCenter with the machines in `rows`."""

    def __init__(self) -> None:
        session = SimpleNamespace(run=lambda work: work(None), vcenter=SimpleNamespace(name="vc", families=("ipv4",)))
        super().__init__(session, None, 100)  # type: ignore[arg-type]
        self.rows: Sequence[Any] = ()

    def _listed(self, live: Any) -> list[Any]:
        return list(self.rows)


def test_uuids_of_machines_of_a_vcenter_go_with_them_and_those_that_are_hidden_stay() -> None:
    inventory = Listings()
    for generation in range(20):
        inventory.rows = [virtual_machine(generation * 100 + each) for each in range(100)]
        inventory.with_reference(f"vm-{generation * 100}")
        assert len(inventory.all().machines) == 100
        assert len(inventory._uuids) == 100
    inventory.rows = [virtual_machine(1900, has_uuid=False)]
    for _ in range(3):
        assert [machine.uuid for machine in inventory.all().machines] == ["uuid-1900"]
    assert len(inventory._uuids) == 1


async def test_deleted_servers_are_forgotten_with_their_last_port() -> None:
    async with running() as (cloud, provider):
        for _ in range(5):
            cloud.ports.clear()
            for number in range(3):
                cloud.add_port(f"00000000-0000-0000-0000-00000000000{number}", f"10.0.0.{number}")
            await listed(provider)
            assert len(provider.instances._deleted) == 3
        cloud.ports.clear()
        await listed(provider)
        assert not provider.instances._deleted


async def listed(provider: Any) -> None:
    page = Page([], "")
    token = None
    while page.next is not None:
        page = await provider.instances.list_page(token)
        token = page.next


class Neutron:
    async def extensions(self) -> frozenset[str]:
        return frozenset()

    async def call(self, method: str, service: str, path: str, *, body: Any, **more: Any) -> Any:
        return {"port": {"id": path, "binding:profile": "x" * 1000, "revision_number": 8, **body["port"]}}


async def test_ports_of_nodes_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_groups, "REMEMBERED_PORTS", 50)
    groups = SecurityGroups(Neutron())  # type: ignore[arg-type]
    for number in range(500):
        await groups._change({"id": f"port-{number}", "revision_number": 7, "security_groups": ["a"]}, add="sg")
    assert len(groups._known) == 50
    assert groups._known.get("port-499") == {"security_groups": ["a", "sg"], "revision_number": 8}


class Subnets:
    """Neutron with every possible subnet and no port. `reads`: number of reads of subnets."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(route=SimpleNamespace(router_id="r"))
        self.reads = 0

    async def call(self, method: str, service: str, path: str, **more: Any) -> Any:
        self.reads += 1
        return {"subnet": {"cidr": path.rpartition("/")[2]}}

    async def pages(self, service: str, path: str, key: str, query: Any) -> list[dict[str, Any]]:
        if key == "ports":
            return []
        self.reads += 1
        return [{"id": value, "cidr": value} for name, value in query if name == "id"]


async def test_subnets_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes subnets that exist only in a user's annotation, which may have any text."""
    monkeypatch.setattr(shared_reads, "GATHER", 0.0)
    for module in (security_groups, openstack_routes):
        monkeypatch.setattr(module, "REMEMBERED_SUBNETS", 10)
    neutron: Any = Subnets()
    groups, routes = SecurityGroups(neutron), OpenStackRoutes(neutron)
    for number in range(200):
        ports = [{"fixed_ips": [{"subnet_id": f"s{number}"}, {"subnet_id": f"t{number}"}]}]
        for _ in range(2):
            assert await groups.cidr(f"s{number}") == f"s{number}"
            assert await routes._subnets(ports) == [f"s{number}", f"t{number}"]
        assert await groups._port_changes("sg", (), f"s{number}") == ([], [])
    assert neutron.reads == 400  # no read is repeated
    assert len(groups._cidrs) == len(routes._cidrs) == len(groups._ports) == 10


async def test_more_subnets_than_are_remembered_are_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openstack_routes, "REMEMBERED_SUBNETS", 2)
    routes = OpenStackRoutes(Subnets())  # type: ignore[arg-type]
    ids = [f"s{number}" for number in range(5)]
    assert await routes._subnets([{"fixed_ips": [{"subnet_id": id} for id in ids]}]) == ids


def test_load_balancers_that_others_deleted_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (octavia, desired_states):
        monkeypatch.setattr(module, "REMEMBERED", 10)
    balancers = shared_balancers.provider(FakeOpenStack(LoadBalancerSection()))
    for number in range(200):
        wanted = shared_balancers.service(f"s{number}", "web")
        mark = Mark.of(wanted, balancers.fingerprint(wanted, ()), "")
        row = {"id": f"lb{number}", "name": "lb", "provisioning_status": "ACTIVE", "vip_address": "192.0.2.1"}
        balancers._memory.obtain((wanted.cluster, mark.uid), Memory).listed(row, mark, {})
    assert len(balancers._memory) == len(balancers._desired._known) == 10


class Project:
    """A project at Hetzner, from which others may delete load balancers."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(variables=None)
        self.present: list[Any] = []

    async def rows(self, path: str, key: str) -> list[Any]:
        return self.present

    async def call(self, method: str, path: str, **more: Any) -> Any:
        return {}


async def test_load_balancers_of_hetzner_that_are_deleted_are_forgotten() -> None:
    project = Project()
    balancers = HetznerLoadBalancers(project)  # type: ignore[arg-type]
    for number in range(5):
        project.present = [row(id=number, labels={"hcloud-ccm/service-uid": "1-2-3-4"}, protection={"delete": False})]
        balancers._failed[number] = balancers._settled[number] = 1
        balancers._done[number] = (Change("x", {}, "y"), 1)
        await balancers.delete(spec())
    assert not balancers._failed and not balancers._settled and not balancers._done
