# SPDX-License-Identifier: Apache-2.0
"""A Node belongs to the instance that has the Node's name as an alias, as if the alias were the instance's name."""

import asyncio

import pytest

from ccm.cloud import Address, AddressType, Instance, InstanceRef
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.node_witness import Witnesses
from ccm.controllers.nodes.vouching_rules import Reason, Refused, Vouched, judge
from ccm.engine.objects import Node, ObjectMeta
from ccm.gateway.instance_snapshot import Snapshot

from ..gateway.virtual import in_virtual_time, now
from .nodes_harness import Cluster, machine, until
from .test_vouching_rules import NEW, OLD, node

DNS = "ip-10-0-0-1.ec2.internal"
OTHER = Instance("fake://other", DNS)


def aws(*aliases, name="i-0abc", provider_id="fake://n"):
    return Instance(provider_id, name, addresses=(Address(AddressType.INTERNAL_IP, "10.0.0.1"),), aliases=aliases)


@in_virtual_time
async def test_a_node_named_by_an_alias_is_initialised_as_the_instance():
    async with Cluster(machine("i-0abc", aliases=(DNS,)), machine("i-0def")) as c:
        c.cloud.get = None  # only the listing works
        c.api.add(DNS)
        c.api.add("i-0def")
        c.initialise_nodes()
        await until(lambda: not c.api.tainted(DNS) and not c.api.tainted("i-0def"))
        assert c.api.nodes[DNS]["spec"]["providerID"] == "fake://i-0abc"


@in_virtual_time
async def test_one_that_brought_its_provider_id_needs_no_second_question():
    """Only if the Node's instance has another name does the controller look for one with the Node's name. An alias
    counts as a name."""
    async with Cluster(machine("i-0abc", aliases=(DNS,))) as c:
        c.api.add(DNS, providerID="fake://i-0abc")
        c.initialise_nodes()
        await until(lambda: not c.api.tainted(DNS))
        assert c.cloud.calls == ["get fake://i-0abc"]


def test_an_alias_is_the_nodes_own_name():
    assert isinstance(judge(node(DNS), aws(DNS), [], [OTHER]), Vouched)
    assert isinstance(judge(node(DNS), aws(DNS), [], None), Vouched), "who else has the name need not be known"
    assert judge(node(DNS), aws(), [], [OTHER]).reason is Reason.OTHER_MACHINE
    assert node_rules.other_machine(node(DNS), aws(DNS), [OTHER]) == ""


@pytest.mark.parametrize(
    ("holder", "loser"),
    [
        pytest.param(node("i-0abc", created=NEW), node(DNS, created=OLD), id="the name before an alias"),
        pytest.param(node(DNS, created=NEW), node("evil", created=OLD), id="an alias before the age"),
    ],
)
def test_which_of_two_nodes_holds_the_provider_id(holder, loser):
    both = [holder, loser]
    assert isinstance(judge(holder, aws(DNS), both, []), Vouched)
    refused = judge(loser, aws(DNS), both, [])
    assert isinstance(refused, Refused) and refused.reason is Reason.SAME_PROVIDER_ID
    assert "has the instance's name" in refused.message


def test_an_alias_is_a_hostname_of_the_node():
    claimed = node("i-0abc", ("InternalIP", "10.0.0.1"), ("Hostname", DNS.upper()), ("Hostname", "else"))
    verdict = judge(claimed, aws(DNS), [], [])
    assert [each.address for each in verdict.addresses] == ["10.0.0.1", DNS.upper()]


def test_what_was_seen_under_an_alias_counts_for_its_node():
    """If two Nodes claim one instance, it belongs to the Node whose name the instance has, here as an alias."""
    witnesses = Witnesses(lambda each: True)
    nodes = [node(DNS, provider_id="fake://n"), node("evil", provider_id="fake://n")]
    witnesses.hear(nodes, Snapshot.of([aws(DNS)], 10.0, 1))
    assert witnesses.last_seen(f"uid-of-{DNS}", "fake://n") == 10.0
    assert witnesses.last_seen("uid-of-evil", "fake://n") is None


@in_virtual_time
async def test_a_single_read_of_an_aliased_instance_counts_as_seen():
    async with Cluster(machine("i-0abc", aliases=(DNS,))) as c:
        c.api.add(DNS, tainted=False, ready="Unknown", providerID="fake://i-0abc")
        task = c.watch_over_nodes()
        await until(lambda: c.cloud.calls)
        await asyncio.sleep(1.0)
        witnesses = task.get_coro().cr_frame.f_locals["self"]._witnesses
        assert witnesses.last_seen(c.api.nodes[DNS]["metadata"]["uid"], "fake://i-0abc") is not None


@in_virtual_time
async def test_a_node_that_the_cloud_is_asked_about_costs_one_question():
    async with Cluster(machine("i-0abc", aliases=(DNS,))) as c:
        vouching = asyncio.create_task(c.vouching.run())
        await c.vouching.ready()
        c.api.add(DNS, tainted=False, providerID="fake://i-0abc")
        await until(lambda: isinstance(c.vouching.judge(c.nodes.get(DNS)), Vouched) if c.nodes.get(DNS) else False)
        await asyncio.sleep(2.0)
        assert c.cloud.calls == ["get fake://i-0abc"]
        vouching.cancel()


@in_virtual_time
async def test_news_of_an_instance_are_looked_at_for_the_nodes_of_its_aliases():
    """A read shows that another machine has the Node's name as an alias."""
    async with Cluster(machine("x")) as c:
        c.api.add(DNS, tainted=False, providerID="fake://x")
        await until(lambda: c.nodes.get(DNS))
        await c.gateway.instances.list(not_before=now())
        assert isinstance(c.vouching.judge(c.nodes.get(DNS)), Vouched)
        c.cloud.put(machine("i-0abc", aliases=(DNS,)))
        await c.gateway.instances.get(InstanceRef("i-0abc"))
        assert c.vouching.judge(c.nodes.get(DNS)).reason is Reason.OTHER_MACHINE


def test_known_as():
    meta = ObjectMeta(name=DNS)
    assert node_rules.known_as(Node(metadata=meta), aws(DNS)) == DNS
    assert node_rules.known_as(Node(metadata=meta), aws()) == "i-0abc"
