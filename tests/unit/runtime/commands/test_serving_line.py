# SPDX-License-Identifier: Apache-2.0
"""What `ccm explain service` says about the Nodes: which ones serve, which drain, and why others do not serve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from ccm.commands.explain.explain_service import serving_line
from ccm.controllers.nodes.vouching_rules import Vouched
from ccm.controllers.services.backend_rules import backend_sets
from ccm.controllers.services.drain_rules import Mode
from ccm.engine.objects import Node


def node(name: str, **spec: Any) -> Node:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"providerID": f"fake://{name}"} | spec}, Node)


def test_it_names_who_drains_and_why() -> None:
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    nodes = [node("a"), node("b", unschedulable=True), node("c", taints=[taint])]
    sets = backend_sets(nodes, lambda _: Vouched(()), drains=Mode.CORDONED)
    judging: Any = SimpleNamespace(nodes=nodes, judge=lambda _: Vouched(()))
    removed = "its taint ToBeDeletedByClusterAutoscaler says that the autoscaler removes it"
    assert serving_line(sets.cluster, judging) == f"3 of 3: a, b, c; b drains: it is cordoned; c drains: {removed}"
    assert serving_line(sets.local, judging) == f"3 of 3: a, b, c; c drains: {removed}"
    assert serving_line(sets.undrained, judging) == f"2 of 3: a, b; not c: {removed}"
