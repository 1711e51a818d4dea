# SPDX-License-Identifier: Apache-2.0
"""Which part of a kubelet's writes to its Node reaches the cloud: whole controllers in virtual time.

A kubelet chooses providerID, pod CIDRs, addresses and most labels of its Node. NodeRestriction limits which Node a
kubelet writes to, not what the kubelet writes there.
"""

import asyncio

import pytest
from prometheus_client import REGISTRY

from ccm.cloud import Page, Route, Transient
from ccm.controllers.nodes.vouching_rules import PATIENCE
from ccm.controllers.routes import route_rules

from ..gateway.virtual import in_virtual_time, now
from .services_harness import Cluster, FakeCloud, Machines, until

A4, B4, C4 = "10.120.0.0/24", "10.120.1.0/24", "10.120.2.0/24"
CREATED, FAILED = ("False", "RouteCreated"), ("True", "NoRouteCreated")
LATER = "2026-02-01T00:00:00Z"


def not_vouched(reason):
    return REGISTRY.get_sample_value("ccm_nodes_not_vouched", {"reason": reason}) or 0.0


def address(ip):
    return {"status": {"addresses": [{"type": "InternalIP", "address": ip}]}}


async def settled(seconds=30.0):
    """Give everything that is pending time to happen."""
    await asyncio.sleep(seconds)


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@pytest.mark.parametrize(
    ("cidr", "why"),
    [
        pytest.param("10.0.0.5/32", "not inside the cluster CIDR", id="a-node"),
        pytest.param("169.254.169.254/32", "not inside the cluster CIDR", id="metadata"),
        pytest.param("8.8.8.0/24", "not inside the cluster CIDR", id="internet"),
        pytest.param("0.0.0.0/0", "not inside the cluster CIDR", id="everything"),
        pytest.param("::/0", "not inside the cluster CIDR", id="everything-ipv6"),
        pytest.param("10.0.0.0/8", "not inside the cluster CIDR", id="around-the-cluster"),
        pytest.param("10.120.0.0/17", "wider than a Node's /24", id="half-of-the-cluster"),
        pytest.param("a00:100::/48", "wider than a Node's /64", id="too-wide-ipv6"),
    ],
)
def test_no_route_for_a_pod_cidr_that_is_not_a_nodes(cidr, why):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("evil", cidr)
            c.add_node("good", A4, created=LATER)
            c.route()
            await until(lambda: c.api.condition("good") == CREATED)
            await settled(200)
            assert c.routes.table() == {(A4, "good")}
            assert c.api.condition("evil") == FAILED
            (message,) = set(c.api.told("FailedToCreateRoute", "evil"))
            assert cidr in message and why in message
            assert c.api.told("OverlappingPodCIDR") == []

    run()


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@in_virtual_time
async def test_no_route_for_a_pod_cidr_that_covers_an_address_of_a_node():
    """This matters where the Nodes' network is within the cluster CIDR."""
    async with Cluster() as c:
        c.add_node("db", A4, addresses=("10.120.9.7",))
        c.add_node("evil", "10.120.9.0/24")
        c.route()
        await until(lambda: c.api.condition("db") == CREATED)
        await settled()
        assert c.routes.table() == {(A4, "db")}
        (message,) = set(c.api.told("FailedToCreateRoute", "evil"))
        assert "10.120.9.7" in message and "db" in message


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@in_virtual_time
async def test_a_node_made_again_with_another_pod_cidr_gets_only_a_nodes_route():
    """CVE-2025-5187: a kubelet deletes its Node and creates it again with another pod CIDR."""
    async with Cluster() as c:
        c.add_node("evil", A4)
        c.add_node("good", B4)
        c.route()
        await until(lambda: c.routes.table() == {(A4, "evil"), (B4, "good")})
        for number, cidr in enumerate(["8.8.8.0/24", "10.120.0.0/16", B4]):
            c.api.remove("nodes", "evil")
            await settled()
            c.add_node("evil", cidr, uid=f"uid-{number}", created=LATER)
            await settled()
            assert c.routes.table() == {(B4, "good")}, cidr


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@pytest.mark.parametrize("spelling", ["fake://victim", "FAKE://victim"])
def test_a_copied_provider_id_gets_no_route(spelling):
    """Otherwise the cloud would expect evil's Pods behind the victim's port and allow their addresses there."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("victim", A4)
            c.add_node("evil", B4, provider_id=spelling, created="2025-01-01T00:00:00Z")
            c.route()
            await until(lambda: c.api.condition("victim") == CREATED)
            await settled(200)
            assert c.routes.table() == {(A4, "victim")}
            assert c.api.condition("evil") == FAILED
            (message,) = set(c.api.told("NodeNotVouched", "evil"))
            assert "victim" in message and c.api.told("NodeNotVouched", "victim") == []

    run()


@pytest.mark.threat("kubelet-own-addresses-only")
@in_virtual_time
async def test_a_route_leads_to_the_instances_own_addresses():
    async with Cluster() as c:
        c.routes.addresses_kept = True
        c.machines.put("evil", "10.0.0.7")
        c.add_node("evil", A4, addresses=("10.0.0.99", "10.0.0.7"))
        c.route()
        await until(lambda: c.api.condition("evil") == CREATED)
        assert [route.target_addresses for route in c.routes.routes.values()] == [("10.0.0.7",)]


# --- load balancers ---------------------------------------------------------------------------------------------------


@pytest.mark.threat("kubelet-own-addresses-only")
@pytest.mark.parametrize(
    ("claimed", "known", "members"),
    [
        pytest.param(["10.0.0.99"], ["10.0.0.7"], ["10.0.0.7"], id="another-machines"),
        pytest.param(["10.0.0.99", "10.0.0.7"], ["10.0.0.7"], ["10.0.0.7"], id="its-own-too"),
        pytest.param(["fd00:0::0007"], ["fd00::7"], ["fd00::7"], id="its-own-spelt-otherwise"),
        pytest.param(["10.0.0.8"], ["10.0.0.7", "10.0.0.8"], ["10.0.0.8"], id="the-one-of-node-ip"),
        pytest.param(["10.0.0.99"], [], ["10.0.0.99"], id="a-cloud-that-names-none"),
    ],
)
def test_members_have_the_addresses_of_their_instance(claimed, known, members):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.machines.put("evil", *known)
            c.add_node("evil", addresses=claimed)
            c.add_service()
            c.serve()
            await c.served()
            await settled()
            assert c.cloud.members() == {"evil": members}

    run()


@pytest.mark.threat("kubelet-own-addresses-only")
@in_virtual_time
async def test_an_address_that_is_invented_later_reaches_no_member():
    async with Cluster() as c:
        c.add_node("evil", addresses=("10.0.0.7",))
        c.machines.put("evil", "10.0.0.7")
        c.add_service()
        c.serve()
        await c.served()
        c.api.change("nodes", "evil", address("10.0.0.99"))
        await settled(200)
        assert c.cloud.members() == {"evil": ["10.0.0.7"]} and c.cloud.count("update") == 0
        (message,) = set(c.api.told("NodeNotVouched", "evil"))
        assert "10.0.0.99" in message
        assert not_vouched("AddressNotVouched") == 1


@pytest.mark.threat("kubelet-own-addresses-only")
@pytest.mark.parametrize("spelling", ["fake://victim", "FAKE://victim"])
def test_a_copied_provider_id_is_no_backend(spelling):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            c.add_node("victim")
            c.add_node("evil", provider_id=spelling, addresses=("10.0.0.99",), created="2025-01-01T00:00:00Z")
            c.add_service()
            c.serve()
            await c.served()
            await settled()
            assert c.cloud.hosts() == ["victim"]

    run()


@pytest.mark.threat("kubelet-own-addresses-only")
@in_virtual_time
async def test_the_provider_id_of_a_machine_without_a_node_is_no_way_in():
    """The database's instance is in the same project, but evil's own instance has evil's name."""
    async with Cluster() as c:
        c.machines.put("db", "10.0.0.99")
        c.machines.put("evil", "10.0.0.7")
        c.add_node("good")
        c.add_node("evil", B4, provider_id="fake://db", addresses=("10.0.0.99",))
        c.add_service()
        c.serve()
        await c.served()
        await settled()
        assert c.cloud.hosts() == ["good"]
        (message,) = set(c.api.told("NodeNotVouched", "evil"))
        assert "fake://db" in message and "fake://evil" in message


@pytest.mark.threat("kubelet-own-addresses-only")
@in_virtual_time
async def test_labels_that_steer_are_the_instances():
    async with Cluster() as c:
        c.machines.put("evil", "10.0.0.7", zone="a", region="", labels={"rack": "7", "tier": "web"})
        zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
        old = "failure-domain.beta.kubernetes.io/zone"
        own = {zone: "b", old: "b", region: "theirs", "rack": "9", "team": "blue"}
        c.add_node("evil", addresses=("10.0.0.7",), labels=own)
        c.add_service()
        c.serve()
        await c.served()
        assert c.cloud.labels("evil") == {
            zone: "a",
            old: "a",
            region: "theirs",  # the cloud has no region for it
            "rack": "7",
            "tier": "web",
            "team": "blue",
        }


# --- upgrades, starts and outages: nothing that is there is cut -------------------------------------------------------


@in_virtual_time
async def test_routes_that_would_not_be_created_today_stay():
    async with Cluster() as c:
        c.add_node("good", A4)
        c.add_node("wide", "10.120.64.0/20", "10.9.0.0/24")
        c.add_node("unknown", B4)
        c.add_node("copy", C4, provider_id="fake://good", created=LATER)
        for cidr, to in ((A4, "good"), ("10.120.64.0/20", "wide"), ("10.9.0.0/24", "wide"), (B4, "unknown")):
            c.routes.add(cidr, to)
        c.routes.add(C4, "good")
        c.machines.hide("unknown")
        before = c.routes.table()
        c.route()
        await until(lambda: c.api.condition("good") == CREATED)
        await settled(200)
        assert c.routes.table() == before
        assert (c.routes.count("create"), c.routes.count("delete")) == (0, 0)
        told = c.api.told("RouteKept")
        assert len({message for message in told if "10.120.64.0/20" in message and "wider than" in message}) == 1
        assert {name for name in ("wide", "unknown", "copy") if c.api.told("RouteKept", name)} == {
            "wide",
            "unknown",
            "copy",
        }
        # A new Node whose range is inside the wide route still gets its own route.
        c.add_node("new", "10.120.65.0/24")
        await until(lambda: ("10.120.65.0/24", "new") in c.routes.table())


@in_virtual_time
async def test_a_start_while_the_cloud_is_away_writes_nothing():
    async with Cluster() as c:
        c.add_node("n0", A4)
        c.add_node("n1", B4)
        c.routes.add(A4, "n0")
        c.routes.add("10.120.77.0/24", "gone")
        c.add_service()
        c.serve()
        await c.served()
        await c.stop()
        c.machines.error = Transient("down")
        c.add_service("new", port=81)
        before = len(c.cloud.calls), c.routes.table()
        c.serve()
        c.route()
        await settled(600)
        assert (len(c.cloud.calls), c.routes.table()) == before
        c.machines.error = None
        await c.served("new")
        await until(lambda: c.routes.table() == {(A4, "n0"), (B4, "n1")}, 120)
        assert c.cloud.count("update") == 0


@in_virtual_time
async def test_a_new_node_waits_for_the_cloud_and_the_others_do_not():
    async with Cluster() as c:
        c.add_node("n0", A4)
        c.add_service()
        c.serve()
        c.route()
        await c.served()
        await until(lambda: c.routes.table() == {(A4, "n0")})
        c.machines.error = Transient("down")
        c.add_node("n1", B4)
        c.api.change("nodes", "n0", {"metadata": {"labels": {"a": "b"}}})
        c.add_service("late", port=81)
        await c.served("late")
        await settled(200)
        assert c.cloud.hosts("late") == c.cloud.hosts() == ["n0"]
        assert c.routes.table() == {(A4, "n0")} and c.api.condition("n1") is None
        assert not_vouched("CloudUnknown") == 1
        c.machines.error = None
        await until(lambda: c.cloud.hosts() == ["n0", "n1"], 120)
        await until(lambda: c.routes.table() == {(A4, "n0"), (B4, "n1")}, 120)
        assert not_vouched("CloudUnknown") == 0


@in_virtual_time
async def test_a_listing_that_lacks_half_of_the_nodes_cuts_none():
    """Each missing instance is read on its own."""
    async with Cluster() as c:
        for number in range(4):
            c.add_node(f"n{number}", f"10.120.{number}.0/24")
        c.add_service()
        c.serve()
        c.route()
        await c.served()
        await until(lambda: len(c.routes.routes) == 4)
        await c.stop()
        c.machines.missing = {"fake://n2", "fake://n3"}
        c.serve()
        c.route()
        c.add_service("new", port=81)
        await c.served("new")
        await settled(200)
        assert c.cloud.hosts("new") == c.cloud.hosts() == ["n0", "n1", "n2", "n3"]
        assert (c.cloud.count("update"), c.routes.count("delete"), len(c.routes.routes)) == (0, 0, 4)


async def served_and_stopped(c: Cluster, count: int) -> None:
    """Serve a Service with `count` Nodes as backends, and stop the leader."""
    for number in range(count):
        c.add_node(f"n{number}", f"10.120.{number}.0/24")
    c.add_service()
    c.serve()
    await c.served()
    await c.stop()


def silence_a_zone(c: Cluster, *, reads_work: bool) -> None:
    """Remove n3 from listings, which then report its zone as unreachable. `reads_work`: whether single reads of n3's
    instance work meanwhile. With an empty `c.machines.missing`, the zone answers again."""
    whole_page, whole_get, c.machines.missing = c.machines.list_page, c.machines.get, {"fake://n3"}

    async def list_page(token):
        page = await whole_page(token)
        return Page(page.instances, unreachable="zone b does not answer") if c.machines.missing else page

    async def get(ref):
        if ref.provider_id in c.machines.missing and not reads_work:
            raise Transient("zone b does not answer")
        return await whole_get(ref)

    c.machines.list_page, c.machines.get = list_page, get


@pytest.mark.parametrize("reads_work", [True, False])
def test_a_zone_that_does_not_answer_cuts_no_node_after_a_restart(reads_work):
    """Instances of an unreachable zone are unknown, not gone."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served_and_stopped(c, 4)
            silence_a_zone(c, reads_work=reads_work)
            c.serve()
            await settled(600)
            assert (c.cloud.hosts(), c.cloud.count("update")) == (["n0", "n1", "n2", "n3"], 0)
            c.machines.missing = set()
            await settled(120)
            assert (c.cloud.hosts(), c.cloud.count("update")) == (["n0", "n1", "n2", "n3"], 0)

    run()


@in_virtual_time
async def test_a_machine_that_the_cloud_never_describes_keeps_load_balancers_for_a_while_only():
    async with Cluster() as c:
        await served_and_stopped(c, 4)
        silence_a_zone(c, reads_work=False)
        c.serve()
        await settled(PATIENCE - 60)
        assert c.cloud.hosts() == ["n0", "n1", "n2", "n3"]
        await settled(180)
        assert c.cloud.hosts() == ["n0", "n1", "n2"]


@pytest.mark.parametrize("hidden", [("n1", "n2"), ("n0", "n1", "n2")])
def test_a_first_listing_that_lacks_most_nodes_is_not_believed(hidden):
    """The cause may be credentials of another project, or a wrong filter."""

    @in_virtual_time
    async def run():
        async with Cluster() as c:
            await served_and_stopped(c, 3)
            for name in hidden:
                c.machines.hide(name)
            c.serve()
            c.route()
            c.add_service("new", port=81)
            await settled(600)
            assert c.cloud.count("ensure", name="new") == c.cloud.count("update") == len(c.routes.calls) == 0
            assert not_vouched("ListingNotBelieved") == 3
            assert all("of 3 Ready Nodes" in c.api.told("NodeNotVouched", name)[0] for name in hidden)
            for name in hidden:
                c.machines._hidden.discard(f"fake://{name}")
            await c.served("new")
            assert c.cloud.hosts("new") == ["n0", "n1", "n2"] and c.cloud.count("update") == 0
            assert not_vouched("ListingNotBelieved") == 0

    run()


@in_virtual_time
async def test_invented_nodes_do_not_stop_the_others():
    async with Cluster() as c:
        for name in ("n0", "n1"):
            c.add_node(name)
        c.add_node("ghost", provider_id="fake://nothing")
        c.machines.hide("nothing")
        c.add_service()
        c.serve()
        await c.served()
        assert c.cloud.hosts() == ["n0", "n1"]
        assert "no instance" in c.api.told("NodeNotVouched", "ghost")[0]
        assert not_vouched("InstanceNotFound") == 1


@in_virtual_time
async def test_what_was_vouched_for_stays_when_a_later_listing_lacks_it():
    async with Cluster() as c:
        c.add_node("n0")
        c.add_node("n1", B4)
        c.add_service()
        c.serve()
        c.route()
        await c.served()
        c.machines.hide("n1")
        await c.gateway.instances.list(not_before=now())
        c.api.change("nodes", "n1", {"metadata": {"labels": {"a": "b"}}})
        c.add_service("late", port=81)
        await c.served("late")
        await settled(200)
        assert c.cloud.hosts() == c.cloud.hosts("late") == ["n0", "n1"] and c.cloud.count("update") == 0
        assert c.routes.table() == {(B4, "n1")}


@in_virtual_time
async def test_an_instance_without_addresses_for_a_while_keeps_those_it_had():
    async with Cluster() as c:
        c.add_node("n0", addresses=("10.0.0.7",))
        c.machines.put("n0", "10.0.0.7")
        c.add_service()
        c.serve()
        await c.served()
        c.machines.put("n0")
        await c.gateway.instances.list(not_before=now())
        c.api.change("nodes", "n0", address("10.0.0.99"))
        await settled(200)
        assert c.cloud.members() == {"n0": ["10.0.0.7"]}


@in_virtual_time
async def test_a_node_takes_over_when_the_one_that_held_its_provider_id_goes():
    async with Cluster() as c:
        c.add_node("n0")
        c.add_node("old", A4, created="2025-01-01T00:00:00Z")
        c.add_node("renamed", B4, provider_id="fake://old")
        c.add_service()
        c.serve()
        c.route()
        await c.served()
        await until(lambda: c.routes.table() == {(A4, "old")})
        c.api.remove("nodes", "old")
        await until(lambda: c.cloud.hosts() == ["n0", "renamed"])
        await until(lambda: c.routes.table() == {(B4, "old")})
        assert c.api.condition("renamed") == CREATED


@in_virtual_time
async def test_a_cloud_with_other_credentials_cuts_nothing():
    """The new credentials see another project, or another region is in the providerIDs."""
    for owns in (lambda provider_id: provider_id.startswith("fake://"), lambda provider_id: "south" in provider_id):
        async with Cluster() as c:
            c.add_node("n0", A4)
            c.add_service()
            c.serve()
            c.route()
            await c.served()
            await until(lambda: c.routes.table() == {(A4, "n0")})
            c.machines.hide("n0")
            machines = Machines(c.api)
            machines.hide("n0")
            machines.hide("nothing")
            machines.owns = owns
            await c.gateway.replace(FakeCloud(machines, c.cloud, c.routes, c.limits))
            c.add_node("n1", B4, provider_id="fake://nothing")
            c.api.change("nodes", "n0", {"metadata": {"labels": {"a": "b"}}})
            await settled(200)
            if owns("fake://n0"):
                assert c.cloud.hosts() == ["n0"] and c.routes.table() == {(A4, "n0")}


# --- what it costs ----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_hundred_nodes_cost_a_listing_at_start_and_one_when_as_many_come():
    async with Cluster() as c:
        for number in range(100):
            c.add_node(f"n{number}")
        c.add_service()
        c.serve()
        await c.served()
        assert c.machines.calls == ["list"]
        for number in range(100):
            c.add_node(f"m{number}")
        await until(lambda: len(c.cloud.hosts()) == 200)
        await settled(3600)
        assert c.machines.calls == ["list", "list"]


@in_virtual_time
async def test_contradictions_cost_few_calls_and_are_told_now_and_then():
    async with Cluster() as c:
        c.machines.put("other", "10.0.0.8")
        c.add_node("n0")
        for number in range(3):
            c.add_node(f"liar{number}", addresses=(f"10.0.7.{number}",))
            c.machines.put(f"liar{number}", f"10.0.0.10{number}")
        c.add_node("ghost", provider_id="fake://nothing")
        c.machines.hide("nothing")
        c.add_service()
        c.serve()
        await c.served()
        before = len(c.machines.calls)
        for number in range(300):  # the liars keep changing
            ip = f"10.0.0.10{number % 3}" if number // 3 % 2 else f"10.0.9.{number % 200}"
            c.api.change("nodes", f"liar{number % 3}", address(ip))
            await asyncio.sleep(1)
        assert len(c.machines.calls) - before <= 3 * 5 + 3  # one read per liar and minute, and some for the ghost
        assert len(c.api.told("NodeNotVouched")) <= 8
        assert set(map(tuple, c.cloud.members().values())) >= {("10.0.0.100",), ("10.0.0.101",), ("10.0.0.102",)}
        assert c.cloud.count("update") == 0


# --- and before the cloud is told -------------------------------------------------------------------------------------


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@in_virtual_time
async def test_a_route_is_looked_at_once_more_before_it_is_created(monkeypatch):
    async with Cluster() as c:
        c.add_node("evil", A4)
        planning = route_rules.planning

        def misled(*args):
            found = yield from planning(*args)
            found.create = [(node, Route("8.8.8.0/24", node.spec.provider_id)) for node, _ in found.create]
            return found

        monkeypatch.setattr(route_rules, "planning", misled)
        c.route()
        await settled()
        assert c.routes.count("create") == 0
        assert "8.8.8.0/24 is not inside the cluster CIDR" in c.api.told("FailedToCreateRoute", "evil")[0]
