# SPDX-License-Identifier: Apache-2.0
"""Behaviours of new Nodes: their initialisation, and what happens to a Node that the cloud does not know."""

from __future__ import annotations

from ..behaviour import Level, behaviour
from ..cloud import Machine
from ..errors import Unsupported
from ..kube import NODES, Object
from ..trial import Trial

DOCS = "https://kubernetes.io/docs/concepts/architecture/cloud-controller/#node-controller"
RUNNING = "https://kubernetes.io/docs/tasks/administer-cluster/running-cloud-controller/"
LABELS = "https://kubernetes.io/docs/reference/labels-annotations-taints/"
MUST, SHOULD, SPEED = Level.MUST, Level.SHOULD, Level.SPEED
#: Seconds from the removal of the taint to the addresses, which upstream's framework writes afterwards.
ADDRESSED = 10


def _new(trial: Trial, **fields: object) -> tuple[Machine, Object]:
    """Create a machine and its Node; return both when the Node is initialised."""
    machine = trial.machine()
    trial.join(machine, fields=fields)
    return machine, trial.initialised(machine)


def _addresses(trial: Trial, machine: Machine) -> set[tuple[str, str]]:
    return {(each["type"], each["address"]) for each in trial.node(machine.name)["status"].get("addresses", [])}


def _label(trial: Trial, key: str, wanted: str, what: str) -> None:
    if not wanted:
        raise Unsupported(f"{what} of machines")
    machine, node = _new(trial)
    expected = {"zone": machine.zone, "region": machine.region, "type": machine.type}[what]
    trial.equal(f"the label {key}", node["metadata"]["labels"].get(key), expected)


def _about(trial: Trial, what: str) -> str:
    machine = trial.machine()
    return {"zone": machine.zone, "region": machine.region, "type": machine.type}[what]


@behaviour("node.taint", MUST, "A new Node loses the uninitialized taint.", RUNNING)
def taint(trial: Trial) -> None:
    _new(trial)


@behaviour("node.provider-id", MUST, "A new Node gets the providerID of its machine.", DOCS)
def provider_id(trial: Trial) -> None:
    machine, node = _new(trial)
    if not machine.provider_id:
        raise Unsupported("providerIDs of machines")
    trial.equal("spec.providerID", node["spec"].get("providerID"), machine.provider_id)


@behaviour("node.provider-id-kept", MUST, "A providerID that the kubelet has set stays as it is.", DOCS)
def provider_id_kept(trial: Trial) -> None:
    machine = trial.machine()
    if not machine.provider_id:
        raise Unsupported("providerIDs of machines")
    name = trial.join(machine)
    trial.kube.patch(f"{NODES}/{name}", {"spec": {"providerID": machine.provider_id}})
    trial.equal("spec.providerID", trial.initialised(machine)["spec"].get("providerID"), machine.provider_id)


@behaviour("node.addresses", MUST, "A new Node gets the addresses of its machine.", DOCS)
def addresses(trial: Trial) -> None:
    machine, _ = _new(trial)
    trial.until("status.addresses has them", lambda: set(machine.addresses) <= _addresses(trial, machine), ADDRESSED)


@behaviour("node.zone", MUST, "A new Node gets the label of its machine's zone.", LABELS + "#topologykubernetesiozone")
def zone(trial: Trial) -> None:
    _label(trial, "topology.kubernetes.io/zone", _about(trial, "zone"), "zone")


@behaviour(
    "node.region", MUST, "A new Node gets the label of its machine's region.", LABELS + "#topologykubernetesioregion"
)
def region(trial: Trial) -> None:
    _label(trial, "topology.kubernetes.io/region", _about(trial, "region"), "region")


@behaviour(
    "node.instance-type",
    MUST,
    "A new Node gets the label of its machine's type.",
    LABELS + "#nodekubernetesioinstance-type",
)
def instance_type(trial: Trial) -> None:
    _label(trial, "node.kubernetes.io/instance-type", _about(trial, "type"), "type")


@behaviour(
    "node.old-labels",
    MUST,
    "A new Node also gets the deprecated label failure-domain.beta.kubernetes.io/zone.",
    LABELS + "#failure-domainbetakubernetesiozone",
)
def old_labels(trial: Trial) -> None:
    _label(trial, "failure-domain.beta.kubernetes.io/zone", _about(trial, "zone"), "zone")


@behaviour("node.other-taints", MUST, "Taints of others stay when a Node is initialised.", RUNNING)
def other_taints(trial: Trial) -> None:
    machine = trial.machine()
    name = trial.join(machine)
    # Append the taint without reading the others, so that a concurrent write of the controller makes no difference.
    more = {"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"}
    trial.kube.patch(f"{NODES}/{name}", [{"op": "add", "path": "/spec/taints/-", "value": more}], "json-patch")
    trial.initialised(machine)
    trial.equal("the other taint stays", "example.com/dedicated" in trial.taints(name), True)


@behaviour("node.other-labels", MUST, "Labels and annotations of others stay when a Node is initialised.", DOCS)
def other_metadata(trial: Trial) -> None:
    _, node = _new(trial, labels={"example.com/rack": "7"}, annotations={"example.com/owner": "team-a"})
    trial.equal("the label", node["metadata"]["labels"].get("example.com/rack"), "7")
    trial.equal("the annotation", node["metadata"]["annotations"].get("example.com/owner"), "team-a")


@behaviour(
    "node.provided-ip",
    MUST,
    "The address in the annotation alpha.kubernetes.io/provided-node-ip stays among the Node's addresses.",
    "https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3705-cloud-node-ips",
)
def provided_ip(trial: Trial) -> None:
    machine = trial.machine()
    address = machine.addresses[0][1]
    trial.join(machine, fields={"annotations": {"alpha.kubernetes.io/provided-node-ip": address}})
    trial.initialised(machine)
    trial.until("it is there", lambda: address in {each for _, each in _addresses(trial, machine)}, ADDRESSED)


@behaviour(
    "node.wrong-provided-ip",
    MUST,
    "A Node stays tainted if its machine does not have the address in its annotation provided-node-ip.",
    "https://github.com/hetznercloud/hcloud-cloud-controller-manager/issues/147",
)
def wrong_provided_ip(trial: Trial) -> None:
    machine = trial.machine()
    name = trial.join(machine, fields={"annotations": {"alpha.kubernetes.io/provided-node-ip": "192.0.2.77"}})
    trial.always("the taint stays", lambda: "node.cloudprovider.kubernetes.io/uninitialized" in trial.taints(name), 20)


@behaviour("node.without-taint", MUST, "A Node without the taint keeps its taints.", RUNNING)
def without_taint(trial: Trial) -> None:
    machine, _ = _new(trial)
    more = {"key": "example.com/maintenance", "value": "", "effect": "NoSchedule"}
    trial.kube.patch(f"{NODES}/{machine.name}", {"spec": {"taints": [more]}})
    trial.always("its taint stays alone", lambda: trial.taints(machine.name) == {"example.com/maintenance"}, 20)


@behaviour(
    "node.unknown",
    SHOULD,
    "A ready Node that the cloud does not know is not deleted.",
    "https://github.com/hetznercloud/hcloud-cloud-controller-manager/issues/7",
)
def unknown(trial: Trial) -> None:
    machine = trial.machine()
    trial.cloud.delete_machine(machine)
    name = trial.join(machine)
    trial.stays(name, 30)


@behaviour(
    "node.unknown-silent",
    SHOULD,
    "A Node for which the cloud never had a machine is not deleted when its kubelet is silent.",
    "https://github.com/kubernetes/enhancements/issues/5778",
)
def unknown_silent(trial: Trial) -> None:
    machine = trial.machine()
    trial.cloud.delete_machine(machine)
    name = trial.join(machine, ready=False)
    trial.stays(name, 40)


@behaviour(
    "node.foreign",
    MUST,
    "A Node with another cloud's providerID is not deleted when its kubelet is silent.",
    "https://github.com/kubernetes/cloud-provider-vsphere/issues/677",
)
def foreign(trial: Trial) -> None:
    machine = trial.machine()
    trial.cloud.delete_machine(machine)
    name = trial.join(machine, ready=False)
    trial.kube.patch(f"{NODES}/{name}", {"spec": {"providerID": "another-cloud:///zone/machine-1"}})
    trial.stays(name, 40)


@behaviour("node.told", SHOULD, "An Event says that a Node was initialised.", DOCS)
def told(trial: Trial) -> None:
    machine, _ = _new(trial)
    trial.until("an Event about the Node", lambda: trial.node_events(machine.name), 60)


@behaviour(
    "node.unknown-told",
    SHOULD,
    "An Event says why a Node that the cloud does not know stays tainted.",
    "https://github.com/kubernetes/kubernetes/issues/58613",
)
def unknown_told(trial: Trial) -> None:
    machine = trial.machine()
    trial.cloud.delete_machine(machine)
    name = trial.join(machine)
    trial.warned(lambda: trial.node_events(name))


@behaviour("node.fifty", SPEED, "Fifty Nodes that join at the same time are initialised within a minute.", RUNNING)
def fifty(trial: Trial) -> None:
    machines = [trial.machine() for _ in range(50)]
    for machine in machines:
        trial.join(machine)
    waiting = {machine.name for machine in machines}

    def all_are_done() -> bool:
        for name in sorted(waiting):
            if "node.cloudprovider.kubernetes.io/uninitialized" in trial.taints(name):
                return False
            waiting.discard(name)
        return True

    trial.figures["seconds after the last has joined"] = round(trial.until("all are initialised", all_are_done, 60), 1)
