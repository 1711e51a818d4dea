# SPDX-License-Identifier: Apache-2.0
"""Decide which Nodes serve load balancers, and which of them drain. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ccm.cloud import Backend, Backends, LoadBalancerSpec
from ccm.engine.objects import Node

from ..nodes.node_rules import is_ready
from ..nodes.vouching_rules import Judge, Vouched
from . import drain_rules
from .drain_rules import Mode, Sign

EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
_FALSE = {"0", "f", "F", "false", "False", "FALSE"}


def is_backend(node: Node, judge: Judge) -> bool:
    """Return whether load balancers that cannot drain send traffic to this Node.

    As in upstream, the Node must not be in deletion, excluded by label, or about to be removed by the autoscaler; the
    cloud's health checks handle readiness. In addition, the Node needs a providerID of this cloud (W15, W18), so that
    a joining Node causes one update when it is usable instead of two. The cloud must also vouch for the Node.
    """
    return isinstance(service_of(node, judge), Vouched)


def service_of(node: Node, judge: Judge, drains: Mode = Mode.NEVER) -> Vouched | str:
    """Return what a load balancer may use of the Node as a backend, or the reason why the Node is no backend.

    `drains`: the value of --load-balancer-drain-nodes, `Mode.NEVER` if the load balancer cannot drain. With any other
    value, a leaving Node is still a backend.
    """
    if drains is Mode.NEVER and (leaving := drain_rules.leaving(node)) is not None:
        return leaving.because
    excluded = node.metadata.labels.get(EXCLUDE_LABEL)
    if excluded is not None and excluded not in _FALSE:
        return f"its label {EXCLUDE_LABEL} excludes it"
    verdict = judge(node)
    if verdict is None:
        return "it has no providerID of this cloud"
    return verdict if isinstance(verdict, Vouched) else verdict.message


class BackendSets(msgspec.Struct, frozen=True):
    """The backends for each kind of load balancer. Kinds with equal backends share one object.

    `undrained`: for load balancers that cannot drain; `cluster`, `local`: for the others, by externalTrafficPolicy.
    """

    undrained: Backends = msgspec.field(default_factory=Backends)
    cluster: Backends = msgspec.field(default_factory=Backends)
    local: Backends = msgspec.field(default_factory=Backends)

    def of(self, spec: LoadBalancerSpec, *, drains: bool) -> Backends:
        """Return the backends of a Service's load balancer. `drains`: whether it can drain Nodes."""
        if not drains:
            return self.undrained
        return self.local if spec.external_traffic_policy == "Local" else self.cluster

    def or_same(self, former: BackendSets) -> BackendSets:
        """Return these sets, each replaced by an equal one of `former`, so that Nodes are not compared again."""
        made = {id(now): _kept(now, former) for now in (self.undrained, self.cluster, self.local)}
        return BackendSets(made[id(self.undrained)], made[id(self.cluster)], made[id(self.local)])


def _kept(now: Backends, former: BackendSets) -> Backends:
    olds = {id(old): old for old in (former.undrained, former.cluster, former.local)}.values()
    labels = [each.labels for each in now]
    return next((old for old in olds if old == now and [each.labels for each in old] == labels), now)


def backend_sets(
    nodes: Iterable[Node],
    judge: Judge,
    *,
    ready_only: bool = False,
    drains: Mode = Mode.NEVER,
) -> BackendSets:
    """Return the Nodes that serve load balancers, sorted by name, with the addresses and labels of their `Vouched`.
    There is a set for load balancers that cannot drain, and for the others one for each external traffic policy.

    `ready_only` excludes Nodes that are not Ready, except Nodes that drain. It excludes none if no Node is Ready apart
    from those that drain: in that case the cloud's health checks know more than the API server does.
    """
    judged = [
        (node, vouched, drain_rules.leaving(node, drains))
        for node in nodes
        if isinstance(vouched := service_of(node, judge, drains), Vouched)
    ]
    judged.sort(key=lambda each: each[0].metadata.name)
    signs = [leaving and leaving.sign for _, _, leaving in judged]

    def chosen(states: tuple[bool | None, ...]) -> Backends:
        """Return the backends. `states`: whether each Node drains, None if it is no backend."""
        rows = [
            (node, vouched, draining)
            for (node, vouched, _), draining in zip(judged, states, strict=True)
            if draining is not None
        ]
        if ready_only and any(is_ready(node) for node, _, draining in rows if not draining):
            rows = [row for row in rows if row[2] or is_ready(row[0])]
        return Backends(
            Backend(node.metadata.name, node.spec.provider_id, vouched.addresses, vouched.labels, draining)
            for node, vouched, draining in rows
        )

    undrained = tuple(None if sign is Sign.LEAVING else False for sign in signs)
    cluster, local = (tuple(drain_rules.draining(signs, local=local)) for local in (False, True))
    made = {states: chosen(states) for states in {undrained, cluster, local}}
    return BackendSets(made[undrained], made[cluster], made[local])


def backends(nodes: Iterable[Node], judge: Judge, *, ready_only: bool = False) -> Backends:
    """Return `backend_sets` of load balancers that cannot drain."""
    return backend_sets(nodes, judge, ready_only=ready_only).undrained


def serves_alike(
    old: Node | None,
    new: Node | None,
    judge: Judge,
    *,
    ready_only: bool = False,
    drains: Mode = Mode.NEVER,
) -> bool:
    """Return whether a change of a Node (None: it does not exist), apart from its labels, makes no difference to load
    balancers."""
    before, after = (_standing(node, judge, ready_only, drains) if node is not None else None for node in (old, new))
    return before == after


def _standing(node: Node, judge: Judge, ready_only: bool, drains: Mode) -> tuple[Any, ...] | None:
    """Return all properties of a Node, except its labels, that matter for a backend; None if the Node is no backend."""
    vouched = service_of(node, judge, drains)
    if not isinstance(vouched, Vouched):
        return None
    leaving = drain_rules.leaving(node, drains)
    sign, ready = leaving and leaving.sign, ready_only and is_ready(node)
    return node.metadata.name, node.spec.provider_id, vouched.addresses, sign, ready
