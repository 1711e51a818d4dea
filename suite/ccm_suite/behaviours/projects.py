# SPDX-License-Identifier: Apache-2.0
"""Behaviours after somebody gave the controller the credentials of another project: the cloud answers every call, but
shows nothing of this cluster. Afterwards the controller has its own credentials again."""

from __future__ import annotations

from ..behaviour import Disturbance, Level, Steps, behaviour
from ..trial import SHUTDOWN, UNINITIALIZED, Trial
from . import faults

SOURCE = "https://github.com/openshift/origin/issues/15948"
WHEN = Disturbance.OTHER_PROJECT
#: Seconds of watching: a new process may wait 15 s for the former one's Lease.
WATCHED = 45.0
#: Seconds after the restart with the right credentials until pending work must be done.
HEALED = 180.0


@behaviour(
    "project.keeps-nodes",
    Level.MUST,
    "With credentials of another project, the controller deletes no Node, although that project does not have its "
    "machine.",
    SOURCE,
    WHEN,
)
def keeps_nodes(trial: Trial) -> Steps:
    machine = trial.member()
    yield
    trial.set_ready(machine.name, ready=False)
    trial.stays(machine.name, WATCHED)
    yield
    trial.node(machine.name)
    trial.equal("the taint shutdown is there", SHUTDOWN in trial.taints(machine.name), False)


@behaviour(
    "project.keeps-balancers",
    Level.MUST,
    "A load balancer outlives the credentials of another project, and its address is published afterwards.",
    SOURCE,
    WHEN,
)
def keeps_load_balancers(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.always("the load balancer is there", lambda: trial.balancer(address), WATCHED)
    yield
    trial.until("its address is published", lambda: trial.addresses() == [address], HEALED)
    trial.equal("the load balancer is there", trial.balancer(address) is not None, True)


@behaviour(
    "project.keeps-address",
    Level.SHOULD,
    "The address of a Service stays published, although another project has no load balancer for it.",
    SOURCE,
    WHEN,
)
def keeps_address(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.always("the address is published", lambda: trial.addresses() == [address], WATCHED)
    yield
    trial.equal("the address in the status", trial.addresses(), [address])


@behaviour(
    "project.releases-nothing",
    Level.SHOULD,
    "A Service that is deleted meanwhile is not released before its load balancer is gone.",
    SOURCE,
    WHEN,
)
def releases_nothing(trial: Trial) -> Steps:
    yield from faults.releases_nothing(trial, watched=WATCHED, healed=HEALED)


@behaviour(
    "project.initialises-afterwards",
    Level.MUST,
    "A Node that joined meanwhile is initialised afterwards.",
    SOURCE,
    WHEN,
)
def initialises_afterwards(trial: Trial) -> Steps:
    yield
    machine = trial.machine()
    trial.join(machine)
    yield
    trial.until("the Node is initialised", lambda: UNINITIALIZED not in trial.taints(machine.name), HEALED)


@behaviour(
    "project.deletes-afterwards",
    Level.MUST,
    "A Node whose machine was deleted meanwhile is deleted afterwards.",
    SOURCE,
    WHEN,
)
def deletes_afterwards(trial: Trial) -> Steps:
    machine = trial.member()
    yield
    trial.cloud.delete_machine(machine)
    yield
    trial.set_ready(machine.name, ready=False)
    trial.gone(machine.name, HEALED)
