# SPDX-License-Identifier: Apache-2.0
"""Behaviours of routes to the Pods of each Node."""

from __future__ import annotations

import itertools

from ..behaviour import Level, behaviour
from ..cloud import Machine
from ..kube import NODES
from ..trial import Trial

DOCS = "https://kubernetes.io/docs/concepts/architecture/cloud-controller/#route-controller"
_NUMBERS = itertools.count(1)


def _routed(trial: Trial) -> tuple[Machine, str]:
    """Create a machine whose Node has a pod CIDR of {cluster_cidr}; return the machine and the CIDR."""
    trial.cloud.routes()  # may be unsupported
    machine = trial.member()
    cidr = f"10.244.{next(_NUMBERS)}.0/24"
    trial.kube.patch(f"{NODES}/{machine.name}", {"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}})
    return machine, cidr


def _has(trial: Trial, cidr: str, machine: Machine) -> bool:
    return any(route.destination == cidr and route.machine_id == machine.id for route in trial.cloud.routes())


@behaviour("route.made", Level.MUST, "A Node with a pod CIDR gets a route to its machine.", DOCS)
def made(trial: Trial) -> None:
    machine, cidr = _routed(trial)
    trial.until("the route is there", lambda: _has(trial, cidr, machine), 60)


@behaviour("route.network", Level.MUST, "A Node with a route gets the condition NetworkUnavailable False.", DOCS)
def network(trial: Trial) -> None:
    machine, _ = _routed(trial)
    trial.until(
        "the condition",
        lambda: any(
            c["type"] == "NetworkUnavailable" and c["status"] == "False" for c in trial.conditions(machine.name)
        ),
        60,
    )


@behaviour("route.removed", Level.MUST, "The route of a deleted Node is removed.", DOCS)
def removed(trial: Trial) -> None:
    machine, cidr = _routed(trial)
    trial.until("the route is there", lambda: _has(trial, cidr, machine), 60)
    trial.kube.delete(f"{NODES}/{machine.name}")
    trial.until("the route is gone", lambda: not _has(trial, cidr, machine), 90)


@behaviour("route.kept", Level.MUST, "The route of a silent Node stays.", DOCS)
def kept(trial: Trial) -> None:
    machine, cidr = _routed(trial)
    trial.until("the route is there", lambda: _has(trial, cidr, machine), 60)
    trial.set_ready(machine.name, ready=False)
    trial.always("the route stays", lambda: _has(trial, cidr, machine), 30)
