# SPDX-License-Identifier: Apache-2.0
"""Behaviours while the cloud fails: what the controller must not do meanwhile, and what it must do afterwards. Each
fault of the cloud has the same behaviours."""

from __future__ import annotations

from ..behaviour import Function, Level, Steps, behaviour
from ..cloud import Fault
from ..trial import SHUTDOWN, UNINITIALIZED, Trial

#: Reports of people who lost Nodes or load balancers through such a fault.
SOURCES = {
    Fault.TIMEOUT: "https://github.com/kubernetes/kubernetes/issues/28901",
    Fault.HANG_UP: "https://github.com/kubernetes/kubernetes/issues/28901",
    Fault.UNAUTHORIZED: "https://github.com/kubernetes/cloud-provider-openstack/issues/2062",
    Fault.FORBIDDEN: "https://github.com/kubernetes/cloud-provider-openstack/issues/2062",
    Fault.THROTTLED: "https://github.com/kubernetes/kubernetes/issues/60646",
    Fault.INTERNAL: "https://github.com/kubernetes/cloud-provider-vsphere/issues/479",
    Fault.UNAVAILABLE: "https://github.com/kubernetes/cloud-provider-vsphere/issues/642",
    Fault.GATEWAY_PAGE: "https://github.com/kubernetes/cloud-provider-vsphere/issues/642",
    Fault.EMPTY_LISTING: "https://github.com/oracle/oci-cloud-controller-manager/issues/434",
    Fault.HALF_LISTING: "https://github.com/oracle/oci-cloud-controller-manager/issues/434",
    Fault.LATE_LISTING: "https://github.com/kubernetes/kubernetes/pull/127424",
}
#: Seconds during which something forbidden must not happen. The runner lets a fault last longer than that.
WATCHED = 30.0
#: Seconds after the fault until pending work must be done: not less than upstream's longest back-off for a Node.
HEALED = 120.0


def keeps_nodes(trial: Trial) -> Steps:
    machine = trial.member()
    yield
    trial.set_ready(machine.name, ready=False)
    trial.stays(machine.name, WATCHED)
    yield
    trial.node(machine.name)


def taints_nothing(trial: Trial) -> Steps:
    machine = trial.member()
    yield
    trial.set_ready(machine.name, ready=False)
    trial.always("there is no taint shutdown", lambda: SHUTDOWN not in trial.taints(machine.name), WATCHED)
    yield
    trial.equal("the taint shutdown is there", SHUTDOWN in trial.taints(machine.name), False)


def initialises_afterwards(trial: Trial) -> Steps:
    yield
    machine = trial.machine()
    trial.join(machine)
    yield
    trial.figures["seconds after the fault"] = round(
        trial.until("the Node is initialised", lambda: UNINITIALIZED not in trial.taints(machine.name), HEALED), 1
    )


def deletes_afterwards(trial: Trial) -> Steps:
    machine = trial.member()
    yield
    trial.cloud.delete_machine(machine)
    trial.set_ready(machine.name, ready=False)
    yield
    trial.gone(machine.name, HEALED)


def keeps_load_balancers(trial: Trial) -> Steps:
    trial.service()
    address = trial.served()
    yield
    trial.always("the load balancer is there", lambda: trial.balancer(address), WATCHED)
    yield
    trial.equal("the address in the status", trial.addresses(), [address])


def serves_afterwards(trial: Trial) -> Steps:
    yield
    trial.service()
    yield
    trial.until("the Service has an address", lambda: trial.addresses(), HEALED)


def releases_nothing(trial: Trial, *, watched: float = WATCHED, healed: float = HEALED) -> Steps:
    """A Service that is deleted during the fault keeps its finalizer until its load balancer is gone. `watched` and
    `healed`: seconds, like WATCHED and HEALED."""
    trial.service()
    address = trial.served()
    yield
    trial.kube.delete(f"{trial.services}/web")
    trial.always(
        "the Service has its finalizer as long as the load balancer is there",
        lambda: trial.balancer(address) is None or trial.has_finalizer(),
        watched,
    )
    yield
    trial.until("the load balancer is gone", lambda: trial.balancer(address) is None, healed)
    trial.released(healed)


FOR_EACH: tuple[tuple[str, Level, str, Function], ...] = (
    ("keeps-nodes", Level.MUST, "No Node of a running machine is deleted {}.", keeps_nodes),
    ("taints-nothing", Level.MUST, "No running machine's Node gets the shutdown taint {}.", taints_nothing),
    (
        "initialises-afterwards",
        Level.MUST,
        "A Node that joins {} is initialised afterwards.",
        initialises_afterwards,
    ),
    (
        "deletes-afterwards",
        Level.MUST,
        "A Node whose machine is deleted {} is deleted afterwards.",
        deletes_afterwards,
    ),
    (
        "keeps-balancers",
        Level.MUST,
        "No load balancer is deleted {}, and its address stays published.",
        keeps_load_balancers,
    ),
    ("serves-afterwards", Level.MUST, "A Service that is created {} is served afterwards.", serves_afterwards),
    (
        "releases-nothing",
        Level.MUST,
        "A Service that is deleted {} is not released before its load balancer is gone.",
        releases_nothing,
    ),
)
#: The words that describe each fault in the sentences of its behaviours.
WORDS = {
    Fault.TIMEOUT: "while the cloud answers no calls",
    Fault.HANG_UP: "while the cloud closes every connection",
    Fault.UNAUTHORIZED: "while every call is answered with 401",
    Fault.FORBIDDEN: "while every call is answered with 403",
    Fault.THROTTLED: "while every call is answered with 429",
    Fault.INTERNAL: "while every call is answered with 500",
    Fault.UNAVAILABLE: "while every call is answered with 503",
    Fault.GATEWAY_PAGE: "while a proxy answers every call with a page",
    Fault.EMPTY_LISTING: "while listings of machines are empty",
    Fault.HALF_LISTING: "while listings omit some machines",
    Fault.LATE_LISTING: "while listings show the machines of a minute ago",
}

for _fault in Fault:
    for _name, _level, _sentence, _function in FOR_EACH:
        behaviour(f"fault.{_fault}.{_name}", _level, _sentence.format(WORDS[_fault]), SOURCES[_fault], _fault)(
            _function
        )
