# SPDX-License-Identifier: Apache-2.0
"""The released cloud-provider-aws and our runtime make equal Nodes, except for the listed differences. The calls of
both are counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm.controllers.nodes.node_rules import PROVIDED_NODE_IP
from ccm.engine.client import KubeClient
from ccm.providers.aws import LAG
from ccm.providers.aws.annotations import PREFIX
from tests.comparison import confirm, confirm_calls
from tests.comparison.peer_process import PeerProcess
from tests.integration.runtime.support import NODES, SERVICES, TAINT, eventually, get_service, node_body, set_ready

from .account import REGION, Account, Row
from .peer import Two, conf
from .test_process import has_targets

# `make test-clouds` runs these tests, but CI does not, because another program must be compiled first.
pytestmark = pytest.mark.long

SECONDS = 120.0
#: Seconds from the start of our runtime to its first comparison.
COMPARES = 30.0
#: How many times cloud-provider-aws must fail with a Node before that counts as a refusal.
TRIES = 3
#: The maximum number of our runtime's calls about a Classic Load Balancer, for each operation.
CLASSIC_CALLS = {"create": 11, "unchanged": 5, "node joins": 6, "node leaves": 2, "port added": 9, "delete": 8}
DOMAIN = f"{REGION}.compute.internal"
#: Lines of Global, and the key that has the cluster's name.
CLOUD_CONFS = {
    "as it is": ("", "KubernetesClusterID"),
    "both families": ("NodeIPFamilies = ipv6\nNodeIPFamilies = ipv4", "KubernetesClusterID"),
    "a zone and the older tag": (f"Zone = {REGION}b", "KubernetesClusterTag"),
}
#: Nodes that our runtime initialises and cloud-provider-aws does not, and the row of docs/providers/aws.md about each.
DIFFERENCES = {
    "untagged": "an instance without the cluster's tag",
    "renamed": "the name of a Node without a providerID",
}
PAGE = Path(__file__).parents[3] / "docs" / "providers" / "aws.md"


def machines(account: Account) -> dict[str, dict[str, Any]]:
    """Create instances, and return their Nodes as kubelets register them, each under a word that says what is special
    about the Node."""
    found: dict[str, dict[str, Any]] = {}

    def add(title: str, machine: Row, name: str = "", **spec: Any) -> dict[str, Any]:
        found[title] = node_body(name or str(machine["PrivateDnsName"]), **spec)
        return found[title]

    add("plain", account.run())
    add("elsewhere", account.run(zone="b", InstanceType="m5.large"))
    private = {"SubnetId": account.subnets["private-b"], "PrivateIpAddress": "10.0.3.50"}
    add("without a public address", account.run(**private))
    wide = account.run()
    nic = account.ec2.create_network_interface(SubnetId=account.subnets["private-a"], PrivateIpAddress="10.0.1.77")
    account.ec2.attach_network_interface(
        NetworkInterfaceId=nic["NetworkInterface"]["NetworkInterfaceId"], InstanceId=wide["InstanceId"], DeviceIndex=1
    )
    more = [
        {"index": 0, "more": ["10.0.0.201"], "ipv6": ["2001:db8::1", "2001:db8::2"]},
        {"index": 1, "ipv6": ["2001:db8:1::1"]},
    ]
    account.moto.control(do="addresses", instance=wide["InstanceId"], interfaces=more)
    add("several interfaces", wide)
    chosen = add("node-ip", account.run())
    chosen["metadata"]["annotations"] = {PROVIDED_NODE_IP: str(account.run()["PrivateIpAddress"])}
    machine = account.run()
    add("own node-ip", machine)["metadata"]["annotations"] = {PROVIDED_NODE_IP: str(machine["PrivateIpAddress"])}
    for title, suffix in (("by ID", ""), ("by ID and domain", f".{DOMAIN}")):
        id = account.run()["InstanceId"]
        account.moto.control(do="name", instance=id, name=f"{id}.{DOMAIN}")
        add(title, {}, f"{id}{suffix}")
    machine = account.run(zone="b")
    provider_id = f"aws:///{REGION}b/{machine['InstanceId']}"
    add("by providerID", machine, "any-name", providerID=provider_id)
    machine = account.run()
    add("by an older providerID", machine, "another-name", providerID=f"aws:////{machine['InstanceId']}")
    add("labelled", account.run())["metadata"]["labels"] = {"topology.k8s.aws/zone-id": "own", "team": "a"}
    add("untagged", account.run(TagSpecifications=None))
    machine = account.run()
    account.moto.control(do="name", instance=machine["InstanceId"], name=f"{machine['InstanceId']}.{DOMAIN}")
    add("renamed", machine)
    add("without an instance", {}, f"ip-10-0-0-254.{DOMAIN}")
    return found


@pytest.fixture(scope="module")
def equal() -> Iterator[list[bool]]:
    """Yield a list to which the tests add whether each Node was equal. If they ran with every cloud.conf, confirm the
    number in the docs.
    """
    found: list[bool] = []
    yield found
    if len(found) % len(CLOUD_CONFS) == 0 and found:
        by_design = len(CLOUD_CONFS) * len(DIFFERENCES)
        assert len(found) - sum(found) == by_design
        confirm("aws", "nodes equal", f"{sum(found)} of {len(found)}, the others by design")


@pytest.mark.parametrize("case", CLOUD_CONFS)
async def test_nodes_are_equal(case: str, equal: list[bool], two: Two, kube: KubeClient) -> None:
    """From equal registrations, both controllers make equal Nodes, except for DIFFERENCES. All fields are compared."""
    more, cluster = CLOUD_CONFS[case]
    text = conf(two.account, two.proxy, more, cluster)
    nodes = machines(two.account)
    found: dict[str, dict[str, Any]] = {}
    for which in ("theirs", "ours"):
        async with two.running(which, text) as process:
            for each in nodes.values():
                await kube.create(NODES, each)
            found[which] = await eventually(lambda: _answers(kube, nodes, process), SECONDS, f"answers of {which}")
        for each in nodes.values():
            await kube.delete(f"{NODES}/{each['metadata']['name']}")
    ours, theirs = found["ours"], found["theirs"]
    refused = ("node-ip", "without an instance")
    assert [title for title in nodes if TAINT in ours[title]["spec"].get("taints", ())] == [*refused]
    equal += [theirs[title] == ours[title] for title in nodes]
    different = {title: (theirs[title], ours[title]) for title in nodes if theirs[title] != ours[title]}
    assert different.keys() == DIFFERENCES.keys(), different
    assert all(TAINT in theirs[title]["spec"]["taints"] for title in DIFFERENCES)


def test_the_page_lists_each_difference_of_nodes() -> None:
    rows = PAGE.read_text(encoding="utf-8").partition("## Differences from cloud-provider-aws")[2].splitlines()
    assert set(DIFFERENCES.values()) <= {row.split(" | ")[0].removeprefix("| ") for row in rows}


async def _answers(kube: KubeClient, nodes: dict[str, Any], process: Any) -> dict[str, Any]:
    """Return all Nodes by title, without the fields that the API server sets; {} until each Node is initialised or
    refused."""
    found = {node["metadata"]["name"]: node for node in (await kube.get(NODES, dict))["items"]}
    events = (await kube.get("/api/v1/events", dict))["items"]
    answers = {}
    for title, registered in nodes.items():
        node = found[registered["metadata"]["name"]]
        name, uid = node["metadata"].pop("name"), node["metadata"].pop("uid")
        if TAINT in node["spec"].get("taints", ()):
            if isinstance(process, PeerProcess):
                is_refused = len(re.findall(rf"error syncing '{re.escape(name)}'", process.text)) >= TRIES
            else:
                is_refused = any(
                    each["involvedObject"].get("uid") == uid and each["type"] == "Warning" for each in events
                )
            if not is_refused:
                return {}
        elif not node["status"].get("addresses"):
            return {}  # cloud-provider-aws writes the addresses last
        for key in ("resourceVersion", "creationTimestamp", "managedFields"):
            node["metadata"].pop(key, None)
        for taint in node["spec"].get("taints", ()):
            taint.pop("timeAdded", None)
        answers[title] = node
    return answers


async def test_calls(two: Two, kube: KubeClient) -> None:
    """The calls are counted for two Nodes and a Service of two ports, a Node that joins and leaves, a port that is
    added, and the deletion."""
    theirs = await _counted(two, kube, "theirs")
    ours = await _counted(two, kube, "ours")
    for operation, calls in ours.items():
        print(operation, "ours", dict(calls), "theirs", dict(theirs[operation]))
    for operation, calls in ours.items():
        confirm_calls("aws", operation, ours=calls.total(), theirs=theirs[operation].total())


async def test_calls_about_a_classic_load_balancer(two: Two, kube: KubeClient) -> None:
    """A Service without a type needs no more calls than CLASSIC_CALLS, and no more than cloud-provider-aws sends."""
    theirs = await _counted(two, kube, "theirs", "")
    ours = await _counted(two, kube, "ours", "")
    for operation, calls in ours.items():
        print(operation, "ours", dict(calls), "theirs", dict(theirs[operation]))
    for operation, most in CLASSIC_CALLS.items():
        assert ours[operation].total() <= most, (operation, ours[operation])
        assert ours[operation].total() <= theirs[operation].total(), operation


async def _counted(two: Two, kube: KubeClient, which: str, type_: str = "nlb") -> dict[str, Counter[str]]:
    """Return the calls of each operation. `type_`: of the load balancer, "" for a Classic one. The test restarts our
    runtime before it has run for 30 s, because after that time it reads load balancers to compare them with their
    Services. The deletion comes LAG after the last write, because sooner the runtime would search again for parts that
    are listed late (test_load_balancers).
    """
    account, text = two.account, conf(two.account, two.proxy)
    made = [account.run(zone=zone) for zone in "aba"]
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in (80, 443, 8443)]
    spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports[:2]}
    meta = {"name": "web", "annotations": {f"{PREFIX}type": type_} if type_ else {}}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}

    def has(count: int, listeners: int) -> Any:
        async def check() -> bool:
            service = await get_service(kube, "web")
            if not service.status.load_balancer.ingress:
                return False
            name = f"a{service.metadata.uid.replace('-', '')}"[:32]
            if not type_:
                found = account.classic_balancer(name)
                wanted = sorted(each["InstanceId"] for each in made[:count])
                return len(found["ListenerDescriptions"]) == listeners and bool(found["Instances"] == wanted)
            shown = account.balancer(name)["listeners"]
            return len(shown) == listeners and await has_targets(account, name, made[:count])()

        return check

    async def gone() -> bool:
        names = [each["metadata"]["name"] for each in (await kube.get(SERVICES, dict))["items"]]
        return "web" not in names and account.parts() == frozenset()

    async def joins(number: int) -> None:
        name = str(made[number]["PrivateDnsName"])
        await kube.create(NODES, node_body(name, number=number + 1))
        await set_ready(kube, name, "True")

    async def are_initialised(count: int) -> bool:
        nodes = {node["metadata"]["name"]: node for node in (await kube.get(NODES, dict))["items"]}
        wanted = [nodes[str(each["PrivateDnsName"])] for each in made[:count]]
        return all(TAINT not in node["spec"].get("taints", ()) and node["status"].get("addresses") for node in wanted)

    more = {"spec": {"ports": ports}}
    last = f"{NODES}/{made[2]['PrivateDnsName']}"
    operations: dict[str, tuple[Any, Any]] = {
        "create": (lambda: kube.create(SERVICES, body), has(2, 2)),
        "unchanged": (None, has(2, 2)),
        "node joins": (lambda: joins(2), has(3, 2)),
        "node leaves": (lambda: kube.delete(last), has(2, 2)),
        "port added": (lambda: kube.patch(f"{SERVICES}/web", more), has(2, 3)),
        "delete": (lambda: kube.delete(f"{SERVICES}/web"), gone),
    }
    found: dict[str, Counter[str]] = {}
    async with contextlib.AsyncExitStack() as process:
        for number in (0, 1):
            await joins(number)
        since = len(two.proxy.calls)
        await process.enter_async_context(two.running(which, text))
        started = time.monotonic()
        await eventually(lambda: are_initialised(2), SECONDS, "two Nodes are initialised")
        found["nodes initialised"] = await two.quiet(since)
        for operation, (act, done) in operations.items():
            since = len(two.proxy.calls)
            is_late = operation == "port added" or time.monotonic() - started > COMPARES / 2
            if operation == "delete":
                await asyncio.sleep(LAG)
            elif act is None or (which == "ours" and is_late):
                await process.aclose()
                since = len(two.proxy.calls)
                await process.enter_async_context(two.running(which, text))
                started = time.monotonic()
                await two.quiet(since, some=True)
            if act is not None:
                since = len(two.proxy.calls)
                await act()
            await eventually(done, SECONDS, f"{operation}: {which}")
            found[operation] = await two.quiet(since)
    for each in made[:2]:
        await kube.delete(f"{NODES}/{each['PrivateDnsName']}")
    for each in made:
        account.terminate(each["InstanceId"])
    return found
