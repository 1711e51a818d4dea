# SPDX-License-Identifier: Apache-2.0
"""Decide which Nodes drain: load balancers keep the open connections to them, and send them no new ones. No I/O.

If a Node is being deleted or has the autoscaler's taint, upstream removes it from load balancers without draining,
which may end its connections. It ignores every other sign (k8s.io/cloud-provider, `stableNodeSetPredicates`). Here a
Node drains until the Node or the sign is gone. That follows from the Nodes alone: nothing has to be remembered, and
there is no time limit.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from ccm.engine.objects import Node

AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler"
#: Taints that say that a Node is off, and taints that announce that it will be stopped or replaced.
STOPPED_TAINTS = frozenset({"node.cloudprovider.kubernetes.io/shutdown", "node.kubernetes.io/out-of-service"})
ANNOUNCING_TAINTS = frozenset(
    {
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "cloud.google.com/impending-node-termination",
    }
)
#: What a kubelet that ends its Pods before a shutdown (GracefulNodeShutdown) writes into its condition Ready.
SHUTTING_DOWN = "node is shutting down"


class Mode(enum.StrEnum):
    """The values of --load-balancer-drain-nodes."""

    NEVER = "never"
    LEAVING = "leaving"
    CORDONED = "cordoned"


class Sign(enum.IntEnum):
    """How certain it is that a Node goes.

    `LEAVING`: it is being removed; without draining, it is no backend. `STOPPED`: its machine is off. `ANNOUNCED`: it
    will go, and its Pods serve until they are evicted. `CORDONED`: it is unschedulable, for any reason.
    """

    LEAVING = 1
    STOPPED = 2
    ANNOUNCED = 3
    CORDONED = 4


class Leaving(NamedTuple):
    """A sign that a Node goes. `because`: what the sign is, as a clause that begins with "it" or "its"."""

    sign: Sign
    because: str


def leaving(node: Node, mode: Mode = Mode.NEVER) -> Leaving | None:
    """Return the most certain sign that a Node goes, None if there is none. With `Mode.NEVER`, only the signs of
    upstream count."""
    if node.metadata.deletion_timestamp is not None:
        return Leaving(Sign.LEAVING, "it is being deleted")
    keys = {taint.key for taint in node.spec.taints}
    if AUTOSCALER_TAINT in keys:
        return Leaving(Sign.LEAVING, f"its taint {AUTOSCALER_TAINT} says that the autoscaler removes it")
    if mode is Mode.NEVER:
        return None
    for sign, known in ((Sign.STOPPED, STOPPED_TAINTS), (Sign.ANNOUNCED, ANNOUNCING_TAINTS)):
        if signs := sorted(keys & known):
            return Leaving(sign, f"its taint {signs[0]} says that it is going away")
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True" and SHUTTING_DOWN in condition.message:
            return Leaving(Sign.ANNOUNCED, "its kubelet is shutting down")
    if mode is Mode.CORDONED and node.spec.unschedulable:
        return Leaving(Sign.CORDONED, "it is cordoned")
    return None


def draining(signs: Sequence[Sign | None], *, local: bool) -> list[bool]:
    """Return which of the Nodes with these signs drain.

    `local`: whether the Service has externalTrafficPolicy Local. There, only some Nodes have Pods, and a Node that will
    go may have the only ones, so new connections must reach them until they are evicted, and from then on the health
    check node port fails (KEP-1669). With the other policy, every Node leads to every Pod.

    Draining never takes the last Node away: if all would drain, none does. Cordoned Nodes do not drain either if they
    are more than half, because somebody is moving to other machines, and the remaining Nodes may be too few for the
    traffic.
    """
    drains = [sign is not None and (not local or sign <= Sign.STOPPED) for sign in signs]
    cordoned = sum(sign is Sign.CORDONED for sign in signs)
    if 2 * cordoned > len(signs):
        drains = [each and sign is not Sign.CORDONED for each, sign in zip(drains, signs, strict=True)]
    return [False] * len(drains) if all(drains) else drains
