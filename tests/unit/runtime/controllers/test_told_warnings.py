# SPDX-License-Identifier: Apache-2.0
"""A warning is reported as soon as it is true, and only once while it stays true, whichever answers contain it."""

import asyncio
from dataclasses import replace

import pytest

from ccm.controllers.services.told_warnings import Source, ToldWarnings

from ..gateway.virtual import in_virtual_time
from .services_harness import Cluster

A, B = "one family only", "no room for 2 nodes"


@pytest.mark.parametrize(
    ("answers", "reported"),
    [
        ([(Source.ENSURE, [A])], [A]),
        ([(Source.ENSURE, [A, A])], [A]),
        ([(Source.ENSURE, [A]), (Source.READ, []), (Source.ENSURE, [A])], [A]),
        ([(Source.ENSURE, [A]), (Source.UPDATE, []), (Source.ENSURE, [A])], [A]),
        ([(Source.ENSURE, [A]), (Source.READ, [A]), (Source.GLIMPSE, [A])], [A]),
        ([(Source.ENSURE, [A]), (Source.ENSURE, []), (Source.ENSURE, [A])], [A, A]),
        ([(Source.ENSURE, []), (Source.UPDATE, [B]), (Source.UPDATE, [B])], [B]),
        ([(Source.UPDATE, [B]), (Source.UPDATE, []), (Source.UPDATE, [B])], [B, B]),
        ([(Source.ENSURE, [B]), (Source.UPDATE, [B])], [B]),
        ([(Source.ENSURE, [B]), (Source.UPDATE, []), (Source.UPDATE, [B])], [B, B]),
        ([(Source.ENSURE, []), (Source.READ, [A]), (Source.READ, [A])], [A]),
        ([(Source.READ, [A]), (Source.GLIMPSE, []), (Source.READ, [A])], [A]),
        ([(Source.READ, [A]), (Source.READ, []), (Source.READ, [A])], [A, A]),
        ([(Source.FRAMEWORK, [A]), (Source.ENSURE, []), (Source.FRAMEWORK, [A])], [A]),
    ],
)
def test_news(answers, reported):
    warnings = ToldWarnings()
    assert [each for source, texts in answers for each in warnings.news(source, texts)] == reported


def warning_in(c, *verbs, when=lambda: True):
    """Let the cloud warn only in answers to these calls, while `when()` is true."""
    for verb in verbs:
        call = getattr(c.cloud, verb)

        async def answer(*arguments, call=call):
            found = await call(*arguments)
            return replace(found, warnings=(B,)) if when() else found

        setattr(c.cloud, verb, answer)


@pytest.mark.parametrize("provision", [0.0, 5.0, 90.0])
@pytest.mark.parametrize("verb", ["ensure", "get"])
def test_a_new_load_balancer(verb, provision):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service()
            c.cloud.provision = provision
            warning_in(c, verb)
            c.serve()
            await asyncio.sleep(3600)
            seen = [B] if verb == "ensure" or provision else []  # if it is ready at once, nothing reads it
            assert c.api.told("LoadBalancerWarning") == seen

    run()


def test_backends_that_have_no_room():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service()
            warning_in(c, "update_backends", when=lambda: len(c.cloud.hosts()) > 2)
            c.serve()
            await c.served()
            for number in (1, 2, 3):
                c.add_node(f"n{number}")
                await asyncio.sleep(30)
            assert c.api.told("LoadBalancerWarning") == [B]

    run()


def test_a_comparison_that_writes_again_does_not_repeat_what_was_reported():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service()
            warning_in(c, "ensure")
            c.serve()
            await c.served()
            await asyncio.sleep(1000)
            for number in range(3):
                note = {"metadata": {"annotations": {"ccm.outoftree.dev/check-load-balancer": str(number)}}}
                c.api.change("services", "shop/web", note)
                await asyncio.sleep(1000)
            assert c.cloud.count("ensure") == 4
            assert c.api.told("LoadBalancerWarning") == [B]

    run()


def test_a_family_that_no_node_has():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(ipFamilies=["IPv6"], ipFamilyPolicy="SingleStack")
            c.serve()
            await c.served()
            await asyncio.sleep(30)
            (message,) = c.api.told("LoadBalancerWarning")
            assert message.endswith("the Service has the family IPv6, and the Nodes have only IPv4 addresses")
            c.add_node("n1")  # another Node of the same kind is no reason for a new Event
            await asyncio.sleep(30)
            assert len(c.api.told("LoadBalancerWarning")) == 1

    run()


@pytest.mark.parametrize(
    ("families", "addresses"),
    [(["IPv4"], ("10.0.0.9",)), (["IPv6"], ("10.0.0.9", "fd00::9")), (["IPv4", "IPv6"], ("10.0.0.9",)), (["IPv6"], ())],
)
def test_families_that_some_node_has_or_that_nobody_knows(families, addresses):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0", addresses=addresses)
            c.add_service(ipFamilies=families)
            c.serve()
            await c.served()
            await asyncio.sleep(30)
            assert c.api.told("LoadBalancerWarning") == []

    run()
