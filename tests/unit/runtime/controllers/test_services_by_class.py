# SPDX-License-Identifier: Apache-2.0
"""The service controller beside others: which classes it serves, what it leaves alone, and what happens when a class is
taken over or handed over."""

import asyncio

import pytest

from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.services.handed_over import NOTE
from ccm.engine.api_errors import UnavailableError

from ..gateway.virtual import in_virtual_time
from .services_harness import FINALIZER, Cluster, until

OTHERS = {"ip": "198.51.100.1", "ipMode": "VIP"}
NAMED = ServedClasses(frozenset({"ours"}))
ALONE = ServedClasses(frozenset({"ours"}), without_class=False)


def of_class(name):
    return {"loadBalancerClass": name}


def test_each_service_is_served_by_its_class_alone():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service("named", port=81, **of_class("ours"))
            c.add_service("plain", port=82)
            c.add_service("theirs", port=83, finalizer=True, status={"loadBalancer": {"ingress": [OTHERS]}},
                          **of_class("else"))  # fmt: skip
            c.serve(classes=ALONE)
            await c.served("named")
            await asyncio.sleep(3600)
            assert set(c.cloud.made) == {"uid-of-named"}
            c.api.delete_service("theirs")
            await asyncio.sleep(3600)
            assert c.api.service("theirs")["metadata"]["finalizers"] == [FINALIZER], "its own controller releases it"
            assert {path.split("/")[6] for path, _ in c.api.patches} == {"named"}
            assert c.cloud.count("delete") == 0
            c.api.delete_service("named")
            await until(lambda: not c.cloud.made and "shop/named" not in c.api.objects["services"], 60)

    run()


def test_a_class_is_taken_over_from_another_controller():
    """The other controller stopped and left its finalizer and its address."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(finalizer=True, status={"loadBalancer": {"ingress": [OTHERS]}}, **of_class("ours"))
            c.serve()
            await asyncio.sleep(600)
            assert c.cloud.made == {} and c.api.ingress() == [OTHERS]
            await c.stop()
            c.serve(classes=NAMED)
            await until(lambda: c.api.ingress() != [OTHERS], 60)
            (made,) = c.cloud.made.values()
            assert [each["ip"] for each in c.api.ingress()] == [made["ip"]]
            assert c.notes.texts == {NOTE: "ours"}

    run()


@pytest.mark.parametrize(
    ("spec", "before", "after", "what"),
    [
        (of_class("ours"), NAMED, ServedClasses(), "--load-balancer-class=ours"),
        (of_class("ours"), NAMED, ServedClasses(frozenset({"new"})), "--load-balancer-class=ours"),
        ({}, ServedClasses(), ALONE, "unset --default-load-balancer-provider"),
    ],
    ids=["flag-removed", "other-flag", "without-a-class"],
)
def test_a_class_that_is_handed_over_keeps_its_load_balancers_until_the_service_goes(spec, before, after, what):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(**spec)
            c.serve(classes=before)
            await c.served()
            await c.stop()
            address, written = c.api.ingress(), len(c.api.patches)
            c.serve(classes=after)
            await asyncio.sleep(3600)
            assert c.cloud.made and c.cloud.count("delete") == 0 and c.api.ingress() == address
            assert len(c.api.patches) == written
            (message,) = c.api.told("ClassNotServed")
            assert what in message
            c.api.delete_service("web")
            await until(lambda: not c.cloud.made and not c.api.objects["services"], 60)

    run()


def test_a_class_that_comes_back_is_served_again_without_a_write():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(**of_class("ours"))
            for classes in (NAMED, ServedClasses(), NAMED):
                c.serve(classes=classes)
                await c.served()
                await asyncio.sleep(900)
                await c.stop()
            assert c.cloud.count("ensure") == 1 and c.cloud.count("delete") == 0

    run()


def test_a_service_that_got_another_class_itself_loses_its_load_balancer():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(**of_class("ours"))
            c.serve(classes=NAMED)
            await c.served()
            await c.stop()
            c.api.change("services", "shop/web", {"spec": of_class("else")})
            c.serve(classes=NAMED)
            await until(lambda: not c.cloud.made, 60)

    run()


def test_a_controller_that_released_it_keeps_the_addresses_and_the_finalizer_of_another_one():
    """The Service was handed over and then deleted. Each of the two controllers had created a load balancer for it."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(**of_class("ours"))
            c.serve(classes=NAMED)
            await c.served()
            await c.stop()
            c.api.change("services", "shop/web", {"status": {"loadBalancer": {"ingress": [OTHERS]}}})
            c.serve(classes=ServedClasses(frozenset({"new"})))
            await asyncio.sleep(60)
            c.api.delete_service("web")
            await until(lambda: not c.cloud.made, 60)
            await asyncio.sleep(60)
            assert c.api.service()["metadata"]["finalizers"] == [FINALIZER] and c.api.ingress() == [OTHERS]

    run()


def test_nothing_of_a_class_is_written_before_the_next_leader_can_know_of_it():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(**of_class("ours"))
            c.notes.fault = lambda verb: UnavailableError(503, "", "down") if verb == "write" else None
            c.serve(classes=NAMED)
            await asyncio.sleep(60)
            assert c.cloud.made == {}
            c.notes.fault = lambda verb: None
            await c.served()
            assert c.notes.texts == {NOTE: "ours"}

    run()


def test_while_the_note_cannot_be_read_nothing_of_another_class_is_deleted():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            await c.stop()
            c.api.change("services", "shop/web", {"spec": of_class("else")})
            c.notes.fault = lambda verb: UnavailableError(503, "", "down")
            c.serve()
            await asyncio.sleep(1800)
            assert c.cloud.made
            c.notes.fault = lambda verb: None
            await until(lambda: not c.cloud.made, 700)

    run()


def test_without_flags_the_lease_is_not_asked():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            assert c.notes.calls == []

    run()
