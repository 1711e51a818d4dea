# SPDX-License-Identifier: Apache-2.0
"""Two clouds in one process, each with its own controllers, from flags to API writes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import pytest
from prometheus_client import REGISTRY

from ccm.base import cloud_metrics
from ccm.base.start_error import StartError
from ccm.cloud import Cloud, ConfigError, Limits, ProviderConfig, Transient, Unauthorized, registry
from ccm.controllers.controller_context import ControllerContext
from ccm.controllers.nodes.ownership_rules import LABEL
from ccm.controllers.nodes.vouching import Vouching
from ccm.controllers.shared.holds import Holds
from ccm.manager import cloud_sets, room_settings
from ccm.manager.cloud_reload import CloudReloader
from ccm.manager.cloud_sets import CloudSet
from ccm.manager.readiness_rules import Standing
from ccm.manager.running_controllers import usable_controllers
from ccm.options.command_line import parse
from tests.kube_in_memory import KubeInMemory

from ..controllers import services_harness
from ..controllers.nodes_harness import TAINT, until
from ..controllers.services_harness import Balancers, Machines
from ..gateway.virtual import in_virtual_time, now

NODES = "--controllers=cloud-node-controller,cloud-node-lifecycle-controller,service-lb-controller"
BOTH = ("--cloud-provider=fake,metal", "--default-load-balancer-provider=fake", "--load-balancer-class=m=metal", NODES)


class Api(services_harness.Api):
    """An API server that also patches and deletes Nodes, not only their status."""

    patch = KubeInMemory.patch

    def is_tainted(self, name: str) -> bool:
        return any(each["key"] == TAINT["key"] for each in self.objects["nodes"][name]["spec"].get("taints", []))


class MetalMachines(Machines):
    def owns(self, provider_id: str) -> bool:
        return provider_id.startswith("metal://")


class Place:
    """The machines and load balancers of one cloud. `error`: raised at its start and by every call."""

    def __init__(self, machines: Machines) -> None:
        self.machines, self.balancers, self.tags = machines, Balancers(), Tags(machines)
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        return self._error

    @error.setter
    def error(self, error: BaseException | None) -> None:
        self._error = self.machines.error = error
        self.balancers.fault = lambda verb, spec: error


class Tags:
    """`added`: the tags that were added, by providerID."""

    def __init__(self, machines: Machines) -> None:
        self._machines, self.added = machines, dict[str, dict[str, str]]()

    async def list(self) -> dict[str, dict[str, str]]:
        return {each.provider_id: self.added.get(each.provider_id, {}) for each in self._machines.all()}

    async def add(self, provider_id: str, tags: Mapping[str, str]) -> None:
        self.added[provider_id] = dict(tags)


class PlacedCloud(Cloud):
    has_cluster_id = True

    def __init__(self, name: str, place: Place) -> None:
        super().__init__(ProviderConfig())
        self.name, self._place = name, place
        self.instances, self.load_balancers, self.instance_tags = place.machines, place.balancers, place.tags
        self.limits = Limits(calls_per_second=1e6, burst=10**6, concurrency=1000)

    async def start(self) -> None:
        await asyncio.sleep(0.01)
        if self._place.error is not None:
            raise self._place.error


class Process(services_harness.Cluster):
    """A process with the clouds that its flags name, and an API server."""

    def __init__(self, *flags: str) -> None:
        super().__init__()
        self.api = Api()
        self.fake, self.metal = Place(Machines(self.api)), Place(MetalMachines(self.api))
        self.places = {"fake": self.fake, "metal": self.metal}
        self.options = parse(flags)
        self._cleanup = contextlib.AsyncExitStack()

    async def lead(self) -> None:
        """Start as `ccm.manager.process` does, and become the leader."""
        clouds = [CloudReloader(each, clock=now) for each in room_settings.clouds(self.options)]
        own = room_settings.for_each(self.options, [each.gateway.cloud for each in clouds])
        self.sets = [
            CloudSet(each, usable_controllers(flags, each.gateway.cloud))
            for each, flags in zip(clouds, own, strict=True)
        ]
        following = await cloud_sets.start(self.sets, self._cleanup)
        context = self._context()
        holds = self.holds = Holds(now)
        fields = {each.name: getattr(context, each.name) for each in dataclasses.fields(context)}
        shared = ControllerContext(**fields | {"holds": holds, "gateway": self.sets[0].gateway})
        contexts = [shared]
        if len(self.sets) > 1:
            contexts = cloud_sets.divide(self.sets, shared, room_settings.declarations(self.options))
        contexts = [dataclasses.replace(each, vouching=Vouching(each, each.share)) for each in contexts]
        running = cloud_sets.run_all(self.sets, contexts, self.options.controllers)
        self._tasks += [asyncio.create_task(each) for each in (*following, running)]

    async def __aexit__(self, *errors: object) -> None:
        ended = [task for task in self._tasks if task.done() and not task.cancelled() and task.exception()]
        await super().__aexit__(*errors)
        await self._cleanup.aclose()
        for each in self.sets:
            await each.gateway.close()
        assert not ended, ended

    def add_new(self, name: str, place: Place | None = None) -> None:
        """Register a Node without a providerID, as a kubelet does. `place`: the cloud that has its machine, if any."""
        self.add_node(name, provider_id="", taints=[TAINT])
        if place is not None:
            where = "metal" if place is self.metal else "fake"
            place.machines.put(name, "192.0.2.9", provider_id=f"{where}://{name}")

    def provider_id(self, name: str) -> str:
        return self.api.objects["nodes"][name]["spec"].get("providerID", "")

    def names(self, cloud: str) -> set[str]:
        """Return the names of the Services that a cloud was called for."""
        return {name for _, _, name in self.places[cloud].balancers.calls if name}


@pytest.fixture(autouse=True)
def world(monkeypatch):
    """Return a function that creates a Process from flags. The installed providers are `fake` and `metal`."""
    places: dict[str, Place] = {}
    monkeypatch.setattr(cloud_metrics, "_of_clouds", WeakKeyDictionary())
    monkeypatch.setattr(registry, "names", lambda: ["fake", "metal"])
    monkeypatch.setattr(registry, "create", lambda provider, config: PlacedCloud(provider, places[provider]))

    def make(*flags: str) -> Process:
        process = Process(*flags)
        places.update(process.places)
        return process

    return make


def test_each_cloud_serves_its_nodes_and_its_services(world):
    @in_virtual_time
    async def run():
        async with world(*BOTH) as p:
            p.add_new("a", p.fake)
            p.add_new("b", p.metal)
            p.add_service("web")
            p.add_service("bare", port=81, loadBalancerClass="m")
            p.add_service("other", port=82, loadBalancerClass="else", finalizer=True)
            await p.lead()
            await p.served("web", "bare")
            await until(lambda: not p.api.is_tainted("a") and not p.api.is_tainted("b"))
            await asyncio.sleep(3600)
            assert (p.provider_id("a"), p.provider_id("b")) == ("fake://a", "metal://b")
            assert (p.fake.balancers.hosts("web"), p.metal.balancers.hosts("bare")) == (["a"], ["b"])
            assert (p.names("fake"), p.names("metal")) == ({"web"}, {"bare"})
            assert [len(p.places[each].balancers.made) for each in ("fake", "metal")] == [1, 1]
            assert all(p.api.service(each)["metadata"].get("finalizers") for each in ("web", "bare", "other"))
            assert not p.api.told("ClassNotServed") and not p.holds.count
            p.api.delete_service("bare")
            await until(lambda: "shop/bare" not in p.api.objects["services"], 120)
            assert p.fake.balancers.made and not p.metal.balancers.made and p.names("fake") == {"web"}

    run()


@pytest.mark.parametrize("error", [Transient("503"), Unauthorized("401"), ConfigError(["no such region"])])
@pytest.mark.parametrize("down", ["fake", "metal"])
def test_a_cloud_that_does_not_start_holds_nobody_up(world, down, error):
    @in_virtual_time
    async def run():
        up = {"fake": "metal", "metal": "fake"}[down]
        async with world(*BOTH, "--cloud-nodes=fake=fake-*,metal=metal-*") as p:
            p.places[down].error = error
            for name in ("fake", "metal"):
                p.add_new(f"{name}-node", p.places[name])
            p.add_service("fake-service")
            p.add_service("metal-service", port=81, loadBalancerClass="m")
            began = now()
            await p.lead()
            await p.served(f"{up}-service")
            await until(lambda: not p.api.is_tainted(f"{up}-node"))
            assert now() - began < 10
            await asyncio.sleep(1800)
            assert p.api.is_tainted(f"{down}-node") and not p.api.ingress(f"{down}-service")
            ready = {each.name: each.cloud.standing() for each in p.sets}
            assert ready[up] == Standing() and str(error) in ready[down].reason
            assert ready[down].is_silent == isinstance(error, Transient), "only what is refused stops a rollout"
            p.places[down].error = None
            await p.served(f"{down}-service")
            await until(lambda: not p.api.is_tainted(f"{down}-node"), 120)
            assert [each.cloud.standing() for each in p.sets] == [Standing(), Standing()]
            assert (p.names("fake"), p.names("metal")) == ({"fake-service"}, {"metal-service"})

    run()


def test_the_only_cloud_must_start_before_its_process_leads(world):
    @in_virtual_time
    async def run():
        async with world("--cloud-provider=fake") as p:
            p.fake.error = Unauthorized("401")
            with pytest.raises(StartError, match="the cloud rejects the credentials of the provider: 401"):
                await p.lead()
            assert [each.name for each in p.sets] == [""]

    run()


def test_no_cloud_of_several_means_no_leader(world):
    @in_virtual_time
    async def run():
        async with world(*BOTH) as p:
            p.fake.error = p.metal.error = Unauthorized("401")
            leading = asyncio.create_task(p.lead())
            await asyncio.sleep(600)
            assert not leading.done()
            p.metal.error = None
            await until(leading.done, 60)

    run()


def test_the_problems_of_all_clouds_are_reported(monkeypatch):
    def refuse(provider, config):
        raise ConfigError([f"{provider} lacks a region"])

    monkeypatch.setattr(registry, "create", refuse)
    with pytest.raises(StartError, match=r"(?s)fake lacks a region.*metal lacks a region"):
        cloud_sets.create(room_settings.clouds(parse(BOTH)))


def test_services_that_cannot_be_divided_are_refused(world):
    @in_virtual_time
    async def run():
        process = world("--cloud-provider=fake,metal")
        clouds = [PlacedCloud(name, place) for name, place in process.places.items()]
        with pytest.raises(StartError, match="fake and metal both have load balancers: say with"):
            room_settings.for_each(process.options, clouds)
        clouds[1].load_balancers = None
        own = room_settings.for_each(process.options, clouds)
        assert ["service-lb-controller" in each.controllers for each in own] == [True, False]

    run()


def samples(name: str, label: str) -> dict[str, float]:
    """Return the values of a metric by the value of one of its labels."""
    return {
        each.labels[label]: each.value
        for metric in REGISTRY.collect()
        for each in metric.samples
        if each.name == name and label in each.labels
    }


def test_each_cloud_has_a_breaker_a_budget_and_metrics_of_its_own(world):
    @in_virtual_time
    async def run():
        async with world(*BOTH) as p:
            p.add_new("a", p.fake)
            p.add_new("b", p.metal)
            await p.lead()
            await until(lambda: not p.api.is_tainted("a") and not p.api.is_tainted("b"))
            p.metal.error = Transient("503")
            for number in range(8):
                p.add_service(f"fake-{number}", port=1000 + number)
                p.add_service(f"metal-{number}", port=2000 + number, loadBalancerClass="m")
            await p.served(*(f"fake-{number}" for number in range(8)))
            await asyncio.sleep(1800)
            opened = {
                (each.labels["cloud"], each.labels["group"]): each.value
                for metric in REGISTRY.collect()
                for each in metric.samples
                if each.name == "ccm_cloud_breaker_open"
            }
            assert opened.get(("metal", "instances")) == 1 and not any(
                value for (cloud, _), value in opened.items() if cloud == "fake"
            )
            last = samples("ccm_cloud_last_success_timestamp_seconds", "cloud")
            assert last["metal"] < last["fake"]
            fake, metal = (each.gateway.state for each in p.sets)
            assert fake.breakers == [] and metal.breakers and fake.budgets is not metal.budgets
            assert {"Nodes-fake", "Nodes-metal", "service-fake", "service-metal"} <= set(
                samples("workqueue_depth", "name")
            )

    run()


def test_the_only_cloud_has_the_names_that_it_always_had(world):
    @in_virtual_time
    async def run():
        async with world("--cloud-provider=fake", NODES) as p:
            p.add_new("a", p.fake)
            p.add_service("web")
            await p.lead()
            await p.served("web")
            labels = {
                key
                for metric in REGISTRY.collect()
                if metric.name.startswith("ccm_")
                for each in metric.samples
                for key in each.labels
            }
            assert "cloud" not in labels
            (only,) = p.sets
            assert only.name == "" and {"Nodes", "service"} <= set(samples("workqueue_depth", "name"))

    run()


def test_clouds_that_share_a_project_are_not_served_together(world):
    """The cloud that starts second is refused with a reason. It starts once the two clouds no longer overlap."""

    @in_virtual_time
    async def run():
        async with world(*BOTH) as p:
            for name, place in p.places.items():
                place.machines.put("shared", "192.0.2.9", provider_id=f"{name}://i-1")
            p.add_new("a", p.fake)
            await p.lead()
            await until(lambda: not p.api.is_tainted("a"))
            await asyncio.sleep(600)
            fake, metal = p.sets
            assert fake.cloud.standing() == Standing() and not metal.cloud.started.is_set()
            refused = metal.cloud.standing()
            assert not refused.is_silent, "a rollout stops"
            assert "clouds fake and metal overlap: fake://i-1 and metal://i-1 are one machine, shared" in refused.reason
            p.metal.machines.missing.add("metal://i-1")
            p.metal.machines.put("other", "192.0.2.8", provider_id="metal://i-2")
            await until(metal.cloud.started.is_set, 120)
            assert metal.cloud.standing() == Standing()

    run()


def test_a_changed_file_may_not_make_two_clouds_share_a_project(world, tmp_path):
    """The former configuration stays in use, until the clouds do not overlap any more."""
    files = {name: tmp_path / name for name in ("fake", "metal")}
    for file in files.values():
        file.write_text("1")

    def moves(p, name, id_):
        """Let the file of a cloud lead to another project, which has one machine."""
        p.places[name].machines = {"fake": Machines, "metal": MetalMachines}[name](p.api)
        p.places[name].machines.put("shared", "192.0.2.9", provider_id=f"{name}://{id_}")
        files[name].write_text(id_)

    def projects(p):
        machines = [each for cloud in p.sets for each in cloud.gateway.cloud.instances.all()]
        return [each.provider_id for each in machines if each.name == "shared"]

    @in_virtual_time
    async def run():
        config = ",".join(f"{name}={file}" for name, file in files.items())
        async with world(*BOTH, f"--cloud-config={config}") as p:
            p.add_new("a", p.fake)
            p.add_new("b", p.metal)
            await p.lead()
            await until(lambda: not p.api.is_tainted("a") and not p.api.is_tainted("b"))
            moves(p, "fake", "i-1")
            await until(lambda: projects(p) == ["fake://i-1"], 60)
            moves(p, "metal", "i-1")
            await asyncio.sleep(600)
            assert projects(p) == ["fake://i-1"], "the second one is refused"
            moves(p, "fake", "i-2")
            await until(lambda: projects(p) == ["fake://i-2", "metal://i-1"], 60)
            moves(p, "fake", "i-3")
            moves(p, "metal", "i-3")
            await asyncio.sleep(600)
            assert projects(p) in (["fake://i-3", "metal://i-1"], ["fake://i-2", "metal://i-3"]), "not both at once"

    run()


def test_a_cloud_that_cannot_be_listed_is_not_served_uncompared(world, tmp_path):
    """At the start, and with a changed file, the cloud waits until a listing shows whether it shares a project."""
    file = tmp_path / "metal"
    file.write_text("1")

    @in_virtual_time
    async def run():
        async with world(*BOTH, f"--cloud-config=metal={file}") as p:
            for name, place in p.places.items():
                place.machines.put("shared", "192.0.2.9", provider_id=f"{name}://i-1")
            p.metal.machines.error = Transient("503, no listing")
            p.add_new("a", p.fake)
            await p.lead()
            await asyncio.sleep(600)
            fake, metal = p.sets
            assert fake.cloud.standing() == Standing() and not metal.cloud.started.is_set()
            assert metal.cloud.standing() == Standing("503, no listing", is_silent=True), "a rollout goes on"
            p.metal.machines.error = None
            await asyncio.sleep(120)
            assert "fake and metal overlap" in metal.cloud.standing().reason
            p.metal.machines.error = Transient("503, no listing")
            await asyncio.sleep(600)
            assert metal.cloud.standing() == Standing("503, no listing"), "this configuration was refused"
            file.write_text("corrected")
            await asyncio.sleep(600)
            assert metal.cloud.standing() == Standing("503, no listing", is_silent=True), "this one was not"
            p.metal.machines.error = None
            await asyncio.sleep(120)
            p.metal.machines.missing.add("metal://i-1")
            p.metal.machines.put("other", "192.0.2.8", provider_id="metal://i-2")
            await until(metal.cloud.started.is_set, 120)

            before = metal.gateway.cloud.instances
            p.metal.machines = MetalMachines(p.api)
            p.metal.machines.put("shared", "192.0.2.9", provider_id="metal://i-1")
            p.metal.machines.error = Transient("503, no listing")
            file.write_text("2")
            await asyncio.sleep(600)
            assert metal.gateway.cloud.instances is before, "it cannot be compared"
            p.metal.machines.error = None
            await asyncio.sleep(600)
            assert metal.gateway.cloud.instances is before, "it shares a project"
            p.metal.machines.missing.add("metal://i-1")
            p.metal.machines.put("another", "192.0.2.8", provider_id="metal://i-3")
            await until(lambda: metal.gateway.cloud.instances is not before, 120)

    run()


def test_clouds_with_machines_of_the_same_names_are_served_together(world):
    @in_virtual_time
    async def run():
        async with world(*BOTH) as p:
            for name, place in p.places.items():
                place.machines.put("same", "192.0.2.9", provider_id=f"{name}://{name}-1")
            await p.lead()
            await until(lambda: all(each.cloud.started.is_set() for each in p.sets), 60)

    run()


def test_instances_are_tagged_in_the_cloud_of_their_node(world):
    @in_virtual_time
    async def run():
        async with world(*BOTH, f"{NODES},instance-tags-controller", "--instance-tags=team=a") as p:
            p.add_new("a", p.fake)
            p.add_new("b", p.metal)
            p.add_node("vendors", labels={LABEL: "vendor"})
            await p.lead()
            await until(lambda: p.fake.tags.added and p.metal.tags.added, 120)
            await asyncio.sleep(1800)
            added = [p.places[each].tags.added for each in ("fake", "metal")]
            assert added == [{"fake://a": {"team": "a"}}, {"metal://b": {"team": "a"}}]
            missing = samples("ccm_instances_without_tags", "cloud")
            assert missing == {"fake": 0, "metal": 0}

    run()


def test_one_allocator_serves_the_nodes_of_all_clouds_and_waits_for_none(world):
    @in_virtual_time
    async def run():
        flags = ("--controllers=node-ipam-controller", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")
        async with world(*BOTH, *flags) as p:
            p.fake.error = Transient("503")
            p.add_new("a", p.fake)
            p.add_new("b", p.metal)
            await p.lead()

            def cidrs() -> set[str]:
                return {p.api.objects["nodes"][each]["spec"].get("podCIDR", "") for each in ("a", "b")}

            await until(lambda: len(cidrs() - {""}) == 2, 120)

    run()


def test_the_nodes_of_each_cloud_get_pod_cidrs_of_its_own_range(world):
    """A Node waits until its cloud is known; one that is of no cloud gets a pod CIDR that no cloud may assign."""

    @in_virtual_time
    async def run():
        flags = ("--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/22", "--cloud-cluster-cidr=metal=10.244.2.0/23")
        declared = "--cloud-nodes=fake=a*,metal=b*"
        async with world(*BOTH, f"{NODES},node-ipam-controller", declared, *flags) as p:
            p.metal.error = Transient("503")
            for number in range(2):
                p.add_new(f"a{number}", p.fake)
                p.add_new(f"b{number}", p.metal)
            p.add_new("nobodys")
            p.add_node("foreign", provider_id="k3s://foreign", taints=[])
            await p.lead()

            def cidrs() -> dict[str, str]:
                nodes = p.api.objects["nodes"].items()
                return {name: node["spec"]["podCIDR"] for name, node in nodes if node["spec"].get("podCIDR")}

            await until(lambda: len(cidrs()) == 2, 300)
            await asyncio.sleep(600)
            first = cidrs()
            assert set(first.values()) == {"10.244.0.0/24", "10.244.1.0/24"}
            assert not {"b0", "b1", "nobodys"} & set(first)
            p.metal.error = None
            await until(lambda: {"b0", "b1"} <= set(cidrs()), 600)
            assert {cidrs()["b0"], cidrs()["b1"]} == {"10.244.2.0/24", "10.244.3.0/24"}
            starved = ({"a0", "a1", "foreign"} - set(first)).pop()
            assert any("10.244.0.0/22 (--cluster-cidr)" in each for each in p.api.told("CIDRNotAvailable")), starved

    run()


def test_a_range_of_a_cloud_without_instances_is_refused(world):
    @in_virtual_time
    async def run():
        flags = ("--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/22", "--cloud-cluster-cidr=metal=10.244.2.0/23")
        process = world(*BOTH, *flags)
        clouds = [PlacedCloud(name, place) for name, place in process.places.items()]
        room_settings.for_each(process.options, clouds)
        clouds[1].instances = clouds[1].load_balancers = None
        process = world("--cloud-provider=fake,metal", *flags)
        with pytest.raises(StartError, match="--cloud-cluster-cidr=metal: the provider has no instances"):
            room_settings.for_each(process.options, clouds)

    run()


def test_what_cloud_routes_do_not_connect_is_named(world):
    @in_virtual_time
    async def run():
        async with world(*BOTH) as p:
            await p.lead()
            assert cloud_sets.unconnected(p.sets) == ""
            routed = {**p.sets[0].controllers, "node-route-controller": None}
            gap = cloud_sets.unconnected([CloudSet(p.sets[0].cloud, routed), p.sets[1]])
            assert "routes of fake lead to the cloud's own Nodes only" in gap and "fake and metal" in gap
            assert cloud_sets.unconnected([CloudSet(p.sets[0].cloud, routed)]) == ""

    run()
