# SPDX-License-Identifier: Apache-2.0
"""Behaviours of the process: its Lease, its end, what changed while it did not run, what a restart costs, and a time
without the API server."""

from __future__ import annotations

import time

from ..behaviour import Disturbance, Level, Steps, behaviour
from ..kube import LEASES
from ..trial import Trial

LEASE = "https://kubernetes.io/docs/concepts/architecture/leases/#leader-election"
HA = "https://kubernetes.io/docs/tasks/administer-cluster/running-cloud-controller/#running-cloud-controller-manager"
FINALIZERS = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/980-load-balancer-finalizers"
#: Seconds without a write to the cloud after which the controller counts as idle.
QUIET = 20.0
MUST, SHOULD, SPEED = Level.MUST, Level.SHOULD, Level.SPEED


@behaviour("leader.lease", MUST, "The process that works holds its Lease in kube-system, and renews it.", LEASE)
def lease(trial: Trial) -> None:
    def renewed() -> str:
        lease = trial.kube.get(f"{LEASES}/{trial.world.lease}") or {"spec": {}}
        return str(lease["spec"].get("renewTime"))

    before = renewed()
    trial.equal("the Lease is held", bool(trial.world.leader()), True)
    trial.until("the Lease is renewed", lambda: renewed() != before, 30)


@behaviour(
    "leader.released",
    SHOULD,
    "SIGTERM releases the Lease, so that the next leader need not wait until it expires.",
    "https://github.com/kubernetes/kubernetes/issues/119905",
    Disturbance.STOPPED,
)
def released(trial: Trial) -> Steps:
    yield
    trial.equal("who holds the Lease after SIGTERM", trial.world.leader(), "")
    yield


@behaviour(
    "leader.takes-over",
    MUST,
    "A second process takes over within a minute after the leader was killed.",
    HA,
    Disturbance.STANDBY,
)
def takes_over(trial: Trial) -> Steps:
    yield
    machine = trial.machine()
    trial.join(machine)
    began = time.monotonic()
    trial.initialised(machine, 60)
    trial.figures["seconds"] = round(time.monotonic() - began, 1)
    yield


@behaviour(
    "leader.takes-over-services",
    MUST,
    "A second process keeps the load balancers of the first one.",
    HA,
    Disturbance.STANDBY,
)
def takes_over_services(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.always(
        "address and load balancer stay", lambda: trial.addresses() == [address] and trial.balancer(address), 40
    )
    yield


@behaviour("restart.node-joins", MUST, "A Node that joined while nobody led is initialised.", HA, Disturbance.STOPPED)
def node_joins(trial: Trial) -> Steps:
    yield
    machine = trial.machine()
    trial.join(machine)
    yield
    trial.initialised(machine, 90)


@behaviour(
    "restart.machine-goes",
    MUST,
    "A Node whose machine was deleted while nobody led is deleted.",
    HA,
    Disturbance.STOPPED,
)
def machine_goes(trial: Trial) -> Steps:
    machine = trial.member()
    yield
    trial.cloud.delete_machine(machine)
    trial.set_ready(machine.name, ready=False)
    yield
    trial.gone(machine.name, 240)  # our controller deletes at most a tenth of all Nodes within three minutes


@behaviour(
    "restart.service-deleted",
    MUST,
    "A Service that was deleted while nobody led loses its load balancer.",
    FINALIZERS,
    Disturbance.STOPPED,
)
def service_deleted(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.kube.delete(f"{trial.services}/web")
    yield
    trial.released(90)
    trial.equal("the load balancer is gone", trial.balancer(address) is None, True)


@behaviour(
    "restart.type-changed",
    SHOULD,
    "A Service that became ClusterIP while nobody led loses its load balancer and its finalizer.",
    FINALIZERS,
    Disturbance.STOPPED,
)
def type_changed(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.change(type="ClusterIP")
    yield
    trial.until("the load balancer is gone", lambda: trial.balancer(address) is None, 90)
    trial.until("the finalizer is gone", lambda: not trial.has_finalizer(), 60)


@behaviour(
    "restart.port-added",
    MUST,
    "A port that was added while nobody led is added to the load balancer.",
    HA,
    Disturbance.STOPPED,
)
def port_added(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.add_port(81)
    yield

    def has_both() -> bool:
        balancer = trial.balancer(address)
        return balancer is not None and {port for _, port, _ in balancer.ports} == {80, 81}

    trial.until("both ports are there", has_both, 90)


@behaviour(
    "restart.status-lost",
    MUST,
    "A Service that lost its status and its finalizer while nobody led gets both back, and keeps its load balancer.",
    "https://github.com/kubernetes/kubernetes/issues/21960",
    Disturbance.STOPPED,
)
def status_lost(trial: Trial) -> Steps:
    """The Service is as after a restore, or after a controller stopped between the cloud's answer and its own write."""
    trial.service()
    address = trial.served()
    yield
    trial.kube.patch(f"{trial.services}/web/status", {"status": {"loadBalancer": None}})
    trial.kube.patch(f"{trial.services}/web", {"metadata": {"finalizers": None}})
    trial.equal("the addresses without a controller", trial.addresses(), [])
    yield
    trial.until("the former address is published", lambda: trial.addresses() == [address], 90)
    trial.until("the finalizer is there", trial.has_finalizer, 30)
    trial.equal("the former load balancer is there", trial.balancer(address) is not None, True)


def _settle(trial: Trial) -> None:
    """Wait until nothing has been written to the cloud for QUIET seconds."""
    seen, since = -1, 0.0

    def is_quiet() -> bool:
        nonlocal seen, since
        writes = trial.cloud.calls()["write"]
        if writes != seen:
            seen, since = writes, time.monotonic()
        return time.monotonic() - since > QUIET

    trial.until("the controller has nothing left to write", is_quiet, 180)


@behaviour(
    "restart.quiet",
    SPEED,
    "A restart writes nothing to the cloud if there is nothing to do.",
    "https://github.com/kubernetes-sigs/cloud-provider-azure/issues/10224",
    Disturbance.KILLED,
)
def quiet(trial: Trial) -> Steps:
    for number in range(5):
        trial.service(f"web{number}")
    for number in range(5):
        trial.served(f"web{number}")
    _settle(trial)  # the controller may still be busy with what other behaviours left
    yield
    before = trial.cloud.calls()["write"]
    yield
    trial.until("the Lease is held", trial.world.leader, 60)
    trial.world.wait(45)  # a new leader waits for the former Lease to expire, and then checks all objects
    writes = trial.cloud.calls()["write"] - before
    trial.figures["writes"] = writes
    trial.equal("writes after the restart", writes, 0)


@behaviour(
    "restart.addresses-kept",
    MUST,
    "A process that restarts after SIGKILL keeps the addresses of Services.",
    HA,
    Disturbance.KILLED,
)
def addresses_kept(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    yield
    trial.always(
        "address and load balancer stay", lambda: trial.addresses() == [address] and trial.balancer(address), 40
    )


@behaviour("restart.nodes-kept", MUST, "A process that restarts after SIGKILL deletes no Node.", HA, Disturbance.KILLED)
def nodes_kept(trial: Trial) -> Steps:
    machine = trial.member()
    yield
    trial.set_ready(machine.name, ready=False)
    yield
    trial.stays(machine.name, 40)


@behaviour(
    "api.away-node-joins",
    MUST,
    "A Node that joins after 40 seconds without the API server is initialised within a minute.",
    LEASE,
    Disturbance.API_AWAY,
)
def after_the_api(trial: Trial) -> Steps:
    yield
    machine = trial.machine()
    trial.join(machine)
    trial.initialised(machine, 60)
    yield


@behaviour(
    "api.away-balancers",
    MUST,
    "Load balancers survive 40 seconds without the API server.",
    LEASE,
    Disturbance.API_AWAY,
)
def balancers_through_it(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.always(
        "address and load balancer stay", lambda: trial.addresses() == [address] and trial.balancer(address), 20
    )
    yield
