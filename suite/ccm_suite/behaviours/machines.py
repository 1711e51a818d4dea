# SPDX-License-Identifier: Apache-2.0
"""Behaviours when a machine is stopped, started, deleted, replaced, or renamed."""

from __future__ import annotations

from ..behaviour import Level, behaviour
from ..cloud import Machine
from ..trial import SHUTDOWN, Trial

LIFECYCLE = "https://kubernetes.io/docs/concepts/architecture/cloud-controller/#node-controller"
RENAMED = "https://github.com/kubernetes/kubernetes/issues/70897"
#: Seconds within which a Node must be deleted. Upstream checks every 5 s; our controller asks the cloud twice first.
DELETED = 120.0


@behaviour("machine.deleted", Level.MUST, "The silent Node of a machine that is gone is deleted.", LIFECYCLE)
def deleted(trial: Trial) -> None:
    machine = trial.member()
    trial.cloud.delete_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.figures["seconds"] = round(trial.gone(machine.name, DELETED), 1)


@behaviour(
    "machine.deleted-told", Level.MUST, "An Event says that a Node was deleted because its machine is gone.", LIFECYCLE
)
def deleted_told(trial: Trial) -> None:
    machine = trial.member()
    trial.cloud.delete_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.gone(machine.name, DELETED)
    trial.until(
        "an Event about the deletion", lambda: any("elet" in e["reason"] for e in trial.node_events(machine.name)), 30
    )


@behaviour(
    "machine.ready",
    Level.MUST,
    "A Node whose kubelet reports its status is not deleted, whatever the cloud says.",
    LIFECYCLE,
)
def ready(trial: Trial) -> None:
    machine = trial.member()
    trial.cloud.delete_machine(machine)
    trial.stays(machine.name, 40)


@behaviour("machine.silent", Level.MUST, "The silent Node of a running machine is not deleted.", LIFECYCLE)
def silent(trial: Trial) -> None:
    machine = trial.member()
    trial.set_ready(machine.name, ready=False)
    trial.stays(machine.name, 40)


@behaviour("machine.stopped", Level.MUST, "The silent Node of a stopped machine gets the shutdown taint.", LIFECYCLE)
def stopped(trial: Trial) -> None:
    machine = trial.member()
    trial.cloud.stop_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.until("the taint shutdown", lambda: SHUTDOWN in trial.taints(machine.name), 60)


@behaviour("machine.stopped-kept", Level.MUST, "The Node of a stopped machine is not deleted.", LIFECYCLE)
def stopped_kept(trial: Trial) -> None:
    machine = trial.member()
    trial.cloud.stop_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.stays(machine.name, 40)


@behaviour(
    "machine.started",
    Level.MUST,
    "The Node of a stopped machine loses the shutdown taint when the machine runs again.",
    LIFECYCLE,
)
def started(trial: Trial) -> None:
    machine = trial.member()
    trial.cloud.stop_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.until("the taint shutdown", lambda: SHUTDOWN in trial.taints(machine.name), 60)
    trial.cloud.start_machine(machine)
    trial.set_ready(machine.name, ready=True)
    trial.until("the taint is lifted", lambda: SHUTDOWN not in trial.taints(machine.name), 60)


@behaviour(
    "machine.replaced",
    Level.MUST,
    "A machine that replaces another one of the same name gets a Node of its own.",
    "https://github.com/kubernetes/kubernetes/issues/71562",
)
def replaced(trial: Trial) -> None:
    machine = trial.member()
    trial.cloud.delete_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.gone(machine.name, DELETED)
    following = trial.cloud.create_machine(machine.name)
    trial.adopt(following)
    trial.join(following)
    node = trial.initialised(following)
    if following.provider_id:
        trial.equal("spec.providerID", node["spec"].get("providerID"), following.provider_id)


@behaviour(
    "machine.five",
    Level.SPEED,
    "Five Nodes whose machines are deleted at the same time are deleted within two minutes; no other Node is.",
    LIFECYCLE,
)
def five(trial: Trial) -> None:
    machines, staying = [trial.member() for _ in range(5)], trial.member()
    for machine in machines:
        trial.cloud.delete_machine(machine)
        trial.set_ready(machine.name, ready=False)
    seconds = trial.until(
        "all five are deleted",
        lambda: not any(trial.exists(machine.name) for machine in machines),
        DELETED,
    )
    trial.figures["seconds"] = round(seconds, 1)
    trial.node(staying.name)


def _renamed(trial: Trial, *, is_backend: bool = False) -> Machine:
    """Return a machine that was renamed after its Node was initialised. Raises Unsupported."""
    machine = trial.member(is_backend=is_backend)
    trial.cloud.rename_machine(machine, f"{machine.name}-renamed")
    return machine


@behaviour("machine.renamed", Level.MUST, "The silent Node of a machine that was renamed is not deleted.", RENAMED)
def renamed(trial: Trial) -> None:
    machine = _renamed(trial)
    trial.set_ready(machine.name, ready=False)
    trial.stays(machine.name, 40)
    if machine.provider_id:
        trial.equal("spec.providerID", trial.node(machine.name)["spec"].get("providerID"), machine.provider_id)


@behaviour("machine.renamed-gone", Level.MUST, "The Node of a renamed machine that is gone is deleted.", RENAMED)
def renamed_gone(trial: Trial) -> None:
    machine = _renamed(trial)
    trial.cloud.delete_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.gone(machine.name, DELETED)


@behaviour("machine.renamed-stopped", Level.MUST, "The Node of a renamed machine that stops is tainted.", RENAMED)
def renamed_stopped(trial: Trial) -> None:
    machine = _renamed(trial)
    trial.cloud.stop_machine(machine)
    trial.set_ready(machine.name, ready=False)
    trial.until("the taint shutdown", lambda: SHUTDOWN in trial.taints(machine.name), 60)


@behaviour("machine.renamed-member", Level.MUST, "A renamed machine becomes a member of new load balancers.", RENAMED)
def renamed_member(trial: Trial) -> None:
    machine = _renamed(trial, is_backend=True)
    trial.service()
    address = trial.served()
    trial.until("it is a member", lambda: trial.has_member(address, machine), 60)
