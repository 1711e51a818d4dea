# SPDX-License-Identifier: Apache-2.0
"""If lists and watches of the API server omit existing objects, no load balancer and no member is lost.

Existing objects are missing from a wrong list. With a restored etcd, single reads do not find them either.
"""

import asyncio

import pytest
from prometheus_client import REGISTRY

from ccm.cloud import RetryAfter
from ccm.controllers.shared.orphan_rules import GRACE
from ccm.engine.api_errors import UnavailableError

from ..gateway.virtual import in_virtual_time
from .services_harness import Cluster, until


def populate(cluster, services=10, nodes=6):
    for number in range(nodes):
        cluster.add_node(f"n{number}", f"10.120.{number}.0/24")
    for number in range(services):
        cluster.add_service(f"s{number}", port=100 + number)
    return [f"s{number}" for number in range(services)]


def list_wrongly(cluster, kind, left):
    """Let the next list of this kind have only the first `left` objects, and end all watches."""
    cluster.api.wrong_lists[kind] = [list(cluster.api.objects[kind].values())[:left]]
    cluster.api.expire()


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("restored", [False, True], ids=["wrong", "restored"])
def test_a_list_without_most_services_deletes_no_load_balancer(left, restored):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            names = populate(c)
            c.serve(audit_period=0.0)
            await c.served(*names)
            if restored:
                lost = {key: c.api.objects["services"].pop(key) for key in list(c.api.objects["services"])[left:]}
            else:
                list_wrongly(c, "services", left)
            c.api.expire()
            await asyncio.sleep(3600)
            assert len(c.cloud.made) == len(names) and c.cloud.count("delete") == 0
            if restored:
                c.api.objects["services"] |= lost
                c.api.expire()
            await asyncio.sleep(100)
            writes = c.cloud.count("ensure", "update")
            c.api.delete_service("s9")  # everything still works
            c.add_node("n9")
            await until(lambda: "uid-of-s9" not in c.cloud.made and len(c.cloud.hosts("s8")) == 7)
            assert c.cloud.count("delete") == 1 and c.cloud.count("ensure", "update") - writes in (9, 10)

    run()


@pytest.mark.parametrize("left", [0, 1, 3, 5])
def test_a_list_without_nodes_takes_no_member_from_a_load_balancer(left):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            names = populate(c)
            c.serve()
            await c.served(*names)
            await until(lambda: len(c.cloud.hosts("s0")) == 6)
            updates = c.cloud.count("update", "ensure")
            list_wrongly(c, "nodes", left)
            await asyncio.sleep(600)
            assert c.cloud.count("update", "ensure") == updates
            assert all(len(c.cloud.hosts(name)) == 6 for name in names)

    run()


@in_virtual_time
async def test_a_node_that_went_while_nobody_watched_is_no_member():
    async with Cluster() as c:
        (name,) = populate(c, services=1)
        c.serve()
        await c.served(name)
        await until(lambda: len(c.cloud.hosts(name)) == 6)
        del c.api.objects["nodes"]["n5"]
        c.api.expire()
        await until(lambda: len(c.cloud.hosts(name)) == 5)


def strip(cluster, *names):
    """Remove Services as `kubectl patch` of the finalizers and `kubectl delete` do. Returns their last state."""
    lost = [cluster.api.service(name) for name in names]
    for name in names:
        cluster.api.remove("services", f"shop/{name}")
    return lost


@in_virtual_time
async def test_a_service_that_only_seemed_to_vanish_keeps_its_load_balancer_untouched():
    """For a while, the watch comes from another cluster, or etcd has an older state. Then everything is right again."""
    async with Cluster() as c:
        names = populate(c)
        controller = c.serve()
        await c.served(*names)
        await asyncio.sleep(20)
        writes, lost = c.cloud.count("ensure", "update", "delete"), strip(c, "s0", "s1")
        await asyncio.sleep(GRACE - 10)
        for document in lost:
            c.api.put("services", document)
        await asyncio.sleep(3 * GRACE)
        assert c.cloud.count("ensure", "update", "delete") == writes and not controller._vanished.states


@in_virtual_time
async def test_a_service_that_a_read_finds_was_never_gone():
    async with Cluster() as c:
        names = populate(c)
        c.serve()
        await c.served(*names)
        kept = c.api.objects["services"]["shop/s0"]
        c.api.remove("services", "shop/s0")
        c.api.objects["services"]["shop/s0"] = kept  # the watch does not show this
        await asyncio.sleep(5 * GRACE)
        assert c.cloud.count("delete") == 0
        c.api.change("services", "shop/s0", {"metadata": {"annotations": {"x": "y"}}})
        c.api.delete_service("s0")
        await until(lambda: "uid-of-s0" not in c.cloud.made)


@pytest.mark.parametrize(("number", "deleted"), [(1, 1), (2, 2), (3, 0), (10, 0)])
def test_many_services_that_vanish_at_once_are_not_believed(number, deleted):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            names = populate(c)
            c.serve()
            await c.served(*names)
            strip(c, *names[:number])
            await asyncio.sleep(GRACE - 5)
            assert c.cloud.count("delete") == 0
            assert REGISTRY.get_sample_value("ccm_services_vanished") == number
            await asyncio.sleep(GRACE)
            assert c.cloud.count("delete") == deleted
            assert bool(c.api.told("LoadBalancerKept")) is (deleted == 0)
            await asyncio.sleep(3600)
            assert c.cloud.count("delete") == deleted

    run()


@in_virtual_time
async def test_while_the_api_server_does_not_say_nothing_is_deleted():
    async with Cluster() as c:
        names = populate(c)
        c.serve()
        await c.served(*names)
        down = [True]
        c.api.fault = lambda path, patch: UnavailableError(0, "Timeout", "no answer") if down and not patch else None
        strip(c, "s0")
        await asyncio.sleep(4 * GRACE)
        assert c.cloud.count("delete") == 0
        down.clear()
        await until(lambda: "uid-of-s0" not in c.cloud.made, 2 * GRACE)


@in_virtual_time
async def test_what_was_going_when_it_was_last_seen_goes_at_once():
    """Somebody removes the finalizer of a Service whose deletion hangs."""
    async with Cluster() as c:
        names = populate(c)
        c.serve()
        await c.served(*names)
        c.cloud.fault = lambda verb, spec: RetryAfter("at it", retry_after=3.0) if verb == "delete" and slow else None
        slow = [True]
        c.api.delete_service("s0")
        await asyncio.sleep(5)
        slow.clear()
        c.api.remove("services", "shop/s0")
        await until(lambda: "uid-of-s0" not in c.cloud.made, 10)


@in_virtual_time
async def test_what_went_with_a_deletion_timestamp_goes_at_once():
    """The Service was deleted and its finalizer was removed before we saw it: the watch's last event shows both."""
    async with Cluster() as c:
        names = populate(c)
        c.serve()
        await c.served(*names)
        meta = {"finalizers": None, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        c.api.change("services", "shop/s0", {"metadata": meta})
        c.api.remove("services", "shop/s0")
        await until(lambda: "uid-of-s0" not in c.cloud.made, 10)


@in_virtual_time
async def test_the_ordinary_way_costs_no_read_and_no_wait():
    async with Cluster() as c:
        names = populate(c)
        c.serve()
        await c.served(*names)
        c.api.delete_service("s0")
        await until(lambda: "uid-of-s0" not in c.cloud.made and "shop/s0" not in c.api.objects["services"], 1)
        assert c.api.reads == []
