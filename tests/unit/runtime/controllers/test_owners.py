# SPDX-License-Identifier: Apache-2.0
"""Two clouds in one process, each with its own gateway, decide together which cloud owns a Node."""

import asyncio

import msgspec
import pytest

from ccm.cloud import Cloud, Instance, Limits, NotFound, Page, ProviderConfig, Transient
from ccm.controllers.nodes.owners import PATIENCE, Owners
from ccm.controllers.nodes.ownership_rules import LABEL, Declarations, Owned, Undecided, Unowned
from ccm.engine.objects import Node
from ccm.gateway.gateway import Gateway

from ..gateway.virtual import in_virtual_time, now

UUID = "4c4c4544-0042-4b10-8034-b7c04f4a3231"


class Machines:
    """The instances of a cloud. `names`: the names of its machines. `latency`: seconds per call. `error`: raised by
    each call.
    """

    def __init__(self, form, *names):
        self.form, self.names, self.latency, self.error, self.calls = form, list(names), 0.01, None, 0
        self.uuids = ()

    async def _called(self):
        self.calls += 1
        await asyncio.sleep(self.latency)
        if self.error is not None:
            raise self.error

    def _all(self):
        return [Instance(f"{self.form}://{each}", each, system_uuids=self.uuids) for each in self.names]

    async def list_page(self, token):
        await self._called()
        return Page(self._all())

    async def get(self, ref):
        await self._called()
        for each in self._all():
            if each.provider_id == ref.provider_id or (not ref.provider_id and each.name == ref.node_name):
                return each
        raise NotFound(f"no {ref.node_name}")

    def owns(self, provider_id):
        return provider_id.startswith(f"{self.form}://")


class Site(Cloud):
    name = "site"

    def __init__(self, machines):
        super().__init__(ProviderConfig())
        self.instances, self.limits = machines, Limits(calls_per_second=1e6, burst=10**6, deadline=30.0)


class World:
    def __init__(self, *, patterns=None, **clouds):
        self.clouds = clouds
        self.gateways = {name: Gateway(Site(machines), clock=now) for name, machines in clouds.items()}
        directories = {name: gateway.instances for name, gateway in self.gateways.items()}
        self.owners = Owners(
            directories,
            Declarations(tuple(clouds), patterns or {}),
            is_failing=lambda name: self.gateways[name].failing_since is not None,
            monotonic=now,
        )

    async def listed(self):
        await asyncio.gather(*(each.instances.list(not_before=now()) for each in self.gateways.values()))

    async def of(self, name="n", **fields):
        return await self.owners.of(node(name, **fields), not_before=now())


def node(name="n", provider_id="", uid="u", cloud="", uuid=""):
    document = {
        "metadata": {"name": name, "uid": uid, "labels": {LABEL: cloud} if cloud else {}},
        "spec": {"providerID": provider_id},
        "status": {"nodeInfo": {"systemUUID": uuid}},
    }
    return msgspec.convert(document, Node)


def test_each_node_belongs_to_the_cloud_that_has_its_machine():
    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "a", "both"), metal=Machines("m", "b", "both"))
        assert await world.of("a") == Owned("north")
        assert await world.of("b") == Owned("metal")
        nobody, several = await world.of("c"), await world.of("both")
        assert nobody.reason == "InstanceNotFound" and "north and metal" in nobody.message
        assert several.reason == "SeveralOwners" and "north and metal" in several.message
        assert await world.of("both", uid="v", cloud="metal") == Owned("metal")

    run()


def test_a_provider_id_is_enough():
    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "a"), metal=Machines("m", "a"))
        assert await world.of("a", provider_id="m://a") == Owned("metal")
        assert (await world.of("a", provider_id="aws://a")).reason == "ForeignProviderID"
        assert [each.calls for each in world.clouds.values()] == [0, 0]
        assert world.owners.have(node(provider_id="m://a")) == "metal"
        assert world.owners.have(node(provider_id="aws://a")) is world.owners.have(node("a")) is None

    run()


@pytest.mark.parametrize("latency", [0.01, 29.0], ids=["fails-at-once", "hangs"])
def test_a_cloud_that_is_down_delays_no_node_of_another_one_for_longer_than_patience(latency):
    """The cloud was up before, so its last listing is known."""

    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "old"), metal=Machines("m", "theirs"))
        await world.listed()
        world.clouds["metal"].error, world.clouds["metal"].latency = Transient("503"), latency
        world.clouds["north"].names.append("new")
        began = now()
        assert await world.of("new") == Owned("north")
        assert now() - began <= (PATIENCE if latency > 1 else 1.0) + 0.5
        nobodys = await world.of("missing")
        if latency < 1:
            assert isinstance(nobodys, Unowned)
        else:  # the earlier listing does not prove that the cloud still lacks the machine
            assert isinstance(nobodys, Undecided) and nobodys.silent == ("metal",)

    run()


def test_a_cloud_that_never_answered_delays_what_nothing_else_tells_apart():
    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "a", "b-1", "c"), metal=Machines("m"), patterns={"north": ["b-*"]})
        world.clouds["metal"].error, world.clouds["metal"].latency = Transient("503"), 20.0
        world.clouds["north"].uuids = (UUID,)
        found = await world.of("a")
        assert isinstance(found, Undecided) and found.silent == ("metal",)
        began = now()
        assert await world.of("b-1") == Owned("north"), "declared by its name"
        assert await world.of("c", uuid=UUID.upper()) == Owned("north"), "proved by its firmware"
        assert now() - began < 2.5
        world.clouds["metal"].error, world.clouds["metal"].latency = None, 0.01
        world.clouds["metal"].names.append("other")
        assert await world.of("a") == Owned("north"), "it is asked again"

    run()


def test_a_slower_cloud_is_heard_before_a_new_machine_of_its_is_denied():
    """The slower cloud's last listing is older than its new machine."""

    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "x"), metal=Machines("m", "y"))
        await world.listed()
        world.clouds["metal"].latency = 3.0
        for each in world.clouds.values():
            each.names.append("new")
        assert (await world.of("new")).reason == "SeveralOwners"

    run()


def test_all_who_ask_about_a_node_get_one_decision_and_a_found_owner_stays():
    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "a"), metal=Machines("m", "b"))
        both = await asyncio.gather(world.of("a"), world.of("a"))
        assert both == [Owned("north")] * 2 and world.clouds["north"].calls == 1
        world.clouds["metal"].names.append("a")
        assert await world.of("a") == Owned("north")
        world.owners.forget("a")
        assert (await world.of("a")).reason == "SeveralOwners"
        assert (await world.of("a", uid="successor")).reason == "SeveralOwners"

    run()


def test_a_node_that_is_forgotten_meanwhile_cancels_nobody_who_waits_for_its_owner():
    """A queue's worker that is cancelled from within would be gone for ever."""

    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "a"), metal=Machines("m", "b"))
        waiting = asyncio.create_task(world.of("a"))
        await asyncio.sleep(0)
        world.owners.forget("a")
        assert await waiting == Owned("north")

    run()


@pytest.mark.parametrize("down", [False, True], ids=["answers", "hangs-later"])
def test_a_cloud_without_machines_delays_no_burst_of_another_one(down):
    """One empty listing of that cloud answers many questions, although it would not justify the deletion of a Node."""

    @in_virtual_time
    async def run():
        world = World(north=Machines("n", *(f"a{each}" for each in range(20))), metal=Machines("m"))
        await world.listed()
        if down:
            world.clouds["metal"].error, world.clouds["metal"].latency = Transient("503"), 20.0
        began = now()
        found = await asyncio.gather(*(world.of(f"a{each}", uid=str(each)) for each in range(20)))
        assert found == [Owned("north")] * 20 and now() - began < (PATIENCE + 0.5 if down else 2)

    run()


def test_a_node_waits_for_a_failing_cloud_no_longer_than_if_there_were_none():
    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "old"), metal=Machines("m", "theirs"))
        await world.listed()
        world.clouds["metal"].error, world.clouds["metal"].latency = Transient("503"), 20.0
        metal = world.gateways["metal"]
        with pytest.raises(Transient):
            await metal.instances.list(not_before=now())
        assert metal.failing_since is not None
        world.clouds["north"].names += ["new", "alone"]
        alone = World(north=world.clouds["north"])
        began = now()
        assert await alone.of("alone") == Owned("north")
        took = now() - began
        began = now()
        assert await world.of("new") == Owned("north")
        assert now() - began <= took

    run()


def test_a_reload_with_another_region_changes_whose_the_nodes_are():
    @in_virtual_time
    async def run():
        world = World(north=Machines("n", "a"), metal=Machines("m", "b"))
        assert await world.of("a", provider_id="n://a") == Owned("north")
        await world.gateways["north"].replace(Site(Machines("s", "c")))
        assert (await world.of("a", provider_id="n://a")).reason == "ForeignProviderID"
        assert world.owners.have(node("a", provider_id="n://a")) is None, "nobody updates or deletes it"
        assert world.owners.have(node("c", provider_id="s://c")) == "north"

    run()
