# SPDX-License-Identifier: Apache-2.0
"""The whole node controller: what it reads and writes, also after others' mistakes. In virtual time."""

import asyncio
import collections

import pytest
from prometheus_client import REGISTRY

from ccm.cloud import (
    Address,
    AddressType,
    Conflict,
    Instance,
    InstanceState,
    NotImplementedByCloud,
    Transient,
    Unauthorized,
)
from ccm.controllers.nodes.node_label_rules import RECORD, Refresh
from ccm.engine.api_errors import ConflictError, InvalidError, NotFoundError, UnavailableError

from ..gateway.virtual import in_virtual_time, now
from .nodes_harness import NODE_IP, Cluster, machine, until


def metric(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def quiet(seconds=3.0):
    await asyncio.sleep(seconds)


# --- initialisation -------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_N33_a_node_without_provider_id_is_found_by_its_name():
    async with Cluster(machine("n1", provider_id="fake://12345")) as c:
        c.api.add("n1")
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("n1"))
        assert c.cloud.calls == ["get n1"]
        assert c.api.nodes["n1"]["spec"]["providerID"] == "fake://12345"
        assert c.api.addresses("n1") == [("InternalIP", "10.0.0.1")]
        await until(lambda: c.api.told("Synced", "n1"))


@in_virtual_time
async def test_N35_N36_a_node_with_provider_id_is_found_by_it():
    async with Cluster(machine("another-name", provider_id="fake://12345")) as c:
        c.api.add("n1", providerID="fake://12345")
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("n1"))
        assert c.cloud.calls == ["get fake://12345", "get n1"]  # the second call is about machines of that name
        assert c.api.nodes["n1"]["spec"]["providerID"] == "fake://12345"


@in_virtual_time
async def test_a_node_that_the_api_server_denies_for_a_moment_is_initialised_later():
    """For half a minute, the API server does not know the Node, as after a restore of an older etcd snapshot."""
    async with Cluster(machine("n1")) as c:
        denied = True
        c.api.fault = lambda verb, path: (
            NotFoundError(404, "NotFound", "nodes n1 not found") if denied and verb == "PATCH" else None
        )
        c.api.add("n1")
        c.initialise_nodes()
        await quiet(30.0)
        assert c.api.tainted("n1") and 3 <= c.api.count("PATCH") <= 8
        denied = False
        await until(lambda: not c.api.tainted("n1"))
        await quiet()
        assert not [event for event in c.api.events if event["type"] == "Warning"]


@in_virtual_time
async def test_N4_N14_a_node_without_the_taint_is_not_touched():
    async with Cluster(machine("n1")) as c:
        before = c.api.add("n1", tainted=False)["spec"]
        c.initialise_nodes()
        await quiet()
        assert c.api.count("PATCH") == 0 and c.cloud.calls == []
        assert c.api.nodes["n1"]["spec"] == before


@in_virtual_time
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Transient("503 from the cloud"), id="N22-metadata-error"),
        pytest.param(Unauthorized("token expired"), id="N22-unauthorised"),
        # N34 and N12 differ: upstream admits the Node without a providerID, so later nothing can find its instance.
        pytest.param(NotImplementedByCloud("no such thing"), id="N34-N12-not-implemented"),
        pytest.param(Conflict("two instances of that name"), id="two-of-a-name"),
        pytest.param(RuntimeError("a bug"), id="a-bug-of-the-provider"),
        pytest.param(SystemExit(3), id="a-provider-that-exits"),
        pytest.param(asyncio.CancelledError(), id="a-provider-that-cancels"),
    ],
)
async def test_a_failing_cloud_leaves_the_node_as_it_is_until_it_recovers(error):
    failed = metric("ccm_node_initialization_failures_total", reason="CloudNotAvailable")
    async with Cluster(machine("n1")) as c:
        before = c.api.add("n1")
        c.cloud.error = error
        c.initialise_nodes()
        await until(lambda: c.api.told("CloudNotAvailable", "n1"))
        await quiet()
        assert c.api.nodes["n1"]["spec"] == before["spec"] and c.api.count("PATCH") == 0
        assert metric("ccm_node_initialization_failures_total", reason="CloudNotAvailable") > failed
        c.cloud.error = None
        await until(lambda: not c.api.tainted("n1"), 120)


@in_virtual_time
@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(None, id="N7-W10-nothing"),
        pytest.param("n1", id="W10-text"),
        pytest.param(Instance("fake://n1", "n1", addresses=None), id="W10-no-addresses"),
        pytest.param(Instance(["fake://n1"], "n1"), id="W10-an-unhashable-id"),
        pytest.param(Instance("fake://n1", "n1", labels={"a": 1}), id="W10-a-label-that-is-no-text"),
    ],
)
async def test_a_provider_that_answers_junk(junk):
    """N7 differs: upstream does nothing until the Node changes again, and its periodic loop crashes (W10). Here an
    Event reports the answer, and the controller tries again."""
    async with Cluster(machine("n1")) as c:
        c.api.add("n1")
        c.cloud.answer = lambda found: junk
        controller = c.initialise_nodes()
        await until(lambda: c.api.told("CloudNotAvailable", "n1"))
        assert c.api.tainted("n1") and not controller.done()
        c.cloud.answer = lambda found: found
        await until(lambda: not c.api.tainted("n1"), 120)


@in_virtual_time
async def test_W10_one_unusable_entry_of_a_listing_delays_its_own_node_alone():
    bad = Instance("fake://n2", "n2", zone=None)
    async with Cluster(machine("n1"), bad, machine("n3")) as c:
        for name in ("n1", "n2", "n3"):
            c.api.add(name)
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("n1") and not c.api.tainted("n3"))
        await until(lambda: c.api.told("CloudNotAvailable", "n2"))
        assert "zone=None" in c.api.told("CloudNotAvailable", "n2")[0]
        assert c.api.tainted("n2")


@in_virtual_time
async def test_a_provider_that_never_answers_holds_up_nothing_that_can_be_answered():
    async with Cluster(machine("n1"), machine("n2")) as c:
        c.api.add("n1")
        c.cloud.latency = 1e9
        c.initialise_nodes(workers=1)
        await until(lambda: c.api.told("CloudNotAvailable", "n1"), 30)
        assert "no answer within 10 s" in c.api.told("CloudNotAvailable", "n1")[0]
        c.cloud.latency = 0.05
        c.api.add("n2")
        await until(lambda: not c.api.tainted("n2"), 120)
        await until(lambda: not c.api.tainted("n1"), 120)


@in_virtual_time
@pytest.mark.parametrize(
    ("spec", "annotations", "reason", "message"),
    [
        ({"providerID": "other://1"}, {}, "ForeignProviderID", "'other://1'"),
        ({"providerID": "garbage"}, {}, "ForeignProviderID", "'garbage'"),
        ({"providerID": "://"}, {}, "ForeignProviderID", "'://'"),
        ({"providerID": "fake://nobody"}, {}, "InstanceNotFound", "fake://nobody"),
        ({"providerID": "FAKE://bad"}, {}, "ForeignProviderID", "'FAKE://bad'"),
        ({"providerID": "fake://BAD"}, {}, "InstanceNotFound", "fake://BAD"),
        ({}, {NODE_IP: "10.9.9.9"}, "InitializationFailed", "--node-ip 10.9.9.9 is not among"),
        ({}, {NODE_IP: "1.2.3"}, "InitializationFailed", "'1.2.3' is not an IP"),
    ],
)
async def test_a_node_that_cannot_be_initialised_says_why_and_the_others_go_on(spec, annotations, reason, message):
    counted = metric("ccm_node_initialization_failures_total", reason=reason)
    async with Cluster(machine("bad"), machine("n1"), machine("n2")) as c:
        for name in ("n1", "n2"):
            c.api.add(name)
        before = c.api.add("bad", annotations=annotations, **spec)
        c.initialise_nodes(workers=1)
        await until(lambda: not c.api.tainted("n1") and not c.api.tainted("n2"))
        await until(lambda: c.api.told(reason, "bad"))
        assert message in c.api.told(reason, "bad")[0]
        assert c.api.nodes["bad"]["spec"] == before["spec"]
        assert metric("ccm_node_initialization_failures_total", reason=reason) > counted


@in_virtual_time
async def test_a_corrected_node_ip_is_taken_up_at_once():
    async with Cluster(machine("n1")) as c:
        c.api.add("n1", annotations={NODE_IP: "10.9.9.9"})
        c.initialise_nodes()
        await until(lambda: c.api.told("InitializationFailed", "n1"))
        await asyncio.sleep(200)  # by now attempts are a minute apart
        c.api.change("n1", {"metadata": {"annotations": {NODE_IP: "10.0.0.1"}}})
        await until(lambda: not c.api.tainted("n1"), 1.0)


@in_virtual_time
async def test_a_write_that_the_api_server_refuses_is_told_and_holds_up_no_other_node():
    async with Cluster(machine("n1"), machine("n2")) as c:
        for name in ("n1", "n2"):
            c.api.add(name)
        refused = InvalidError(422, "Invalid", "a webhook does not like it")
        c.api.fault = lambda verb, path: refused if verb == "PATCH" and path.endswith("/n1") else None
        c.initialise_nodes(workers=1)
        await until(lambda: not c.api.tainted("n2"))
        await until(lambda: c.api.told("InitializationFailed", "n1"))
        assert "a webhook does not like it" in c.api.told("InitializationFailed", "n1")[0]
        assert metric("ccm_node_initialization_failures_total", reason="ApiServerRefused") > 0
        c.api.fault = lambda verb, path: None
        await until(lambda: not c.api.tainted("n1"), 120)


@in_virtual_time
async def test_labels_that_no_node_can_have_are_told_and_cost_the_node_nothing():
    async with Cluster(machine("n1", type="m1 (large)", zone="z1")) as c:
        c.api.add("n1")
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("n1"))
        assert "node.kubernetes.io/instance-type" not in c.api.labels("n1")
        assert c.api.labels("n1")["topology.kubernetes.io/zone"] == "z1"
        await until(lambda: c.api.told("LabelsNotUsable", "n1"))


@in_virtual_time
async def test_W8_a_lost_race_is_decided_again_from_the_same_answer_of_the_cloud():
    async with Cluster(machine("n1", zone="z1")) as c:
        c.api.add("n1")
        races = iter(range(4))

        def another_writer(verb, path):
            if verb == "PATCH" and next(races, None) is not None:
                c.api.change("n1", {"metadata": {"labels": {"other": f"{now()}"}}})

        c.api.before = another_writer
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("n1"))
        assert c.api.labels("n1")["topology.kubernetes.io/zone"] == "z1" and "other" in c.api.labels("n1")
        assert c.cloud.calls == ["get n1"]


@in_virtual_time
async def test_W11_addresses_are_written_before_the_taint_goes_and_a_failed_write_keeps_it():
    async with Cluster(machine("n1")) as c:
        c.api.add("n1", addresses=(("Hostname", "n1"),))
        down = UnavailableError(503, "", "down")
        c.api.fault = lambda verb, path: down if path.endswith("/n1/status") else None
        c.initialise_nodes()
        await until(lambda: c.api.count("PATCH", "/n1/status") >= 2)
        assert c.api.tainted("n1")
        c.api.fault = lambda verb, path: None
        await until(lambda: not c.api.tainted("n1"))
        assert c.api.addresses("n1") == [("InternalIP", "10.0.0.1"), ("Hostname", "n1")]
        assert c.cloud.calls == ["get n1"]  # retries keep the cloud's answer


@in_virtual_time
async def test_a_node_that_goes_while_it_is_initialised_is_no_failure():
    async with Cluster(machine("n1")) as c:
        c.api.add("n1")
        c.api.fault = lambda verb, path: NotFoundError(404, "NotFound", "") if verb == "PATCH" else None
        c.initialise_nodes()
        await quiet()
        assert c.api.count("PATCH") == 1
        assert not c.api.told("Synced")


@in_virtual_time
async def test_the_events_of_a_burst_are_measured_out():
    """An Event costs the API server as much as a patch: the Events about 5,000 Nodes took a third of its work."""
    withheld = metric("ccm_node_events_withheld_total", reason="Synced")
    async with Cluster(*(machine(f"n{number}") for number in range(300))) as c:
        for number in range(300):
            c.api.add(f"n{number}")
        c.initialise_nodes(workers=5)
        began = now()
        await until(lambda: c.api.count("PATCH") == 600)
        await quiet()
        told = len(c.api.told("Synced"))
        assert 50 <= told <= 50 + 5 * (now() - began)
        assert metric("ccm_node_events_withheld_total", reason="Synced") - withheld == 300 - told


@in_virtual_time
async def test_successes_take_no_turn_of_a_warning():
    withheld = metric("ccm_node_events_withheld_total", reason="InstanceNotFound")
    async with Cluster(*(machine(f"n{number}") for number in range(200))) as c:
        c.initialise_nodes()
        for number in range(200):
            c.api.add(f"n{number}")
        await until(lambda: c.api.count("PATCH") == 400)
        for number in range(20):
            c.api.add(f"ghost{number}")
        await quiet()
        assert all(c.api.told("InstanceNotFound", f"ghost{number}") for number in range(20))
        assert metric("ccm_node_events_withheld_total", reason="InstanceNotFound") == withheld


@in_virtual_time
async def test_another_node_under_the_same_name_is_initialised_from_a_read_of_its_own():
    async with Cluster(machine("n1", "10.0.0.1", "fake://old"), machine("n0")) as c:
        c.api.add("n1")
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("n1"))
        c.api.remove("n1")
        c.cloud.put(machine("n1", "10.0.0.2", "fake://new"))
        c.api.add("n1")
        await until(lambda: not c.api.tainted("n1"))
        assert c.api.nodes["n1"]["spec"]["providerID"] == "fake://new"
        assert c.api.addresses("n1") == [("InternalIP", "10.0.0.2")]


@in_virtual_time
@pytest.mark.parametrize(
    "moment", [0.12, 0.155, 0.165], ids=["while-the-cloud-is-asked", "at-the-first", "at-the-second"]
)
async def test_a_node_that_is_replaced_in_the_midst_gets_nothing_of_its_predecessors_instance(moment):
    """The cloud answers after 0.15 s, and each of the two patches takes another 0.01 s."""
    async with Cluster(machine("n1", "10.0.0.1", "fake://old")) as c:
        c.api.add("n1")
        c.initialise_nodes()
        written = []
        c.api.after = lambda verb, path: written.append((c.api.nodes["n1"], now()))
        await asyncio.sleep(moment)
        c.api.remove("n1")
        c.cloud.put(machine("n1", "10.0.0.2", "fake://new"))
        uid = c.api.add("n1")["metadata"]["uid"]
        await until(lambda: not c.api.tainted("n1"))
        assert c.api.nodes["n1"]["spec"]["providerID"] == "fake://new"
        for node, _ in written:
            if node["metadata"]["uid"] == uid:
                assert "10.0.0.1" not in str(node) and "fake://old" not in str(node)


# --- refresh --------------------------------------------------------------------------------------------------------


def fleet(c, count, *, ip="10.1.0.0", **fields):
    """Create initialised Nodes, and instances with other addresses and labels."""
    for number in range(count):
        name = f"n{number}"
        c.api.add(name, tainted=False, providerID=f"fake://{name}", addresses=(("InternalIP", ip),), **fields)
        c.cloud.put(machine(name, f"10.0.{number >> 8}.{number & 255}", zone="z1"))


@in_virtual_time
@pytest.mark.parametrize(
    "workers", [pytest.param(w, id=f"N{39 + n}-workers-{w}") for n, w in enumerate((1, 5, 10, 30))]
)
async def test_100_nodes_are_refreshed_with_one_listing(workers):
    """Differs: upstream makes 100 calls, one for each Node, whatever the number of workers (W2)."""
    async with Cluster() as c:
        fleet(c, 100)
        c.initialise_nodes(workers=workers)
        await until(lambda: all(c.api.addresses(f"n{n}") == [("InternalIP", f"10.0.0.{n}")] for n in range(100)))
        assert c.cloud.calls == ["list"]
        assert c.api.count("PATCH") == 200  # addresses and labels of each
        assert c.api.most == min(workers, 100)  # W23: bounded


@in_virtual_time
async def test_W9_a_refresh_that_finds_nothing_to_do_writes_nothing():
    dual = (Address(AddressType.INTERNAL_IP, "10.0.0.1"), Address(AddressType.INTERNAL_IP, "fd00::1"))
    async with Cluster(Instance("fake://n1", "n1", addresses=dual)) as c:
        c.api.add(
            "n1",
            tainted=False,
            providerID="fake://n1",
            addresses=(("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")),
        )
        c.initialise_nodes(refresh=300.0)
        await asyncio.sleep(1700)
        assert c.api.count("PATCH") == 0
        assert 5 <= len(c.cloud.calls) <= 6  # one at start, then every 300 to 330 s


@in_virtual_time
async def test_W12_labels_follow_the_cloud():
    async with Cluster() as c:
        fleet(c, 1, labels={"topology.kubernetes.io/zone": "z9", "failure-domain.beta.kubernetes.io/zone": "z9"})
        c.cloud.put(machine("n0", zone="z1", region="r", type="t", labels={"rack/row": "4"}))
        c.initialise_nodes(refresh_labels=Refresh.ALWAYS)
        wanted = {
            "topology.kubernetes.io/zone": "z1",
            "failure-domain.beta.kubernetes.io/zone": "z1",
            "topology.kubernetes.io/region": "r",
            "failure-domain.beta.kubernetes.io/region": "r",
            "node.kubernetes.io/instance-type": "t",
            "beta.kubernetes.io/instance-type": "t",
            "rack/row": "4",
        }
        await until(lambda: c.api.labels("n0") == wanted)
        c.cloud.put(machine("n0", zone="z1", region="r", type="t2", labels={"rack/row": "5"}))
        await until(lambda: c.api.labels("n0")["node.kubernetes.io/instance-type"] == "t2", 400)
        assert c.api.labels("n0")["rack/row"] == "5"
        c.api.change("n0", {"metadata": {"labels": {"rack/row": "by hand"}}})
        c.cloud.put(machine("n0", zone="z2", region="r", type="t2", labels={"rack/row": "6"}))
        await until(lambda: c.api.labels("n0")["topology.kubernetes.io/zone"] == "z2", 400)
        assert c.api.labels("n0")["rack/row"] == "by hand"


@in_virtual_time
async def test_labels_that_somebody_set_by_hand_stay_and_missing_ones_are_added():
    """As upstream, a label that was set by hand stays. If it has the deprecated key, the label with today's key gets
    its value.
    """
    async with Cluster() as c:
        fleet(c, 3, labels={"topology.kubernetes.io/zone": "rack-1"})
        for number in range(3):
            c.cloud.put(machine(f"n{number}", f"10.0.0.{number}", zone="z1", type="t"))
        c.initialise_nodes()
        await until(lambda: all("node.kubernetes.io/instance-type" in c.api.labels(f"n{n}") for n in range(3)))
        c.api.change("n1", {"metadata": {"labels": {"failure-domain.beta.kubernetes.io/zone": "rack-2"}}})
        c.api.change("n2", {"metadata": {"labels": {"topology.kubernetes.io/zone": None}}})
        await asyncio.sleep(1000)
        zones = [
            {key: value for key, value in c.api.labels(f"n{n}").items() if key.endswith("/zone")} for n in range(3)
        ]
        assert zones == [
            {"topology.kubernetes.io/zone": "rack-1"},
            {"topology.kubernetes.io/zone": "rack-2", "failure-domain.beta.kubernetes.io/zone": "rack-2"},
            {"topology.kubernetes.io/zone": "z1", "failure-domain.beta.kubernetes.io/zone": "z1"},
        ]


@in_virtual_time
async def test_without_legacy_labels_none_is_written_nor_followed():
    async with Cluster(machine("new", zone="z1")) as c:
        fleet(c, 1, labels={"failure-domain.beta.kubernetes.io/zone": "z9"})
        c.api.add("new")
        c.initialise_nodes(legacy=False)
        await until(lambda: not c.api.tainted("new") and "topology.kubernetes.io/zone" in c.api.labels("n0"))
        assert c.api.labels("new") == {"topology.kubernetes.io/zone": "z1"}
        assert c.api.labels("n0") == {
            "failure-domain.beta.kubernetes.io/zone": "z9",
            "topology.kubernetes.io/zone": "z1",
        }


@in_virtual_time
async def test_N23_the_deprecated_label_leads_between_refreshes():
    async with Cluster(machine("n1")) as c:
        c.api.add("n1", tainted=False)
        c.initialise_nodes()
        await quiet()
        c.api.change("n1", {"metadata": {"labels": {"failure-domain.beta.kubernetes.io/zone": "foo"}}})
        await until(lambda: c.api.labels("n1").get("topology.kubernetes.io/zone") == "foo")
        assert c.cloud.calls == []


@in_virtual_time
async def test_W11_a_failed_write_of_a_refresh_is_tried_again_long_before_the_next_refresh():
    async with Cluster() as c:
        fleet(c, 3)
        broken = {"/api/v1/nodes/n1/status"}
        c.api.fault = lambda verb, path: UnavailableError(503, "", "down") if path in broken else None
        c.initialise_nodes(refresh=3600.0)
        await until(lambda: c.api.addresses("n2") == [("InternalIP", "10.0.0.2")])
        await until(lambda: c.api.count("PATCH", "/n1/status") >= 3)
        broken.clear()
        await until(lambda: c.api.addresses("n1") == [("InternalIP", "10.0.0.1")])
        assert c.cloud.calls == ["list"]


@in_virtual_time
async def test_W6_a_ready_node_whose_instance_vanished_is_told_and_kept():
    async with Cluster() as c:
        fleet(c, 3, ready="True")
        c.cloud.remove("n1")
        c.initialise_nodes()
        await until(lambda: c.api.told("InstanceNotListed", "n1"))
        assert "fake://n1" in c.api.told("InstanceNotListed", "n1")[0]
        assert metric("ccm_nodes_ready_without_instance") == 1
        assert "n1" in c.api.nodes and c.api.addresses("n1") == [("InternalIP", "10.1.0.0")]
        await until(lambda: c.api.addresses("n2") == [("InternalIP", "10.0.0.2")])
        c.cloud.put(machine("n1", "10.0.0.1"))
        await until(lambda: metric("ccm_nodes_ready_without_instance") == 0, 400)


@in_virtual_time
async def test_W6_a_ready_node_on_a_machine_made_again_under_its_name_is_told_what_to_do():
    async with Cluster() as c:
        fleet(c, 2, ready="True")
        c.cloud.put(machine("n1", provider_id="fake://again"))
        c.initialise_nodes()
        await until(lambda: c.api.told("InstanceNotListed", "n1"))
        assert "fake://again has the Node's name" in c.api.told("InstanceNotListed", "n1")[0]
        assert c.api.addresses("n1") == [("InternalIP", "10.1.0.0")]  # nothing from the other instance is written


@in_virtual_time
async def test_a_node_with_the_provider_id_of_another_machine_gets_nothing_of_it():
    async with Cluster() as c:
        fleet(c, 3)
        c.cloud.put(machine("bastion", "10.9.9.9", zone="far", provider_id="fake://bastion"))
        c.api.change("n1", {"spec": {"providerID": "fake://bastion"}})
        c.initialise_nodes()
        await until(lambda: c.api.told("OtherMachine", "n1"))
        await until(lambda: c.api.addresses("n2") == [("InternalIP", "10.0.0.2")])
        assert "'bastion'" in c.api.told("OtherMachine", "n1")[0] and "fake://n1" in c.api.told("OtherMachine", "n1")[0]
        assert c.api.addresses("n1") == [("InternalIP", "10.1.0.0")] and "far" not in str(c.api.nodes["n1"])
        assert metric("ccm_node_update_failures_total", reason="OtherMachine") > 0


@in_virtual_time
async def test_a_node_ip_that_the_cloud_no_longer_knows_is_told_and_the_others_are_refreshed():
    async with Cluster() as c:
        fleet(c, 3)
        c.api.change("n1", {"metadata": {"annotations": {NODE_IP: "10.7.7.7"}}})
        c.initialise_nodes()
        await until(lambda: c.api.told("AddressesNotUpdated", "n1"))
        await until(lambda: c.api.addresses("n2") == [("InternalIP", "10.0.0.2")])
        assert c.api.addresses("n1") == [("InternalIP", "10.1.0.0")]
        assert metric("ccm_node_update_failures_total", reason="AddressesNotUpdated") > 0


@in_virtual_time
async def test_a_refresh_that_fails_comes_again_soon():
    async with Cluster() as c:
        fleet(c, 1)
        c.cloud.error = Transient("503")
        c.initialise_nodes(refresh=3600.0)
        await quiet()
        assert c.api.count("PATCH") == 0
        c.cloud.error = None
        await until(lambda: c.api.addresses("n0") == [("InternalIP", "10.0.0.0")], 40)


@in_virtual_time
async def test_a_node_that_is_tainted_again_during_the_listing_is_left_to_its_initialisation():
    async with Cluster() as c:
        fleet(c, 1)
        c.cloud.latency = 2.0
        c.initialise_nodes()
        await asyncio.sleep(1.0)
        c.api.change("n0", {"spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized"}]}})
        await asyncio.sleep(1.5)
        assert c.api.count("PATCH") == 0
        await until(lambda: not c.api.tainted("n0"))


@in_virtual_time
async def test_what_a_refresh_found_is_not_written_to_another_node_of_that_name():
    async with Cluster() as c:
        fleet(c, 1)
        c.api.fault = lambda verb, path: UnavailableError(503, "", "down") if verb == "PATCH" else None
        c.initialise_nodes(refresh=3600.0)
        await until(lambda: c.api.count("PATCH") >= 2)
        c.api.remove("n0")
        c.api.add("n0", tainted=False, providerID="fake://another", addresses=(("InternalIP", "10.5.5.5"),))
        c.api.fault = lambda verb, path: None
        await asyncio.sleep(100)
        assert c.api.addresses("n0") == [("InternalIP", "10.5.5.5")]


@in_virtual_time
async def test_an_outage_with_600_new_nodes_is_told_in_measure():
    """Otherwise every Node would have an Event for every attempt. Withheld Events are counted."""
    withheld = metric("ccm_node_events_withheld_total", reason="CloudNotAvailable")
    async with Cluster() as c:
        for number in range(600):
            c.api.add(f"n{number}")
        c.cloud.error = Transient("503")
        c.initialise_nodes()
        await asyncio.sleep(30)
        assert 50 <= len(c.api.told("CloudNotAvailable")) <= 50 + 5 * 30
        assert len({event["involvedObject"]["name"] for event in c.api.events}) == len(c.api.events)
        assert metric("ccm_node_events_withheld_total", reason="CloudNotAvailable") > withheld


@in_virtual_time
async def test_a_stopped_instance_initialises_its_node_all_the_same():
    """The lifecycle controller, not this one, taints Nodes of stopped instances."""
    async with Cluster(machine("n1", state=InstanceState.SHUTDOWN)) as c:
        c.api.add("n1")
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("n1"))


@in_virtual_time
async def test_a_node_with_the_provider_id_of_a_former_machine_is_told_which_one_has_its_name():
    """A machine was created again under its name, and its kubelet still has the former machine's providerID."""
    async with Cluster(machine("n1"), machine("n2")) as c:
        c.api.add("n1", providerID="fake://former")
        c.api.add("n3", providerID="fake://former-too")
        c.initialise_nodes()
        await until(lambda: any("has the Node's name" in each for each in c.api.told("InstanceNotFound", "n1")), 900)
        (first, *_) = [each for each in c.api.told("InstanceNotFound", "n1") if "has the Node's name" in each]
        assert first.endswith(
            ". fake://n1 has the Node's name: if that is its machine now, delete the Node so that it registers again"
        )
        assert not any("has the Node's name" in each for each in c.api.told("InstanceNotFound", "n3"))


@in_virtual_time
async def test_another_writer_that_never_rests_does_not_occupy_a_worker():
    async with Cluster(machine("n1"), machine("n2")) as c:
        c.api.add("n1")
        conflict = ConflictError(409, "Conflict", "modified")
        c.api.fault = lambda verb, path: conflict if verb == "PATCH" and "/n1" in path else None
        c.initialise_nodes(workers=1)
        await until(lambda: c.api.count("PATCH", "/n1") >= 10)
        c.api.add("n2")
        await until(lambda: not c.api.tainted("n2"))
        per_call = collections.Counter(c.cloud.calls)
        assert per_call["get n1"] <= 1


@in_virtual_time
async def test_a_read_that_is_older_than_the_conflict_before_it_is_no_answer():
    """A lagging API server does not have the Node yet. The controller must try again, or the Node stays tainted."""
    async with Cluster(machine("n1")) as c:
        c.api.add("n1")
        answers = {"PATCH": ConflictError(409, "Conflict", "modified"), "GET": NotFoundError(404, "NotFound", "n1")}
        c.api.fault = lambda verb, path: answers.pop(verb, None) if "/nodes/n1" in path else None
        c.initialise_nodes()
        await until(lambda: not c.api.tainted("n1"))
        assert not answers


@in_virtual_time
async def test_events_of_nodes_name_their_api_version_L29():
    async with Cluster(machine("n1")) as c:
        uid = c.api.add("n1")["metadata"]["uid"]
        c.initialise_nodes()
        await until(lambda: c.api.told("Synced"))
        about = c.api.events[0]["involvedObject"]
        assert about == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}


# --- copied providerIDs ---------------------------------------------------------------------------------------------


@pytest.mark.threat("kubelet-own-addresses-only")
@in_virtual_time
async def test_a_copied_provider_id_is_not_initialised():
    """The machine already has its own Node."""
    async with Cluster(machine("victim", "10.0.0.1"), machine("evil", "10.0.0.7")) as c:
        c.api.add("victim", tainted=False, ready="True", providerID="fake://victim")
        c.api.add("evil", providerID="fake://victim", age=1e6)
        before = metric("ccm_node_initialization_failures_total", reason="SameProviderID")
        c.initialise_nodes()
        await until(lambda: c.api.told("SameProviderID", "evil"))
        await quiet(600)
        assert c.api.tainted("evil") and c.api.addresses("evil") == []
        assert "victim" in c.api.told("SameProviderID", "evil")[0]
        assert metric("ccm_node_initialization_failures_total", reason="SameProviderID") > before
        assert not c.api.told("SameProviderID", "victim")


@pytest.mark.threat("kubelet-own-addresses-only")
@pytest.mark.parametrize("others", [0, 20])
def test_the_provider_id_of_a_machine_without_a_node_is_not_initialised(others):
    """evil's own instance has evil's name, but earlier listings do not show it."""

    @in_virtual_time
    async def run():
        async with Cluster(machine("db", "10.0.0.99")) as c:
            for number in range(others):
                c.cloud.put(machine(f"n{number}", f"10.0.1.{number}"))
                c.api.add(f"n{number}")
            c.initialise_nodes()
            await quiet(20)
            c.cloud.put(machine("evil", "10.0.0.7"))
            c.api.add("evil", providerID="fake://db")
            before = metric("ccm_node_initialization_failures_total", reason="OtherMachine")
            await until(lambda: c.api.told("OtherMachine", "evil"))
            await quiet(600)
            assert c.api.tainted("evil") and c.api.addresses("evil") == []
            assert metric("ccm_node_initialization_failures_total", reason="OtherMachine") > before

    run()


@in_virtual_time
async def test_when_several_machines_have_its_name_a_node_with_another_ones_provider_id_is_refused():
    machines = [machine("db", "10.0.0.99"), machine("evil", "10.0.0.7"), machine("evil", "10.0.0.8", "fake://2")]
    async with Cluster(*machines) as c:
        c.cloud.answer = lambda found: found
        c.api.add("evil", providerID="fake://db")
        c.initialise_nodes()
        await until(lambda: c.api.told("OtherMachine", "evil") or c.api.told("CloudNotAvailable", "evil"))
        assert c.api.tainted("evil")


@pytest.mark.threat("kubelet-own-addresses-only")
@in_virtual_time
async def test_a_refresh_writes_nothing_to_a_node_with_a_copied_provider_id():
    async with Cluster(machine("victim", "10.0.0.1", zone="a")) as c:
        c.api.add("victim", tainted=False, ready="True", providerID="fake://victim")
        c.api.add("evil", tainted=False, ready="True", providerID="fake://victim", age=1e6)
        c.initialise_nodes()
        await until(lambda: c.api.addresses("victim") == [("InternalIP", "10.0.0.1")])
        await until(lambda: c.api.told("SameProviderID", "evil"))
        await quiet(30)
        assert c.api.addresses("evil") == [] and "topology.kubernetes.io/zone" not in c.api.labels("evil")


@pytest.mark.threat("kubelet-cannot-delete-others")
@pytest.mark.parametrize("gone", ["evil", "nothing"])
def test_a_copied_provider_id_deletes_nobody_else(gone):
    """The victim's Node stays while both are not Ready, although evil's own or its invented machine is gone."""

    @in_virtual_time
    async def run():
        async with Cluster(machine("victim", "10.0.0.1"), machine("evil", "10.0.0.7")) as c:
            copied = {"evil": "fake://victim", "nothing": "fake://nothing"}[gone]
            c.api.add("victim", tainted=False, ready="Unknown", providerID="fake://victim")
            c.api.add("evil", tainted=False, ready="Unknown", providerID=copied)
            c.cloud.remove("evil")
            c.initialise_nodes()
            c.watch_over_nodes()
            await quiet(3600)
            assert "victim" in c.api.nodes and not c.api.told("DeletingNode", "victim")
            assert c.api.count("DELETE", "/nodes/victim") == 0

    run()


@in_virtual_time
@pytest.mark.parametrize("refresh", Refresh)
async def test_what_each_setting_of_the_refresh_does_and_what_it_writes(refresh):
    """Three labels of an initialised Node: one removed from the Node, one changed and one removed in the cloud."""
    async with Cluster() as c:
        c.cloud.put(machine("n0", type="t1", labels={"a": "1", "b": "1", "c": "1"}))
        c.api.add("n0", ready="True")
        c.initialise_nodes(refresh_labels=refresh)
        await until(lambda: not c.api.tainted("n0"))
        assert {key: c.api.labels("n0")[key] for key in "abc"} == {"a": "1", "b": "1", "c": "1"}
        c.api.change("n0", {"metadata": {"labels": {"a": None}}})
        c.cloud.put(machine("n0", type="t2", labels={"a": "1", "b": "2"}))
        writes = c.api.count("PATCH")
        await asyncio.sleep(1000)
        found = {key: c.api.labels("n0").get(key) for key in ("a", "b", "c", "node.kubernetes.io/instance-type")}
        kept = {"b": "1", "c": "1", "node.kubernetes.io/instance-type": "t1"}
        assert found == {
            Refresh.NEVER: {"a": None, **kept},
            Refresh.MISSING: {"a": "1", **kept},
            Refresh.ALWAYS: {"a": "1", "b": "2", "c": None, "node.kubernetes.io/instance-type": "t2"},
        }[refresh]
        assert c.api.count("PATCH") - writes == (0 if refresh is Refresh.NEVER else 1)
        assert (RECORD in c.api.nodes["n0"]["metadata"]["annotations"]) is (refresh is Refresh.ALWAYS)


# --- the cloud shows another project ----------------------------------------------------------------------------------


@in_virtual_time
async def test_the_first_node_has_only_its_name_so_it_gets_the_machine_of_that_name_in_the_wrong_project():
    """No other Node contradicts the cloud, and a Node never loses its providerID. Once the credentials are right, an
    Event says what to do."""
    async with Cluster(machine("n1", "10.9.0.1", "fake://of-others")) as c:
        c.api.add("n1")
        c.initialise_nodes(refresh=10.0)
        await until(lambda: not c.api.tainted("n1"))
        c.cloud.all = [machine("n1", "10.0.0.1")]
        c.api.set_ready("n1", "True")
        await until(lambda: c.api.told("InstanceNotListed", "n1"))
        assert "fake://n1 has the Node's name" in c.api.told("InstanceNotListed", "n1")[0]
        c.api.remove("n1")
        c.api.add("n1")
        await until(lambda: not c.api.tainted("n1"))
        assert c.api.nodes["n1"]["spec"]["providerID"] == "fake://n1"


@in_virtual_time
async def test_the_first_node_waits_for_its_own_machine_if_its_kubelet_has_a_node_ip():
    async with Cluster(machine("n1", "10.9.0.1", "fake://of-others")) as c:
        c.api.add("n1", annotations={NODE_IP: "10.0.0.1"})
        c.initialise_nodes()
        await until(lambda: c.api.told("InitializationFailed", "n1"))
        assert c.api.tainted("n1") and "providerID" not in c.api.nodes["n1"]["spec"]
        c.cloud.all = [machine("n1", "10.0.0.1")]
        await until(lambda: not c.api.tainted("n1"))
        assert c.api.nodes["n1"]["spec"]["providerID"] == "fake://n1"
