# SPDX-License-Identifier: Apache-2.0
"""The cap on deletions under attackers and autoscalers, in virtual time, with the default flags.

Nodes whose instances are missing are deleted a few at a time. Two or more Ready Nodes whose instances vanished hold
back the Nodes whose instances vanished with them. None is deleted if the listing lacks as many Ready Nodes as it has,
or if no Node is Ready and more are missing than the cap allows.
"""

import asyncio
import random

import pytest

from ccm.cloud import Page
from ccm.engine.api_errors import ForbiddenError, NotFoundError

from ..gateway.virtual import in_virtual_time, now
from .nodes_harness import Cluster, machine, until

#: Seconds from the end of a kubelet until kube-controller-manager marks its Node Unknown (1.32 and later).
GRACE = 50.0
#: Seconds from the end of the instances within which all Nodes of a scale-down are deleted.
PROMISED = 15 * 60.0


def fleet(c, count, *, ready="True", prefix="n"):
    """Create initialised Nodes and their instances. Returns their names."""
    names = [f"{prefix}{number}" for number in range(count)]
    for name in names:
        c.api.add(name, tainted=False, ready=ready, providerID=f"fake://{name}")
        c.cloud.put(machine(name))
    return names


def invent(c, *names, ready="False", age=3600.0, claims=None):
    """Create Nodes that a kubelet invented. `claims`: the instance that they claim; by default a nonexistent one."""
    for name in names:
        c.api.add(name, tainted=False, ready=ready, age=age, providerID=f"fake://{claims or name}")


async def end_instances(c, names):
    """Delete the instances; GRACE seconds later their Nodes become Unknown."""
    for name in names:
        c.cloud.remove(name)
    await asyncio.sleep(GRACE)
    for name in names:
        if name in c.api.nodes:
            c.api.set_ready(name, "Unknown")


def deletions(c):
    """Return a list that collects (time, name) of all Nodes that are deleted from now on."""
    found = []

    def note(verb, path):
        if verb == "DELETE":
            found.append((now(), path.rpartition("/")[2]))

    c.api.after = note
    return found


async def observe(c):
    """Run both node controllers until the first listing has ended, so that they know which instances exist."""
    c.initialise_nodes()
    task = c.watch_over_nodes()
    await until(lambda: "list" in c.cloud.calls, 400)
    await asyncio.sleep(10)
    return task


# --- attackers ------------------------------------------------------------------------------------------------------


@pytest.mark.threat("kubelet-cannot-delete-others")
@in_virtual_time
async def test_two_invented_not_ready_nodes_keep_no_other_from_going():
    async with Cluster() as c:
        names = fleet(c, 10)
        c.watch_over_nodes()
        await asyncio.sleep(10)
        invent(c, "invented-1", "invented-2", age=0)
        await end_instances(c, ["n0"])
        await until(lambda: "n0" not in c.api.nodes, 60)
        await asyncio.sleep(3600)
        assert set(c.api.nodes) == set(names[1:])


@pytest.mark.threat("kubelet-cannot-delete-others")
@in_virtual_time
async def test_invented_ready_nodes_keep_no_other_from_going():
    """Nine invented Nodes beside ten real ones stay and hold back no deletion."""
    async with Cluster() as c:
        fleet(c, 11)
        invented = [f"invented-{number}" for number in range(9)]
        invent(c, *invented, ready="True")
        c.watch_over_nodes()
        await end_instances(c, ["n0"])
        await until(lambda: "n0" not in c.api.nodes, 60)
        assert set(invented) <= set(c.api.nodes)
        assert not c.api.told("DeletionHeld")


@pytest.mark.threat("kubelet-cannot-delete-others")
@in_virtual_time
async def test_the_kubelet_of_a_deleted_machine_that_stays_ready_keeps_no_other_from_going():
    """Credentials of a deleted machine are used elsewhere, so its Node stays Ready. Two other machines were deleted
    with it, and their Nodes go."""
    async with Cluster() as c:
        names = fleet(c, 10)
        await observe(c)
        for name in names[:3]:
            c.cloud.remove(name)
        await asyncio.sleep(GRACE)
        for name in names[:2]:
            c.api.set_ready(name, "Unknown")
        await until(lambda: not {"n0", "n1"} & set(c.api.nodes), 300)
        await asyncio.sleep(3600)
        assert set(c.api.nodes) == set(names[2:])


@pytest.mark.threat("kubelet-cannot-delete-others")
@in_virtual_time
async def test_nodes_that_claim_others_instances_keep_no_other_from_going():
    """The liars are always Ready. Listings show the claimed instances before they vanish, but these were never the
    liars' own."""
    async with Cluster() as c:
        names = fleet(c, 10)
        await observe(c)
        for name in names[:3]:
            invent(c, f"liar-{name}", ready="True", claims=name)
        await asyncio.sleep(700)  # listings meanwhile show the claimed instances
        await end_instances(c, names[:3])
        await until(lambda: not set(names[:3]) & set(c.api.nodes), PROMISED)


@pytest.mark.threat("kubelet-cannot-delete-others")
@in_virtual_time
async def test_a_stream_of_invented_nodes_delays_others_by_one_window_at_most():
    async with Cluster() as c:
        names = fleet(c, 10)
        await observe(c)

        async def stream():
            number = 0
            while True:
                invent(c, *(f"invented-{number + more}" for more in range(4)), age=7 * 86400.0)
                number += 4
                await asyncio.sleep(60)

        attack = asyncio.create_task(stream())
        await asyncio.sleep(2000)  # by now they are old enough and take every turn
        gone = deletions(c)
        await end_instances(c, names[:2])
        await until(lambda: not set(names[:2]) & set(c.api.nodes), 180 + 90)
        attack.cancel()
        await asyncio.sleep(900)
        assert len([name for _, name in gone if name.startswith("invented")]) > 2, "the others take their turn, too"


@pytest.mark.threat("kubelet-cannot-delete-others")
@in_virtual_time
async def test_invented_nodes_do_not_release_the_brake():
    """The cap is a share of the Nodes whose instances the cloud has listed, not of all registered Nodes."""
    async with Cluster() as c:
        names = fleet(c, 12)
        await observe(c)
        gone = deletions(c)
        invent(c, *(f"invented-{number}" for number in range(200)), age=0)
        await end_instances(c, names[:5])
        await asyncio.sleep(120)
        assert len(gone) == 2


# --- autoscalers ----------------------------------------------------------------------------------------------------


@in_virtual_time
@pytest.mark.parametrize(
    ("nodes", "gone"),
    [
        pytest.param(30, 10, id="10-of-30"),
        pytest.param(11, 10, id="10-of-11"),
        pytest.param(5, 3, id="3-of-5"),
        pytest.param(30, 4, id="4-of-30"),
        pytest.param(200, 25, id="25-of-200"),
        pytest.param(300, 100, id="a-third-of-300"),
    ],
)
async def test_a_scale_down_is_done_within_15_minutes(nodes, gone):
    """The time starts when the instances end, before their Nodes are Unknown. No alarm is raised."""
    async with Cluster() as c:
        names = fleet(c, nodes)
        await observe(c)
        began, went = now(), deletions(c)
        await end_instances(c, names[:gone])
        calls = len(c.cloud.calls)
        await until(lambda: not set(names[:gone]) & set(c.api.nodes), PROMISED)
        assert now() - began < PROMISED
        assert set(c.api.nodes) == set(names[gone:])
        assert not c.api.told("DeletionHeld")
        cap = max(2, nodes // 10)
        for time, _ in went:
            assert sum(1 for other, _ in went if time <= other < time + 180) <= cap
        # Nodes that wait for their turn do not cause a listing in every pass.
        assert sum(call == "list" for call in c.cloud.calls[calls:]) < 40


@in_virtual_time
async def test_those_that_wait_for_their_turn_are_told_so_and_the_oldest_goes_first():
    async with Cluster() as c:
        fleet(c, 10)
        for number in range(5):
            c.api.add(
                f"x{number}", tainted=False, ready="True", age=86400.0 * (1 + number), providerID=f"fake://x{number}"
            )
            c.cloud.put(machine(f"x{number}"))
        await observe(c)
        went = deletions(c)
        await end_instances(c, [f"x{number}" for number in range(5)])
        await asyncio.sleep(60)
        message = c.api.told("DeletionWaits", "x0")[0]
        for part in ("fake://x0", "at most 2 of 15", "within 180 s", "--node-deletion-cap"):
            assert part in message
        await until(lambda: len(went) == 5, PROMISED)
        assert [{name for _, name in went[first : first + 2]} for first in (0, 2, 4)] == [
            {"x4", "x3"},
            {"x2", "x1"},
            {"x0"},
        ]
        assert not c.api.told("DeletionHeld")


@in_virtual_time
async def test_deletions_that_are_refused_do_not_use_up_the_turns_of_others():
    async with Cluster() as c:
        for name in ("a", "b"):
            c.api.add(name, tainted=False, ready="True", age=1e6, providerID=f"fake://{name}")
            c.cloud.put(machine(name))
        fleet(c, 10)
        await observe(c)
        refused = ForbiddenError(403, "Forbidden", "a webhook says no")
        c.api.fault = lambda verb, path: refused if verb == "DELETE" and path[-2:] in ("/a", "/b") else None
        await end_instances(c, ["a", "b", "n0"])
        await until(lambda: "n0" not in c.api.nodes, 300)
        assert {"a", "b"} <= set(c.api.nodes)


@in_virtual_time
async def test_a_deletion_that_found_the_node_gone_keeps_its_turn():
    """A request whose answer was lost is sent again and gets a 404: the first request may have deleted the Node."""
    async with Cluster() as c:
        names = fleet(c, 10)
        await observe(c)
        sent = []

        def resent(verb, path):
            if verb != "DELETE":
                return None
            sent.append(path)
            return NotFoundError(404, "NotFound", "nodes not found")

        c.api.after = resent
        await end_instances(c, names[:4])
        await asyncio.sleep(100)
        assert len(sent) == 2


# --- mistakes -------------------------------------------------------------------------------------------------------


def hide(c, hidden):
    """Let listings and single reads answer as if `hidden` did not exist. Returns all instances from before."""
    everything = list(c.cloud.all)
    c.cloud.all = [each for each in everything if each.name not in hidden]
    return everything


@in_virtual_time
@pytest.mark.parametrize("observed", [True, False], ids=["a-running-process", "after-a-restart"])
@pytest.mark.parametrize("mistake", ["wrong-project", "the-same-names-elsewhere", "half"])
async def test_a_wrong_view_of_the_cloud_deletes_none(mistake, observed):
    async with Cluster() as c:
        names = fleet(c, 30)
        if observed:
            await observe(c)
        for name in names[:4]:
            c.api.set_ready(name, "Unknown")
        if mistake == "half":
            hide(c, names[:17])
        elif mistake == "wrong-project":
            c.cloud.all = [machine(f"theirs-{number}") for number in range(30)]
        else:
            c.cloud.all = [machine(name, provider_id=f"fake://theirs-{name}") for name in names]
        if not observed:
            c.watch_over_nodes()
        await asyncio.sleep(3600)
        assert set(c.api.nodes) == set(names)
        assert "--cloud-config" in c.api.told("DeletionHeld", "n0")[0]


@in_virtual_time
async def test_ready_nodes_that_vanish_from_the_listing_stop_those_that_vanished_with_them_and_no_others():
    """For example, the cloud forgot machines that their hypervisor still runs, so a person must look. Other instances
    vanish two hours later. That must have another cause, so their Nodes are deleted."""
    async with Cluster() as c:
        names = fleet(c, 30)
        await observe(c)
        hide(c, names[:4])
        for name in names[:2]:
            c.api.set_ready(name, "Unknown")
        await asyncio.sleep(2 * 3600)
        assert set(c.api.nodes) == set(names)
        message = c.api.told("DeletionHeld", "n0")[0]
        assert "n2" in message and "n3" in message
        await end_instances(c, names[20:25])
        await until(lambda: not set(names[20:25]) & set(c.api.nodes), PROMISED)
        assert set(c.api.nodes) == set(names[:20] + names[25:])
        for name in names[2:4]:  # their hypervisor is off now
            c.api.set_ready(name, "Unknown")
        await until(lambda: len(c.api.nodes) == 21, PROMISED)


@in_virtual_time
async def test_nodes_that_are_still_ready_in_a_scale_down_are_no_alarm():
    """Kubelets stop one after the other, and kube-controller-manager notices still later."""
    async with Cluster() as c:
        names = fleet(c, 30)
        await observe(c)
        for name in names[:6]:
            c.cloud.remove(name)
            await asyncio.sleep(5)
        await asyncio.sleep(30)
        for name in names[:6]:
            c.api.set_ready(name, "Unknown")
            await asyncio.sleep(15)
        await until(lambda: len(c.api.nodes) == 24, PROMISED)
        assert not c.api.told("DeletionHeld")


@in_virtual_time
async def test_without_any_ready_node_more_missing_than_the_cap_stops_everything():
    """Without Ready Nodes, nothing confirms the listing."""
    async with Cluster() as c:
        names = fleet(c, 40, ready="Unknown")
        hide(c, names[:5])
        c.watch_over_nodes()
        await asyncio.sleep(3600)
        assert set(c.api.nodes) == set(names)
        assert "none of the Nodes is Ready" in c.api.told("DeletionHeld", "n0")[0]
        c.api.set_ready("n30", "True")
        await until(lambda: len(c.api.nodes) == 35, PROMISED)


@pytest.mark.parametrize("mistake", ["project", "half", "listing-only", "some"])
@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_random_mistakes_delete_no_node_whose_instance_exists(mistake, seed):
    """Random clusters have some NotReady Nodes, some gone instances, and a mistake from the start or from later on.
    Single reads share the mistake, except for `listing-only`. `some`: at least two Ready Nodes are hidden, in a process
    that saw them before."""
    random_ = random.Random(f"{mistake} {seed}")
    nodes = random_.randint(4, 40)
    async with Cluster() as c:
        names = fleet(c, nodes)
        silent = random_.sample(names, random_.randint(1, nodes - 3))
        observed = mistake == "some" or random_.random() < 0.5
        if observed:
            await observe(c)
        ready = [name for name in names if name not in silent]
        gone = random_.sample(silent, random_.randint(0, len(silent)))
        alive = set(names) - set(gone)
        for name in gone:
            c.cloud.remove(name)
        if mistake == "project":
            c.cloud.all = [machine(f"theirs-{number}") for number in range(nodes)]
        elif mistake == "half":
            hide(c, {*random_.sample(ready, (len(ready) + 1) // 2), *silent})
        elif mistake == "some":
            hide(c, {*random_.sample(ready, random_.randint(2, len(ready))), *silent})
        else:
            hidden = set(random_.sample(names, random_.randint(1, nodes)))

            async def listing(token):
                c.cloud.calls.append("list")
                return Page([each for each in c.cloud.all if each.name not in hidden])

            c.cloud.list_page = listing
        for name in silent:
            c.api.set_ready(name, random_.choice(["Unknown", "False"]))
        if not observed:
            c.watch_over_nodes()
        for _ in range(4):
            await asyncio.sleep(600)
            for name in random_.sample(silent, min(2, len(silent))):  # these reboot
                if name in c.api.nodes:
                    c.api.set_ready(name, random_.choice(["True", "Unknown"]))
        assert alive <= set(c.api.nodes)


@pytest.mark.parametrize("seed", range(40))
@in_virtual_time
async def test_random_scale_downs_are_done_within_15_minutes(seed):
    """Up to ten Nodes go at once, or a third of all if the process saw them before, beside a few invented Nodes."""
    random_ = random.Random(seed)
    nodes = random_.randint(2, 60)
    async with Cluster() as c:
        names = fleet(c, nodes)
        ready = random_.random() < 0.5
        invent(c, *(f"r{number}" for number in range(random_.randint(0, 2))), ready="True" if ready else "False")
        if observed := random_.random() < 0.7:
            await observe(c)
        else:
            c.watch_over_nodes()
        limit = min(nodes - (4 if ready else 1), max(10, nodes // 3 if observed else 0))
        gone = random_.sample(names, random_.randint(0, max(0, limit)))
        await asyncio.sleep(random_.uniform(600, 900))
        began = now()
        for name in gone:
            c.cloud.remove(name)
            if random_.random() < 0.3:
                c.api.set_ready(name, "False")  # its kubelet shut down gracefully
        await asyncio.sleep(GRACE)
        for name in gone:
            if name in c.api.nodes:
                c.api.set_ready(name, "Unknown")
        await until(lambda: not set(gone) & set(c.api.nodes), PROMISED)
        assert now() - began < PROMISED
        assert set(names) - set(gone) <= set(c.api.nodes)
