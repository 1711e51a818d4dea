# SPDX-License-Identifier: Apache-2.0
"""The runtime as a process, between a real API server and an account in moto: Nodes, routes, a Network Load Balancer,
tags and volumes, and how many calls they take."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient, NotFoundError
from ccm.providers.aws.annotations import PREFIX
from tests.integration.cluster import ApiServer
from tests.integration.runtime.support import (
    CLUSTER_CIDR,
    NODES,
    SERVICES,
    VOLUMES,
    Ccm,
    event_messages,
    eventually,
    get_node,
    get_service,
    initialised,
    node_body,
)
from tests.ports import free_port

from .account import KEYS, REGION, Account, Row
from .proxy import Proxy
from .world import PAGE, config

#: A volume that does not exist.
GONE = "vol-0123456789abcdef0"
TOPOLOGY = "topology.kubernetes.io/"
#: A port of a Service.
HTTP = {"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"}
#: Reads of instances and zones, which are counted apart from reads of load balancers.
ABOUT_NODES = {"DescribeInstances", "DescribeAvailabilityZones"}
#: The listings of load balancers at a start. Without load balancers, there are no tags to list.
BOTH_TYPES = {"DescribeLoadBalancers": 1, "classic DescribeLoadBalancers": 1}
LISTING = {**BOTH_TYPES, "DescribeTags": 1}
#: The calls for the first change of Nodes after a start. They include READS, because the process does not know the load
#: balancer yet.
READS = ("LoadBalancers", "Tags", "TargetGroups", "SecurityGroups")
FIRST_CHANGE = Counter([*map("Describe{}".format, (*READS, "TargetHealth")), "RegisterTargets", "AddTags"])
#: Calls for a new load balancer: for its parts, and one read that shows it active.
NEW_WITH_ONE_PORT, UNTIL_ACTIVE = 10, 1

Start = Callable[..., AbstractAsyncContextManager[Ccm]]


@pytest.fixture
def start(
    apiserver: ApiServer,
    kube: KubeClient,
    account: Account,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Start:
    """Return a function that runs a `ccm` process at --v=9; keyword arguments become flags. Neither keys nor a
    traceback may be in its log."""
    given = config(account, proxy)
    path = tmp_path / "cloud.conf"
    path.write_text(given.text)
    for name, value in given.environment.items():
        monkeypatch.setenv(name, value)

    @contextlib.asynccontextmanager
    async def run(**flags: Any) -> AsyncIterator[Ccm]:
        port = free_port()
        values = {
            "cloud-provider": "aws",
            "cloud-config": path,
            "kubeconfig": apiserver.kubeconfig(),
            "bind-address": "127.0.0.1",
            "secure-port": port,
            "leader-elect": "false",
            "v": 9,
        } | {name.replace("_", "-"): value for name, value in flags.items()}
        ccm = Ccm([f"--{name}={value}" for name, value in values.items()], tmp_path / "ccm.log", port)
        try:
            yield ccm
        finally:
            await ccm.stop()
            print(ccm.text)
        assert "Traceback" not in ccm.text
        assert not any(value in ccm.text for value in KEYS.values())

    return run


async def register(kube: KubeClient, machine: Row, number: int) -> str:
    """Create the Node of an instance, as its kubelet does. Return the Node's name."""
    name = str(machine["PrivateDnsName"])
    await kube.create(NODES, node_body(name, number=number))
    return name


async def create_service(kube: KubeClient, *ports: dict[str, Any]) -> str:
    """Create the Service `web`, and wait until it has an address. Return the name of its load balancer."""
    meta = {"name": "web", "annotations": {f"{PREFIX}type": "nlb"}}
    spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": list(ports or (HTTP,))}
    await kube.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})

    async def served() -> bool:
        return bool((await get_service(kube, "web")).status.load_balancer.ingress)

    await eventually(served)
    uid = (await get_service(kube, "web")).metadata.uid
    return f"a{uid.replace('-', '')}"[:32]


def has_targets(account: Account, name: str, machines: list[Row]) -> Callable[[], Any]:
    """Return a condition: all listeners of the load balancer send to these instances, and to no others."""
    wanted = sorted(each["InstanceId"] for each in machines)

    async def check() -> bool:
        listeners = account.balancer(name)["listeners"]
        return bool(listeners) and all([id for id, _ in each["targets"]] == wanted for each in listeners)

    return check


def about_balancers(proxy: Proxy, since: int) -> Counter[str]:
    counted = proxy.counted(since)
    return Counter({call: number for call, number in counted.items() if call not in ABOUT_NODES})


async def test_nodes_routes_and_a_service_from_their_creation_to_their_end(
    start: Start, account: Account, kube: KubeClient
) -> None:
    machines = [account.run(zone=zone) for zone in "abab"]
    names = [await register(kube, machine, number) for number, machine in enumerate(machines, 1)]
    flags = {"node-monitor-period": "1s", "node-deletion-min-age": "0s", "cluster-cidr": CLUSTER_CIDR}
    async with start(**flags, configure_cloud_routes="true"):
        await eventually(lambda: initialised(kube, *names))
        for name, machine, zone in zip(names, machines, "abab", strict=True):
            node = await get_node(kube, name)
            assert node is not None
            assert node.spec.provider_id == f"aws:///{REGION}{zone}/{machine['InstanceId']}"
            shown = account.instance(machine["InstanceId"])
            assert [(each.type, each.address) for each in node.status.addresses] == [
                ("InternalIP", shown["PrivateIpAddress"]),
                *([("ExternalIP", shown["PublicIpAddress"])] if shown.get("PublicIpAddress") else []),
                ("InternalDNS", name),
                ("Hostname", name),
                *([("ExternalDNS", shown["PublicDnsName"])] if shown.get("PublicDnsName") else []),
            ]
            labels = node.metadata.labels
            assert labels["topology.kubernetes.io/zone"] == f"{REGION}{zone}"
            assert labels["topology.kubernetes.io/region"] == REGION
            assert labels["node.kubernetes.io/instance-type"] == "t3.small"
            assert labels["topology.k8s.aws/zone-id"]
        await eventually(lambda: _is_routed(account, dict(enumerate(machines, 1))))

        balancer = await create_service(kube, HTTP)
        await eventually(has_targets(account, balancer, machines))
        (ingress,) = (await get_service(kube, "web")).status.load_balancer.ingress
        assert ingress.hostname == account.balancer(balancer)["dns"]

        machines.append(account.run(zone="a"))
        names.append(await register(kube, machines[-1], 5))
        await eventually(lambda: initialised(kube, *names))
        await eventually(has_targets(account, balancer, machines))
        await eventually(lambda: _is_routed(account, dict(enumerate(machines, 1))))

        account.terminate(machines[1]["InstanceId"])

        async def is_deleted() -> bool:
            return await get_node(kube, names[1]) is None

        await eventually(is_deleted)
        kept = {number: machine for number, machine in enumerate(machines, 1) if number != 2}
        await eventually(has_targets(account, balancer, list(kept.values())))
        await eventually(lambda: _is_routed(account, kept))
        for name in {*names} - {names[1]}:
            assert await get_node(kube, name) is not None

        await kube.delete(f"{SERVICES}/web")
        await eventually(lambda: _is_deleted(kube))
        assert account.parts() == frozenset()


@pytest.mark.parametrize("count", [2, 2 * PAGE + 1])
async def test_nodes_take_the_pages_of_a_listing_and_one_call(
    start: Start, account: Account, proxy: Proxy, kube: KubeClient, count: int
) -> None:
    names = [await register(kube, account.run(zone="ab"[each % 2]), each) for each in range(1, count + 1)]
    async with start(controllers="cloud-node"):
        await eventually(lambda: initialised(kube, *names))
    pages = -(-count // PAGE)
    assert proxy.counted() == {"DescribeAvailabilityZones": 1, "DescribeInstances": pages}


async def test_a_load_balancer_takes_few_calls(start: Start, account: Account, proxy: Proxy, kube: KubeClient) -> None:
    machines = [account.run(zone=zone) for zone in "aba"]
    names = [await register(kube, machine, number) for number, machine in enumerate(machines, 1)]
    flags = {"controllers": "cloud-node,service"}
    async with start(**flags):
        await eventually(lambda: initialised(kube, *names))
        await eventually(lambda: _has_listed(proxy, 0, len(BOTH_TYPES)))
        since = len(proxy.calls)
        balancer = await create_service(kube, HTTP)
        await eventually(lambda: _is_served(kube))
        created = await calls_in_the_end(kube, proxy, since)
        assert created.total() == NEW_WITH_ONE_PORT + UNTIL_ACTIVE, created

        machines.append(account.run())
        since = len(proxy.calls)
        names.append(await register(kube, machines[-1], 4))
        await eventually(has_targets(account, balancer, machines))
        assert await calls_in_the_end(kube, proxy, since) == {"RegisterTargets": 1, "AddTags": 1}

        since = len(proxy.calls)
        await kube.delete(f"{NODES}/{names[0]}")
        await eventually(has_targets(account, balancer, machines[1:]))
        assert await calls_in_the_end(kube, proxy, since) == {"DeregisterTargets": 1, "AddTags": 1}

        since = len(proxy.calls)
        await kube.patch(f"{SERVICES}/web", {"metadata": {"labels": {"team": "a"}}})
        assert await calls_in_the_end(kube, proxy, since) == {}

    since = len(proxy.calls)
    async with start(**flags):
        await eventually(lambda: _has_listed(proxy, since))
        assert await calls_in_the_end(kube, proxy, since) == LISTING

        since = len(proxy.calls)
        await register(kube, machines[0], 1)
        await eventually(has_targets(account, balancer, machines))
        assert await calls_in_the_end(kube, proxy, since) == FIRST_CHANGE


async def test_instances_of_nodes_are_tagged_for_few_calls(
    start: Start, account: Account, proxy: Proxy, kube: KubeClient
) -> None:
    machines = [account.run(zone=zone) for zone in "abab"]
    other = account.run()
    names = [await register(kube, machine, number) for number, machine in enumerate(machines, 1)]

    def tags(machine: Row) -> dict[str, str]:
        shown = account.instance(machine["InstanceId"])["Tags"]
        return {each["Key"]: each["Value"] for each in shown}

    before = tags(other)

    async def is_tagged() -> bool:
        return all(tags(each) == {**before, "team": "a", "stage": ""} for each in machines)

    async with start(controllers="cloud-node,instance-tags", instance_tags="team=a,stage="):
        await eventually(lambda: initialised(kube, *names))
        await eventually(is_tagged)
    assert tags(other) == before
    assert proxy.counted()["CreateTags"] == 1


async def calls_in_the_end(kube: KubeClient, proxy: Proxy, since: int) -> Counter[str]:
    """Wait until the Service controller has done all its work, and return the calls about load balancers.

    For that, create a Service that the controller refuses without a call, and wait for its Event. The Service is
    deleted afterwards, because a later change of Nodes would affect it, too.
    """
    meta = {"name": "last", "annotations": {f"{PREFIX}type": "nlb", f"{PREFIX}misspelled": "1"}}
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    made = await kube.create(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
    refused = {"fieldSelector": f"reason=SyncLoadBalancerFailed,involvedObject.uid={made.uid}"}

    async def is_refused() -> bool:
        return bool((await kube.get("/api/v1/events", dict, params=refused))["items"])

    await eventually(is_refused)
    calls = about_balancers(proxy, since)
    await kube.delete(f"{SERVICES}/last")
    await eventually(lambda: _is_deleted(kube, "last"))
    return calls


async def _is_served(kube: KubeClient) -> bool:
    return bool((await get_service(kube, "web")).status.load_balancer.ingress)


async def _has_listed(proxy: Proxy, since: int, calls: int = len(LISTING)) -> bool:
    return about_balancers(proxy, since).total() >= calls


async def _is_routed(account: Account, machines: dict[int, Row]) -> bool:
    """Return whether the cluster's route table has a route to each instance by its number, and no other to
    instances."""
    (table,) = account.ec2.describe_route_tables(RouteTableIds=[account.table])["RouteTables"]
    found = {each["DestinationCidrBlock"]: each["InstanceId"] for each in table["Routes"] if each.get("InstanceId")}
    return found == {f"10.244.{number}.0/24": machine["InstanceId"] for number, machine in machines.items()}


async def _is_deleted(kube: KubeClient, name: str = "web") -> bool:
    try:
        await get_service(kube, name)
    except NotFoundError:
        return True
    return False


async def test_volumes_get_the_zone_of_their_disk(
    start: Start, account: Account, proxy: Proxy, kube: KubeClient
) -> None:
    """Volumes of the CSI driver and of the in-tree plug-in get labels. An unknown volume is reported, and does not
    affect the others."""
    zones = {"csi": "a", "in-tree": "b", "zoned": "b", "gone": ""}
    handles = {name: account.create_volume(zone) if zone else GONE for name, zone in zones.items()}
    sources = {
        "csi": {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": handles["csi"]}},
        "in-tree": {"awsElasticBlockStore": {"volumeID": f"aws:///{handles['in-tree']}"}},
        "zoned": {"awsElasticBlockStore": {"volumeID": f"aws://{REGION}b/{handles['zoned']}"}},
        "gone": {"awsElasticBlockStore": {"volumeID": handles["gone"]}},
    }
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    body = {"apiVersion": "v1", "kind": "PersistentVolume"}
    for name, source in sources.items():
        await kube.create(VOLUMES, {**body, "metadata": {"name": name}, "spec": {**spec, **source}})
    since = len(proxy.calls)

    async def found(name: str) -> tuple[Any, Any]:
        body = await kube.get(f"{VOLUMES}/{name}", dict)
        return body["metadata"].get("labels"), body["spec"].get("nodeAffinity")

    async def are_labelled() -> bool:
        return all([(await found(name))[0] for name, zone in zones.items() if zone])

    async with start(controllers="pvlabel", configure_cloud_routes="false"):
        await eventually(are_labelled)
        (message,) = await eventually(lambda: event_messages(kube, "VolumeNotLabelled", "gone"))
        assert GONE in message
    for name, zone in zones.items():
        labels, affinity = await found(name)
        if not zone:
            assert labels is None and affinity is None
            continue
        assert labels == {f"{TOPOLOGY}zone": f"{REGION}{zone}", f"{TOPOLOGY}region": REGION}
        (term,) = affinity["required"]["nodeSelectorTerms"]
        assert {each["key"]: each["values"] for each in term["matchExpressions"]} == {
            key: [value] for key, value in labels.items()
        }
    calls = proxy.counted(since)["DescribeVolumes"]
    assert calls <= 2, "one for all, and one more for what is asked again"
