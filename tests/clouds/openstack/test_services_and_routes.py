# SPDX-License-Identifier: Apache-2.0
"""Services and Pod routes on a real octavia and neutron: what is created there, the calls, and what is left at the end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud import Instance, ProviderConfig
from ccm.controllers.nodes import vouching_rules
from ccm.controllers.services import backend_rules, service_rules
from ccm.engine.client import KubeClient, NotFoundError
from ccm.engine.objects import Node, Service
from ccm.providers.openstack import OpenStackCloud
from ccm.providers.openstack.load_balancers.load_balancer_owners import Mark
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import (
    NODES,
    SERVICES,
    ask,
    event_messages,
    eventually,
    get_service,
    initialised,
    node_body,
)
from tools.clouds.openstack.rig.control import without_versions

from .conftest import StartCcm
from .customer import Site

SECONDS = 600.0
NO_ROUTES = {"controllers": "*,-cloud-node-lifecycle", "configure_cloud_routes": "false"}
SERVICES_THAT_A_NODE_JOINS = 10
SERVICES_OF_A_RESTART = 100
#: All calls of a start at which nothing has changed, for any number of Nodes and Services.
LISTINGS = Counter(
    {
        "compute GET /servers/detail": 1,
        "network GET /ports": 1,
        "load-balancer GET /loadbalancers": 1,
        "network GET /floatingips": 1,
    }
)
#: The fewest calls that cloud-provider-openstack makes to create a load balancer that takes 60 s to build (22 to 25).
UPSTREAM_CREATE = 22


def service_body(name: str) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def served(kube: KubeClient, *names: str) -> list[Service]:
    services = [await get_service(kube, name) for name in names]
    return services if all(service.status.load_balancer.ingress for service in services) else []


async def quiet(site: Site, seconds: float = 3.0) -> Counter[str]:
    """Wait for a call, then until there has been no other call for `seconds`; return all calls since the last reset."""
    calls, since = site.rig.calls(), time.monotonic()
    while not calls or time.monotonic() - since < seconds:
        await asyncio.sleep(0.2)
        if (now := site.rig.calls()) != calls:
            calls, since = now, time.monotonic()
    return calls


async def joined(kube: KubeClient, *names: str) -> None:
    for number, name in enumerate(names):
        await kube.create(NODES, node_body(name, number=number + 1))
    await eventually(lambda: initialised(kube, *names), SECONDS)


@pytest.mark.long
async def test_what_services_cost(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """The calls are counted for a Service that takes a minute to build, a restart with a hundred Services, and a Node
    that joins ten."""
    ccm = start_ccm(**NO_ROUTES)
    await joined(kube, "node-0", "node-1")
    await _a_service_of_a_minute(kube, site)
    names = ["web", *(f"web-{number}" for number in range(1, SERVICES_THAT_A_NODE_JOINS))]
    for name in names[1:]:
        await kube.create(SERVICES, service_body(name))
    await eventually(lambda: served(kube, *names), SECONDS)
    await quiet(site)
    await ccm.stop()
    await _a_restart_with_a_hundred(kube, site, start_ccm)
    ccm = start_ccm(**NO_ROUTES)
    await ccm.leading()
    await eventually(lambda: only_listings(site), SECONDS)
    await quiet(site)
    await _a_node_joins(kube, site)
    await _all_are_removed(kube, site, names)


async def _a_service_of_a_minute(kube: KubeClient, site: Site) -> None:
    await quiet(site)
    site.rig.reset()
    site.rig.load_balancers(60.0)
    began = time.monotonic()
    await kube.create(SERVICES, service_body("web"))
    (service,) = await eventually(lambda: served(kube, "web"), SECONDS)
    assert time.monotonic() - began > 60
    calls = site.rig.calls()
    print(f"create, a minute's build: {calls.total()} calls: {dict(calls)}")
    assert calls.total() <= UPSTREAM_CREATE / 2, calls
    (balancer,) = await asyncio.to_thread(site.balancers)
    assert balancer.name == f"kube_service_{site.name}_default_web"
    (floating,) = site.cloud.network.ips(port_id=balancer.vip_port_id)
    assert service.status.load_balancer.ingress[0].ip == floating.floating_ip_address
    site.rig.load_balancers(0.1)


async def only_listings(site: Site) -> bool:
    return without_versions(site.rig.calls()) == LISTINGS


async def _a_restart_with_a_hundred(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """A restart makes only listings if nothing has changed, whatever the number of Services.

    Ten of the load balancers were created for their Services. Ninety are copies of the first one (`rig.clones`), with
    the tags that the runtime would give them.
    """
    names = [f"copy-{number:02}" for number in range(SERVICES_OF_A_RESTART - SERVICES_THAT_A_NODE_JOINS)]
    for name in names:
        await kube.create(SERVICES, service_body(name))
    try:
        await _copies_for(kube, site, names)
        site.rig.reset()
        ccm = start_ccm(**NO_ROUTES)
        await ccm.leading()
        services = await eventually(lambda: served(kube, *names), SECONDS)
        assert len({service.status.load_balancer.ingress[0].ip for service in services}) == len(names)
        await eventually(lambda: only_listings(site), SECONDS)
        calls = await quiet(site)
        print(f"restart with {SERVICES_OF_A_RESTART} Services: {calls.total()} calls: {dict(calls)}")
        assert without_versions(calls) == LISTINGS
        assert len(await asyncio.to_thread(site.balancers)) == SERVICES_OF_A_RESTART
        await ccm.stop()
    finally:
        await asyncio.to_thread(site.forget_clones, _name(site, "copy-"))
        for name in names:
            await kube.patch(f"{SERVICES}/{name}", {"metadata": {"finalizers": None}})
            await kube.delete(f"{SERVICES}/{name}")
        site.rig.reset()
        site.rig.load_balancers(0.1)


def _name(site: Site, service: str) -> str:
    return f"kube_service_{site.name}_default_{service}"


async def _copies_for(kube: KubeClient, site: Site, names: list[str]) -> None:
    """Copy load balancers for these Services as our runtime would create them. The copies' tags must be computed here;
    those of the original, which the runtime created, prove that the computation is right.
    """
    cloud = OpenStackCloud(ProviderConfig(site.conf(), "cloud.conf"))
    assert cloud.load_balancers is not None
    nodes, _ = await kube.list(NODES, Node)

    def honest(node: Node) -> vouching_rules.Verdict | None:
        if not cloud.instances.owns(node.spec.provider_id):
            return None
        return vouching_rules.judge(node, Instance(node.spec.provider_id, node.metadata.name), (), ())

    backends = backend_rules.backends(nodes, honest)

    async def mark(name: str) -> Mark:
        spec = service_rules.load_balancer_spec(await get_service(kube, name), site.name)
        return Mark.of(spec, cloud.load_balancers.fingerprint(spec, backends), "f")

    (balancer,) = [each for each in await asyncio.to_thread(site.balancers) if each.name == _name(site, "web")]
    assert sorted(balancer.tags) == sorted([_name(site, "web"), str(await mark("web"))])
    text = f"Floating IP for Kubernetes external service default/{{}} from cluster {site.name}"
    copies = [
        {
            "name": _name(site, name),
            "description": f"Kubernetes external service default/{name} from cluster {site.name}",
            "tags": [_name(site, name), str(await mark(name))],
            "floating_description": text.format(name),
        }
        for name in names
    ]
    await asyncio.to_thread(site.clone_balancer, balancer.id, copies)


async def _a_node_joins(kube: KubeClient, site: Site) -> None:
    site.rig.reset()
    site.rig.load_balancers(0.1)
    await kube.create(NODES, node_body("node-2", number=3))

    async def everywhere() -> bool:
        pools = await asyncio.to_thread(lambda: list(site.cloud.load_balancer.pools()))
        return len(pools) == SERVICES_THAT_A_NODE_JOINS and all(len(pool.members) == 3 for pool in pools)

    await eventually(everywhere, SECONDS)
    calls = await quiet(site)
    print(f"a node joins {SERVICES_THAT_A_NODE_JOINS} Services: {calls.total()} calls: {dict(calls)}")
    of_node = {call for call in calls if call in ("compute GET /servers/detail", "network GET /ports")}
    assert calls.total() - sum(calls[call] for call in of_node) <= 4 * SERVICES_THAT_A_NODE_JOINS, calls


async def _all_are_removed(kube: KubeClient, site: Site, names: list[str]) -> None:
    for name in names:
        await kube.delete(f"{SERVICES}/{name}")

    async def gone() -> bool:
        for name in names:
            try:
                await get_service(kube, name)
                return False
            except NotFoundError:
                continue
        return True

    await eventually(gone, SECONDS)
    assert await asyncio.to_thread(site.balancers) == []
    assert list(site.cloud.network.ips(project_id=site.project)) == []


async def test_pods_have_routes(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    start_ccm(controllers="*,-cloud-node-lifecycle,-service")
    await joined(kube, "node-0", "node-1")
    ports = [next(iter(site.cloud.network.ports(device_id=server))) for server in site.servers[:2]]
    wanted = [
        {"destination": f"10.244.{number}.0/24", "nexthop": port.fixed_ips[0]["ip_address"]}
        for number, port in enumerate(ports, 1)
    ]

    def routes() -> list[dict[str, str]]:
        return sorted(site.cloud.network.get_router(site.router).routes, key=lambda route: route["destination"])

    async def there() -> bool:
        return await asyncio.to_thread(routes) == wanted

    await eventually(there, SECONDS, "routes on the router")
    pairs = site.cloud.network.get_port(ports[0].id).allowed_address_pairs
    assert [pair["ip_address"] for pair in pairs] == ["10.244.1.0/24"]
    await kube.delete(f"{NODES}/node-1")

    async def one_left() -> bool:
        return await asyncio.to_thread(routes) == wanted[:1]

    await eventually(one_left, SECONDS, "the route of the node that went is gone")


#: Name of a Service -> two faults: one breaks a request that creates a load balancer, the other one a request that
#: creates a floating IP. Each fault hits only one request, which may be that of another Service.
TROUBLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "unavailable": ({"status": 503}, {"status": 503}),
    "limited": ({"status": 429, "headers": {"Retry-After": "1"}}, {"status": 413, "headers": {"Retry-After": "1"}}),
    "dropped": ({"kind": "drop"}, {"kind": "drop"}),
    "lost": ({"kind": "drop", "late": True}, {"kind": "drop", "late": True}),
}


async def test_services_come_up_after_trouble(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """All faults happen one after the other. Whichever Service a fault hits, each Service gets one load balancer and
    one floating IP."""
    start_ccm(**NO_ROUTES)
    await joined(kube, "node-0")
    for of_balancer, of_address in TROUBLES.values():
        site.rig.fault(service="load-balancer", method="POST", times=1, **of_balancer)
        site.rig.fault(service="network", method="POST", path="/floatingips", times=1, **of_address)
    for name in TROUBLES:
        await kube.create(SERVICES, service_body(name))
    await eventually(lambda: served(kube, *TROUBLES), SECONDS)
    await quiet(site)
    answers = {
        path: {call["status"] for call in site.rig.journal() if (call["method"], call["path"]) == ("POST", path)}
        for path in ("/loadbalancers", "/floatingips")
    }
    # 0: no answer came at all. If the request created an object nevertheless, our runtime finds the object.
    assert answers == {"/loadbalancers": {201, 503, 429, 0}, "/floatingips": {201, 503, 413, 0}}
    balancers = await asyncio.to_thread(site.balancers)
    assert sorted(each.name for each in balancers) == sorted(_name(site, name) for name in TROUBLES)
    assert len(list(site.cloud.network.ips(project_id=site.project))) == len(TROUBLES)


async def test_one_of_cloud_provider_openstacks_is_taken_over_and_can_be_given_back(
    apiserver: ApiServer, kube: KubeClient, site: Site, start_ccm: StartCcm, tmp_path: Path
) -> None:
    """Nothing on which either controller relies is changed; our runtime adds one tag, which stays."""
    name = _name(site, "web")
    await joined_without_services(kube, start_ccm, "node-0", "node-1")
    await kube.create(SERVICES, service_body("web"))
    port = (await kube.get(f"{SERVICES}/web", dict))["spec"]["ports"][0]["nodePort"]
    balancer, address = await asyncio.to_thread(_as_upstream_makes_it, site, name, port)
    before = await asyncio.to_thread(_parts, site, balancer)
    marks = {
        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
        "annotations": {
            "loadbalancer.openstack.org/load-balancer-id": balancer,
            "loadbalancer.openstack.org/load-balancer-address": address,
        },
    }
    await kube.patch(f"{SERVICES}/web", {"metadata": marks})
    status = {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}
    await kube.patch(f"{SERVICES}/web/status", status)

    # `ccm plan` reports the change, one tag, and writes nothing.
    site.rig.reset()
    site.rig.load_balancers(0.1)
    conf = tmp_path / "on-call.conf"
    conf.write_text(site.conf())
    flags = [f"--kubeconfig={apiserver.kubeconfig()}", "--cloud-provider=openstack", f"--cloud-config={conf}"]
    flags += [f"--{name.replace('_', '-')}={value}" for name, value in {"cluster_name": site.name, **NO_ROUTES}.items()]
    answered, out, err = await ask("plan", "--output=json", *flags)
    assert (answered, err) == (1, ""), out
    (planned,) = json.loads(out)["outlooks"]
    assert (planned["kind"], planned["name"], planned["action"]) == ("LoadBalancer", "default/web", "update")
    assert planned["changes"] == [f"load balancer {name}: it has no tag of this provider yet"]
    assert not [call for call in site.rig.calls() if " GET " not in call]

    ccm = start_ccm(**NO_ROUTES)

    async def taken() -> bool:
        return len((await asyncio.to_thread(_parts, site, balancer))["tags"]) == 2

    await eventually(taken, SECONDS, "our tag beside upstream's")
    calls = await quiet(site)
    print(f"taken over: {calls.total()} calls: {dict(calls)}")
    assert {call: count for call, count in calls.items() if " GET " not in call} == {
        "load-balancer PUT /loadbalancers/{id}": 1
    }
    await ccm.stop()
    assert (await ask("plan", *flags))[0] == 0
    after = await asyncio.to_thread(_parts, site, balancer)
    assert [tag for tag in after.pop("tags") if tag.startswith("kube_service_")] == before.pop("tags") == [name]
    assert after == before
    (service,) = await served(kube, "web")
    assert [each.ip for each in service.status.load_balancer.ingress] == [address]
    assert service.metadata.annotations == marks["annotations"]

    # If the load balancer is not given back, our runtime keeps it: a Node that joins becomes a member, and the load
    # balancer is deleted with its Service and its floating IP.
    start_ccm(**NO_ROUTES)
    await kube.create(NODES, node_body("node-2", number=3))

    async def three() -> bool:
        return len((await asyncio.to_thread(_parts, site, balancer))["members"]) == 3

    await eventually(three, SECONDS, "three members")
    await _all_are_removed(kube, site, ["web"])


async def joined_without_services(kube: KubeClient, start_ccm: StartCcm, *names: str) -> None:
    ccm = start_ccm(controllers="cloud-node", configure_cloud_routes="false")
    await joined(kube, *names)
    await ccm.stop()


def _as_upstream_makes_it(site: Site, name: str, node_port: int) -> tuple[str, str]:
    """Create what cloud-provider-openstack (loadbalancer.go) creates for default/web; return ID and address."""
    members = [
        {"name": f"node-{number}", "address": address, "protocol_port": node_port, "subnet_id": site.subnet}
        for number, address in enumerate(site.address(server) for server in site.servers[:2])
    ]
    pool = {"name": f"pool_0_{name}", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": members}
    listener = {
        "name": f"listener_0_{name}",
        "protocol": "TCP",
        "protocol_port": 80,
        "connection_limit": -1,
        "timeout_client_data": 50000,
        "timeout_member_connect": 5000,
        "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0,
        "allowed_cidrs": ["0.0.0.0/0"],
        "tags": [name],
        "default_pool": pool,
    }
    body = {
        "name": name,
        "description": f"Kubernetes external service default/web from cluster {site.name}",
        "vip_subnet_id": site.subnet,
        "provider": "rig",
        "tags": [name],
        "listeners": [listener],
    }
    answer = site.cloud.load_balancer.post("/lbaas/loadbalancers", json={"loadbalancer": body})
    made = answer.json()["loadbalancer"]
    floating = site.cloud.network.create_ip(
        floating_network_id=site.world["public_network"],
        port_id=made["vip_port_id"],
        description=f"Floating IP for Kubernetes external service default/web from cluster {site.name}",
    )
    site.wait_for_balancer(made["id"])
    return made["id"], floating.floating_ip_address


def _parts(site: Site, balancer: str) -> dict[str, Any]:
    """Return fields of a load balancer and its parts that a controller reads or that clients notice."""
    octavia = site.cloud.load_balancer
    row = octavia.get_load_balancer(balancer)
    (listener,) = octavia.listeners(load_balancer_id=balancer)
    (pool,) = octavia.pools(loadbalancer_id=balancer)
    (floating,) = site.cloud.network.ips(port_id=row.vip_port_id)
    of_listener = ("id", "name", "protocol_port", "tags", "default_pool_id", "allowed_cidrs", "timeout_client_data")
    return {
        **{key: row[key] for key in ("id", "name", "description", "vip_address", "vip_port_id", "tags")},
        "listener": {key: listener[key] for key in of_listener},
        "pool": {key: pool[key] for key in ("id", "name", "protocol", "lb_algorithm")},
        "members": sorted((each.name, each.address, each.protocol_port) for each in octavia.members(pool.id)),
        "floating": (floating.id, floating.floating_ip_address, floating.description),
    }


async def test_a_balancer_in_error_is_told(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    start_ccm(**NO_ROUTES)
    await joined(kube, "node-0")
    name = f"kube_service_{site.name}_default_web"
    site.rig.load_balancers(0.1, [name])
    await kube.create(SERVICES, service_body("web"))

    async def told() -> bool:
        return any("ERROR" in text for text in await event_messages(kube, "SyncLoadBalancerFailed", "web"))

    await eventually(told, SECONDS, "an Event about ERROR")
    site.rig.load_balancers(0.1)
    await eventually(lambda: served(kube, "web"), SECONDS, "served once the cloud is well")
