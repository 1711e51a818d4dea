# SPDX-License-Identifier: Apache-2.0
"""If the API server shows old states of Nodes, members of load balancers and routes stay as long as the cloud has their
machines. The tests run whole controllers in virtual time.
"""

import asyncio

import pytest

from ccm.controllers.nodes.known_nodes import KnownNodes

from ..gateway.virtual import in_virtual_time, now
from .nodes_harness import TAINT
from .services_harness import Cluster, until

A4, B4, C4 = "10.120.0.0/24", "10.120.1.0/24", "10.120.2.0/24"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def populate(cluster):
    for number, cidr in enumerate((A4, B4, C4)):
        cluster.add_node(f"n{number}", cidr)
        cluster.machines.put(f"n{number}", f"10.0.0.{number + 1}")
    cluster.add_service()


def restore(cluster, how, documents):
    """Let the API server show these Nodes from now on. `how`: "watch" or "list"."""
    if how == "watch":
        for document in documents:
            cluster.api.put("nodes", document)
    else:
        for document in documents:
            cluster.api.objects["nodes"][document["metadata"]["name"]] = document
        cluster.api.expire()


def before_initialisation(document):
    meta = {**document["metadata"], "labels": {}}
    return {"metadata": meta, "spec": {"taints": [TAINT]}, "status": {"addresses": []}}


@pytest.mark.parametrize("how", ["watch", "list"])
def test_a_state_before_the_initialisation_costs_no_member_and_no_route(how):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            populate(c)
            c.serve()
            c.route()
            await c.served("web")
            await until(lambda: len(c.cloud.hosts()) == 3 and len(c.routes.table()) == 3)
            await asyncio.sleep(60)
            writes, members = c.cloud.count("ensure", "update"), c.cloud.members()
            today = dict(c.api.objects["nodes"])
            restore(c, how, [before_initialisation(each) for each in today.values()])
            await asyncio.sleep(600)
            assert c.cloud.count("ensure", "update") == writes and c.cloud.members() == members
            assert c.routes.count("delete") == 0 and len(c.routes.table()) == 3
            restore(c, how, today.values())  # initialised again
            c.add_node("n3")
            await until(lambda: len(c.cloud.hosts()) == 4)
            c.api.remove("nodes", "n0")  # a deleted Node is not kept
            await until(lambda: c.cloud.hosts() == ["n1", "n2", "n3"])

    run()


@in_virtual_time
async def test_a_former_node_of_the_name_costs_the_present_one_nothing():
    """A restore brings back the former Node n2, whose machine was replaced and is gone from the cloud."""
    async with Cluster() as c:
        populate(c)
        former = c.api.objects["nodes"]["n2"]
        c.api.remove("nodes", "n2")
        c.add_node("n2", C4, provider_id="fake://n2-new", uid="new", created=NEW)
        c.machines.put("n2", "10.0.0.9", provider_id="fake://n2-new")
        c.machines.hide("n2")
        c.serve()
        c.route()
        await c.served("web")
        await until(lambda: len(c.cloud.hosts()) == 3 and (C4, "n2-new") in c.routes.table())
        await asyncio.sleep(60)
        writes = c.cloud.count("ensure", "update")
        restore(c, "list", [former])
        await asyncio.sleep(600)
        assert c.cloud.count("ensure", "update") == writes
        assert c.routes.count("delete") == 0 and (C4, "n2-new") in c.routes.table()
        c.api.remove("nodes", "n2")  # somebody deletes the former Node, as its Event advises
        await until(lambda: c.cloud.hosts() == ["n0", "n1"])


@in_virtual_time
async def test_a_machine_that_goes_after_the_restore_is_no_member():
    """The Node is back in its state before initialisation, which cannot be repeated without its machine."""
    async with Cluster() as c:
        populate(c)
        controller = c.serve()
        await c.served("web")
        await until(lambda: len(c.cloud.hosts()) == 3)
        restore(c, "list", [before_initialisation(c.api.objects["nodes"]["n2"])])
        await asyncio.sleep(60)
        assert c.cloud.hosts() == ["n0", "n1", "n2"]
        c.machines.hide("n2")
        await controller._context.gateway.instances.list(not_before=now())  # the node controller would list, too
        await until(lambda: c.cloud.hosts() == ["n0", "n1"])


@in_virtual_time
async def test_a_successor_takes_the_place_of_a_node_that_went_while_nobody_watched():
    async with Cluster() as c:
        populate(c)
        c.serve()
        await c.served("web")
        await until(lambda: len(c.cloud.hosts()) == 3)
        c.machines.put("n2", "10.0.0.9", provider_id="fake://n2-new")
        c.machines.hide("n2")
        document = c.api.objects["nodes"]["n2"]
        meta = {**document["metadata"], "uid": "new", "creationTimestamp": NEW}
        restore(c, "list", [{**document, "metadata": meta, "spec": {"providerID": "fake://n2-new"}}])
        await until(lambda: c.cloud.members()["n2"] == ["10.0.0.9"])


@pytest.mark.parametrize("shown", [0, 1], ids=["empty", "shrunken"])
def test_a_first_list_without_living_nodes_costs_no_member(shown):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            populate(c)
            c.serve()
            await c.served("web")
            await until(lambda: len(c.cloud.hosts()) == 3)
            await c.stop()
            writes = c.cloud.count("ensure", "update")
            c.api.wrong_lists["nodes"] = [list(c.api.objects["nodes"].values())[:shown]]
            c.serve()
            await asyncio.sleep(60)
            assert c.cloud.count("ensure", "update") == writes
            c.add_node("n3")
            await until(lambda: len(c.cloud.hosts()) == 4)

    run()


@in_virtual_time
async def test_a_load_balancer_that_is_up_to_date_needs_no_second_list():
    async with Cluster() as c:
        populate(c)
        c.serve()
        await c.served("web")
        await c.stop()
        controller = c.serve()
        await asyncio.sleep(60)
        assert not controller._context.nodes.confirmed
        c.api.change("services", "shop/web", {"spec": {"ports": [{"port": 81, "nodePort": 30081, "protocol": "TCP"}]}})
        await until(lambda: c.cloud.made["uid-of-web"]["ports"] == [("TCP", 81, 30081)])
        assert not controller._context.nodes.confirmed


@in_virtual_time
async def test_nodes_that_the_cloud_lost_too_go_although_a_list_without_them_proves_nothing():
    """Four of six Nodes vanish unseen. The cloud has lost the machine of one of them, n2, so only n2 goes."""
    async with Cluster() as c:
        populate(c)
        for number in (3, 4, 5):
            c.add_node(f"n{number}")
            c.machines.put(f"n{number}", f"10.0.0.{number + 1}")
        controller = c.serve()
        await c.served("web")
        await until(lambda: len(c.cloud.hosts()) == 6)
        for name in ("n1", "n2", "n3", "n4"):
            del c.api.objects["nodes"][name]
        c.machines.hide("n2")
        c.api.expire()
        await asyncio.sleep(600)
        assert len(c.cloud.hosts()) == 6  # the instances have not been listed since
        await controller._context.gateway.instances.list(not_before=now())
        await until(lambda: len(c.cloud.hosts()) < 6, seconds=120)
        await asyncio.sleep(1200)
        assert c.cloud.hosts() == ["n0", "n1", "n3", "n4", "n5"]


@in_virtual_time
async def test_a_handler_that_fails_keeps_nothing_from_the_others():
    async with Cluster() as c:
        populate(c)
        context, heard = c._context(), []
        known = KnownNodes(context.nodes, lambda node: True)

        def fail(old, new):
            raise ValueError

        known.add_handler(fail)
        known.add_handler(lambda old, new: heard.append((old or new).metadata.name))
        await until(lambda: heard == ["n0", "n1", "n2"])
        known.add_handler(fail)  # called at once for existing Nodes
        assert [node.metadata.name for node in known.items()] == heard and known.get("n1") is not None
