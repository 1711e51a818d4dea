# SPDX-License-Identifier: Apache-2.0
"""When Nodes are deleted, and what must prevent it. In virtual time, with default safety settings unless set here.

L1-L21 are the cases of upstream's tests (docs/reference/parity.md). Upstream's two interfaces (L1-L6 and L7-L12) are
one here. A deletion takes two reads and a complete listing instead of one answer (W4), so the tests wait a little
longer.
"""

import asyncio

import pytest
from prometheus_client import REGISTRY

from ccm.cloud import Conflict, Instance, InstanceRef, InstanceState, NotFound, NotImplementedByCloud, Page, Transient
from ccm.controllers.nodes.node_lifecycle import WRITERS
from ccm.controllers.nodes.node_rules import instance_ref
from ccm.engine.api_errors import ForbiddenError, UnavailableError

from ..gateway.virtual import in_virtual_time, now
from .nodes_harness import SHUTDOWN, TAINT, Cluster, machine, until


def metric(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0.0


def fleet(c, count=3, *, ready="True", **fields):
    """Create initialised Nodes n0, n1, ... and their instances."""
    for number in range(count):
        name = f"n{number}"
        c.api.add(name, tainted=False, ready=ready, providerID=f"fake://{name}", **fields)
        c.cloud.put(machine(name))


def is_gone(c, name="n0"):
    return lambda: name not in c.api.nodes


async def kept(c, names=("n0",), seconds=600.0):
    """Wait `seconds` and check that no Node was deleted."""
    await asyncio.sleep(seconds)
    assert c.api.count("DELETE") == 0
    assert all(name in c.api.nodes for name in names)


# --- upstream's table -----------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize(
    "status",
    [
        pytest.param("False", id="L1-L7-L19-not-ready"),
        pytest.param("Unknown", id="L4-L10-unknown"),
        pytest.param(None, id="L4-no-condition-counts-as-unknown"),
    ],
)
async def test_the_node_of_an_instance_that_is_gone_is_deleted(status):
    async with Cluster() as c:
        fleet(c)
        c.watch_over_nodes()
        c.api.remove("n0")
        c.api.add("n0", tainted=False, ready=status, age=3600, providerID="fake://n0")
        c.cloud.remove("n0")
        # The Node came while the controller watched, so its observed age counts, whatever its timestamp says.
        await until(is_gone(c), 400)
        assert set(c.api.nodes) == {"n1", "n2"}
        await until(lambda: c.api.told("DeletingNode", "n0"))


@in_virtual_time
async def test_L1_L7_it_takes_two_reads_a_listing_and_a_last_look_that_agree():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "Unknown")
        c.cloud.remove("n0")
        await asyncio.sleep(0.1)
        deleted = metric("ccm_node_deletions_total")
        c.watch_over_nodes()
        await until(is_gone(c), 12)
        assert c.cloud.calls == ["get fake://n0", "list", "get fake://n0"]
        assert metric("ccm_node_deletions_total") == deleted + 1


@in_virtual_time
async def test_L31_answers_and_checks_are_counted_by_upstreams_names():
    calls, stem = "cloud_node_lifecycle_controller_cloud_provider_calls_total", "cloud_node_lifecycle_controller"

    def counted():
        results = ("success", "instance_not_found", "error")
        return [
            *(metric(calls, operation="instance_exists", result=result) for result in results),
            metric(calls, operation="instance_shutdown", result="success"),
            metric(f"{stem}_monitor_nodes_duration_seconds_count"),
        ]

    async with Cluster() as c:
        fleet(c, 2, ready="False")
        c.cloud.remove("n1")
        before = counted()
        c.watch_over_nodes()
        await asyncio.sleep(1)
        assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1, 0, 1, 1]
        c.cloud.error = Transient("500")
        await asyncio.sleep(10)
        assert counted()[2] > before[2]


@in_virtual_time
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Transient("500"), id="L2-L8-existence-error"),
        pytest.param(NotImplementedByCloud("no"), id="L16-not-implemented"),
        pytest.param(Conflict("several"), id="L16-ambiguous"),
        pytest.param(RuntimeError("bug"), id="L16-a-bug"),
        pytest.param(asyncio.CancelledError(), id="L16-cancelled"),
    ],
)
async def test_the_node_is_kept_while_the_cloud_cannot_say(error):
    held = metric("ccm_node_deletions_held_total", reason="CloudUnknown")
    async with Cluster() as c:
        fleet(c, ready="False")
        c.api.add("by-name", tainted=False, ready="False")  # L16: upstream asks for the instance ID, which fails
        c.cloud.remove("n0")
        c.cloud.error = error
        controller = c.watch_over_nodes()
        await kept(c, ("n0", "by-name"))
        assert not controller.done()
        assert c.api.told("DeletionHeld", "n0") and c.api.told("DeletionHeld", "by-name")
        assert metric("ccm_node_deletions_held_total", reason="CloudUnknown") > held
        assert not c.api.tainted("n0", SHUTDOWN["key"]) and not c.api.tainted("by-name", SHUTDOWN["key"])
        assert "providerID" not in c.api.nodes["by-name"]["spec"]
        c.cloud.error = None
        await until(is_gone(c), 200)


@in_virtual_time
@pytest.mark.parametrize(
    "status", [pytest.param("False", id="L3-L9-not-ready"), pytest.param("Unknown", id="L5-L11-unknown")]
)
async def test_the_node_of_an_existing_instance_is_not_touched(status):
    async with Cluster() as c:
        fleet(c, ready=status)
        before = dict(c.api.nodes)
        c.watch_over_nodes()
        await kept(c)
        assert c.api.nodes == before
        # The reads get rarer and cover all Nodes at once (W3): upstream makes 6 calls every 5 s.
        assert len(c.cloud.calls) <= 16


@in_virtual_time
async def test_L6_L12_L20_of_a_ready_node_the_cloud_is_not_asked():
    async with Cluster() as c:
        fleet(c, 2)
        c.cloud.remove("n0")
        c.cloud.put(machine("n1", state=InstanceState.SHUTDOWN))
        before = dict(c.api.nodes)
        c.watch_over_nodes()
        await kept(c)
        assert c.api.nodes == before
        assert c.cloud.calls == []


@in_virtual_time
async def test_L13_a_shut_down_instance_taints_its_node_until_it_is_ready():
    async with Cluster() as c:
        fleet(c, taints=({"key": "other", "value": "x", "effect": "NoExecute"},))
        c.cloud.put(machine("n0", state=InstanceState.SHUTDOWN))
        c.api.set_ready("n0", "Unknown")
        c.watch_over_nodes()
        await until(lambda: c.api.tainted("n0", SHUTDOWN["key"]))
        assert SHUTDOWN in c.api.nodes["n0"]["spec"]["taints"] and c.api.tainted("n0", "other")
        writes = c.api.count("PATCH")
        await asyncio.sleep(300)
        assert c.api.count("PATCH") == writes and c.api.count("GET") == 0  # W7: decided from the cache
        c.cloud.put(machine("n0"))
        await asyncio.sleep(100)
        assert c.api.tainted("n0", SHUTDOWN["key"])  # as upstream: only Ready removes it
        c.api.set_ready("n0", "True")
        await until(lambda: not c.api.tainted("n0", SHUTDOWN["key"]), 10)
        assert c.api.tainted("n0", "other")


@in_virtual_time
async def test_L14_a_node_without_provider_id_is_found_by_name_and_tainted():
    async with Cluster(machine("n0", state=InstanceState.SHUTDOWN), machine("n1")) as c:
        c.api.add("n0", tainted=False, ready="False")
        c.watch_over_nodes()
        await until(lambda: c.api.tainted("n0", SHUTDOWN["key"]))
        assert "providerID" not in c.api.nodes["n0"]["spec"]


@in_virtual_time
async def test_L15_L17_a_node_without_provider_id_is_never_deleted():
    """Differs: upstream deletes it. If no instance has the Node's name, the Node's own instance may still exist."""
    async with Cluster(machine("n1")) as c:
        c.api.add("n0", tainted=False, ready="False")
        c.watch_over_nodes()
        await kept(c, seconds=900)
        assert "never had a providerID" in c.api.told("DeletionHeld", "n0")[0]
        assert len(c.cloud.calls) < 30  # ever more rarely


@in_virtual_time
async def test_L18_L21_existence_counts_before_being_shut_down():
    """Existence and state come in one answer here, so neither can fail without the other."""
    async with Cluster() as c:
        fleet(c)
        c.cloud.put(machine("n0", state=InstanceState.SHUTDOWN))
        c.api.set_ready("n0", "Unknown")
        c.watch_over_nodes()
        await until(lambda: c.api.tainted("n0", SHUTDOWN["key"]))
        c.cloud.remove("n0")
        await until(is_gone(c), 200)


@pytest.mark.parametrize(
    ("provider_id", "asked"),
    [
        pytest.param("fake://12345", InstanceRef("n0", "fake://12345"), id="L22-L23-spec-id"),
        pytest.param("", InstanceRef("n0", None), id="L24-L25-L26-by-name"),
    ],
)
def test_what_the_cloud_is_asked_for(provider_id, asked):
    """One reference serves both interfaces of upstream. L26 differs: see N12 in test_node_rules.py."""
    from ccm.engine.objects import Node, NodeSpec, ObjectMeta

    assert instance_ref(Node(metadata=ObjectMeta(name="n0"), spec=NodeSpec(provider_id=provider_id))) == asked


class Vanished(NotFound):
    """A provider's own subclass of NotFound."""


def chained() -> OSError:
    error = OSError("broken")
    error.__cause__ = NotFound("no such thing")
    return error


@in_virtual_time
@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        pytest.param(NotFound("no such thing"), NotFound, "no such thing", id="L27-not-found-as-it-is"),
        pytest.param(OSError("broken"), Transient, "provider 'fake' raised OSError: broken", id="L28-with-context"),
        pytest.param(Vanished("no such thing"), NotFound, "no such thing", id="L32-a-kind-of-not-found"),
        pytest.param(chained(), Transient, "provider 'fake' raised OSError: broken", id="L32-caused-by-not-found"),
    ],
)
async def test_how_errors_of_a_lookup_arrive(error, kind, text):
    async with Cluster(machine("n0")) as c:
        c.cloud.error = error
        with pytest.raises(kind, match=text):
            await c.gateway.instances.lookup(InstanceRef("n0", "fake://n0"), not_before=now())


@in_virtual_time
async def test_L29_events_name_the_api_version_of_the_node():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        c.watch_over_nodes()
        await until(lambda: c.api.told("DeletingNode", "n0"))
        about = c.api.events[0]["involvedObject"]
        assert (about["apiVersion"], about["kind"], about["name"]) == ("v1", "Node", "n0")
        assert about["uid"].startswith("uid-")


@in_virtual_time
async def test_L30_a_deleted_machine_costs_its_node_within_five_minutes():
    """The 50 s until kube-controller-manager marks the Node Unknown are not included."""
    async with Cluster() as c:
        fleet(c, ready="Unknown")
        c.watch_over_nodes()
        await asyncio.sleep(1000)  # NotReady for long: by now it is read once a minute
        c.cloud.remove("n0")
        began = now()
        await until(is_gone(c), 250)
        assert now() - began < 250


# --- safety ---------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_confirmations_are_a_monitor_period_apart_however_often_it_is_asked():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        c.watch_over_nodes(confirmations=4)
        began = now()
        await until(is_gone(c), 60)
        assert now() - began >= 3 * 5.0


@in_virtual_time
async def test_a_cloud_that_flaps_never_confirms():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        original, calls = c.cloud._answer, []

        async def flapping(call, find):
            calls.append(call)
            if len(calls) % 2:
                c.cloud.remove("n0")
            else:
                c.cloud.put(machine("n0"))
            return await original(call, find)

        c.cloud._answer = flapping
        c.watch_over_nodes()
        await kept(c)
        assert len(calls) > 5


@in_virtual_time
async def test_an_error_between_two_confirmations_starts_them_anew():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        original, calls = c.cloud._answer, []

        async def every_second_fails(call, find):
            calls.append(call)
            if len(calls) % 2 == 0:
                raise Transient("503")
            return await original(call, find)

        c.cloud._answer = every_second_fails
        c.watch_over_nodes()
        await kept(c)
        assert len(calls) > 4


@in_virtual_time
@pytest.mark.parametrize("what", ["short", "empty", "junk", "other-project"])
async def test_single_answers_that_say_gone_delete_nothing_without_a_listing_that_agrees(what):
    """`other-project`: credentials of another project, with which each read of our instances answers "not found"."""
    async with Cluster() as c:
        fleet(c, 30)
        c.api.set_ready("n0", "False")
        if what == "other-project":
            c.cloud.all = [machine(f"theirs-{number}", provider_id=f"fake://t{number}") for number in range(30)]
        else:
            c.cloud.remove("n0")
        if what == "empty":
            c.cloud.all = []
        if what == "junk":
            c.cloud.all.append(None)
        if what == "short":
            c.cloud.answer = lambda found: Page(found.instances, None, total=30) if isinstance(found, Page) else found
        c.watch_over_nodes()
        await kept(c)
        assert c.cloud.calls.count("list") > 2
        message = c.api.told("DeletionHeld", "n0")[0]
        expected = {
            "short": "29 of 30",
            "empty": "no instances at all",
            "junk": "NoneType",
            "other-project": "the instances of 0 Ready Nodes, but not those of 29 others",
        }
        assert expected[what] in message


@in_virtual_time
@pytest.mark.parametrize("doubt", ["it-is-there", "no-answer"])
async def test_a_listing_that_hides_instances_deletes_nothing_without_a_last_look_that_agrees(doubt):
    """For example, a provider's filter leaves out machines that are being rebuilt: fewer than the cap allows."""
    async with Cluster() as c:
        fleet(c, 30)
        for name in ("n0", "n1"):
            c.api.set_ready(name, "Unknown")
        everything = list(c.cloud.all)

        async def listing(token):
            c.cloud.calls.append("list")
            return Page([machine for machine in everything if machine.name not in ("n0", "n1")])

        c.cloud.list_page = listing
        if doubt == "no-answer":
            c.cloud.error = Transient("503")
        c.watch_over_nodes()
        await kept(c, ("n0", "n1"))
        assert c.cloud.calls.count("list") > 4
        expected = {"it-is-there": "does not list fake://n0, but returns it when asked", "no-answer": "503"}[doubt]
        assert expected in c.api.told("DeletionHeld", "n0")[0]


@in_virtual_time
async def test_ready_nodes_whose_machine_was_replaced_do_not_keep_others_from_going():
    """A Ready Node with an old providerID, whose name a new instance has, is not a sign of a wrong project."""
    async with Cluster() as c:
        fleet(c, 10)
        for number in range(1, 6):
            c.cloud.put(machine(f"n{number}", provider_id=f"fake://again-{number}"))
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        c.watch_over_nodes()
        await until(is_gone(c), 60)
        assert len(c.api.nodes) == 9


@in_virtual_time
async def test_an_instance_made_again_under_the_same_name_does_not_save_the_old_node():
    """A providerID cannot change, so the Node of the old instance must go before the new instance can register."""
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "Unknown")
        c.cloud.put(machine("n0", provider_id="fake://n0-again"))
        c.watch_over_nodes()
        await until(is_gone(c), 60)
        c.api.add("n0", age=0, ready="False", providerID="fake://n0-again", tainted=False)
        c.cloud.calls.clear()
        await kept_after(c, "n0")


async def kept_after(c, name, seconds=600.0):
    deletions = c.api.count("DELETE")
    await asyncio.sleep(seconds)
    assert c.api.count("DELETE") == deletions and name in c.api.nodes


@in_virtual_time
async def test_what_was_confirmed_about_a_node_does_not_hold_for_its_successor():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        c.watch_over_nodes(confirmations=3, min_age=0)
        await until(lambda: len(c.cloud.calls) == 2)
        c.api.remove("n0")
        c.api.add("n0", tainted=False, ready="False", providerID="fake://n0")
        began = now()
        await until(is_gone(c), 60)
        assert now() - began >= 10.0


@in_virtual_time
async def test_a_node_that_was_ready_in_between_starts_anew():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        c.watch_over_nodes()
        for _ in range(5):
            c.cloud.calls.clear()
            await until(lambda: c.cloud.calls)
            c.api.set_ready("n0", "True")
            await asyncio.sleep(12)
            assert c.cloud.calls == ["get fake://n0"]
            c.api.set_ready("n0", "False")
        c.cloud.calls.clear()
        await until(is_gone(c), 30)
        assert c.cloud.calls == ["get fake://n0", "list", "get fake://n0"]


@in_virtual_time
async def test_what_was_found_out_by_name_does_not_count_for_a_provider_id():
    async with Cluster(machine("n1")) as c:
        c.api.add("n0", tainted=False, ready="False")
        c.api.add("n1", tainted=False, ready="True", providerID="fake://n1")
        c.watch_over_nodes()
        await until(lambda: c.api.told("DeletionHeld", "n0"))
        await asyncio.sleep(300)
        c.api.change("n0", {"spec": {"providerID": "fake://n0"}})
        c.cloud.calls.clear()
        await until(is_gone(c), 200)
        assert [call for call in c.cloud.calls if "get" in call] == ["get fake://n0"] * 2


@in_virtual_time
async def test_a_node_registered_anew_while_the_delete_is_under_way_is_kept():
    """W5: the DELETE request names the UID of the Node that was judged."""
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        replaced = []

        def replace(verb, path):
            if verb == "DELETE" and not replaced:
                c.api.remove("n0")
                c.cloud.put(machine("n0"))
                replaced.append(c.api.add("n0", age=0, tainted=False, ready="False", providerID="fake://n0"))

        c.api.before = replace
        c.watch_over_nodes()
        await until(lambda: replaced)
        await asyncio.sleep(600)
        assert c.api.nodes["n0"]["metadata"]["uid"] == replaced[0]["metadata"]["uid"]


@in_virtual_time
async def test_a_node_that_gets_ready_while_the_delete_is_under_way_is_kept():
    """The request also names the resourceVersion: after any change, the controller first judges the Node again."""
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        tried = []

        def recover(verb, path):
            if verb == "DELETE":
                tried.append(path)
                c.api.set_ready("n0", "True")

        c.api.before = recover
        c.watch_over_nodes()
        await until(lambda: tried)
        await asyncio.sleep(600)
        assert "n0" in c.api.nodes and len(tried) == 1


@in_virtual_time
@pytest.mark.parametrize(
    ("skew", "stamp"),
    [
        pytest.param(0.0, 0.0, id="clocks-agree"),
        pytest.param(3600.0, 0.0, id="ours-is-an-hour-ahead"),
        pytest.param(-7200.0, 0.0, id="ours-is-two-hours-behind"),
        pytest.param(0.0, 3600.0, id="the-api-servers-jumped-back-an-hour"),
        pytest.param(0.0, -3600.0, id="the-api-servers-jumped-an-hour-ahead"),
    ],
)
async def test_a_young_node_stays_whatever_the_clocks_say(skew, stamp):
    """`skew`: seconds by which our wall clock is ahead. `stamp`: the Node's age by its creationTimestamp when it comes.
    Its real age is known because it came while the controller watched."""
    async with Cluster() as c:
        fleet(c)
        c.watch_over_nodes()
        await asyncio.sleep(1)
        c.clock.skew = skew
        c.api.add("young", age=stamp, tainted=False, ready="False", providerID="fake://young")
        await kept(c, ("young",), 290)
        if skew + stamp >= 0:
            await until(is_gone(c, "young"), 100)
        else:
            await kept(c, ("young",), 600)  # still too young by its creationTimestamp


@in_virtual_time
async def test_a_restart_forgets_confirmations():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        for _ in range(6):
            controller = c.watch_over_nodes()
            await asyncio.sleep(4.0)
            controller.cancel()
            await asyncio.gather(controller, return_exceptions=True)
        assert c.api.count("DELETE") == 0
        assert c.cloud.calls == ["get fake://n0"] * 6
        c.watch_over_nodes()
        await until(is_gone(c), 12)


@in_virtual_time
async def test_leadership_lost_in_the_midst_of_a_deletion_leaves_nothing_half_done():
    """The API server may carry out the request after we stopped, but it affects only the Node that was judged."""
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        c.api.latency = 2.0
        controller = c.watch_over_nodes()
        await until(lambda: c.api.count("DELETE"))
        controller.cancel()
        await asyncio.gather(controller, return_exceptions=True)
        assert controller.cancelled() and "n0" in c.api.nodes
        c.api.latency = 0.01
        began = now()
        c.watch_over_nodes()  # the next leader decides for itself
        await until(is_gone(c), 30)
        assert now() - began >= 5.0


@in_virtual_time
async def test_a_node_on_its_way_out_is_left_to_its_finalizers():
    async with Cluster() as c:
        fleet(c)
        c.api.change("n0", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}})
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        c.watch_over_nodes()
        await kept(c)
        assert c.cloud.calls == []


@in_virtual_time
@pytest.mark.parametrize(
    "provider_id", ["other://n0", "garbage", "FAKE://n0"], ids=["another-cloud", "malformed", "scheme-in-capitals"]
)
async def test_a_node_that_is_not_ours_is_never_looked_at(provider_id):
    async with Cluster(machine("n1")) as c:
        c.api.add("n0", tainted=False, ready="False", providerID=provider_id)
        c.watch_over_nodes()
        await kept(c)
        assert c.cloud.calls == []


@in_virtual_time
async def test_a_provider_id_in_another_spelling_keeps_the_node():
    async with Cluster() as c:
        fleet(c)
        c.api.add("odd", tainted=False, ready="False", providerID="fake://Odd")
        c.cloud.put(machine("odd", provider_id="fake://odd"))
        c.watch_over_nodes()
        await kept(c, ("odd",))
        assert any("the cloud spells it fake://odd" in message for message in c.api.told("DeletionHeld", "odd"))


@in_virtual_time
async def test_a_tainted_node_whose_instance_is_gone_goes_too():
    """As upstream, the taint does not protect a Node. Only a tainted Node without a providerID is left to the node
    controller.
    """
    async with Cluster() as c:
        fleet(c)
        c.api.add("left", ready="False", providerID="fake://left")
        c.api.add("new", ready="False")
        assert TAINT in c.api.nodes["left"]["spec"]["taints"]
        c.watch_over_nodes()
        await until(is_gone(c, "left"), 400)
        await kept_after(c, "new")


@in_virtual_time
async def test_the_cap_counts_what_went_within_the_window():
    async with Cluster() as c:
        fleet(c, 60, ready="False")
        c.watch_over_nodes(window=600)
        await asyncio.sleep(1)
        deleted_at = []
        c.api.after = lambda verb, path: deleted_at.append(now()) if verb == "DELETE" else None
        for number in range(12):  # one at a time, so that never many are missing at once
            c.cloud.remove(f"n{number}")
            await asyncio.sleep(70)
        await until(lambda: len(deleted_at) == 12, 600)
        for first in deleted_at:
            assert sum(1 for other in deleted_at if first <= other < first + 600) <= 6


@in_virtual_time
async def test_the_cap_counts_what_former_leaders_deleted():
    """The cap survives a change of leader (W4): otherwise a process that crashes after each deletion would delete all
    Nodes, as upstream can."""
    async with Cluster() as c:
        fleet(c, 20, ready="False")
        for number in range(8):
            leader = c.watch_over_nodes(window=600)
            await asyncio.sleep(1)
            c.cloud.remove(f"n{number}")
            await asyncio.sleep(40)
            leader.cancel()
        assert len(c.api.nodes) == 18  # two within ten minutes
        c.watch_over_nodes(cap_min=50)
        await until(lambda: len(c.api.nodes) == 12)


@in_virtual_time
@pytest.mark.parametrize("when", ["at the start", "at the deletion"])
async def test_what_the_next_leader_could_not_learn_is_not_done(when):
    async with Cluster() as c:
        fleet(c, ready="False")
        failure = UnavailableError(503, "ServiceUnavailable", "no")
        if when == "at the start":
            c.notes.failure = failure
        c.watch_over_nodes()
        await asyncio.sleep(1)
        c.notes.failure = failure
        c.cloud.remove("n0")
        await kept(c)
        assert not c.api.told("DeletingNode", "n0")
        c.notes.failure = None
        await until(is_gone(c))


@in_virtual_time
async def test_a_note_that_cannot_be_read_does_not_stop_the_work():
    async with Cluster() as c:
        fleet(c)
        c.notes.texts["node-deletions"] = "scribbled"
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        c.watch_over_nodes()
        await until(is_gone(c))
        assert c.notes.texts["node-deletions"].endswith(":1}")


@in_virtual_time
async def test_a_mass_disappearance_deletes_none_and_ends_by_itself():
    """Here no Node is Ready. test_node_lifecycle_brake.py covers Ready Nodes that are listed."""
    async with Cluster() as c:
        fleet(c, 40, ready="False")
        c.watch_over_nodes()
        for number in range(5):
            c.cloud.remove(f"n{number}")
        await kept(c, [f"n{number}" for number in range(40)])
        assert "the instances of 5 of 40 Nodes" in c.api.told("DeletionHeld", "n0")[0]
        c.cloud.put(machine("n4"))
        await until(lambda: len(c.api.nodes) == 36, 300)
        assert "n4" in c.api.nodes


@in_virtual_time
async def test_a_delete_whose_answer_was_lost_counts_for_the_cap():
    async with Cluster() as c:
        fleet(c, 10)
        lost = UnavailableError(0, "Timeout", "no answer in time")
        c.api.after = lambda verb, path: lost if verb == "DELETE" else None
        c.watch_over_nodes(window=600)
        for number in range(4):
            c.api.set_ready(f"n{number}", "False")
            c.cloud.remove(f"n{number}")
            await asyncio.sleep(60)
        assert len(c.api.nodes) == 8  # at most two of ten within ten minutes


@in_virtual_time
async def test_a_delete_that_is_refused_is_told_and_tried_again():
    async with Cluster() as c:
        fleet(c)
        c.api.set_ready("n0", "False")
        c.cloud.remove("n0")
        refused = ForbiddenError(403, "Forbidden", "user may not delete nodes")
        c.api.fault = lambda verb, path: refused if verb == "DELETE" else None
        failures = metric("ccm_node_deletion_failures_total")
        c.watch_over_nodes()
        await until(lambda: c.api.told("DeletingNodeFailed", "n0"))
        assert "may not delete nodes" in c.api.told("DeletingNodeFailed", "n0")[0]
        assert metric("ccm_node_deletion_failures_total") > failures
        await asyncio.sleep(100)
        c.api.fault = lambda verb, path: None
        await until(is_gone(c), 20)


# --- storms ---------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_W3_600_nodes_not_ready_cost_few_calls_few_events_and_bounded_writes():
    """A network partition: all Nodes are NotReady, the cloud works, and a third of the instances are shut down."""
    async with Cluster() as c:
        for number in range(600):
            c.api.add(f"n{number}", tainted=False, ready="Unknown", providerID=f"fake://n{number}")
        c.cloud.page = 400
        c.cloud.all = [
            machine(f"n{number}", state=InstanceState.SHUTDOWN if number % 3 == 0 else InstanceState.RUNNING)
            for number in range(600)
        ]
        c.watch_over_nodes()
        await until(lambda: sum(c.api.tainted(name, SHUTDOWN["key"]) for name in c.api.nodes) == 200, 60)
        assert c.api.most <= WRITERS
        assert len(c.cloud.calls) <= 4  # one listing of two pages; upstream: 1,200 calls a pass
        assert c.api.events == []


@in_virtual_time
async def test_an_outage_with_600_nodes_not_ready_is_told_in_measure():
    async with Cluster() as c:
        for number in range(600):
            c.api.add(f"n{number}", tainted=False, ready="Unknown", providerID=f"fake://n{number}")
        c.cloud.error = Transient("503")
        c.watch_over_nodes()
        await asyncio.sleep(60)
        assert 50 <= len(c.api.told("DeletionHeld")) <= 50 + 5 * 60
        # Each Event is about another Node.
        assert len({event["involvedObject"]["name"] for event in c.api.events}) == len(c.api.events)
        assert len(c.cloud.calls) < 10


@in_virtual_time
async def test_a_bug_about_one_node_keeps_no_other_from_being_looked_after():
    async with Cluster() as c:
        fleet(c, 30)
        for name in ("n0", "n1"):
            c.api.set_ready(name, "False")
            c.cloud.remove(name)
        c.api.fault = lambda verb, path: KeyError("a bug") if verb == "DELETE" and path.endswith("n0") else None
        controller = c.watch_over_nodes()
        await until(is_gone(c, "n1"), 30)
        assert not controller.done() and "n0" in c.api.nodes


@in_virtual_time
async def test_an_unexpected_answer_is_unknown():
    async with Cluster() as c:
        fleet(c, ready="False")
        c.cloud.answer = lambda found: None
        controller = c.watch_over_nodes()
        await kept(c)
        assert not controller.done()
        assert isinstance(c.cloud.all[0], Instance)
