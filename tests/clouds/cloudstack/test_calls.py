# SPDX-License-Identifier: Apache-2.0
"""Tests how many calls the provider needs, what a failed call leaves, and which address a Service gets."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest

from ccm.cloud import Backends, CloudError, Conflict, InstanceRef, Invalid, Port, QuotaExceeded
from ccm.cloud.toolkit import shared_reads

from .face import Fault, Fields
from .services import deleted, nodes, patiently, service, settled
from .world import cloudstack

READS = ("list", "query")


def writes(calls: list[str]) -> Counter[str]:
    return Counter(each for each in calls if not each.startswith(READS))


async def test_nodes_take_one_call_for_a_page() -> None:
    async with cloudstack(5, page=3) as (face, cloud):
        before = len(face.exchanges)
        first = await cloud.instances.list_page(None)
        second = await cloud.instances.list_page(first.next)
        assert [len(first.instances), len(second.instances), second.next, second.total] == [3, 2, None, 5]
        assert face.calls(before) == ["listVirtualMachines"] * 2
        await cloud.instances.get(InstanceRef("worker-0", first.instances[0].provider_id))
        assert len(face.calls(before)) == 3


async def test_what_a_service_of_two_ports_and_five_nodes_writes() -> None:
    """A Service needs one job for each part. Until the first rule exists, a tag names the owner of the address."""
    async with cloudstack() as (face, cloud):
        backends, spec, before = await nodes(cloud), service(), len(face.exchanges)
        found = await settled(cloud, spec, backends)
        assert writes(face.calls(before)) == {
            "createTags": 1,
            "associateIpAddress": 1,
            "createLoadBalancerRule": 2,
            "createFirewallRule": 2,
            "assignToLoadBalancerRule": 2,
            "updateLoadBalancerRule": 1,
            "deleteTags": 1,
        }
        rules = sorted(face.region.rules.values(), key=lambda each: int(each["publicport"]))
        assert [each["name"] for each in rules] == [f"{spec.default_name}-tcp-{port}" for port in (80, 443)]
        assert [(each["publicport"], each["privateport"]) for each in rules] == [("80", "30080"), ("443", "30443")]
        assert {each["algorithm"] for each in rules} == {"roundrobin"}
        assert all(set(face.region.assigned[each["id"]]) == set(face.region.machines) for each in rules)
        assert found.ingress[0].ip == rules[0]["publicip"] and found.ingress[0].ip_mode == "VIP"
        assert not any(face.region.tags.values())
        (listed,) = await cloud.load_balancers.list(spec.cluster)
        assert listed.fingerprint == cloud.load_balancers.fingerprint(spec, backends)


async def test_an_unchanged_service_writes_nothing() -> None:
    async with cloudstack() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        before = len(face.exchanges)
        assert (await cloud.load_balancers.ensure(spec, backends)).ready
        assert await cloud.load_balancers.deviations(spec, backends) == []
        assert not writes(face.calls(before))


async def test_services_share_the_listings() -> None:
    async with cloudstack() as (face, cloud):
        backends, specs = await nodes(cloud), [service() for _ in range(4)]
        for spec in specs:
            await settled(cloud, spec, backends)
        before = len(face.exchanges)
        await asyncio.gather(*(cloud.load_balancers.ensure(spec, backends) for spec in specs))
        calls = Counter(face.calls(before))
        assert (calls["listLoadBalancerRules"], calls["listVirtualMachines"]) == (1, 1)


async def test_a_node_that_leaves_takes_one_job_for_each_rule_and_one_for_the_mark() -> None:
    async with cloudstack() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        left, before = Backends(backends[1:]), len(face.exchanges)
        await patiently(cloud.load_balancers.update_backends, spec, left)
        assert writes(face.calls(before)) == {"removeFromLoadBalancerRule": 2, "updateLoadBalancerRule": 1}
        face.region.tick(all_=True)
        (listed,) = await cloud.load_balancers.list(spec.cluster)
        assert listed.fingerprint == cloud.load_balancers.fingerprint(spec, left)


async def test_a_delete_is_one_job() -> None:
    """One job releases the address, and the cloud then deletes all its rules."""
    async with cloudstack() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        before = len(face.exchanges)
        await deleted(cloud, spec)
        assert writes(face.calls(before)) == {"disassociateIpAddress": 1}
        assert face.region.parts() == frozenset()


#: Changes of a Service. Each one needs different kinds of calls.
MOVED = (Port("p", "TCP", 80, 31080), Port("q", "TCP", 443, 31443))
CHANGES = {
    "port": {"ports": (Port("p", "TCP", 81, 30081), Port("q", "TCP", 443, 30443))},
    "node port": {"ports": MOVED},
    "affinity": {"session_affinity": "ClientIP"},
    "ranges": {"source_ranges": ("198.51.100.0/24",)},
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_keeps_the_address(change: str) -> None:
    async with cloudstack() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        before = await settled(cloud, spec, backends)
        changed = dataclasses.replace(spec, **CHANGES[change])
        after = await settled(cloud, changed, backends)
        assert after.ingress == before.ingress
        rules = {(int(each["publicport"]), int(each["privateport"])) for each in face.region.rules.values()}
        assert rules == {(port.port, port.node_port) for port in changed.ports}
        assert {each["startport"] for each in face.region.firewall.values()} == {port.port for port in changed.ports}
        admitted = {each["cidrlist"] for each in face.region.firewall.values()}
        assert admitted == {",".join(changed.source_ranges) or "0.0.0.0/0"}
        assert await cloud.load_balancers.deviations(changed, backends) == []
        await deleted(cloud, changed)
        assert face.region.parts() == frozenset()


class Nth(Fault):
    """Fails the call with this number, once."""

    def __init__(self, at: int, kind: str, late: bool) -> None:
        super().__init__(kind, late=late)
        self._left = at

    def concerns(self, fields: Fields) -> bool:
        if self.kind == "fail" and fields["command"].startswith(READS):
            return False
        self._left -= 1
        return self._left == -1


#: How a call fails: before its effect, after it, or in its job.
WAYS = {"before": ("status", False), "after": ("status", True), "in its job": ("fail", False)}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reads start at once. Usually, a read waits a moment, so that other callers can share it."""
    monkeypatch.setattr(shared_reads, "GATHER", 0.0)


async def _number_of_calls(way: str) -> int:
    async with cloudstack(2) as (face, cloud):
        backends, spec = await nodes(cloud), service()
        before = len(face.exchanges)
        await settled(cloud, spec, backends)
        moved = dataclasses.replace(spec, ports=MOVED)
        await settled(cloud, moved, backends)
        await deleted(cloud, moved)
        calls = face.calls(before)
        return len(calls) if way != "in its job" else sum(writes(calls).values())


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_left_behind_after_any_call_failed(way: str, at_once: None) -> None:
    """A Service is created, changed so that its rules are created again, and deleted. Each call fails once."""
    number = await _number_of_calls(way)
    assert number >= 17
    for at in range(number):
        async with cloudstack(2, job_seconds=0.0) as (face, cloud):
            backends, spec = await nodes(cloud), service()
            moved = dataclasses.replace(spec, ports=MOVED)
            with face.fault(Nth(at, *WAYS[way])):
                for wanted in (spec, moved):
                    try:
                        await settled(cloud, wanted, backends)
                    except CloudError:
                        await settled(cloud, wanted, backends)
                assert {each["privateport"] for each in face.region.rules.values()} == {"31080", "31443"}
                assert {each["state"] for each in face.region.rules.values()} == {"Active"}
                try:
                    await deleted(cloud, moved)
                except CloudError:
                    await deleted(cloud, moved)
            assert face.region.parts() == frozenset(), f"call {at} failed {way}"


@pytest.mark.parametrize("way", WAYS)
async def test_a_service_that_goes_while_it_is_created_leaves_nothing_behind(way: str, at_once: None) -> None:
    """Each call of the creation fails once. The creation is not tried again. A new process deletes the Service."""
    number = await _number_of_calls(way)
    for at in range(number):
        async with cloudstack(2, job_seconds=0.0) as (face, cloud):
            backends, spec = await nodes(cloud), service()
            with face.fault(Nth(at, *WAYS[way])):
                try:
                    await settled(cloud, spec, backends)
                except CloudError:
                    pass
                else:
                    break
            face.region.tick(all_=True)
            restarted = type(cloud)(cloud.config)
            await restarted.start()
            try:
                await deleted(restarted, spec)
            finally:
                await restarted.close()
            assert face.region.parts() == frozenset(), f"call {at} failed {way}"


async def test_no_free_address_is_reported() -> None:
    async with cloudstack() as (face, cloud):
        for each in face.region.addresses.values():
            each["state"] = "Allocated"
        with pytest.raises(QuotaExceeded, match="no free public address"):
            await settled(cloud, service(), await nodes(cloud))


async def test_an_address_that_somebody_else_takes_first_is_given_up() -> None:
    async with cloudstack() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        fault = Fault("status", "associateIpAddress", code=533, text="somebody else has it", times=1)
        with face.fault(fault), pytest.raises(QuotaExceeded):
            await settled(cloud, spec, backends)
        await settled(cloud, spec, backends)
        await deleted(cloud, spec)
        assert face.region.parts() == frozenset()


async def test_a_requested_address() -> None:
    """A free address is associated, and released with the Service. An address that a person associated stays."""
    async with cloudstack() as (face, cloud):
        backends, network = await nodes(cloud), next(iter(face.region.networks.values()))
        free = service(load_balancer_ip="203.0.113.12")
        assert (await settled(cloud, free, backends)).ingress[0].ip == "203.0.113.12"
        await deleted(cloud, free)
        assert face.region.parts() == frozenset()
        face.region.add_address("203.0.113.99", network)
        theirs = service(load_balancer_ip="203.0.113.99")
        assert (await settled(cloud, theirs, backends)).ingress[0].ip == "203.0.113.99"
        await deleted(cloud, theirs)
        assert face.region.parts() == {"address 203.0.113.99"}


async def test_an_address_that_is_in_use_is_refused() -> None:
    async with cloudstack() as (face, cloud):
        backends, network = await nodes(cloud), next(iter(face.region.networks.values()))
        other = face.region.add_network()
        face.region.add_address("203.0.113.90", network, issourcenat=True)
        face.region.add_address("203.0.113.91", network, isstaticnat=True)
        face.region.add_address("203.0.113.92", other)
        for number in (90, 91, 92):
            with pytest.raises(Conflict):
                await settled(cloud, service(load_balancer_ip=f"203.0.113.{number}"), backends)
        with pytest.raises(Invalid, match=r"the cloud has no public address 198\.51\.100\.1"):
            await settled(cloud, service(load_balancer_ip="198.51.100.1"), backends)
        assert len(face.region.rules) == 0 and not any(face.region.tags.values())


async def test_the_address_of_a_load_balancer_cannot_be_changed() -> None:
    async with cloudstack() as (_, cloud):
        backends, spec = await nodes(cloud), service()
        made = await settled(cloud, spec, backends)
        other = "203.0.113.20" if made.ingress[0].ip != "203.0.113.20" else "203.0.113.21"
        with pytest.raises(Invalid, match="cannot be changed"):
            await settled(cloud, dataclasses.replace(spec, load_balancer_ip=other), backends)


async def test_a_rule_of_a_person_keeps_the_address() -> None:
    """The Service's rules are deleted, but the address stays, because it has a rule of somebody else."""
    async with cloudstack() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        own = next(iter(face.region.rules.values()))
        kept = {"publicipid": own["publicipid"], "networkid": own["networkid"], "name": "by-hand", "protocol": "tcp"}
        face.region.create_rule(kept | {"publicport": "8080", "privateport": "80", "algorithm": "source"})
        await deleted(cloud, spec)
        assert [each["name"] for each in face.region.rules.values()] == ["by-hand"]
        assert {each["state"] for each in face.region.addresses.values()} == {"Free", "Allocated"}
        assert not face.region.firewall


async def test_in_a_vpc_the_rules_admit_clients_and_a_warning_names_the_list() -> None:
    async with cloudstack(services=("Lb", "NetworkACL")) as (face, cloud):
        backends, spec = await nodes(cloud), service(source_ranges=("198.51.100.0/24",))
        await settled(cloud, spec, backends)
        found = await cloud.load_balancers.ensure(spec, backends)
        assert {each["cidrlist"] for each in face.region.rules.values()} == {"198.51.100.0/24"}
        assert not face.region.firewall and "access control list" in found.warnings[0]
        differs = service(source_ranges=("198.51.100.0/24",), annotations={"source-cidrs": "10.0.0.0/8"})
        with pytest.raises(Invalid, match="the network has no firewall"):
            await settled(cloud, differs, backends)


async def test_nodes_of_another_network_are_named() -> None:
    async with cloudstack(2) as (face, cloud):
        face.region.add_machine("worker-9", face.region.add_network())
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        found = await cloud.load_balancers.ensure(spec, backends)
        assert found.warnings[0].startswith("no traffic reaches 1 of 3 nodes")
        assert {len(each) for each in face.region.assigned.values()} == {2}
