# SPDX-License-Identifier: Apache-2.0
"""Whatever tenants do, no two Services share an address, and no victim loses an address that stays in the pool.

The tests use the service controller and the provider `static`, with restarts, reloads and failures at any moment.
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.cloud import Backends, Cloud, LoadBalancer, LoadBalancerSpec, ProviderConfig
from ccm.engine.api_errors import UnavailableError
from ccm.gateway.gateway import Gateway
from ccm.providers.static import StaticCloud

from ..gateway.virtual import in_virtual_time, now
from .services_harness import FINALIZER, Cluster, until

pytestmark = pytest.mark.threat("tenant-own-load-balancers-only")

#: Addresses that are always in the pool, and some that come and go with its configuration.
ALWAYS, SOMETIMES = ("192.0.2.1-192.0.2.5", "192.0.2.6-192.0.2.9")
STAYING = {f"192.0.2.{number}" for number in range(1, 6)}
ANY = [f"192.0.2.{number}" for number in range(1, 11)]
WHAT = [*["victim"] * 3, *["thief"] * 4, *["delete"] * 2, "again", "type", "desired", "port", "node", *["restart"] * 2]
#: Longer than the longest back-off, in seconds.
LONG = 700.0


def static(*pool: str) -> StaticCloud:
    machines = "machines:\n- {name: n0, addresses: [10.0.0.1]}\n"
    return StaticCloud(ProviderConfig(f"cluster: c\n{machines}load_balancer_addresses: [{', '.join(pool)}]\n"))


class Town(Cluster):
    """A cluster of victims, who never change their Services, and thieves, who change theirs at will."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance, self.made, self.troubled = chance, 0, True
        self.victims: set[str] = set()
        self.api.fault = lambda path, patch: (
            UnavailableError(503, "", "no etcd leader") if self.troubled and chance.random() < 0.1 else None
        )
        self._put, self.api.put = self.api.put, self._looked_at  # type: ignore[method-assign]

    async def __aenter__(self) -> Town:
        self._tasks = []
        self.gateway = Gateway(static(ALWAYS, SOMETIMES), clock=now)
        self.add_node("n0", provider_id="static://c/n0")
        return self

    async def restart(self) -> None:
        """Let another process lead, which knows only what the API server shows."""
        await self.stop()
        await self.gateway.close()
        self.gateway = Gateway(static(ALWAYS, SOMETIMES), clock=now)
        self.serve(workers=self.chance.choice([1, 5]))

    def _looked_at(self, kind: str, document: dict[str, Any]) -> dict[str, Any]:
        """Store an object. Fails if two Services then share an address or a victim has lost one of STAYING."""
        meta = document["metadata"]
        before = self.api.objects["services"].get(f"{meta.get('namespace')}/{meta['name']}")
        after = self._put(kind, document)
        if kind == "services":
            held = [address for each in self.services() for address in addresses(each)]
            assert len(held) == len(set(held)), f"two Services have one address: {sorted(held)}"
            if before is not None and meta["uid"] in self.victims and not meta.get("deletionTimestamp"):
                lost = set(addresses(before)) - set(addresses(after))
                assert not lost & STAYING, f"{meta['name']} lost {lost}"
        return after

    def services(self) -> list[dict[str, Any]]:
        return list(self.api.objects["services"].values())

    def add(self, name: str, *, victim: bool, **spec: Any) -> None:
        self.made += 1
        uid = f"uid-{self.made}"
        if victim:
            self.victims.add(uid)
        finalizer = not victim and self.chance.random() < 0.5  # with a finalizer, a Service is handled sooner
        self.add_service(name, uid=uid, finalizer=finalizer, **spec)

    def wanted(self) -> str:
        """Return an address for a thief to ask for, preferably one that is in use."""
        held = [address for each in self.services() for address in addresses(each)]
        return self.chance.choice(held or ANY) if self.chance.random() < 0.8 else self.chance.choice(ANY)

    async def step(self) -> None:
        what, chance = self.chance.choice(WHAT), self.chance
        there = [each for each in self.services() if not each["metadata"].get("deletionTimestamp")]
        thieves = [each for each in there if each["metadata"]["uid"] not in self.victims]
        if what == "restart":
            await self.restart()
        elif what == "node":  # a reload, then a change of Nodes, so that every load balancer is written
            await self.gateway.replace(static(*chance.choice([(ALWAYS,), (ALWAYS, SOMETIMES)])))
            labels = {"node.kubernetes.io/exclude-from-external-load-balancers": chance.choice(["", None])}
            self.api.change("nodes", "n0", {"metadata": {"labels": labels}})
        elif what == "victim" or not there:
            self.add(f"v{self.made}", victim=True)
        elif what == "thief" or not thieves:
            self.add(f"t{self.made}", victim=False, loadBalancerIP=self.wanted())
        elif what in ("delete", "again"):
            service = chance.choice(there)
            name = service["metadata"]["name"]
            self.api.delete_service(name)
            if what == "again" and f"shop/{name}" not in self.api.objects["services"]:
                self.add(name, victim=False, loadBalancerIP=self.wanted())
        else:
            self.steal(what, chance.choice(thieves))

    def steal(self, what: str, service: dict[str, Any]) -> None:
        patch: dict[str, Any] = {"spec": {"loadBalancerIP": self.chance.choice([self.wanted(), None])}}
        if what == "type":
            patch = {"spec": {"type": self.chance.choice(["ClusterIP", "LoadBalancer"])}}
            if patch["spec"]["type"] == "ClusterIP":  # as the API server does: test_static_addresses.py
                patch["status"] = {"loadBalancer": {"ingress": None}}
        elif what == "port":
            patch = {"spec": {"ports": [{**service["spec"]["ports"][0], "port": self.chance.choice([80, 81])}]}}
        self.api.change("services", f"shop/{service['metadata']['name']}", patch)

    def check(self) -> None:
        """Check that each Service has an address, unless it asks for a used or foreign one or all are in use."""
        there = [each for each in self.services() if each["spec"]["type"] == "LoadBalancer"]
        assert all(each["metadata"]["finalizers"] == [FINALIZER] for each in there)
        held = {address for each in there for address in addresses(each)}
        for service in there:
            name, wanted = service["metadata"]["name"], service["spec"].get("loadBalancerIP")
            if addresses(service):
                continue
            told = self.api.told("SyncLoadBalancerFailed", name)
            assert told, f"{name} has no address, and no Event says why"
            refused = wanted in held or wanted not in STAYING if wanted else held >= STAYING
            assert refused, (name, wanted, held, told)
        for event in self.api.events:
            others = [each["metadata"]["name"] for each in there]
            others = [f"shop/{name}" for name in others if name != event["involvedObject"]["name"]]
            assert not set(others) & set(re.findall(r"shop/\w+", event["message"])), event


def addresses(service: dict[str, Any]) -> list[str]:
    return [entry["ip"] for entry in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()]


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60))
def test_no_address_is_anybody_elses(seed: int, steps: int) -> None:
    @in_virtual_time
    async def run() -> None:
        chance = random.Random(seed)
        async with Town(chance) as town:
            town.serve()
            for _ in range(steps):
                await town.step()
                await asyncio.sleep(chance.choice([0.0, 0.005, 0.015, 0.025, 0.05, 1.0, 10.0]))
            town.troubled = False
            await asyncio.sleep(LONG)
            town.check()
            await town.restart()
            await asyncio.sleep(LONG)
            town.check()

    run()


def slow_for(name: str, cloud: Cloud) -> Cloud:
    """Let others go first when the load balancer of this Service is written."""
    assert cloud.load_balancers is not None
    ensure = cloud.load_balancers.ensure

    async def slow(spec: LoadBalancerSpec, backends: Backends) -> LoadBalancer:
        await asyncio.sleep(5 if spec.name == name else 0)
        return await ensure(spec, backends)

    cloud.load_balancers.ensure = slow  # type: ignore[method-assign]
    return cloud


@in_virtual_time
async def test_an_address_that_no_status_shows_yet_is_held_through_a_change_of_the_configuration() -> None:
    async with Town(random.Random(1)) as town:
        await town.gateway.replace(static("192.0.2.1"))
        town.api.fault = lambda path, patch: (
            UnavailableError(503, "", "no etcd leader") if patch.get("status", {}).get("loadBalancer") else None
        )
        town.serve()
        town.add("victim", victim=True)
        await until(lambda: town.api.told("SyncLoadBalancerFailed", "victim"))
        await town.gateway.replace(slow_for("victim", static("192.0.2.1-192.0.2.2")))
        town.add("thief", victim=False, loadBalancerIP="192.0.2.1")
        await until(lambda: town.api.told("SyncLoadBalancerFailed", "thief"))
        town.troubled, town.api.fault = False, lambda path, patch: None
        await town.served("victim")
        await asyncio.sleep(LONG)
        assert addresses(town.api.service("victim")) != addresses(town.api.service("thief"))
        assert town.api.told("SyncLoadBalancerFailed", "thief")[0].endswith(": the address 192.0.2.1 is in use")


@in_virtual_time
async def test_of_two_services_with_one_address_in_their_status_the_older_keeps_it() -> None:
    """Only the controller or an administrator can have written such a status."""
    async with Town(random.Random(1)) as town:
        had = {"loadBalancer": {"ingress": [{"ip": "192.0.2.3", "ipMode": "VIP"}]}}
        town.api.put = town._put  # type: ignore[method-assign]  # the test itself creates the conflict
        for name, created in (("a-younger", "2026-01-01T00:00:01Z"), ("older", "2026-01-01T00:00:00Z")):
            town.add(name, victim=False, status=had)
            town.api.change("services", f"shop/{name}", {"metadata": {"creationTimestamp": created}})
        town.serve()
        await asyncio.sleep(LONG)
        assert addresses(town.api.service("older")) == ["192.0.2.3"]
        (new,) = addresses(town.api.service("a-younger"))
        assert town.api.told("LoadBalancerWarning", "a-younger") == [
            f"the address 192.0.2.3 in the status of this Service is in use by an older Service: "
            f"this one gets {new} instead"
        ]
        assert new != "192.0.2.3" and not town.api.told("LoadBalancerWarning", "older")
