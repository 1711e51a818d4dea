# SPDX-License-Identifier: Apache-2.0
"""The whole route controller in virtual time: parity with upstream (IDs of docs/reference/parity.md).

Some of upstream's tests never check the conditions of Nodes; these do.
"""

import asyncio

import pytest
from prometheus_client import REGISTRY

from ccm.cloud import QuotaExceeded, RetryAfter, Route, Transient
from ccm.controllers.routes.route import CONDITION_WRITERS
from ccm.engine.api_errors import UnavailableError

from ..gateway.virtual import in_virtual_time, now
from .services_harness import Balancers, Cluster, FakeCloud, RouteTable, until

A4, A6, B4, B6 = "10.120.0.0/24", "a00:100::/64", "10.120.1.0/24", "a00:100:0:1::/64"
CREATED, FAILED = ("False", "RouteCreated"), ("True", "NoRouteCreated")
CALICO = {
    "type": "NetworkUnavailable",
    "status": "False",
    "reason": "CalicoIsUp",
    "message": "",
    "lastTransitionTime": "t",
}


def changes(verb, result):
    return REGISTRY.get_sample_value("ccm_route_changes_total", {"verb": verb, "result": result}) or 0.0


@pytest.mark.parametrize(
    ("nodes", "before", "after", "conditions"),
    [
        pytest.param({"a": [A4, A6], "b": [B4, B6]}, [], None, {"a": CREATED, "b": CREATED}, id="R15-dual-none"),
        pytest.param(
            {"a": [A4, A6], "b": [B4, B6]},
            [(A4, "a"), (A6, "a"), (B4, "b"), (B6, "b")],
            None,
            {"a": CREATED, "b": CREATED},
            id="R16-all-present",
        ),
        pytest.param(
            {"a": [A4, A6], "b": [B4, B6]},
            [(A4, "b"), (A6, "b"), (B4, "a"), (B6, "a")],
            None,
            {"a": CREATED, "b": CREATED},
            id="R17-wrong-nodes",
        ),
        pytest.param(
            {"a": [A4, A6], "b": [B4, B6]},
            [(A4, "a"), (B6, "b")],
            None,
            {"a": CREATED, "b": CREATED},
            id="R18-some-present",
        ),
        pytest.param(
            {"a": [A4]}, [(A4, "a"), (B4, "x"), (B6, "x")], None, {"a": CREATED}, id="R19-routes-of-unknown-nodes"
        ),
        pytest.param({"a": [A4], "b": [B4]}, [(A4, "a"), (B4, "b")], None, {"a": CREATED, "b": CREATED}, id="R20"),
        pytest.param({"a": [A4], "b": [B4]}, [(A4, "a")], None, {"a": CREATED, "b": CREATED}, id="R22-one-missing"),
        pytest.param({"a": [A4], "b": [B4]}, [], None, {"a": CREATED, "b": CREATED}, id="R23-none"),
        pytest.param(
            {"a": [A4], "b": [B4]},
            [(A4, "a"), (B4, "b"), ("10.120.2.0/24", "a"), ("10.120.3.0/24", "b")],
            None,
            {"a": CREATED, "b": CREATED},
            id="R24-extra",
        ),
        pytest.param(
            {"a": [A4], "b": [B4]}, [(A4, "a"), (B4, "a")], None, {"a": CREATED, "b": CREATED}, id="R25-one-wrong"
        ),
        pytest.param({"a": [A4], "b": []}, [], None, {"a": CREATED, "b": None}, id="R26-node-without-cidr"),
        pytest.param(
            {"a": [A4], "b": []}, [(A4, "a"), (B4, "b")], None, {"a": CREATED, "b": FAILED}, id="R26-that-had-a-route"
        ),
        pytest.param({"a": [A4]}, [(A4, "a"), (B4, "")], None, {"a": CREATED}, id="R27-blackhole-in-range"),
        pytest.param(
            {"a": [A4]},
            [(A4, "a"), ("10.1.2.0/24", "")],
            {(A4, "a"), ("10.1.2.0/24", "")},
            {"a": CREATED},
            id="R28-blackhole-outside",
        ),
        # Differs: upstream creates the route twice and ignores the failure of the second attempt.
        pytest.param({"a": [A4, A4]}, [], {(A4, "a")}, {"a": CREATED}, id="R29-same-cidr-twice"),
    ],
)
def test_reconcile(nodes, before, after, conditions):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            for name, cidrs in nodes.items():
                c.add_node(name, *cidrs)
            for destination, to in before:
                c.routes.add(destination, to, blackhole=not to)
            wanted = after or {(cidr, name) for name, cidrs in nodes.items() for cidr in cidrs}
            right = set(before) & wanted
            c.route()
            await until(lambda: c.routes.table() == wanted)
            await asyncio.sleep(1)
            assert {name: c.api.condition(name) for name in nodes} == conditions
            assert c.routes.count("create") == len(wanted - right)
            assert c.routes.count("delete") == len(set(before) - wanted)
            lists, patches = c.routes.count("list"), len(c.api.patches)
            await asyncio.sleep(200)  # audits find nothing to do
            assert (c.routes.count("list") - lists, len(c.api.patches)) in ((3, patches), (4, patches))
            assert c.routes.count("create") == len(wanted - right)
            assert c.api.events == []

    run()


@pytest.mark.parametrize(
    ("stale", "now_at"),
    [
        pytest.param((), ("10.0.0.1", "fd00::1"), id="R13-no-addresses"),
        pytest.param(("10.0.0.99",), ("10.0.0.1", "fd00::1"), id="R14-stale-addresses"),
    ],
)
def test_routes_that_carry_addresses_follow_the_node(stale, now_at):
    """Differs: upstream requires all of the Node's addresses on the route. Here each address on the route must be the
    Node's, so that a cloud that keeps only one address causes no endless changes."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.routes.addresses_kept = True
            c.add_node("a", A4, A6, addresses=now_at)
            for cidr in (A4, A6):
                c.routes.add(cidr, "a", target_addresses=stale)
            c.route()
            await until(lambda: c.api.condition("a") == CREATED)
            assert [route.target_addresses for route in c.routes.routes.values()] == [now_at] * 2
            assert (c.routes.count("delete"), c.routes.count("create")) == (2, 2)

    run()


@in_virtual_time
async def test_R21_R30_a_changed_address_of_a_node_is_seen_at_once():
    async with Cluster() as c:
        c.routes.addresses_kept = True
        c.add_node("a", A4, addresses=("10.0.0.1",))
        c.route(period=3600.0)
        await until(lambda: c.api.condition("a") == CREATED)
        await asyncio.sleep(1)  # passes are a second apart
        c.api.change("nodes", "a", {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}})
        await asyncio.sleep(1)
        assert [route.target_addresses for route in c.routes.routes.values()] == [("10.0.0.2",)]


@pytest.mark.parametrize(
    ("change", "looks"),
    [
        pytest.param({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}, 1, id="R30-address"),
        pytest.param({"spec": {"podCIDRs": [B4]}}, 1, id="R31-pod-cidr"),
        pytest.param({}, 0, id="R32-identical"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, 0, id="R33-label"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, 0, id="R33-readiness"),
        pytest.param({"spec": {"unschedulable": True}}, 0, id="R33-cordoned"),
        pytest.param({"spec": {"providerID": "fake://other"}}, 1, id="5.2-providerID"),
    ],
)
def test_which_changes_of_a_node_are_looked_at(change, looks):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("a", A4)
            c.route(period=3600.0)
            await until(lambda: c.api.condition("a") == CREATED)
            await asyncio.sleep(10)  # the watch has shown our own patch of the condition, which caused no pass
            assert c.routes.count("list") == 1
            c.api.change("nodes", "a", change)
            await asyncio.sleep(10)
            assert c.routes.count("list") - 1 == looks

    run()


@pytest.mark.parametrize(
    ("conditions", "expected", "patches"),
    [
        pytest.param([], CREATED, 1, id="R34"),
        pytest.param([CALICO], CREATED, 1, id="R37-R42-calico"),
        pytest.param([CALICO | {"reason": "RouteCreated"}], CREATED, 0, id="R36"),
    ],
)
def test_the_condition_is_written_once(conditions, expected, patches):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("a", A4, conditions=conditions)
            c.route()
            await asyncio.sleep(200)
            assert c.api.condition("a") == expected and len(c.api.patches) == patches
            kept = [each["type"] for each in c.api.objects["nodes"]["a"]["status"]["conditions"]]
            assert sorted(kept) == ["NetworkUnavailable", "Ready"]

    run()


@in_virtual_time
async def test_W22_a_failed_route_is_tried_again_soon_and_told_once():
    async with Cluster() as c:
        errors = [QuotaExceeded("50 routes are all you may have")] * 3
        c.routes.fault = lambda verb, route: (
            errors.pop() if verb == "create" and errors and route.destination == A4 else None
        )
        failed = changes("create", "failure")
        for name, cidr in (("a", A4), ("b", B4)):
            c.add_node(name, cidr)
        began = now()
        c.route(period=3600.0)
        await until(lambda: c.api.condition("b") == CREATED)
        assert now() - began < 1  # the other route does not wait
        await until(lambda: c.api.condition("a") == FAILED)
        await until(lambda: c.api.condition("a") == CREATED)
        assert now() - began < 10
        assert c.api.told("FailedToCreateRoute") == [
            f"Could not create route {A4} to a: 50 routes are all you may have"
        ]
        assert changes("create", "failure") - failed == 3


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(KeyError("id"), "raised KeyError", id="bug"),
        pytest.param(None, "no answer within 7 s", id="never-answers"),
        pytest.param(QuotaExceeded("50 routes are all you may have"), "50 routes", id="quota"),
    ],
)
def test_a_route_that_cannot_be_made_says_why_and_holds_up_no_other(error, message):
    @in_virtual_time
    async def run():
        async with Cluster(deadline=7.0) as c:
            create = c.routes.create

            async def strange(cluster, route):
                if route.destination == A4 and error is None:
                    await asyncio.Event().wait()
                if route.destination == A4:
                    raise error
                await create(cluster, route)

            c.routes.create = strange
            for number in range(20):
                c.add_node(f"n{number}", f"10.120.{number}.0/24")
            c.route()
            await until(lambda: c.api.condition("n0") == FAILED and len(c.routes.routes) == 19)
            assert all(c.api.condition(f"n{number}") == CREATED for number in range(1, 20))
            assert message in c.api.told("FailedToCreateRoute", "n0")[0]
            assert len({event["involvedObject"]["name"] for event in c.api.events}) == 1

    run()


@in_virtual_time
async def test_a_route_that_stays_impossible_is_tried_less_and_less():
    async with Cluster() as c:
        c.routes.fault = lambda verb, route: QuotaExceeded("none left") if verb == "create" else None
        c.add_node("a", A4)
        c.route(period=3600.0)
        await asyncio.sleep(600)
        assert 8 <= c.routes.count("create") <= 16  # after 1, 2, 4, ... 60 s


@in_virtual_time
async def test_retry_after_of_a_route_is_honoured():
    async with Cluster() as c:
        waits, before = [RetryAfter("busy", 42.0)], changes("create", "failure")
        c.routes.fault = lambda verb, route: waits.pop() if verb == "create" and waits else None
        c.routes.latency = 0.0
        c.add_node("a", A4)
        c.route(period=3600.0)
        await until(lambda: not waits)
        failed_at = now()
        await until(lambda: c.routes.table() == {(A4, "a")})
        assert 40 < now() - failed_at < 44
        assert c.api.events == [] and changes("create", "failure") == before  # RetryAfter is not a failure


@in_virtual_time
async def test_a_network_that_stays_busy_is_asked_ever_more_rarely():
    async with Cluster() as c:
        c.routes.fault = lambda verb, route: RetryAfter("locked", 1.0) if verb == "create" else None
        c.routes.latency = 0.0
        c.add_node("a", A4)
        c.route(period=36000.0)
        await asyncio.sleep(3600)
        assert 130 < c.routes.count("create") < 400


@in_virtual_time
async def test_a_route_that_is_still_being_deleted_is_no_failure():
    async with Cluster() as c:
        waits, before = [RetryAfter("busy", 42.0)], changes("delete", "failure")
        c.routes.fault = lambda verb, route: waits.pop() if verb == "delete" and waits else None
        c.add_node("a", A4)
        c.routes.add(B4, "gone")
        c.route(period=3600.0)
        await until(lambda: c.routes.table() == {(A4, "a")})
        assert not waits and changes("delete", "failure") == before


@in_virtual_time
async def test_routes_that_cannot_be_listed_change_nothing():
    async with Cluster() as c:
        c.routes.add(A4, "gone")
        down = [True]
        c.routes.fault = lambda verb, route: Transient("down") if down[0] else None
        c.add_node("a", A4)
        c.route()
        await asyncio.sleep(30)
        assert c.routes.table() == {(A4, "gone")} and c.api.patches == []
        down[0] = False
        await until(lambda: c.routes.table() == {(A4, "a")})


@in_virtual_time
async def test_a_condition_that_cannot_be_written_is_written_later():
    async with Cluster() as c:
        down = [True]
        c.api.fault = lambda path, patch: UnavailableError(503, "", "no etcd leader") if down[0] else None
        c.add_node("a", A4)
        c.route(period=3600.0)
        await asyncio.sleep(5)
        down[0] = False
        await until(lambda: c.api.condition("a") == CREATED)
        assert c.routes.count("create") == 1


@in_virtual_time
async def test_W21_doubles_go_and_spellings_are_equal():
    """Upstream recreates the oddly spelt route in every pass, and never removes the duplicate of the first route."""
    async with Cluster() as c:
        c.add_node("a", A4, A6)
        c.routes.add(A4, "a")
        c.routes.add(A4, "a")
        c.routes.add("a00:0100:0000::/64", "a")
        c.route()
        await asyncio.sleep(200)
        assert sorted(c.routes.table()) == [(A4, "a"), ("a00:0100:0000::/64", "a")] and len(c.routes.routes) == 2
        assert (c.routes.count("create"), c.routes.count("delete")) == (0, 1)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        pytest.param("10.120.7.0/24", "10.120.7.0/24", "is also the pod CIDR", id="same"),
        pytest.param("10.120.4.0/22", "10.120.7.0/24", "overlaps 10.120.4.0/22", id="contained"),
        pytest.param("10.120.7.0/24", "10.120.4.0/22", "overlaps 10.120.7.0/24", id="containing"),
    ],
)
@pytest.mark.parametrize("holder", ["a", "b"])
def test_overlapping_pod_cidrs_are_told_and_the_holder_keeps_its_route(holder, first, second, text):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            late = "b" if holder == "a" else "a"
            c.add_node(holder, first)
            c.route(node_prefix={4: 22, 6: 64})
            await until(lambda: c.api.condition(holder) == CREATED)
            c.add_node(late, second)
            c.add_node("c", "10.120.9.0/24")
            await until(lambda: c.api.condition(late) == FAILED and c.api.condition("c") == CREATED)
            await asyncio.sleep(300)
            assert c.routes.table() == {(first, holder), ("10.120.9.0/24", "c")}
            assert (c.routes.count("create"), c.routes.count("delete")) == (2, 0)
            assert set(c.api.told("FailedToCreateRoute", late)) == {
                f"pod CIDR {second} {text} of node {holder}, which keeps the route"
            }
            assert set(c.api.told("OverlappingPodCIDR", holder)) == {
                f"pod CIDR {first} overlaps {second} of node {late}, which gets no route for it"
            }
            assert c.api.condition(holder) == CREATED
            c.api.remove("nodes", holder)  # when the holder goes, the other Node gets its route
            await until(lambda: c.routes.table() == {(second, late), ("10.120.9.0/24", "c")})
            await until(lambda: c.api.condition(late) == CREATED)

    run()


@in_virtual_time
async def test_W30_routes_of_another_cluster_are_never_touched():
    """Two clusters have overlapping pod CIDRs in one network: with upstream each deletes the other's routes."""
    async with Cluster() as c:
        c.routes.add(A4, "theirs", owner="other")
        c.routes.add("10.120.50.0/24", "theirs", owner="other")
        c.routes.add("10.120.51.0/24", "gone", owner="kubernetes")
        c.routes.add("10.120.52.0/24", "gone")
        c.add_node("a", A4)
        c.add_node("b", B4)
        c.route()
        await until(lambda: c.api.condition("b") == CREATED and c.api.condition("a") == FAILED)
        await asyncio.sleep(200)
        assert c.routes.table() == {(A4, "theirs"), ("10.120.50.0/24", "theirs"), (B4, "b")}
        assert c.routes.count("create") == 1
        assert set(c.api.told("FailedToCreateRoute", "a")) == {
            f"pod CIDR {A4} is routed elsewhere by cluster 'other' in the same network"
        }


@in_virtual_time
async def test_100_nodes_within_what_the_cloud_allows():
    """With 20 calls a second after a burst of 40, 100 creations take 3 s. Ten at a time, 0.1 s each, would take 1 s."""
    async with Cluster(calls_per_second=20.0, burst=40, concurrency=20) as c:
        c.routes.latency = 0.1
        for number in range(100):
            c.add_node(f"n{number}", f"10.120.{number}.0/24")
        began = now()
        c.route()
        await until(lambda: len(c.routes.routes) == 100)
        least = (100 + 1 - 40) / 20
        assert now() - began < 1.5 * least
        assert c.routes.most <= c.routes.concurrency
        assert c.routes.count("create") == 100 and c.routes.count("list") == 1


@in_virtual_time
async def test_W23_conditions_are_written_a_few_at_a_time():
    async with Cluster() as c:
        for number in range(200):
            c.add_node(f"n{number}", f"10.120.{number}.0/24")
        c.route()
        await until(lambda: all(c.api.condition(f"n{number}") == CREATED for number in range(200)))
        assert 1 < c.api.most <= CONDITION_WRITERS


@in_virtual_time
async def test_a_provider_that_bears_nothing_at_a_time_is_asked_one_by_one():
    async with Cluster() as c:
        c.routes.concurrency = 0
        for name, cidr in (("a", A4), ("b", B4)):
            c.add_node(name, cidr)
        c.route()
        await until(lambda: len(c.routes.routes) == 2)
        assert c.routes.most == 1


@in_virtual_time
async def test_credentials_that_are_reloaded_are_used_at_once():
    """Controllers get the capability from the gateway at each use, because a reload replaces the cloud."""
    async with Cluster() as c:
        c.add_node("a", A4)
        c.add_service()
        c.route(period=30.0)
        c.serve()
        await until(lambda: c.routes.table() == {(A4, "a")})
        await c.served()
        routes, balancers = RouteTable(), Balancers()
        routes.routes, balancers.made = c.routes.routes, c.cloud.made
        await c.gateway.replace(FakeCloud(c.machines, balancers, routes, c.limits))
        before = len(c.routes.calls), len(c.cloud.calls)
        c.add_node("b", B4)
        await until(lambda: (B4, "b") in routes.table() and balancers.count("ensure", "update") == 1)
        assert (len(c.routes.calls), len(c.cloud.calls)) == before


def test_a_route_of_the_contract_has_no_owner_and_no_addresses_unless_told():
    route = Route(A4, "fake://a")
    assert route.owner == "" and route.target_addresses is None


def syncs():
    return {
        (outcome, trigger): REGISTRY.get_sample_value(
            "route_controller_route_sync_total", {"outcome": outcome, "trigger": trigger}
        )
        for outcome in ("changed", "noop", "error")
        for trigger in ("periodic", "node_change")
    }


@in_virtual_time
async def test_R43_comparisons_are_counted_by_trigger_and_outcome_as_upstream_does():
    before = syncs()
    async with Cluster() as c:
        c.add_node("a", A4)
        c.route()
        await until(lambda: c.api.condition("a") == CREATED)
        await asyncio.sleep(61)  # one audit
        c.add_node("b", B4)
        await until(lambda: c.api.condition("b") == CREATED)
        c.routes.fault = lambda verb, route: Transient("503")
        await asyncio.sleep(62)
    counted = {key: value - before[key] for key, value in syncs().items() if value != before[key]}
    assert counted.keys() == {
        ("changed", "periodic"), ("changed", "node_change"), ("noop", "periodic"), ("error", "periodic")
    }  # fmt: skip
    assert (counted["changed", "periodic"], counted["changed", "node_change"]) == (1, 1)


@in_virtual_time
async def test_the_condition_is_never_written_to_another_node_of_the_name():
    async with Cluster() as c:
        c.add_node("a", A4)
        written = []

        def replaced(path, patch):
            if not written:
                written.append(patch)
                c.api.remove("nodes", "a")
                c.add_node("a", uid="another", provider_id="other://a")  # this Node has no route
            return None

        c.api.fault = replaced
        c.route()
        await until(lambda: bool(written), 60)
        await asyncio.sleep(60)
        assert c.api.condition("a") is None
