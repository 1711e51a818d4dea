# SPDX-License-Identifier: Apache-2.0
"""If others change an object whenever a controller writes to it, the controller retries soon and reports no error.

The API server answers 409 to a patch that names an old resourceVersion, and to any patch if others change the object
during each of its own five attempts.
"""

import asyncio
import itertools

import pytest

from ccm.controllers.services.service_rules import FINALIZER
from ccm.engine.api_errors import ConflictError, from_status
from ccm.engine.objects import Status

from ..gateway.virtual import in_virtual_time, now
from .services_harness import Cluster, until

MODIFIED = ConflictError(409, "Conflict", "Operation cannot be fulfilled on services: the object has been modified")


def warnings_of(cluster):
    return [event["reason"] for event in cluster.api.events if event["type"] == "Warning"]


def is_finalizer(patch):
    return FINALIZER in (patch.get("metadata", {}).get("finalizers") or ())


def is_release(patch):
    return "finalizers" in patch.get("metadata", {}) and not is_finalizer(patch)


class Race:
    """Another writer wins each race for a write that `which` accepts, while `goes_on`. `times`: when these writes were
    tried.
    """

    def __init__(self, cluster, which):
        self.goes_on, self.times, self._which = True, [], which
        cluster.api.fault = self.fault

    def fault(self, path, patch):
        if not patch or not self._which(patch):
            return None
        self.times.append(now())
        return MODIFIED if self.goes_on else None

    async def lasts(self, seconds):
        await until(lambda: self.times)
        await asyncio.sleep(seconds)
        self.goes_on = False

    def assert_steady(self):
        """Check that the write was retried soon, as often as needed, and at irregular intervals."""
        waits = [after - before for before, after in itertools.pairwise(self.times)]
        assert 50 < len(waits) < 160
        assert sum(wait < 0.2 for wait in waits) < 5, "a watch event or the start may wake it sooner"
        assert max(waits) <= 0.5
        assert len({round(wait, 6) for wait in waits}) > len(waits) / 2


@pytest.mark.parametrize("which", [is_finalizer, lambda patch: "status" in patch], ids=["finalizer", "status"])
def test_S36_a_new_service_is_tried_again_soon_however_often_others_are_faster(which):
    """Differs: upstream reports an error at the first conflict and retries 5 s later."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("n0")
            race = Race(c, which)
            c.add_service()
            c.serve()
            await race.lasts(30)
            ended = now()
            await c.served()
            assert now() - ended < 1
            race.assert_steady()
            assert warnings_of(c) == []
            assert c.cloud.count("ensure") == 1, "what is written is not written again"

    run()


@in_virtual_time
async def test_a_lost_finalizer_comes_back_however_often_others_are_faster():
    async with Cluster() as c:
        await c.begin()
        race = Race(c, is_finalizer)
        c.api.change("services", "shop/web", {"metadata": {"finalizers": [], "labels": {"edit": "1"}}})
        c.api.change("services", "shop/web", {"spec": {"sessionAffinity": "ClientIP"}})
        await race.lasts(30)
        await until(lambda: c.api.service()["metadata"].get("finalizers") == [FINALIZER], 1)
        race.assert_steady()
        assert warnings_of(c) == []


@pytest.mark.parametrize("how", ["deleted", "no-load-balancer"])
def test_S36_a_release_is_tried_again_soon_however_often_others_are_faster(how):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            race = Race(c, is_release)
            if how == "deleted":
                c.api.delete_service("web")
            else:
                c.api.change("services", "shop/web", {"spec": {"type": "ClusterIP"}})
            await race.lasts(30)
            await until(lambda: not c.api.objects["services"] or not c.api.service()["metadata"].get("finalizers"), 1)
            race.assert_steady()
            assert warnings_of(c) == []
            assert c.cloud.made == {}

    run()


@in_virtual_time
async def test_nodes_follow_while_others_are_faster_at_each_change_of_the_service():
    async with Cluster() as c:
        await c.begin()
        race = Race(c, lambda patch: True)
        c.api.change("services", "shop/web", {"metadata": {"finalizers": []}, "spec": {"sessionAffinity": "ClientIP"}})
        await until(lambda: race.times)
        c.add_node("n1")
        await until(lambda: c.cloud.hosts() == ["n0", "n1"], 30)
        assert warnings_of(c) == []


@in_virtual_time
async def test_an_event_says_after_a_minute_what_a_service_waits_for():
    async with Cluster() as c:
        c.add_node("n0")
        race = Race(c, is_finalizer)
        c.add_service()
        c.serve()
        await race.lasts(70)
        assert c.api.told("LoadBalancerWaits") == [
            "The load balancer has waited for 60 s: others change the Service at each attempt to write it"
        ]
        assert warnings_of(c) == []


def denied(code):
    return from_status(Status(code=code, reason="Conflict", message='admission webhook "x" denied it'), "")


@pytest.mark.parametrize("code", [404, 409])
def test_a_refusal_of_an_admission_webhook_is_an_error_whatever_its_code(code):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.api.fault = lambda path, patch: denied(code) if is_finalizer(patch) else None
            c.add_node("n0")
            c.add_service()
            c.serve()
            await until(lambda: c.api.told("SyncLoadBalancerFailed"))
            await asyncio.sleep(30)
            assert len(c.api.patches) < 6, "it backs off"

    run()


@pytest.mark.parametrize("code", [404, 409])
def test_a_webhook_that_keeps_the_finalizer_is_reported_and_asked_again(code):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await c.begin()
            goes_on = True
            c.api.fault = lambda path, patch: denied(code) if goes_on and is_release(patch) else None
            c.api.change("services", "shop/web", {"spec": {"type": "ClusterIP"}})
            await until(lambda: "SyncLoadBalancerFailed" in warnings_of(c))
            goes_on = False
            await until(lambda: not c.api.service()["metadata"].get("finalizers"), 60)

    run()


@in_virtual_time
async def test_a_condition_of_a_node_is_written_soon_however_often_others_are_faster():
    async with Cluster() as c:
        c.add_node("n0", "10.120.1.0/24")
        race = Race(c, lambda patch: "conditions" in patch.get("status", {}))
        c.route(period=3600.0)
        await race.lasts(60)
        await until(lambda: c.api.condition("n0") == ("False", "RouteCreated"), 2)
        assert len(race.times) > 30, "no back-off"
