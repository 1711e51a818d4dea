# SPDX-License-Identifier: Apache-2.0
"""The commands judge Nodes and one listing by the same rules as the controllers."""

from ccm.cloud import NotFound, Transient
from ccm.commands.outlooks.judging import nearest
from ccm.controllers.nodes.vouching_rules import Refused

from .looks import instance, judging, node


def test_a_node_of_another_cloud_is_not_judged():
    assert judging([foreign := node("w1", "aws:///i-1")], []).judge(foreign) is None


def test_a_node_with_its_instance_is_vouched_for_and_a_second_claimant_is_not():
    w1, w2 = node("w1", "sim://w1"), node("w2", "sim://w1")
    alone = judging([w1], [instance("w1")])
    assert not isinstance(alone.judge(w1), Refused) and alone.claimants(w1) == [w1]
    both = judging([w1, w2], [instance("w1")])
    assert both.claimants(w2) == [w1, w2] and isinstance(both.judge(w2), Refused)


def test_what_a_read_of_its_own_says_counts_where_the_listing_lacks_it():
    w1 = node("w1", "sim://w1")
    other = [instance("w2")]
    assert isinstance(judging([w1], other).listed(w1), NotFound)
    found = judging([w1], other, {"w1": instance("w1")}).judge(w1)
    doubted = judging([w1], other, {"w1": Transient("503")}).judge(w1)
    assert not isinstance(found, Refused) and doubted != found


def test_a_node_without_a_provider_id_may_take_any_instance_and_another_one_may_not():
    w1, fresh = node("w1", "sim://w1"), node("w3")
    look = judging([w1, fresh], [instance("w1"), instance("w2")])
    assert look.contradiction(fresh, instance("w2")) is None
    assert look.contradiction(w1, instance("w1")) is None
    second = node("w2", "sim://w1")
    assert isinstance(judging([w1, second], [instance("w1")]).contradiction(second, instance("w1")), Refused)


def test_nodes_without_an_instance_and_a_listing_that_nobody_believes():
    nodes = [node(f"w{number}", f"sim://w{number}") for number in range(4)]
    whole = judging([*nodes, node("other", "aws:///i-1")], [instance(f"w{number}") for number in range(4)])
    assert whole.not_listed() == [] and whole.implausible_because == ""
    lacking = judging(nodes, [instance("w0")])
    assert [each.metadata.name for each in lacking.not_listed()] == ["w1", "w2", "w3"] and lacking.implausible_because


def test_names_that_are_like_one():
    names = ["worker-1", "worker-2", "Worker-3.example.com", "db-7"]
    assert nearest("WORKER-3", names)[0] == "Worker-3.example.com"
    assert len(nearest("worker-9", names)) <= 3 and "db-7" not in nearest("worker-9", names)
    assert nearest("zzz", names) == []
    assert judging([], [instance("worker-1")]).nearest("worker-2") == ["worker-1"]
