# SPDX-License-Identifier: Apache-2.0
"""Which state of a Node load balancers and routes use when the API server shows an old one."""

import msgspec
import pytest

from ccm.controllers.nodes.known_node_rules import believed
from ccm.engine.objects import Node

from .nodes_harness import TAINT

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
CIDRS, OTHERS = ["10.120.1.0/24", "fd00:1::/64"], ["10.120.9.0/24"]


def node(uid="one", created=EARLY, provider_id="", cidrs=(), ip="", taints=(TAINT,), **labels):
    return msgspec.convert(
        {
            "metadata": {"name": "n", "uid": uid, "creationTimestamp": created, "labels": labels},
            "spec": {
                "providerID": provider_id,
                "podCIDR": next(iter(cidrs), ""),
                "podCIDRs": list(cidrs),
                "taints": list(taints),
            },
            "status": {"addresses": [{"type": "InternalIP", "address": ip}] if ip else []},
        },
        Node,
    )


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        pytest.param(None, node(), id="the-first"),
        pytest.param(node(), node(provider_id="fake://n"), id="initialised"),
        pytest.param(node(cidrs=CIDRS), node(), id="never-had-a-providerID"),
        pytest.param(node(provider_id="fake://n", cidrs=CIDRS), node(provider_id="fake://n"), id="without-pod-CIDRs"),
        pytest.param(node(provider_id="fake://n"), node(provider_id="fake://m"), id="another-providerID"),
        pytest.param(node(provider_id="fake://n"), node(taints=()), id="initialised-without-a-providerID"),
        pytest.param(node("two", LATE), node("one", EARLY), id="a-former-one-of-a-node-without-a-providerID"),
        pytest.param(node("one", EARLY, "fake://n"), node("two", LATE), id="its-successor"),
        pytest.param(node("one", EARLY, "fake://n"), node("two", EARLY), id="its-successor-within-a-second"),
        pytest.param(node("one", LATE, "fake://n"), node("two", None), id="no-time"),
        pytest.param(node("one", None, "fake://n"), node("two", EARLY), id="no-time-before"),
    ],
)
def test_what_is_shown_is_believed(known, shown):
    assert believed(known, shown, having("fake://n")) is shown


def having(*provider_ids):
    """Return a predicate: whether the cloud has the Node's instance."""
    return lambda each: each.spec.provider_id in provider_ids


def test_a_node_keeps_what_kubernetes_never_takes_from_it():
    known = node(provider_id="fake://n", cidrs=CIDRS, ip="10.0.0.1", taints=(), zone="a")
    shown = node(ip="10.0.0.9", zone="b")
    kept = node(provider_id="fake://n", cidrs=CIDRS, ip="10.0.0.1", zone="b")
    assert believed(known, shown, having("fake://n")) == kept


def test_pod_cidrs_that_are_shown_are_believed():
    known = node(provider_id="fake://n", cidrs=CIDRS)
    assert believed(known, node(cidrs=OTHERS), having("fake://n")) == node(provider_id="fake://n", cidrs=OTHERS)


def test_a_node_whose_machine_is_gone_keeps_nothing():
    shown = node()
    assert believed(node(provider_id="fake://n"), shown, having()) is shown


@pytest.mark.parametrize("has", [(), ("fake://old",), ("fake://new",), ("fake://old", "fake://new")])
def test_a_former_node_of_the_name_is_ignored_if_the_cloud_has_the_other_ones_instance_alone(has):
    """Clocks of API servers differ: despite an earlier creation time, a Node with an instance may be the successor."""
    known, shown = node("two", LATE, "fake://new"), node("one", EARLY, "fake://old")
    assert believed(known, shown, having(*has)) is (known if has == ("fake://new",) else shown)
