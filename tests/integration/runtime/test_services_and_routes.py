# SPDX-License-Identifier: Apache-2.0
"""Load balancers and routes: the cloud has what the cluster requests, with few calls."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from ccm.cloud import Ingress, ProviderConfig
from ccm.controllers.services.orphans import OrphanAudit
from ccm.controllers.services.service_rules import FINALIZER, ingress_wire, same_ingress
from ccm.controllers.shared.context import Context
from ccm.engine.api_errors import InvalidError
from ccm.engine.client import KubeClient, NotFoundError
from ccm.engine.events import EventRecorder
from ccm.engine.informer import Informer
from ccm.engine.objects import Node, Service
from ccm.gateway.gateway import Gateway
from ccm.providers.sim import SimCloud
from ccm_simcloud.config import Limits
from ccm_simcloud.model import LoadBalancerBody, Port, RouteBody
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, SERVICES, event_messages, eventually, get_node, get_service, initialised, node_body

LIFECYCLE_OFF = {"controllers": "*,-cloud-node-lifecycle"}


def service_body(name: str, port: int = 80, **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": port, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports} | spec
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def nodes_of(kube: KubeClient, cloud: Simulator, prefix: str, count: int = 2) -> list[str]:
    cloud.add_instances(count, prefix=prefix)
    names = [f"{prefix}{number}" for number in range(count)]
    for number, name in enumerate(names):
        await kube.create(NODES, node_body(name, number=number + 1))
    await eventually(lambda: initialised(kube, *names))
    return names


async def served(kube: KubeClient, name: str) -> Service | None:
    service = await get_service(kube, name)
    return service if service.status.load_balancer.ingress else None


def balancers(cloud: Simulator) -> list[Any]:
    table = cloud.project().load_balancers
    return [table.get(id_) for id_ in table.ids]


def writes(cloud: Simulator) -> int:
    return sum(1 for entry in cloud.journal("load_balancers.*") if entry.write)


async def test_a_service_gets_a_load_balancer_and_gives_it_back(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    await start_ccm(**LIFECYCLE_OFF).leading()
    names = await nodes_of(kube, cloud, "lb-")
    await kube.create(SERVICES, service_body("web", loadBalancerSourceRanges=["192.0.2.0/24"]))
    service = await eventually(lambda: served(kube, "web"))
    assert FINALIZER in service.metadata.finalizers
    await eventually(lambda: targets(cloud, 2))
    (balancer,) = balancers(cloud)
    assert service.status.load_balancer.ingress[0].ip == balancer.ip
    assert [(p.port, p.node_port, p.protocol) for p in balancer.ports] == [(80, service.spec.ports[0].node_port, "TCP")]
    assert list(balancer.source_ranges) == ["192.0.2.0/24"]
    assert balancer.tags["service_uid"] == service.metadata.uid
    ids = {(await get_node(kube, name)).spec.provider_id.rsplit("/", 1)[1] for name in names}  # type: ignore[union-attr]
    assert {target.instance_id for target in balancer.targets} == ids
    await kube.delete(f"{SERVICES}/web")

    async def gone() -> bool:
        try:
            await get_service(kube, "web")
        except NotFoundError:
            return not balancers(cloud)
        return False

    await eventually(gone)
    await eventually(lambda: event_messages(kube, "DeletedLoadBalancer", "web"))


async def targets(cloud: Simulator, count: int) -> bool:
    return all(len(balancer.targets) == count for balancer in balancers(cloud))


async def test_a_restart_writes_nothing_for_unchanged_services(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """W13: upstream ensures every load balancer again after each restart."""
    first = start_ccm(**LIFECYCLE_OFF)
    await first.leading()
    await nodes_of(kube, cloud, "restart-")
    for number in range(10):
        await kube.create(SERVICES, service_body(f"still-{number}", 8000 + number))
    for number in range(10):
        await eventually(lambda number=number: served(kube, f"still-{number}"))
    await eventually(lambda: targets(cloud, 2))
    await asyncio.sleep(1.5)
    await first.stop()
    before = writes(cloud)
    events = len(await event_messages(kube, "EnsuringLoadBalancer", "still-0"))
    await start_ccm(**LIFECYCLE_OFF).leading()
    await asyncio.sleep(3)
    assert writes(cloud) == before
    assert len(await event_messages(kube, "EnsuringLoadBalancer", "still-0")) == events


async def test_joining_nodes_cost_one_update_per_service(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """W15: upstream updates twice for each Node. Here, Nodes that join together cost one update per Service. On a busy
    machine, they may join one by one. The unit tests and `make bench` count exactly."""
    await start_ccm(**LIFECYCLE_OFF).leading()
    await nodes_of(kube, cloud, "first-", 1)
    for number in range(3):
        await kube.create(SERVICES, service_body(f"join-{number}", 8000 + number))
        await eventually(lambda number=number: served(kube, f"join-{number}"))
    await eventually(lambda: targets(cloud, 1))
    await asyncio.sleep(1.5)
    before = writes(cloud)
    await nodes_of(kube, cloud, "joined-", 4)
    await eventually(lambda: targets(cloud, 5))
    await asyncio.sleep(2)
    assert 3 <= writes(cloud) - before <= 3 * 4


async def test_a_load_balancer_of_another_cluster_is_refused(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    await start_ccm(**LIFECYCLE_OFF, cluster_name="theirs").leading()
    await nodes_of(kube, cloud, "other-", 1)
    await kube.create(SERVICES, service_body("mine"))
    service = await eventually(lambda: served(kube, "mine"))
    (theirs,) = balancers(cloud)
    address = service.status.load_balancer.ingress[0].ip
    await kube.create(SERVICES, service_body("thief", 81, loadBalancerIP=address))
    messages = await eventually(lambda: event_messages(kube, "SyncLoadBalancerFailed", "thief"))
    assert address in messages[0]
    assert balancers(cloud) == [theirs]


async def test_an_unusable_service_says_so_and_the_others_go_on(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    await start_ccm(**LIFECYCLE_OFF).leading()
    await nodes_of(kube, cloud, "bad-", 1)
    await kube.create(SERVICES, service_body("bad", loadBalancerIP="198.51.100.1"))  # not one of the cloud's
    await kube.create(SERVICES, service_body("good", 81))
    await eventually(lambda: served(kube, "good"))
    messages = await eventually(lambda: event_messages(kube, "SyncLoadBalancerFailed", "bad"))
    assert "198.51.100.1" in messages[0]
    await kube.delete(f"{SERVICES}/bad")

    async def gone() -> bool:
        services, _ = await kube.list(SERVICES, Service)
        return all(service.metadata.name != "bad" for service in services)

    await eventually(gone, what="a Service that cannot be served can still be deleted")


async def test_a_service_says_why_it_waits_until_another_process_serves_it(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.server.world.limits = Limits(load_balancers=0)
    first = start_ccm(**LIFECYCLE_OFF)
    await first.leading()
    await nodes_of(kube, cloud, "says-", 1)
    await kube.create(SERVICES, service_body("says"))
    others = {"type": "Another", "status": "True", "reason": "Because", "message": ""}
    others["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await kube.patch(f"{SERVICES}/says/status", {"status": {"conditions": [others]}}, strategic=True)

    async def conditions() -> dict[str, str]:
        status = (await kube.get(f"{SERVICES}/says", dict))["status"]
        return {each["type"]: each["message"] for each in status["conditions"]}

    async def waits() -> str:
        return (await conditions()).get("LoadBalancerWaiting", "")

    assert "quota" in await eventually(waits)
    await first.stop()
    cloud.server.world.limits = Limits()
    await start_ccm(**LIFECYCLE_OFF).leading()
    await eventually(lambda: served(kube, "says"))

    async def gone() -> bool:
        return not await waits()

    await eventually(gone)
    assert "Another" in await conditions()


async def test_a_load_balancer_that_fails_in_the_cloud_is_made_again(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    await start_ccm(**LIFECYCLE_OFF).leading()
    await nodes_of(kube, cloud, "fail-", 1)
    cloud.fault(action="provision_error", match={"operation": "load_balancers.create"}, count=1)
    await kube.create(SERVICES, service_body("unlucky"))
    await eventually(lambda: event_messages(kube, "SyncLoadBalancerFailed", "unlucky"))
    await eventually(lambda: served(kube, "unlucky"))


async def test_a_load_balancer_that_vanishes_while_it_is_made_is_made_again(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    project = cloud.project()
    cloud.server.timing = msgspec.structs.replace(cloud.server.timing, load_balancer_create=3.0)
    await start_ccm(**LIFECYCLE_OFF).leading()
    await nodes_of(kube, cloud, "vanish-", 1)
    await kube.create(SERVICES, service_body("lost"))

    async def being_made() -> bool:
        return any(balancer.state == "creating" for balancer in balancers(cloud))

    await eventually(being_made)
    for id_ in list(project.load_balancers.ids):
        project.break_load_balancer(id_, "power failure")
        project.delete_load_balancer(id_)
    await eventually(lambda: served(kube, "lost"))


async def test_waiting_for_one_load_balancer_holds_up_no_other(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    await start_ccm(**LIFECYCLE_OFF, concurrent_service_syncs=1).leading()
    await nodes_of(kube, cloud, "wait-", 1)
    cloud.fault(action="delay", seconds=3, match={"operation": "load_balancers.create"}, count=1)
    await kube.create(SERVICES, service_body("slow", 80))
    await kube.create(SERVICES, service_body("next", 81))
    await eventually(lambda: served(kube, "next"))
    await eventually(lambda: served(kube, "slow"))


def routes(cloud: Simulator) -> dict[str, str]:
    table = cloud.project().routes
    instances = cloud.project().instances
    found = [table.get(id_) for id_ in table.ids]
    return {route.destination: instances.get(route.instance_id).name for route in found}


async def test_routes_follow_the_nodes(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    await start_ccm(**LIFECYCLE_OFF).leading()
    names = await nodes_of(kube, cloud, "route-", 3)

    async def routed(count: int) -> bool:
        return routes(cloud) == {f"10.244.{n + 1}.0/24": names[n] for n in range(count)}

    async def told() -> bool:
        nodes = [await get_node(kube, name) for name in names]
        conditions = [each for node in nodes if node is not None for each in node.status.conditions]
        found = [(each.status, each.reason) for each in conditions if each.type == "NetworkUnavailable"]
        return found == [("False", "RouteCreated")] * 3

    await eventually(lambda: routed(3))
    await eventually(told)
    await kube.delete(f"{NODES}/{names[2]}")
    await eventually(lambda: routed(2))


async def test_a_failing_route_is_tried_again_and_said(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """W22: upstream's watch mode forgets a failed route until the next change."""
    await start_ccm(**LIFECYCLE_OFF, route_reconciliation_period="1h").leading()
    cloud.fault(action="status", status=500, match={"operation": "routes.create"}, count=2)
    names = await nodes_of(kube, cloud, "retry-", 2)

    async def routed() -> bool:
        return len(routes(cloud)) == 2

    async def said() -> list[str]:
        return [m for name in names for m in await event_messages(kube, "FailedToCreateRoute", name)]

    await eventually(routed)
    await eventually(said)


async def test_a_node_without_a_route_of_its_own_is_marked_and_told(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    """Two Nodes have the same pod CIDR: one keeps the route, the other Node's network is marked unavailable."""
    await start_ccm(**LIFECYCLE_OFF).leading()
    cloud.add_instances(2, prefix="twin-")
    for name in ("twin-0", "twin-1"):
        await kube.create(NODES, node_body(name, number=7))
    messages = await eventually(lambda: event_messages(kube, "FailedToCreateRoute", "twin-1"))
    assert "10.244.7.0/24" in messages[0] and "twin-0" in messages[0]

    async def conditions() -> dict[str, str]:
        nodes = [await get_node(kube, name) for name in ("twin-0", "twin-1")]
        return {
            node.metadata.name: condition.status
            for node in nodes
            if node is not None
            for condition in node.status.conditions
            if condition.type == "NetworkUnavailable"
        }

    async def told() -> bool:
        return await conditions() == {"twin-0": "False", "twin-1": "True"}

    await eventually(told)


async def test_routes_outside_of_the_cluster_are_not_touched(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    mine = cloud.add_instance("vpn-gateway")
    project = cloud.project()
    project.create_route(RouteBody(destination="192.168.0.0/16", instance_id=mine.id))
    await start_ccm(**LIFECYCLE_OFF, route_reconciliation_period="1s").leading()
    (name,) = await nodes_of(kube, cloud, "scope-", 1)
    node = await get_node(kube, name)
    assert node is not None
    project.create_route(RouteBody(destination="10.244.99.0/24", instance_id=node.spec.provider_id.rsplit("/", 1)[1]))

    async def settled() -> bool:
        return routes(cloud) == {"192.168.0.0/16": "vpn-gateway", "10.244.1.0/24": "scope-0"}

    await eventually(settled)


# More rows of docs/reference/parity.md, by their IDs.


async def test_S153_S154_S155_a_service_with_a_class_is_not_ours_and_classes_stay(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    await start_ccm(**LIFECYCLE_OFF).leading()
    await kube.create(SERVICES, service_body("theirs", loadBalancerClass="example.com/else"))
    await kube.create(SERVICES, service_body("ours", 81))
    await eventually(lambda: served(kube, "ours"))
    await asyncio.sleep(3)
    assert len(balancers(cloud)) == 1 and FINALIZER not in (await get_service(kube, "theirs")).metadata.finalizers
    with pytest.raises(InvalidError):
        await kube.patch(f"{SERVICES}/theirs", {"spec": {"loadBalancerClass": "example.com/other"}})
    # A class cannot be added to a Service that has a load balancer, either.
    with pytest.raises(InvalidError):
        await kube.patch(f"{SERVICES}/ours", {"spec": {"loadBalancerClass": "example.com/else"}})


async def test_a_class_of_ours_is_served_and_the_next_leader_knows_of_it(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    flags = LIFECYCLE_OFF | {"default_load_balancer_provider": "none"}
    first = start_ccm(**flags, load_balancer_class="example.com/ours")
    await first.leading()
    await kube.create(SERVICES, service_body("ours", loadBalancerClass="example.com/ours"))
    await kube.create(SERVICES, service_body("plain", 81))
    await eventually(lambda: served(kube, "ours"))
    await first.stop()
    await start_ccm(**flags, load_balancer_class="example.com/new").leading()
    await eventually(lambda: event_messages(kube, "ClassNotServed", "ours"))
    assert len(balancers(cloud)) == 1 and FINALIZER not in (await get_service(kube, "plain")).metadata.finalizers
    await kube.delete(f"{SERVICES}/ours")

    async def gone() -> bool:
        return not balancers(cloud)

    await eventually(gone)


async def test_S156_tcp_and_udp_on_one_port(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    await start_ccm(**LIFECYCLE_OFF).leading()
    ports = [{"name": p.lower(), "port": 53, "protocol": p} for p in ("TCP", "UDP")]
    await kube.create(SERVICES, service_body("dns", ports=ports))
    await eventually(lambda: served(kube, "dns"))
    (balancer,) = balancers(cloud)
    assert [(port.protocol, port.port) for port in balancer.ports] == [("TCP", 53), ("UDP", 53)]


@pytest.mark.parametrize(
    ("mode", "stored"),
    [
        pytest.param(None, "VIP", id="S157-not-given"),
        pytest.param("VIP", "VIP", id="S158-vip"),
        pytest.param("Proxy", "Proxy", id="S159-proxy"),
    ],
)
async def test_ip_mode_as_the_api_server_stores_it(kube: KubeClient, mode: str | None, stored: str):
    """The stored value does not count as a difference: no second patch follows (W20)."""
    await kube.create(SERVICES, service_body("mode"))
    wire = ingress_wire([Ingress(ip="192.0.2.1", ip_mode=mode)])
    await kube.patch(f"{SERVICES}/mode/status", {"status": {"loadBalancer": {"ingress": wire}}})
    ingress = (await get_service(kube, "mode")).status.load_balancer.ingress
    assert [entry.ip_mode for entry in ingress] == [stored]
    assert same_ingress(ingress, wire)


async def test_S36_S150_what_others_write_meanwhile_is_kept(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    """Somebody edits the Services all the time: writes with conflicts are repeated, nothing is lost, and no conflict is
    an error."""
    cloud.server.timing = msgspec.structs.replace(cloud.server.timing, load_balancer_create=2.0)
    await start_ccm(**LIFECYCLE_OFF).leading()
    names = [f"busy-{number}" for number in range(5)]
    for number, name in enumerate(names):
        await kube.create(SERVICES, service_body(name, 8000 + number))

    async def edit(name: str) -> int:
        edits = 0
        while not await served(kube, name):
            edits += 1
            await kube.patch(f"{SERVICES}/{name}", {"metadata": {"annotations": {"edits": str(edits)}}})
        return edits

    edits = await asyncio.gather(*(edit(name) for name in names))
    assert sum(edits) > len(names)
    for name, count in zip(names, edits, strict=True):
        service = await get_service(kube, name)
        assert service.metadata.annotations == {"edits": str(count)}
        assert service.metadata.finalizers == [FINALIZER]
        assert service.spec.type == "LoadBalancer"
        assert await event_messages(kube, "SyncLoadBalancerFailed", name) == []
    assert len(balancers(cloud)) == 5


async def test_S37_a_service_deleted_while_it_is_made_leaves_nothing(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    cloud.server.timing = msgspec.structs.replace(cloud.server.timing, load_balancer_create=2.0)
    await start_ccm(**LIFECYCLE_OFF).leading()
    await kube.create(SERVICES, service_body("brief"))

    async def being_made() -> bool:
        return len(balancers(cloud)) == 1

    await eventually(being_made)
    # Its finalizer is removed, too, so the object of the pending status write no longer exists.
    await kube.delete(f"{SERVICES}/brief")
    with contextlib.suppress(NotFoundError):
        await kube.patch(f"{SERVICES}/brief", {"metadata": {"finalizers": None}})

    async def gone() -> bool:
        return not balancers(cloud)

    await eventually(gone)
    assert await event_messages(kube, "SyncLoadBalancerFailed", "brief") == []


async def test_R42_calicos_condition_is_taken_over_once(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    await start_ccm(**LIFECYCLE_OFF, route_reconciliation_period="1s").leading()
    (name,) = await nodes_of(kube, cloud, "calico-", 1)

    async def condition() -> Any:
        node = await get_node(kube, name)
        assert node is not None
        return next((c for c in node.status.conditions if c.type == "NetworkUnavailable"), None)

    await eventually(condition)
    calico = {"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp", "message": "Calico is running"}
    await kube.patch(f"{NODES}/{name}/status", {"status": {"conditions": [calico]}}, strategic=True)

    async def ours_again() -> bool:
        return (await condition()).reason == "RouteCreated"

    await eventually(ours_again)
    node = await get_node(kube, name)
    await asyncio.sleep(3)
    again = await get_node(kube, name)
    assert node is not None and again is not None
    assert node.metadata.resource_version == again.metadata.resource_version  # three audits later


async def test_W30_two_clusters_in_one_network_leave_each_others_routes(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    theirs = cloud.add_instance("of-another-cluster")
    project = cloud.project()
    project.create_route(RouteBody(destination="10.244.2.0/24", instance_id=theirs.id, owner="theirs"))
    project.create_route(RouteBody(destination="10.244.77.0/24", instance_id=theirs.id, owner="theirs"))
    await start_ccm(**LIFECYCLE_OFF, cluster_name="ours").leading()
    await nodes_of(kube, cloud, "shared-", 2)
    messages = await eventually(lambda: event_messages(kube, "FailedToCreateRoute", "shared-1"))
    assert messages == ["pod CIDR 10.244.2.0/24 is routed elsewhere by cluster 'theirs' in the same network"]

    async def settled() -> bool:
        return routes(cloud) == {
            "10.244.2.0/24": "of-another-cluster",
            "10.244.77.0/24": "of-another-cluster",
            "10.244.1.0/24": "shared-0",
        }

    await eventually(settled)
    (mine,) = [route for route in project.routes.rows.values() if route.owner == "ours"]
    assert mine.destination == "10.244.1.0/24"
    refused = [entry for entry in cloud.journal("routes.create") if entry.status >= 400]
    assert not refused


async def test_W30_an_orphan_is_found_and_deleted_and_what_has_a_service_is_not(kube: KubeClient, cloud: Simulator):
    """The audit runs with a real list of Services, and a fake clock."""
    service = await kube.create(SERVICES, service_body("alive"))
    project = cloud.project()
    for uid in (service.uid, "uid-of-nobody"):
        tags = {"cluster": "kubernetes", "service_uid": uid}
        project.create_load_balancer(LoadBalancerBody(f"a{uid}", (Port(80, 30080),), tags=tags))
    tags = {"cluster": "other", "service_uid": "uid-of-theirs"}
    project.create_load_balancer(LoadBalancerBody("theirs", (Port(80, 30080),), tags=tags))
    services: Informer[Service] = Informer(kube, "/api/v1/services", Service, name="services")  # empty: it never ran
    gateway = Gateway(SimCloud(ProviderConfig(cloud.conf())))
    await gateway.cloud.start()
    seconds = [0.0]
    context = Context(
        kube,
        gateway,
        Informer(kube, NODES, Node, name="nodes"),
        services,
        lambda component: EventRecorder(kube, component),
        "kubernetes",
        monotonic=lambda: seconds[0],
    )
    try:

        async def nothing_else(listed: object) -> None:
            """Do nothing: only the audit is tested."""

        audit = OrphanAudit(context, set, lambda uids: None, nothing_else, delete=True, period=600.0)
        for _ in range(3):
            await audit.look()
            assert len(balancers(cloud)) == 3
            seconds[0] += 100.0
        seconds[0] += 100.0
        await audit.look()

        async def deleted() -> bool:
            return {balancer.tags["service_uid"] for balancer in balancers(cloud)} == {service.uid, "uid-of-theirs"}

        await eventually(deleted)
    finally:
        await gateway.close()
