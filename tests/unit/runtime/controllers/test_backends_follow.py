# SPDX-License-Identifier: Apache-2.0
"""The backends of an existing load balancer follow the Nodes, even while the Service's own change cannot be written."""

import asyncio

import pytest

from ccm.cloud import (
    Conflict,
    Forbidden,
    ImplementedElsewhere,
    Invalid,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)

from ..gateway.virtual import in_virtual_time, now
from .services_harness import Cluster, until

#: Seconds within which backends follow: at most 10 s to gather a burst, a second of quiet, and the call.
BOUND = 15.0
OLD, NEW = ["old0", "old1"], ["new0", "new1"]


def ports(*numbers):
    return {"ports": [{"name": f"p{n}", "protocol": "TCP", "port": n, "nodePort": 30000 + n} for n in numbers]}


TWO_PORTS = {"spec": ports(80, 81)}
BAD = {"metadata": {"annotations": {"lb": "nonsense"}}}
REFUSALS = {
    "invalid": Invalid("annotation lb: nonsense"),
    "conflict": Conflict("the type never changes"),
    "quota": QuotaExceeded("no more listeners"),
    "forbidden": Forbidden("not yours"),
    "unauthorized": Unauthorized("a right is missing"),
    "transient": Transient("500"),
    "later": Transient("500", retry_after=3600.0),
    "limited": RateLimited("429", retry_after=30.0, scope="group"),
    "bug": KeyError("x"),
}


async def replaced(c):
    """Add new Nodes, then remove the old ones."""
    for name in NEW:
        c.add_node(name)
    await asyncio.sleep(5)
    for name in OLD:
        c.api.remove("nodes", name)


async def served(c):
    for name in OLD:
        c.add_node(name)
    c.add_service()
    c.serve()
    await c.served()


def refusing(c, error):
    """Let the cloud refuse the changes BAD and TWO_PORTS with `error`, and accept every other write."""
    c.cloud.fault = lambda verb, spec: error if verb == "ensure" and c.is_bad(spec) else None


@pytest.fixture(autouse=True)
def bad(monkeypatch):
    monkeypatch.setattr(
        Cluster, "is_bad", lambda self, spec: "lb" in spec.annotations or len(spec.ports) > 1, raising=False
    )


@pytest.mark.parametrize("change", [BAD, TWO_PORTS], ids=["annotation", "port"])
@pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS)
def test_after_a_change_that_the_cloud_refuses(error, change):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            refusing(c, error)
            c.api.change("services", "shop/web", change)
            await asyncio.sleep(60)
            before = dict(next(iter(c.cloud.made.values())))
            await replaced(c)
            wait = 60.0 if isinstance(error, RateLimited) else 0.0  # the pause applies to all load balancers
            await asyncio.sleep(BOUND + wait)
            assert c.cloud.hosts() == sorted(NEW)
            after = next(iter(c.cloud.made.values()))
            assert after["ports"] == before["ports"], "what was refused is not written with the backends"
            assert c.api.told("SyncLoadBalancerFailed")
            c.cloud.fault = lambda verb, spec: None  # once the cloud accepts the change, all of it is written
            await asyncio.sleep(8000)  # twice the cloud's pause, with the queue's jitter
            assert c.cloud.made["uid-of-web"]["ports"] != before["ports"] or change is BAD
            assert "nonsense" in c.cloud.made["uid-of-web"]["fingerprint"] or change is TWO_PORTS

    run()


@pytest.mark.parametrize(
    "spec",
    [
        {"loadBalancerIP": "a-name"},
        {"loadBalancerSourceRanges": ["nonsense"]},
        {"ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 0}]},
        ports(*range(1, 252)),
    ],
    ids=["address", "ranges", "node-port", "ports"],
)
@pytest.mark.parametrize("restart", [False, True])
def test_after_a_change_that_a_rule_of_ours_refuses(spec, restart):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            c.api.change("services", "shop/web", {"spec": spec})
            await asyncio.sleep(60)
            if restart:
                await c.stop()
                c.serve()
                await asyncio.sleep(60)
            await replaced(c)
            await asyncio.sleep(BOUND)
            assert c.cloud.hosts() == sorted(NEW)
            assert c.cloud.count("ensure") == 1

    run()


@pytest.mark.parametrize("moment", ["before", "while-nobody-leads"])
def test_after_a_restart_and_a_change_that_was_refused_before(moment):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            refusing(c, Invalid("annotation lb: nonsense"))
            c.api.change("services", "shop/web", BAD)
            await asyncio.sleep(60)
            await c.stop()
            c.cloud.writing.clear()
            if moment == "while-nobody-leads":
                await replaced(c)
            c.serve()
            await asyncio.sleep(60)
            if moment == "before":
                await replaced(c)
                await asyncio.sleep(BOUND)
            assert c.cloud.hosts() == sorted(NEW)
            assert c.api.told("SyncLoadBalancerFailed")

    run()


def test_a_fingerprint_that_fails_is_a_bug_like_any_other():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            right = c.cloud.fingerprint

            def wrong(spec, backends):
                if "lb" in spec.annotations:
                    raise KeyError("lb")
                return right(spec, backends)

            c.cloud.fingerprint = wrong
            c.api.change("services", "shop/web", BAD)
            await asyncio.sleep(60)
            await replaced(c)
            await asyncio.sleep(BOUND)
            assert c.cloud.hosts() == sorted(NEW)

    run()


def test_while_a_change_waits_for_a_slow_cloud():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            refusing(c, RetryAfter("a certificate is being made", 2.0))
            c.api.change("services", "shop/web", BAD)
            await asyncio.sleep(30)
            await replaced(c)
            await asyncio.sleep(BOUND)
            assert c.cloud.hosts() == sorted(NEW)
            assert c.api.told("SyncLoadBalancerFailed") == []

    run()


def test_while_an_attempt_hangs():
    """Each attempt hangs for as long as a call may take. The backends wait for one attempt at most."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            refusing(c, Invalid("no"))
            c.cloud.latency["ensure"] = 25.0
            c.api.change("services", "shop/web", BAD)
            await asyncio.sleep(600)
            began = now()
            await replaced(c)
            await until(lambda: c.cloud.hosts() == sorted(NEW), 60)
            assert now() - began <= 45  # one attempt that the first Node caused, then the update

    run()


def test_backends_that_cannot_be_written_are_reported_and_written_later():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            c.cloud.fault = lambda verb, spec: Conflict("locked") if verb in ("ensure", "update") else None
            c.api.change("services", "shop/web", BAD)
            await asyncio.sleep(60)
            await replaced(c)
            await asyncio.sleep(BOUND)
            assert any("locked" in message for message in c.api.told("UpdateLoadBalancerFailed"))
            refusing(c, Invalid("no"))
            await asyncio.sleep(400)
            assert c.cloud.hosts() == sorted(NEW)

    run()


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "new process"])
@pytest.mark.parametrize("corrected", [False, True], ids=["still refused", "corrected"])
def test_backends_that_fail_in_the_cloud_after_they_were_accepted(restart, corrected):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            c.api.change("services", "shop/web", {"spec": {"loadBalancerIP": "a-name"}})
            await asyncio.sleep(60)
            if restart:
                await replaced(c)
                await asyncio.sleep(BOUND)
            before, c.cloud.provision = c.cloud.count("update"), 20.0
            if restart:  # the next process writes again, because it does not know the backends
                await c.stop()
                c.serve()
            else:
                await replaced(c)
            await until(lambda: c.cloud.count("update") > before and c.cloud.hosts() == sorted(NEW))
            await asyncio.sleep(1)  # wait for the answer
            row = c.cloud.made["uid-of-web"]
            row["hosts"], row["ready_at"] = [], float("inf")
            c.cloud.fault = lambda verb, spec: Conflict("failed") if verb == "get" and not row["hosts"] else None
            if corrected:
                c.api.change("services", "shop/web", {"spec": {"loadBalancerIP": None}})
            await asyncio.sleep(500)  # longer than a back-off, shorter than the time to the next audit
            assert c.cloud.hosts() == sorted(NEW)

    run()


def test_what_never_existed_costs_no_update():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            c.add_service(annotations={"lb": "nonsense"})
            refusing(c, Invalid("no"))
            c.serve()
            await asyncio.sleep(600)
            assert c.cloud.count("update") == 0 and c.cloud.count("ensure") > 2

    run()


@pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("seconds", [4, 20, 45])
def test_after_a_cloud_did_not_know_the_load_balancer_for_a_while(error, seconds):
    """A cloud that answers NotFound does not make the controller believe that the backends are current."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            refusing(c, error)
            c.api.change("services", "shop/web", BAD)
            await asyncio.sleep(1)
            refused, until_then = c.cloud.fault, now() + seconds
            c.cloud.fault = lambda verb, spec: (
                NotFound("none") if verb == "update" and now() < until_then else refused(verb, spec)
            )
            c.add_node("new0")
            await asyncio.sleep(seconds + 120)
            assert c.cloud.hosts() == ["new0", *OLD]

    run()


def test_a_load_balancer_that_is_gone_costs_no_update_at_each_attempt():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            c.cloud.made.clear()
            refusing(c, Invalid("no"))
            c.api.change("services", "shop/web", BAD)
            c.add_node("new0")
            await asyncio.sleep(400)
            before, attempts = c.cloud.count("update"), c.cloud.count("ensure")
            await asyncio.sleep(1000)
            assert c.cloud.count("update") == before > 1 and c.cloud.count("ensure") > attempts

    run()


def test_what_a_failed_creation_left_follows_too():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            for name in OLD:
                c.add_node(name)
            c.add_service()
            c.cloud.after = lambda verb, spec: QuotaExceeded("no second listener") if verb == "ensure" else None
            c.serve()
            await until(lambda: bool(c.cloud.made), 60)
            c.cloud.fault = lambda verb, spec: QuotaExceeded("no second listener") if verb == "ensure" else None
            await replaced(c)
            await asyncio.sleep(BOUND)
            assert c.cloud.hosts() == sorted(NEW)

    run()


def test_a_service_that_others_serve_is_left_alone():
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("old0")
            c.add_service()
            c.cloud.fault = lambda verb, spec: ImplementedElsewhere("another") if verb in ("ensure", "update") else None
            c.serve()
            await asyncio.sleep(30)
            c.add_node("new0")
            await asyncio.sleep(30)
            assert not c.cloud.made and c.api.told("SyncLoadBalancerFailed") == []

    run()


@pytest.mark.parametrize("error", [Conflict("locked"), Invalid("no"), Forbidden("not yours"), KeyError("x")], ids=repr)
def test_backends_that_could_not_follow_for_long_do_soon_after_they_can(error):
    """While neither the change nor the backends can be written, and the error names no pause, the queue's back-off
    stays below half a minute."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served(c)
            c.cloud.fault = lambda verb, spec: error if verb in ("ensure", "update") else None
            c.api.change("services", "shop/web", BAD)
            await asyncio.sleep(5)
            c.api.remove("nodes", OLD[1])
            await asyncio.sleep(1200)
            assert c.cloud.hosts() == OLD and c.cloud.count("ensure", "update") < 100
            c.cloud.fault = lambda verb, spec: error if verb == "ensure" else None
            began = now()
            await until(lambda: c.cloud.hosts() == OLD[:1], 600)
            assert now() - began <= 60.0

    run()
