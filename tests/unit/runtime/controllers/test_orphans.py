# SPDX-License-Identifier: Apache-2.0
"""Load balancers whose Service is gone are found reliably, reported, and deleted only if a flag says so.

Upstream does not look for orphans: W30 of docs/reference/parity.md.
"""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from ccm.cloud import Conflict, Invalid, NotImplementedByCloud, Transient
from ccm.controllers.shared import orphan_rules as rules
from ccm.engine.api_errors import UnavailableError

from ..gateway.virtual import in_virtual_time
from .services_harness import Cluster, FakeCloud, now, until


def orphaned():
    return REGISTRY.get_sample_value("ccm_orphaned_load_balancers")


def leave_behind(cluster, *names):
    """Create load balancers without a Service, as if somebody had removed both finalizer and Service unseen."""
    for name in names:
        cluster.cloud.made[f"uid-of-{name}"] = {"name": name, "ip": "192.0.2.250", "fingerprint": "", "ready_at": 0.0}


@in_virtual_time
async def test_an_orphan_is_reported_and_kept(caplog):
    async with Cluster() as c:
        leave_behind(c, "left")
        c.add_service()
        c.serve()
        await c.served()
        await asyncio.sleep(500)
        assert orphaned() == 0  # one listing proves nothing
        await asyncio.sleep(200)
        assert orphaned() == 1
        await asyncio.sleep(3600)
        assert "uid-of-left" in c.cloud.made and c.cloud.count("delete") == 0
        (line,) = [record.getMessage() for record in caplog.records if "does not exist" in record.getMessage()]
        assert "load balancer left belongs to the Service with UID uid-of-left" in line
        assert "--delete-orphaned-load-balancers" in line
        assert c.cloud.count("list") == 1 + 7  # once at start, then every ten minutes


@in_virtual_time
async def test_a_load_balancer_that_fails_in_the_cloud_later_is_replaced():
    async with Cluster() as c:
        c.add_service("web")
        c.add_service("other", port=2)
        c.serve()
        await c.served("web", "other")
        broken = c.cloud.made["uid-of-web"]
        broken["ready_at"] = math.inf
        c.cloud.fault = lambda verb, spec: (
            Conflict("it failed") if verb == "get" and broken["ready_at"] == math.inf else None
        )
        await until(lambda: c.cloud.count("ensure", name="web") == 2, 700)
        await asyncio.sleep(1300)
        assert c.cloud.count("ensure", name="web") == 2 and c.cloud.count("get", name="web") == 1
        assert c.cloud.count("ensure", name="other") == 1 and c.cloud.count("get", name="other") == 0


@in_virtual_time
async def test_a_load_balancer_on_which_the_cloud_works_is_only_read():
    async with Cluster() as c:
        c.add_service()
        c.serve()
        await c.served()
        c.cloud.made["uid-of-web"]["ready_at"] = now() + 630  # longer than the 600 s until the audit
        await asyncio.sleep(3000)
        assert c.cloud.count("ensure") == 1 and 1 < c.cloud.count("get") < 20


@in_virtual_time
async def test_an_orphan_is_deleted_when_asked_for():
    async with Cluster() as c:
        leave_behind(c, "left")
        c.add_service()
        c.serve(delete_orphans=True)
        await c.served()
        await until(lambda: "uid-of-left" not in c.cloud.made, 700)
        await asyncio.sleep(700)
        assert list(c.cloud.made) == ["uid-of-web"] and c.cloud.count("delete") == 1
        assert orphaned() == 0


@in_virtual_time
async def test_so_many_orphans_are_not_believed(caplog):
    """The wrong kubeconfig, or another cluster of the same name, looks the same."""
    async with Cluster() as c:
        leave_behind(c, "l1", "l2", "l3")
        c.add_service()
        c.serve(delete_orphans=True)
        await c.served()
        await asyncio.sleep(3600)
        assert len(c.cloud.made) == 4 and orphaned() == 3
        assert "there are so many orphans that none is deleted: check --cluster-name and --kubeconfig" in caplog.text


@in_virtual_time
async def test_what_is_only_late_is_no_orphan():
    """A lagging cache, a silent cloud or API server, and an API server that lists nothing do not make orphans."""
    async with Cluster() as c:
        c.add_service()
        controller = c.serve(delete_orphans=True, audit_period=60.0)
        await c.served()
        services = controller._context.services
        hidden = services._store.pop("shop/web")  # the cache has lost it, the API server has not
        await asyncio.sleep(1200)
        assert orphaned() == 0 and "uid-of-web" in c.cloud.made
        kept, c.api.objects["services"] = c.api.objects["services"], {}  # an empty list, as from a faulty proxy
        await asyncio.sleep(1200)
        assert orphaned() == 0 and "uid-of-web" in c.cloud.made
        c.api.objects["services"] = kept
        services._store["shop/web"] = hidden


@pytest.mark.parametrize("who", ["cloud", "api"])
@in_virtual_time
async def test_an_audit_that_cannot_be_done_is_done_later(who):
    async with Cluster() as c:
        c.add_service()
        c.serve(delete_orphans=True, audit_period=60.0)
        await c.served()
        leave_behind(c, "left")
        down, listing = [True], c.api.list

        async def list_services(path, kind, **rest):
            if down[0] and who == "api":
                raise UnavailableError(503, "", "no etcd leader")
            return await listing(path, kind, **rest)

        c.api.list = list_services
        c.cloud.fault = lambda verb, spec: Transient("down") if down[0] and who == "cloud" and verb == "list" else None
        await asyncio.sleep(1200)
        assert "uid-of-left" in c.cloud.made
        down[0] = False
        await until(lambda: "uid-of-left" not in c.cloud.made, 700)


@in_virtual_time
async def test_no_audit_when_it_is_turned_off():
    async with Cluster() as c:
        leave_behind(c, "left")
        c.serve(audit_period=0.0, delete_orphans=True)
        await asyncio.sleep(7200)
        assert c.cloud.count("list") == 1 and "uid-of-left" in c.cloud.made


@in_virtual_time
async def test_what_is_being_released_is_no_orphan():
    """A deletion fails for an hour. The queue retries it, so the audit must not delete the same load balancer, too."""
    async with Cluster() as c:
        c.add_service()
        c.serve(delete_orphans=True, audit_period=60.0)
        await c.served()
        failing = [True]
        c.cloud.fault = lambda verb, spec: Invalid("it is locked") if verb == "delete" and failing[0] else None
        c.api.remove("services", "shop/web")
        await asyncio.sleep(3600)
        assert orphaned() == 0
        failing[0] = False
        await until(lambda: not c.cloud.made, 400)


@in_virtual_time
async def test_no_audit_where_clusters_cannot_be_told_apart(monkeypatch):
    monkeypatch.setattr(FakeCloud, "has_cluster_id", property(lambda self: False))
    async with Cluster() as c:
        leave_behind(c, "of-another-cluster")
        c.serve(delete_orphans=True, audit_period=60.0)
        await asyncio.sleep(3600)
        assert c.cloud.count("list") == 1 and "uid-of-of-another-cluster" in c.cloud.made


@in_virtual_time
async def test_no_audit_where_nothing_can_be_listed():
    async with Cluster() as c:
        c.cloud.fault = lambda verb, spec: NotImplementedByCloud("no listing") if verb == "list" else None
        c.serve(audit_period=60.0)
        await asyncio.sleep(3600)
        assert c.cloud.count("list") == 2


UIDS = st.sets(st.sampled_from("abcdefgh"))


@given(looks=st.lists(st.tuples(UIDS, UIDS, st.floats(0, 400) | st.just(rules.GRACE)), max_size=8))
def test_only_what_was_seen_twice_over_the_grace_without_a_service_is_an_orphan(looks):
    sightings, now, history = {}, 0.0, []
    for listed, services, pause in looks:
        now += pause
        sightings = rules.look(sightings, listed, services, now)
        history.append((now, listed - services))
        found = rules.orphans(sightings, now)
        for uid in "abcdefgh":
            unbroken = []
            for when, without in reversed(history):
                if uid not in without:
                    break
                unbroken.append(when)
            sure = len(unbroken) >= 2 and now - unbroken[-1] >= rules.GRACE
            assert (uid in found) is sure


@pytest.mark.parametrize(
    ("orphans", "listed", "may"), [(0, 0, True), (2, 2, True), (3, 4, False), (10, 100, True), (11, 100, False)]
)
def test_the_cap(orphans, listed, may):
    assert rules.may_delete(orphans, listed) is may
