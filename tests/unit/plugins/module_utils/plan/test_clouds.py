# SPDX-License-Identifier: Apache-2.0
"""With several clouds of one controller: which cloud will own which Node and which Service."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import clouds, draft
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.clouds import Cloud

OPENSTACK = Cloud("openstack", "openstack://", default=True)
METAL = Cloud("static", "static://", ["bm-*"], ["metal"])
BOTH = [OPENSTACK, METAL]


def node(name: str, provider_id: str = "") -> Any:
    return {"name": name, "provider_id": provider_id}


def service(name: str, of_class: str = "", ours: bool = True) -> Any:
    return {"namespace": "shop", "name": name, "class": of_class, "ours": ours}


@pytest.mark.parametrize(
    ("judged", "among", "expected"),
    [
        (node("x", "openstack:///1"), BOTH, "openstack"),
        (node("bm-1", "openstack:///1"), BOTH, "openstack"),
        (node("x", "k3s://x"), BOTH, clouds.NOBODY),
        (node("x", "k3s://x"), [Cloud("libcloud", default=True), METAL], clouds.ASK),
        (node("bm-1"), BOTH, "static"),
        (node("w-1"), BOTH, clouds.ASK),
        (node("bm-1"), [OPENSTACK._replace(patterns=["bm-1"]), METAL], clouds.ASK),
    ],
)
def test_whose_a_node_will_be(judged: Any, among: Any, expected: str) -> None:
    assert clouds.of_node(judged, among) == expected


@pytest.mark.parametrize(
    ("judged", "among", "expected"),
    [
        (service("a"), BOTH, "openstack"),
        (service("a", "metal"), BOTH, "static"),
        (service("a", "else"), BOTH, clouds.NOBODY),
        (service("a"), [Cloud("sim"), METAL._replace(default=True)], "static"),
    ],
)
def test_whose_a_service_will_be(judged: Any, among: Any, expected: str) -> None:
    assert clouds.of_service(judged, among) == expected


def world() -> Any:
    return {
        "nodes": [node("w-1", "openstack:///1"), node("w-2"), node("bm-1"), node("k", "k3s://k")],
        "services": [service("web"), service("bare", "metal"), service("other", "else", ours=False)],
        "runtime": {"exists": True},
    }


def test_the_plan_names_the_owners_before_anything_changes() -> None:
    plan = draft.empty()
    clouds.check(plan, world(), BOTH)
    assert plan["warnings"] == [] and plan["problems"] == []
    assert plan["notes"] == [
        "cloud openstack will have the Nodes w-1, and the Services shop/web",
        "cloud static will have the Nodes bm-1, and the Services shop/bare",
        "the answers of the clouds openstack and static decide whose these Nodes are: w-2. Names that occur in several "
        "are declared with nodes of ccm_runtime_clouds",
        "the controller will leave these Nodes alone, because their providerID belongs to none of its clouds: k",
        "the controller will leave these Services alone, because it does not serve their class: shop/other",
    ]


def test_one_cloud_is_as_before_and_one_that_goes_is_warned_of() -> None:
    plan = draft.empty()
    alone = [OPENSTACK]
    clouds.check(plan, world() | {"services": [service("web")]}, alone)
    assert plan["notes"] == plan["warnings"] == []
    clouds.check(plan, world(), alone)
    assert plan["notes"] == []
    (warning,) = plan["warnings"]
    assert warning.startswith("no cloud serves these Services any more: shop/bare. Their load balancers stay")
    clouds.check(plan, world(), [])
    assert len(plan["warnings"]) == 1


def test_beside_another_controller_the_plan_says_what_is_left_to_it() -> None:
    """A workload in C(ccm_install_ignore) runs beside the new controller, so its Nodes and Services are no loss."""
    plan = draft.empty()
    clouds.check(plan, world() | {"ignored": ["kube-system/ccm"], "runtime": {"exists": False}}, [METAL])
    assert plan["warnings"] == []
    assert plan["notes"] == [
        "cloud static will have the Nodes bm-1, and the Services shop/bare",
        "the controller will have those of these Nodes that are machines of the cloud static, and leave the others alone: w-2",
        "the controller will leave these Nodes alone, because their providerID belongs to none of its clouds: k, w-1",
        "the controller will leave these Services alone, because it does not serve their class: shop/other, shop/web",
    ]
    clouds.check(plan, world() | {"ignored": ["kube-system/ccm"]}, [METAL])
    assert plan["warnings"][0].startswith("no cloud serves these Services any more: shop/web")
