# SPDX-License-Identifier: Apache-2.0
"""Only Nodes of dead machines are fenced. In virtual time, with the default safety settings."""

import asyncio
import json

import pytest
from prometheus_client import REGISTRY

from ccm.cloud import InstanceState, Transient
from ccm.controllers.nodes.node_fencing_rules import EFFECT, KEY, SINCE, VALUE
from ccm.engine.api_errors import ForbiddenError, UnavailableError

from ..gateway.virtual import in_virtual_time, now
from .nodes_harness import SHUTDOWN, Cluster, machine, until

OFF, RUNS = InstanceState.SHUTDOWN, InstanceState.RUNNING


def fleet(c, count=5, **fields):
    for number in range(count):
        name = f"n{number}"
        c.api.add(name, tainted=False, ready="True", providerID=f"fake://{name}", **fields)
        c.cloud.put(machine(name))


def die(c, *names, gone=False):
    for name in names:
        c.cloud.remove(name)
        if not gone:
            c.cloud.put(machine(name, state=OFF))
        c.api.set_ready(name, "Unknown")


def fenced(c, name="n0"):
    return name in c.api.nodes and c.api.tainted(name, KEY)


def metric(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def never(c, *names, seconds=900.0):
    """Fail if one of these Nodes is fenced at any moment within `seconds`, although the fence is lifted again.

    An assertion within a request would not fail the test: the controller takes it for an error of the request.
    """
    before, once = c.api.after, set()

    def look(verb, path):
        once.update(name for name in names if fenced(c, name))
        return before(verb, path)

    c.api.after = look
    await asyncio.sleep(seconds)
    assert not once and not [name for name in names if fenced(c, name)]


async def is_fenced_after_the_window(c, name):
    """Check that this Node waits for its turn, because two Nodes were fenced within the window, and is then fenced."""
    await never(c, name, seconds=100)
    c.api.after = lambda verb, path: None
    await until(lambda: fenced(c, name), 180)


@in_virtual_time
async def test_the_node_of_a_machine_that_is_shut_down_is_fenced_until_it_is_ready():
    async with Cluster() as c:
        fleet(c, taints=({"key": "other", "value": "x", "effect": "NoExecute"},))
        die(c, "n0")
        fences = metric("ccm_node_fences_total")
        c.watch_over_nodes(fence=True)
        await until(lambda: fenced(c), 20)
        (taint,) = [each for each in c.api.nodes["n0"]["spec"]["taints"] if each["key"] == KEY]
        assert (taint["value"], taint["effect"]) == (VALUE, EFFECT) == ("nodeshutdown", "NoExecute")
        assert c.api.nodes["n0"]["metadata"]["annotations"] == {SINCE: taint["timeAdded"]}
        assert c.api.tainted("n0", "other") and c.api.tainted("n0", SHUTDOWN["key"])
        assert metric("ccm_node_fences_total") == fences + 1
        await until(lambda: c.api.told("OutOfService", "n0"))
        writes = c.api.count("PATCH")
        await asyncio.sleep(900)
        assert c.api.count("PATCH") == writes and "n0" in c.api.nodes
        c.cloud.put(machine("n0"))
        c.api.set_ready("n0", "True")
        await until(lambda: not fenced(c), 10)
        assert SINCE not in c.api.nodes["n0"]["metadata"]["annotations"] and c.api.tainted("n0", "other")
        await until(lambda: not c.api.tainted("n0", SHUTDOWN["key"]), 10)
        await until(lambda: c.api.told("BackInService", "n0"))


@in_virtual_time
async def test_it_takes_two_answers_a_listing_and_a_last_look():
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")
        c.watch_over_nodes(fence=True)
        await until(lambda: fenced(c), 20)
        assert c.cloud.calls == ["get fake://n0", "get fake://n0", "list", "get fake://n0"]


@in_virtual_time
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("phase", [0.0, 1.3, 2.6, 3.9, 5.2])
async def test_a_silent_kubelet_is_enough_to_ask_at_once(phase, gone):
    """The taint is added as soon as two answers are a monitor period apart. It does not matter when between two passes
    the Node stops being Ready, or whether another Node does so meanwhile."""
    async with Cluster() as c:
        fleet(c, count=40)
        c.watch_over_nodes(fence=True)
        await asyncio.sleep(60 + phase)
        began = now()
        die(c, "n0", gone=gone)
        await asyncio.sleep(2)
        c.api.set_ready("n1", "Unknown")
        await until(lambda: fenced(c), 5.0)
        assert now() - began >= 5


@in_virtual_time
async def test_nodes_that_stop_being_ready_one_after_the_other_cost_few_reads():
    async with Cluster() as c:
        fleet(c, count=40)
        c.watch_over_nodes(fence=True)
        await asyncio.sleep(60)
        for number in range(30):
            c.api.set_ready(f"n{number}", "Unknown")
            await asyncio.sleep(0.1)
        assert len(c.cloud.calls) <= 6, "about one a second"


@in_virtual_time
async def test_the_taint_goes_as_soon_as_the_cloud_says_that_the_machine_runs():
    """The taint goes although the kubelet is still silent, because the machine is no longer down."""
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")
        c.watch_over_nodes(fence=True)
        await until(lambda: fenced(c), 20)
        c.cloud.put(machine("n0"))
        await until(lambda: not fenced(c), 61)
        await never(c, "n0")
        assert c.api.tainted("n0", SHUTDOWN["key"]), "as upstream, that one stays until the Node is Ready"


@in_virtual_time
async def test_a_node_whose_machine_is_gone_stays_for_a_minute_so_that_its_volumes_can_be_detached():
    async with Cluster() as c:
        fleet(c)
        die(c, "n0", gone=True)
        held = metric("ccm_node_deletions_held_total", reason="Fenced")
        c.watch_over_nodes(fence=True)
        await until(lambda: fenced(c), 20)
        began = now()
        await until(lambda: "n0" not in c.api.nodes, 90)
        assert now() - began >= 59
        assert metric("ccm_node_deletions_held_total", reason="Fenced") > held
        assert set(c.api.nodes) == {"n1", "n2", "n3", "n4"}


@in_virtual_time
async def test_without_the_flag_no_node_is_fenced_but_what_was_fenced_is_lifted():
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")
        running = c.watch_over_nodes(fence=True)
        await until(lambda: fenced(c), 20)
        running.cancel()
        die(c, "n1")
        c.watch_over_nodes()
        await never(c, "n1")
        assert fenced(c), "its machine is still shut down"
        c.cloud.put(machine("n0"))
        c.api.set_ready("n0", "True")
        await until(lambda: not fenced(c), 10)


@in_virtual_time
@pytest.mark.parametrize("annotations", [{}, {SINCE: "2025-01-01T00:00:00Z"}], ids=["none", "of-an-earlier-one"])
async def test_a_taint_that_a_person_added_is_never_removed(annotations):
    by_hand = {"key": KEY, "value": VALUE, "effect": EFFECT}
    async with Cluster() as c:
        fleet(c, taints=(by_hand,), annotations=annotations)
        die(c, "n0")
        c.watch_over_nodes(fence=True)
        await asyncio.sleep(60)
        c.cloud.put(machine("n0"))
        c.api.set_ready("n0", "True")
        await asyncio.sleep(120)
        assert all(by_hand in node["spec"]["taints"] for node in c.api.nodes.values())
        assert not c.api.told("OutOfService")


# --- what must keep a Node from being fenced ------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize("ready", ["False", "Unknown", None])
async def test_a_machine_that_runs_is_not_fenced_however_long_its_kubelet_is_silent(ready):
    async with Cluster() as c:
        fleet(c)
        c.api.remove("n0")
        c.api.add("n0", tainted=False, ready=ready, providerID="fake://n0")
        c.watch_over_nodes(fence=True)
        await never(c, "n0", seconds=3600)


@in_virtual_time
async def test_a_ready_node_is_not_fenced_whatever_the_cloud_says():
    async with Cluster() as c:
        fleet(c)
        c.cloud.put(machine("n0", state=OFF))
        c.watch_over_nodes(fence=True)
        await never(c, "n0")
        assert c.cloud.calls == []


@in_virtual_time
@pytest.mark.parametrize("answer", [Transient("500"), machine("n0"), RuntimeError("bug")], ids=["error", "runs", "bug"])
async def test_a_doubtful_answer_between_two_others_starts_again(answer):
    """Answers alternate, so no two in a row agree."""
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")
        asked = 0

        def alternate(result):
            nonlocal asked
            asked += 1
            if asked % 2 == 1:
                return result
            if isinstance(answer, Exception):
                raise answer
            return answer

        c.cloud.answer = alternate
        c.watch_over_nodes(fence=True)
        await never(c, "n0")
        assert asked > 10


@in_virtual_time
@pytest.mark.parametrize("last", [machine("n0"), Transient("500")], ids=["runs", "error"])
async def test_the_last_look_must_say_the_same(last):
    """The machine was started after the listing, or the last read fails."""
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")

        def answer(result):
            if c.cloud.calls[-1] != "get fake://n0" or "list" not in c.cloud.calls:
                return result
            if isinstance(last, Exception):
                raise last
            return last

        c.cloud.answer = answer
        c.watch_over_nodes(fence=True)
        await never(c, "n0", seconds=60)
        await until(lambda: c.api.told("FencingHeld", "n0"))


@in_virtual_time
async def test_a_node_that_is_ready_again_while_it_is_decided_is_not_fenced():
    """The patch has the resourceVersion that was judged, so it conflicts."""
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")

        def back(verb, path):
            if verb == "PATCH" and path.endswith("/n0") and c.api.tainted("n0", SHUTDOWN["key"]):
                c.api.set_ready("n0", "True")

        c.api.before = back
        c.watch_over_nodes(fence=True)
        await never(c, "n0", seconds=300)


@in_virtual_time
@pytest.mark.parametrize("gone", [False, True])
async def test_another_machine_of_the_nodes_name_keeps_it_from_being_fenced(gone):
    async with Cluster() as c:
        fleet(c)
        die(c, "n0", gone=gone)
        c.cloud.all.append(machine("n0", provider_id="fake://other"))
        c.watch_over_nodes(fence=True)
        await never(c, "n0")
        if not gone:
            assert "fake://other" in c.api.told("FencingHeld", "n0")[0]


@in_virtual_time
async def test_a_listing_of_another_project_fences_none():
    async with Cluster() as c:
        fleet(c)
        c.watch_over_nodes(fence=True)
        await asyncio.sleep(10)
        c.cloud.all = [machine("x1"), machine("x2")]
        c.api.set_ready("n0", "Unknown")
        await never(c, "n0")


@in_virtual_time
@pytest.mark.parametrize("gone", [False, True])
async def test_a_mass_event_fences_none(gone):
    async with Cluster() as c:
        fleet(c, 12)
        die(c, "n0", "n1", "n2", gone=gone)
        c.watch_over_nodes(fence=True)
        await never(c, "n0", "n1", "n2", seconds=170)
        assert any("2 other Nodes" in message for message in c.api.told("FencingHeld"))


@in_virtual_time
async def test_machines_that_die_one_after_the_other_wait_for_the_window():
    async with Cluster() as c:
        fleet(c, 12)
        c.watch_over_nodes(fence=True)
        for name in ("n0", "n1"):
            die(c, name)
            await until(lambda name=name: fenced(c, name), 20)
        die(c, "n2")
        await is_fenced_after_the_window(c, "n2")


@in_virtual_time
async def test_a_cloud_that_reports_all_machines_shut_down_fences_none():
    """For example, the meaning of the cloud's states changed. Ready Nodes prove that their machines run."""
    async with Cluster() as c:
        fleet(c)
        for number in range(5):
            c.cloud.put(machine(f"n{number}", state=OFF))
        c.api.set_ready("n0", "Unknown")
        c.watch_over_nodes(fence=True)
        await never(c, "n0")
        assert "Ready Nodes" in c.api.told("FencingHeld", "n0")[0]


@in_virtual_time
async def test_a_young_node_is_not_fenced():
    async with Cluster() as c:
        fleet(c, age=60.0)
        die(c, "n0")
        c.watch_over_nodes(fence=True)
        await never(c, "n0", seconds=200)
        c.api.after = lambda verb, path: None
        await until(lambda: fenced(c), 120)


@in_virtual_time
async def test_a_node_of_another_cloud_or_without_a_provider_id_is_not_fenced():
    async with Cluster() as c:
        fleet(c)
        c.api.add("foreign", tainted=False, ready="Unknown", providerID="other://1")
        c.api.add("by-name", tainted=False, ready="Unknown")
        c.cloud.put(machine("by-name", state=OFF))
        c.watch_over_nodes(fence=True)
        await never(c, "foreign", "by-name")


# --- leaders and errors ---------------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_next_leader_counts_what_the_former_one_fenced():
    async with Cluster() as c:
        fleet(c, 12)
        die(c, "n0", "n1")
        running = c.watch_over_nodes(fence=True)
        await until(lambda: fenced(c, "n0") and fenced(c, "n1"), 30)
        assert sum(json.loads(c.notes.texts["node-fences"]).values()) == 2
        running.cancel()
        die(c, "n2")
        c.watch_over_nodes(fence=True)
        await is_fenced_after_the_window(c, "n2")


@in_virtual_time
async def test_nothing_is_written_that_the_next_leader_would_not_know_of():
    async with Cluster() as c:
        fleet(c)
        c.watch_over_nodes(fence=True)
        await asyncio.sleep(6)
        c.notes.failure = UnavailableError(503, "Unavailable", "no")
        die(c, "n0")
        await never(c, "n0", seconds=120)
        c.api.after = lambda verb, path: None
        c.notes.failure = None
        await until(lambda: fenced(c), 20)


@in_virtual_time
async def test_a_refused_write_is_repeated():
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")
        refusals = 0

        def refuse(verb, path):
            nonlocal refusals
            if verb == "PATCH" and path.endswith("/n0") and c.api.tainted("n0", SHUTDOWN["key"]) and refusals < 3:
                refusals += 1
                return ForbiddenError(403, "Forbidden", "a webhook says no")
            return None

        c.api.fault = refuse
        running = c.watch_over_nodes(fence=True)
        await until(lambda: fenced(c), 60)
        assert refusals == 3 and not running.done()


@in_virtual_time
async def test_a_healthy_cluster_costs_no_call_and_no_write():
    async with Cluster() as c:
        fleet(c, 20)
        c.watch_over_nodes(fence=True)
        await asyncio.sleep(3600)
        assert (c.cloud.calls, c.api.requests) == ([], [])


@in_virtual_time
async def test_a_machine_that_stays_shut_down_is_asked_about_less_and_less_often():
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")
        c.watch_over_nodes(fence=True)
        await until(lambda: fenced(c), 20)
        c.cloud.calls.clear()
        await asyncio.sleep(3600)
        assert len(c.cloud.calls) <= 62


@in_virtual_time
async def test_a_node_that_a_person_deletes_meanwhile_is_no_error():
    async with Cluster() as c:
        fleet(c)
        die(c, "n0")

        def gone(result):
            if "list" in c.cloud.calls and "n0" in c.api.nodes:
                c.api.remove("n0")
            return result

        c.cloud.answer = gone
        running = c.watch_over_nodes(fence=True)
        await asyncio.sleep(60)
        assert not running.done() and "n0" not in c.api.nodes
