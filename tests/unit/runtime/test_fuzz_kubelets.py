# SPDX-License-Identifier: Apache-2.0
"""Nodes that a kubelet writes to harm others, from the wire to the cloud: their text is only ever data.

Only typed exceptions are raised, no callback holds the event loop, no controller stops, and healthy Nodes beside the
hostile ones are initialised, routed and served. FUZZ_EXAMPLES makes the tests search longer (`fuzzing.py`).
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import ipaddress
import json
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Address, AddressType, CloudError, Instance
from ccm.commands.explain import explain_node
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.node import age_seconds
from ccm.controllers.routes import route_rules
from ccm.controllers.shared import cache_rules, pod_network_rules
from ccm.controllers.shared.rule_error import RuleError
from ccm.engine.objects import UNREADABLE, Node, decoder
from ccm.gateway.instance_snapshot import Snapshot
from ccm.manager.logs import MESSAGE_LIMIT

from .controllers import nodes_harness
from .controllers.nodes_harness import machine
from .controllers.services_harness import CLUSTER_CIDR, Cluster, until
from .fuzzing import bounded
from .gateway.virtual import VirtualLoop
from .hostile import LARGEST_NODES, NODE
from .loop_watch import LoopWatch, quick, watched

pytestmark = pytest.mark.threat("tenant-cannot-stop-the-controller")

INSTANCE = Instance("fake://hostile", "hostile", "t", "z", "r", (Address(AddressType.INTERNAL_IP, "10.9.9.9"),))
T = TypeVar("T")
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def named(document: dict[str, Any], name: str = "hostile") -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "name": name, "uid": f"uid-of-{name}"}}


def decoded(document: dict[str, Any]) -> Node | None:
    """Return the Node as the informer keeps it; None if it cannot be decoded."""
    try:
        return cache_rules.kept_node(decoder(Node).decode(json.dumps(named(document)).encode()))
    except UNREADABLE:
        return None


def judge(node: Node) -> None:
    """Run the rules that decide about a single Node."""
    snapshot = Snapshot.of([INSTANCE, machine("healthy")], 0.0, 1)
    for what, arguments in (
        (node_rules.may_succeed_now, (node, node)),
        (node_rules.is_ready, (node,)),
        (node_rules.plan_initialisation, (node, INSTANCE)),
        (node_rules.plan_repair, (node, INSTANCE)),
        (node_rules.status_patch, (node, INSTANCE)),
        (node_rules.other_machine, (node, INSTANCE, [INSTANCE])),
        (node_rules.taints_without, (node.spec.taints, node_rules.UNINITIALIZED_TAINT)),
        (snapshot.find, (node_rules.instance_ref(node),)),
        (route_rules.condition_patch, (node, True, "2026-01-01T00:00:00Z")),
        (age_seconds, (node, NOW)),
        (explain_node.explain, (node, None, [], "kube-system/ccm", NOW)),
    ):
        answer = quick(functools.partial(what, *arguments), (RuleError, CloudError))  # type: ignore[arg-type]
        if isinstance(answer, RuleError):
            assert len(str(answer)) < 2000, "a message is short"


@bounded(100)
@given(NODE)
def test_the_rules_answer_or_say_what_is_wrong(document: dict[str, Any]) -> None:
    if (node := decoded(document)) is not None:
        judge(node)


@pytest.mark.parametrize("document", LARGEST_NODES.values(), ids=LARGEST_NODES)
def test_the_rules_bear_the_largest_nodes(document: dict[str, Any]) -> None:
    node = decoded(document)
    assert node is not None
    judge(node)


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


async def initialise_beside(documents: list[dict[str, Any]], watch: LoopWatch) -> None:
    """Run both node controllers beside hostile Nodes: healthy ones, older and newer than those, are initialised and
    not deleted."""
    machines = [machine(name, f"10.0.0.{number}") for number, name in enumerate(("before", "after", "hostile"), 1)]
    async with nodes_harness.Cluster(*machines) as c:
        watch.excuse(c.api, "_send", "_carried_out", "put")
        c.api.add("before")
        for number, document in enumerate(documents):
            add(c, number, document)
        tasks = [c.initialise_nodes(refresh=30.0), c.watch_over_nodes()]
        await until(lambda: not c.api.tainted("before"), 3600)
        c.api.add("after")
        await until(lambda: not c.api.tainted("after"), 3600)
        await asyncio.sleep(400)  # refreshes, and passes of the lifecycle controller
        assert {"before", "after"} <= c.api.nodes.keys()
        assert c.api.addresses("after") == [("InternalIP", "10.0.0.2")]
        assert not any(task.done() for task in tasks)
        for event in c.api.events:
            assert event["message"].isprintable() and len(event["message"].encode()) <= 1024


def add(c: nodes_harness.Cluster, number: int, document: dict[str, Any]) -> None:
    document = named(document, f"hostile-{number}" if number else "hostile")
    document = {**document, "spec": {"taints": [], **document["spec"]}}
    document["metadata"] = {"labels": {}, "annotations": {}, **document["metadata"]}
    c.api.put("nodes", document)


def usable(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the documents that can be decoded: the harness's list refuses others, where a real informer keeps the
    last known state."""
    return [document for document in documents if decoded(document) is not None]


@bounded(12)
@given(st.lists(NODE, min_size=1, max_size=6))
def test_a_healthy_node_is_initialised_beside(documents: list[dict[str, Any]]) -> None:
    watched(lambda watch: run(initialise_beside(usable(documents), watch)))


@pytest.mark.parametrize("document", LARGEST_NODES.values(), ids=LARGEST_NODES)
def test_a_healthy_node_is_initialised_beside_the_largest(document: dict[str, Any], caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    watched(lambda watch: run(initialise_beside([document], watch)))


async def route_and_serve_beside(documents: list[dict[str, Any]], watch: LoopWatch) -> Cluster:
    """Run the service and route controllers beside hostile Nodes: healthy ones are routed and served. Returns the
    cluster with what its cloud received."""
    async with Cluster() as c:
        watch.excuse(c.api, "_send", "_carried_out", "put")
        instances(c)
        c.add_node("healthy", "10.120.200.0/24")
        c.add_service("web")
        for number, document in enumerate(documents):
            c.api.put("nodes", named(document, f"hostile-{number}"))
        c.serve()
        c.route()
        await c.served("web")
        await until(lambda: c.api.condition("healthy") == ("False", "RouteCreated"), 3600)
        tasks = set(c._tasks)
        for number, document in enumerate(documents):  # a kubelet writes again and again
            c.api.put("nodes", named({**document, "status": {"addresses": []}}, f"hostile-{number}"))
        c.add_node("late", "10.120.201.0/24", addresses=("10.0.0.8",))
        await until(lambda: "late" in c.cloud.hosts("web"), 3600)
        await until(lambda: ("10.120.201.0/24", "late") in c.routes.table(), 3600)
        assert ("10.120.200.0/24", "healthy") in c.routes.table()
        assert not any(task.done() for task in tasks)
    return c


def instances(c: Cluster) -> None:
    """Give the cloud three instances, whatever the Nodes say."""
    known = [machine("healthy", "10.0.0.1"), machine("late", "10.0.0.8"), machine("hostile", "10.9.9.9")]
    c.machines.all = lambda: known


@bounded(12)
@given(st.lists(NODE, min_size=1, max_size=6))
def test_a_healthy_node_is_routed_and_served_beside(documents: list[dict[str, Any]]) -> None:
    watched(lambda watch: run(route_and_serve_beside(usable(documents), watch)))


@pytest.mark.parametrize("document", LARGEST_NODES.values(), ids=LARGEST_NODES)
def test_a_healthy_node_is_routed_and_served_beside_the_largest(document: dict[str, Any], caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    watched(lambda watch: run(route_and_serve_beside([document], watch)))
    assert all(
        len(record.getMessage()) < MESSAGE_LIMIT
        for record in caplog.records
        if record.name.startswith("ccm.controllers.services.service")
    )


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@pytest.mark.threat("kubelet-own-addresses-only")
@bounded(40)
@given(st.lists(NODE, min_size=1, max_size=6))
def test_nothing_is_written_but_what_the_cloud_vouches_for(documents: list[dict[str, Any]]) -> None:
    cluster = run(route_and_serve_beside(usable(documents), LoopWatch()))
    networks = pod_network_rules.parse_cluster_cidrs(CLUSTER_CIDR)
    own = {"healthy": "10.120.200.0/24", "late": "10.120.201.0/24"}
    for route in cluster.routes.routes.values():
        network = ipaddress.ip_network(route.destination)
        assert any(network.version == each.version and network.subnet_of(each) for each in networks), route
        assert network.prefixlen >= (24 if network.version == 4 else 64), route
        for name, cidr in own.items():
            assert not network.overlaps(ipaddress.ip_network(cidr)) or route.provider_id == f"fake://{name}", route
    known = {"fake://healthy": {"10.0.0.1"}, "fake://late": {"10.0.0.8"}, "fake://hostile": {"10.9.9.9"}}
    for row in cluster.cloud.made.values():
        for backend in row["backends"]:
            ips = {each.address for each in backend.addresses if each.type.endswith("IP")}
            assert ips <= known[backend.provider_id], backend
