# SPDX-License-Identifier: Apache-2.0
"""Parity of the rules with upstream's route controller. The IDs are those of docs/reference/parity.md.

`test_route` covers R13, R14 and R21 (routes with node addresses), and R30-R33 and R42 (events, and patches on the
wire).
"""

import ipaddress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Address, AddressType, Route
from ccm.controllers.nodes.vouching_rules import Reason, Vouched
from ccm.controllers.routes import route_rules as rules
from ccm.controllers.shared import pod_network_rules
from ccm.engine.objects import Node

from .judges import believing, refusing


def networks(*texts):
    return [ipaddress.ip_network(text) for text in texts]


def going(plan):
    """Return all routes to delete, including those that first need a read from the API server."""
    return plan.delete + [removal.route for removal in plan.unclaimed]


@pytest.mark.parametrize(
    ("destination", "cluster", "expected"),
    [
        pytest.param("10.244.0.0/24", ["10.244.0.0/16"], True, id="R1-first"),
        pytest.param("10.244.10.0/24", ["10.244.0.0/16"], True, id="R2-middle"),
        pytest.param("10.244.255.0/24", ["10.244.0.0/16"], True, id="R3-last"),
        pytest.param("10.244.0.0/24", ["10.244.0.0/14"], True, id="R4-low-end"),
        pytest.param("10.247.255.0/24", ["10.244.0.0/14"], True, id="R5-high-end"),
        pytest.param("2001:db8:1::/64", ["2001:db8::/32"], True, id="R6-ipv6"),
        pytest.param("10.243.255.0/24", ["10.244.0.0/16"], False, id="R7-below"),
        pytest.param("10.245.0.0/24", ["10.244.0.0/16"], False, id="R8-above"),
        pytest.param("10.243.255.0/24", ["10.244.0.0/14"], False, id="R9-below-14"),
        pytest.param("10.248.0.0/24", ["10.244.0.0/14"], False, id="R10-above-14"),
        pytest.param("2001:db9::/64", ["2001:db8::/32"], False, id="R11-ipv6"),
        pytest.param("0.0.0.0/0", ["10.244.0.0/16"], False, id="R12-default-route"),
        pytest.param("10.244.0.0/15", ["10.244.0.0/16"], True, id="5.3.3-first-address-inside"),
        pytest.param("10.244.0.0/15", ["10.245.0.0/16"], True, id="5.3.3-last-address-inside"),
        pytest.param("2001:db8::/64", ["10.244.0.0/16", "2001:db8::/32"], True, id="5.3.3-second-family"),
        pytest.param("2001:db8::/64", ["10.244.0.0/16"], False, id="5.3.3-other-family"),
        pytest.param("", ["10.244.0.0/16"], False, id="5.3.3-no-cidr"),
        pytest.param("10.244.0.0/24", [], False, id="5.3.3-no-cluster"),
        pytest.param("10.244.0.7/32", ["10.244.0.0/16"], True, id="a-single-address"),
        pytest.param("10.244.255.254/31", ["10.244.255.254/32"], True, id="the-first-of-two"),
        pytest.param("10.244.255.254/31", ["10.244.255.255/32"], True, id="the-last-of-two"),
    ],
)
def test_is_responsible(destination, cluster, expected):
    assert rules.is_responsible(destination, networks(*cluster)) is expected


def node(name, *pod_cidrs, provider_id=None):
    provider_id = f"fake://{name}" if provider_id is None else provider_id
    spec = {"providerID": provider_id, "podCIDRs": list(pod_cidrs)}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, Node)


def route(destination, to, **fields):
    return Route(destination, f"fake://{to}" if to else "", **fields)


def owns(provider_id):
    return provider_id.startswith("fake://")


judge = believing(owns)
CLUSTER = networks("10.120.0.0/16", "a00:100::/32")
#: Allows prefixes of nearly any length, because overlapping CIDRs differ in length.
NETWORK = pod_network_rules.PodNetwork(CLUSTER, {4: 16, 6: 32})
A4, A6, B4, B6 = "10.120.0.0/24", "a00:100::/64", "10.120.1.0/24", "a00:100:0:1::/64"
A, B = node("a", A4), node("b", B4)
A_DUAL, B_DUAL = node("a", A4, A6), node("b", B4, B6)


@pytest.mark.parametrize(
    ("nodes", "present", "create", "delete"),
    [
        pytest.param(
            [A_DUAL, B_DUAL], [], [("a", A4), ("a", A6), ("b", B4), ("b", B6)], [], id="R15-dual-stack-none-present"
        ),
        pytest.param(
            [A_DUAL, B_DUAL], [route(A4, "a"), route(A6, "a"), route(B4, "b"), route(B6, "b")], [], [], id="R16"
        ),
        pytest.param(
            [A_DUAL, B_DUAL],
            [route(A4, "b"), route(A6, "a"), route(B4, "a"), route(B6, "b")],
            [("a", A4), ("b", B4)],
            [route(A4, "b"), route(B4, "a")],
            id="R17-wrong-nodes",
        ),
        pytest.param(
            [A_DUAL, B_DUAL], [route(A4, "a"), route(B6, "b")], [("a", A6), ("b", B4)], [], id="R18-some-present"
        ),
        pytest.param(
            [A],
            [route(A4, "a"), route(B4, "gone"), route(B6, "gone")],
            [],
            [route(B4, "gone"), route(B6, "gone")],
            id="R19-unknown-nodes",
        ),
        pytest.param([A, B], [route(A4, "a"), route(B4, "b")], [], [], id="R20"),
        pytest.param([A, B], [route(A4, "a")], [("b", B4)], [], id="R22"),
        pytest.param([A, B], [], [("a", A4), ("b", B4)], [], id="R23"),
        pytest.param(
            [A, B],
            [route(A4, "a"), route(B4, "b"), route("10.120.5.0/24", "b"), route("10.120.6.0/24", "")],
            [],
            [route("10.120.5.0/24", "b"), route("10.120.6.0/24", "")],
            id="R24-extra-routes",
        ),
        pytest.param([A, B], [route(A4, "a"), route(B4, "a")], [("b", B4)], [route(B4, "a")], id="R25"),
        pytest.param([A, node("b")], [], [("a", A4)], [], id="R26-node-without-cidr"),
        pytest.param(
            [A],
            [route(A4, "a"), route(B4, "", blackhole=True)],
            [],
            [route(B4, "", blackhole=True)],
            id="R27-blackhole-in-range",
        ),
        pytest.param(
            [A], [route(A4, "a"), route("10.1.2.0/24", "", blackhole=True)], [], [], id="R28-blackhole-outside"
        ),
        pytest.param(
            [A],
            [route(A4, "a", blackhole=True)],
            [("a", A4)],
            [route(A4, "a", blackhole=True)],
            id="R27-blackhole-of-the-right-node",
        ),
        # Differs: upstream creates the route twice and ignores the failure of the second attempt.
        pytest.param([node("a", A4, A4)], [], [("a", A4)], [], id="R29-same-cidr-twice-differs"),
        # Differs (W21): upstream compares text, so it recreates this route in every pass.
        pytest.param([node("a", A6)], [route("a00:100:0:0::/64", "a")], [], [], id="W21-spelling-differs"),
        # Differs (W21): upstream never removes the duplicate of a correct route.
        pytest.param(
            [A],
            [route(A4, "a", id="1"), route(A4, "a", id="2")],
            [],
            [route(A4, "a", id="2")],
            id="W21-doubled-differs",
        ),
        pytest.param([A], [route(A4, "a"), route("foreign", "x")], [], [], id="5.3.3-not-a-cidr"),
        pytest.param([node("a", A4, provider_id="")], [], [], [], id="not-initialised"),
        pytest.param([node("a", A4, provider_id="other://a")], [], [], [], id="foreign-cloud"),
        pytest.param([node("a", "10.9.0.0/24")], [route("10.9.0.0/24", "a")], [], [], id="5.3.2-outside-kept"),
    ],
)
def test_plan(nodes, present, create, delete):
    plan = rules.plan(nodes, present, NETWORK, judge)
    assert [(node.metadata.name, route) for node, route in plan.create] == [
        (name, route(cidr, name)) for name, cidr in create
    ]
    assert {*going(plan)} == {*delete} and len(going(plan)) == len(delete)
    assert plan.problems == []
    assert plan.nodes == {n.metadata.name: n for n in nodes if n.spec.pod_cidrs and owns(n.spec.provider_id)}


@pytest.mark.parametrize(
    ("present", "sure"),
    [
        pytest.param(route(B4, "gone"), False, id="its-node-may-be-new"),
        pytest.param(route(B4, "gone", blackhole=True), True, id="leads-nowhere"),
        pytest.param(route(B4, ""), True, id="leads-to-nobody"),
        pytest.param(route(A4, "a", target_addresses=("10.0.0.9",)), True, id="its-node-gets-a-better-one"),
        pytest.param(route(A4, "b"), False, id="another-node-wants-the-cidr"),
    ],
)
def test_a_route_that_is_wrong_for_certain_goes_and_of_others_the_api_server_is_asked(present, sure):
    plan = rules.plan([A], [present], NETWORK, judge)
    assert (plan.delete, [each.route for each in plan.unclaimed]) == (([present], []) if sure else ([], [present]))


def test_targets_are_the_machines_to_which_routes_of_ours_lead():
    outside, theirs = route("10.9.0.0/24", "c"), route(B6, "d", owner="theirs")
    plan = rules.plan([A], [route(A4, "a"), route(B4, "gone"), outside, theirs], NETWORK, judge, "ours")
    assert plan.targets == {"fake://a", "fake://gone"}


def test_a_cidr_of_two_nodes_goes_to_one_and_the_other_is_told():
    first, second = node("a", A4), node("b", A4, B4)
    for order in ([first, second], [second, first]):
        plan = rules.plan(order, [], NETWORK, judge)
        assert plan.create == [(first, route(A4, "a")), (second, route(B4, "b"))]
        assert plan.problems == [(second, f"pod CIDR {A4} is also the pod CIDR of node a, which keeps the route")]


def test_a_bad_cidr_is_a_problem_of_its_node_alone():
    bad, good = node("a", "10.120.0.0/99", A6), node("b", B4)
    plan = rules.plan([bad, good], [], NETWORK, judge)
    assert plan.create == [(bad, route(A6, "a")), (good, route(B4, "b"))]
    assert plan.problems == [(bad, "pod CIDR '10.120.0.0/99' is not a CIDR such as 10.244.1.0/24")]


def test_what_another_cluster_routes_is_no_double_of_ours():
    ours, theirs = route(A4, "a", id="1", owner="ours"), route(A4, "a", id="2", owner="theirs")
    for listed in ([ours, theirs], [theirs, ours]):
        plan = rules.plan([A], listed, NETWORK, judge, "ours")
        assert (plan.create, going(plan), plan.problems) == ([], [], [])


def test_of_nodes_whose_cidrs_overlap_the_older_one_is_served_first():
    def born(name, cidr, when):
        return msgspec.structs.replace(
            node(name, cidr), metadata=msgspec.structs.replace(node(name).metadata, creation_timestamp=when)
        )

    old, young = born("z", "10.120.4.0/22", "2026-01-01T00:00:00Z"), born("a", "10.120.5.0/24", "2026-02-01T00:00:00Z")
    plan = rules.plan([young, old], [], NETWORK, judge)
    assert [who.metadata.name for who, _ in plan.create] == ["z"]
    assert [who.metadata.name for who, _ in plan.problems] == ["a"]
    assert [who.metadata.name for who, _ in plan.contested] == ["z"]


@pytest.mark.parametrize("there", [[("10.120.7.0/24", "b")], [("10.120.7.0/24", "b"), ("10.120.0.0/24", "a")]])
def test_an_own_pod_cidr_hides_no_overlap_with_that_of_another_node(there):
    """The first CIDR inside the wider one is the Node's own, so the check must not stop there."""
    nested = node("a", "10.120.0.0/24", "10.120.0.0/16")
    plan = rules.plan([nested, node("b", "10.120.7.0/24")], [route(*each) for each in there], NETWORK, judge)
    assert [each.destination for _, each in plan.create] == ["10.120.0.0/24"][len(there) - 1 :]
    assert [who.metadata.name for who, _ in plan.problems] == ["a"]
    assert [who.metadata.name for who, _ in plan.contested] == ["b"]


NARROW = pod_network_rules.PodNetwork(CLUSTER)


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@pytest.mark.parametrize(
    ("cidr", "problem"),
    [
        ("10.120.0.0/24", ""),
        ("10.120.255.128/25", ""),
        ("a00:100::/64", ""),
        ("a00:100:ffff:1::/80", ""),
        ("10.120.0.0/23", "wider than a Node's /24"),
        ("10.120.0.0/16", "wider than a Node's /24"),
        ("a00:100::/63", "wider than a Node's /64"),
        ("10.120.0.0/15", "not inside"),
        ("10.0.0.0/8", "not inside"),
        ("0.0.0.0/0", "not inside"),
        ("::/0", "not inside"),
        ("10.0.0.5/32", "not inside"),
        ("169.254.169.254/32", "not inside"),
        ("8.8.8.0/24", "not inside"),
        ("::ffff:10.120.0.0/120", "not inside"),
        ("junk", "not a CIDR"),
    ],
)
def test_where_a_pod_cidr_may_lie(cidr, problem):
    found = NARROW.forbids(Route(cidr, "fake://a"))
    assert problem in found and bool(problem) == bool(found)
    if problem and cidr != "junk":
        plan = rules.plan([node("a", cidr), B], [], NARROW, judge)
        assert [who.metadata.name for who, _ in plan.create] == ["b"]
        assert [who.metadata.name for who, _ in plan.problems] == ["a"] and plan.contested == []


@pytest.mark.parametrize("reason", list(Reason))
def test_a_node_that_is_not_vouched_for_gets_no_route_and_keeps_the_one_it_has(reason):
    doubting = refusing("a", judge=judge, reason=reason)
    plan = rules.plan([A_DUAL, B], [route(A4, "a")], NARROW, doubting)
    assert [(who.metadata.name, one.destination) for who, one in plan.create] == [("b", B4)]
    assert going(plan) == [] and [who.metadata.name for who, _ in plan.kept] == ["a"]
    waits = reason is Reason.CLOUD_UNKNOWN
    assert [who.metadata.name for who, _ in plan.problems] == ([] if waits else ["a"])
    assert ("a" in plan.nodes) is not waits  # until the cloud answers, the Node's condition stays as it is


@pytest.mark.parametrize("where", ["a", "b"])
def test_a_node_that_is_vouched_for_comes_before_one_that_is_not(where):
    """The exception: a Node that is not vouched for keeps a route that it already has."""
    evil, good = node("a", A4), node("b", A4)
    doubting = refusing("a", judge=judge)
    plan = rules.plan([evil, good], [], NARROW, doubting)
    assert [who.metadata.name for who, _ in plan.create] == ["b"]
    plan = rules.plan([evil, good], [route(A4, where)], NARROW, doubting)
    assert (plan.create, going(plan)) == ([], [])
    assert "b" not in {who.metadata.name for who, _ in plan.problems} or where == "a"


CIDRS = st.sampled_from([A4, A6, B4, B6, "a00:100:0:0::/64", "10.9.0.0/24", "10.120.0.0/16", "10.120.7.0/24"])
NODES = st.lists(
    st.builds(
        lambda name, cidrs, scheme: node(name, *cidrs, provider_id=scheme and f"{scheme}://{name}"),
        st.sampled_from("abc"),
        st.lists(CIDRS, max_size=3),
        st.sampled_from(["fake", "fake", "other", ""]),
    ),
    max_size=3,
    unique_by=lambda node: node.metadata.name,
)
ROUTES = st.lists(
    st.builds(
        Route,
        st.one_of(CIDRS, st.just("junk")),
        st.sampled_from(["fake://a", "fake://b", "fake://gone", ""]),
        owner=st.sampled_from(["", "", "ours", "theirs"]),
    ),
    max_size=8,
)


@given(nodes=NODES, present=ROUTES, blackholes=st.sets(st.integers(0, 7)))
def test_a_plan_that_is_carried_out_leaves_nothing_to_do(nodes, present, blackholes):
    present = [Route(r.destination, r.provider_id, str(i), i in blackholes, r.owner) for i, r in enumerate(present)]
    plan = rules.plan(nodes, present, NETWORK, judge, "ours")
    assert all(rules.is_responsible(route.destination, CLUSTER) for route in going(plan))
    assert all(route.owner in ("", "ours") for route in going(plan))
    after = [route for route in present if route not in going(plan)] + [route for _, route in plan.create]
    again = rules.plan(nodes, after, NETWORK, judge, "ours")
    assert (again.create, going(again)) == ([], [])
    assert again.nodes == plan.nodes
    # Which of several overlapping CIDRs a message names depends on the existing routes.
    assert sorted(who.metadata.name for who, _ in again.problems) == sorted(
        who.metadata.name for who, _ in plan.problems
    )
    # Every pod CIDR of our Nodes is reachable through a Node that has it, or the plan names the problem.
    told = {who.metadata.name for who, _ in plan.problems}
    reached = {(ipaddress.ip_network(r.destination), r.provider_id) for r in after if r.destination != "junk"}
    for one in nodes:
        if owns(one.spec.provider_id):
            for cidr in one.spec.pod_cidrs:
                network = ipaddress.ip_network(cidr)
                holders = {f"fake://{n.metadata.name}" for n in nodes if network in networks(*n.spec.pod_cidrs)}
                assert any((network, holder) in reached for holder in holders) or one.metadata.name in told


def with_addresses(*ips, own=()):
    addresses = tuple(Address(AddressType.INTERNAL_IP, ip) for ip in ips)
    return lambda node: Vouched((*addresses, Address(AddressType.HOSTNAME, "a")), own=own)


@pytest.mark.parametrize(
    ("targets", "ips", "stays"),
    [
        pytest.param(None, ("10.0.0.1",), True, id="the-cloud-keeps-none"),
        pytest.param(("10.0.0.1",), ("10.0.0.1",), True, id="the-address"),
        pytest.param(("10.0.0.1",), ("10.0.0.1", "fd00::1"), True, id="one-of-them"),
        pytest.param(("10.0.0.1", "10.0.0.9"), ("10.0.0.1",), False, id="a-former-one-besides"),
        pytest.param(("a",), ("10.0.0.1",), False, id="a-name"),
        pytest.param((), ("10.0.0.1",), False, id="to-no-address"),
        pytest.param(("10.0.0.1",), (), False, id="the-node-has-none"),
    ],
)
def test_a_route_stays_while_its_addresses_are_the_nodes(targets, ips, stays):
    present = route(A4, "a", target_addresses=targets)
    plan = rules.plan([A], [present], NETWORK, with_addresses(*ips))
    assert plan.delete == ([] if stays else [present])
    assert [each.target_addresses for _, each in plan.create] == ([] if stays else [ips or None])


@pytest.mark.parametrize(
    ("own", "covered"),
    [
        pytest.param((), "", id="none"),
        pytest.param(("192.0.2.1",), "", id="outside-of-the-cluster-cidr"),
        pytest.param(("10.120.1.5",), "", id="in-another-pod-cidr"),
        pytest.param(("not an IP", "192.0.2.1", "fd00::1", "10.120.0.5"), "10.120.0.5", id="the-last-of-several"),
    ],
)
def test_no_route_covers_an_address_of_a_machine(own, covered):
    plan = rules.plan([A], [], NETWORK, with_addresses("192.0.2.1", own=own))
    told = [f"no route to {A4}: pod CIDR {A4} covers {covered}, an address of node a"] if covered else []
    assert [text for _, text in plan.problems] == told
    assert len(plan.create) == (0 if covered else 1)


def test_what_is_looked_at_again_when_it_changes():
    assert rules.routing(None, judge) is None
    assert rules.routing(A, lambda node: None) is None
    found = [rules.routing(A, with_addresses(*ips)) for ips in ((), ("10.0.0.1",), ("10.0.0.2",))]
    refused = [rules.routing(A, refusing("a", judge=judge, reason=reason)) for reason in Reason]
    others = [rules.routing(each, judge) for each in (node("a", B4), node("a", A4, provider_id="fake://b"))]
    assert len({*found, *refused, *others}) == 3 + len(Reason) + 2


NOW, BEFORE = "2026-11-21T10:00:00Z", "2026-11-20T10:00:00Z"
CREATED = ("False", "RouteCreated", "RouteController created a route")
FAILED = ("True", "NoRouteCreated", "RouteController failed to create a route")


@pytest.mark.parametrize(
    ("current", "routed", "expected", "since"),
    [
        pytest.param(None, True, CREATED, NOW, id="R34"),
        pytest.param(None, False, FAILED, NOW, id="R35"),
        pytest.param(("False", "RouteCreated"), True, None, None, id="R36"),
        # The transition time changes only with the status, as API conventions require.
        pytest.param(("False", "CalicoIsUp"), True, CREATED, BEFORE, id="R37"),
        pytest.param(("False", "Other"), True, CREATED, BEFORE, id="R38"),
        pytest.param(("True", "Other"), False, FAILED, BEFORE, id="R39"),
        pytest.param(("False", "RouteCreated"), False, FAILED, NOW, id="R40"),
        pytest.param(("True", "NoRouteCreated"), False, None, None, id="R41"),
        pytest.param(("True", "NoRouteCreated"), True, CREATED, NOW, id="back-again"),
    ],
)
def test_condition_patch(current, routed, expected, since):
    conditions = [{"type": "Ready", "status": "True", "reason": "RouteCreated"}]
    if current is not None:
        status, reason = current
        conditions.append(
            {"type": "NetworkUnavailable", "status": status, "reason": reason, "lastTransitionTime": BEFORE}
        )
    with_it = msgspec.convert({"metadata": {"name": "a", "uid": "u"}, "status": {"conditions": conditions}}, Node)
    patch = rules.condition_patch(with_it, routed, NOW)
    if expected is None:
        assert patch is None
        return
    status, reason, message = expected
    assert patch == {
        "metadata": {"uid": "u"},
        "status": {
            "conditions": [
                {
                    "type": "NetworkUnavailable",
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": NOW,
                    "lastTransitionTime": since,
                }
            ]
        }
    }
