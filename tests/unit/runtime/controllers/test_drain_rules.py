# SPDX-License-Identifier: Apache-2.0
"""Which Nodes drain, and that never all of them do."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ccm.controllers.services.drain_rules import Mode, Sign, draining, leaving
from ccm.engine.objects import Node

SHUTTING_DOWN = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "node is shutting down"}
NOT_READY = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "PLEG is not healthy"}
READY = {"type": "Ready", "status": "True", "message": "node is shutting down"}


def node(
    *taints: str, conditions: tuple[dict[str, str], ...] = (), cordoned: bool = False, deleted: bool = False
) -> Node:
    spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints], "unschedulable": cordoned}
    meta = {"name": "a"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"conditions": list(conditions)}}, Node)


@pytest.mark.parametrize(
    ("one", "sign", "because"),
    [
        (node(), None, ""),
        (node(deleted=True), Sign.LEAVING, "it is being deleted"),
        (node("ToBeDeletedByClusterAutoscaler"), Sign.LEAVING, "the autoscaler removes it"),
        (node("DeletionCandidateOfClusterAutoscaler"), None, ""),
        (node("node.cloudprovider.kubernetes.io/shutdown"), Sign.STOPPED, "says that it is going away"),
        (node("node.kubernetes.io/out-of-service"), Sign.STOPPED, "says that it is going away"),
        (node("karpenter.sh/disrupted"), Sign.ANNOUNCED, "karpenter.sh/disrupted"),
        (node("aws-node-termination-handler/spot-itn"), Sign.ANNOUNCED, "spot-itn"),
        (node("aws-node-termination-handler/rebalance-recommendation"), None, ""),
        (node("cloud.google.com/impending-node-termination"), Sign.ANNOUNCED, "impending"),
        (node(conditions=(SHUTTING_DOWN,)), Sign.ANNOUNCED, "its kubelet is shutting down"),
        (node(conditions=(NOT_READY,)), None, ""),
        (node(conditions=(READY,)), None, ""),
        (node("node.kubernetes.io/unschedulable", cordoned=True), Sign.CORDONED, "it is cordoned"),
        (node("node.kubernetes.io/unreachable"), None, ""),
        (node("karpenter.sh/disrupted", cordoned=True, deleted=True), Sign.LEAVING, "deleted"),
        (node("karpenter.sh/disrupted", cordoned=True), Sign.ANNOUNCED, "karpenter"),
    ],
)
def test_the_surest_sign_counts(one: Node, sign: Sign | None, because: str) -> None:
    found = leaving(one, Mode.CORDONED)
    assert (found and found.sign) == sign
    assert because in (found.because if found else "")


def test_the_mode_decides_which_signs_count() -> None:
    cordoned, spot, deleted = node(cordoned=True), node("karpenter.sh/disrupted"), node(deleted=True)
    for one, signs in (
        (cordoned, [None, None, Sign.CORDONED]),
        (spot, [None, Sign.ANNOUNCED, Sign.ANNOUNCED]),
        (deleted, [Sign.LEAVING] * 3),
    ):
        found = [leaving(one, mode) for mode in (Mode.NEVER, Mode.LEAVING, Mode.CORDONED)]
        assert [each and each.sign for each in found] == signs


L, S, A, C = Sign


@pytest.mark.parametrize(
    ("signs", "cluster", "local"),
    [
        ([], "", ""),
        ([None, None], "..", ".."),
        ([L, S, A, C, None, None], "dddd..", "dd...."),
        ([L, L], "..", ".."),
        ([A, A, A], "...", "..."),
        ([L, A], "..", "d."),
        ([C, None], "d.", ".."),
        ([C, C, None], "...", "..."),
        ([C, C, None, None], "dd..", "...."),
        ([C, C, C, L, None], "...d.", "...d."),
        ([C, L], "..", ".d"),
    ],
)
def test_who_drains(signs: list[Sign | None], cluster: str, local: str) -> None:
    for expected, policy in ((cluster, False), (local, True)):
        assert "".join("d" if each else "." for each in draining(signs, local=policy)) == expected


def test_some_node_always_serves_and_a_node_without_a_sign_never_drains() -> None:
    for size in range(1, 5):
        for signs in itertools.product([None, *Sign], repeat=size):
            for local in (False, True):
                drains = draining(signs, local=local)
                assert not all(drains)
                assert not any(each and sign is None for each, sign in zip(drains, signs, strict=True))
