# SPDX-License-Identifier: Apache-2.0
"""Decide what a Node should look like, given its instance. No I/O.

docs/reference/parity.md, N1-N47, A1-A18 and T1-T10, lists upstream's behaviour and where this project differs.
Labels have two spellings; `legacy` (`--legacy-node-labels`) says whether the deprecated one is also written.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ccm.base.text import quoted, shorten
from ccm.cloud import Address, AddressType, CloudError, Instance, InstanceRef
from ccm.engine.objects import Node, NodeAddress, Taint

from ..shared import cache_rules
from ..shared.limits import LISTED, NODE_ADDRESSES, NODE_TAINTS
from ..shared.rule_error import RuleError
from .node_label_rules import Refresh, followed, is_label, own_labels

UNINITIALIZED_TAINT = cache_rules.UNINITIALIZED_TAINT
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
#: Set by the kubelet when it was started with `--node-ip` and `--cloud-provider=external`.
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"

#: Deprecated label -> its successor. With `legacy`, both are written, and between refreshes the deprecated one wins, as
#: in upstream.
LABEL_PAIRS: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


class NodeRuleError(RuleError):
    """A Node in its current state cannot be initialised, or cannot get its instance's addresses.

    `reason`: that of the Event and of the metric if the Node is not initialised.
    """

    def __init__(self, message: str, reason: str = "InitializationFailed") -> None:
        super().__init__(message)
        self.reason = reason


def is_uninitialized(node: Node) -> bool:
    """Return whether the Node has the `uninitialized` taint. Its value and effect do not matter."""
    return any(taint.key == UNINITIALIZED_TAINT for taint in node.spec.taints)


def may_succeed_now(old: Node, new: Node) -> bool:
    """Return whether a tainted Node that could not be initialised deserves a new attempt.

    It does if it was replaced or just tainted, or if its providerID or its provided node IP changed.
    """
    return (
        old.metadata.uid != new.metadata.uid
        or not is_uninitialized(old)
        or old.spec.provider_id != new.spec.provider_id
        or old.metadata.annotations.get(PROVIDED_NODE_IP) != new.metadata.annotations.get(PROVIDED_NODE_IP)
    )


def is_ready(node: Node) -> bool:
    """Return whether the condition Ready is True; a missing condition counts as Unknown."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def has_kubelet(node: Node) -> bool:
    """Return whether the Node's kubelet reports its state, good or bad. It does not if Ready is Unknown."""
    return any(condition.type == "Ready" and condition.status != "Unknown" for condition in node.status.conditions)


def instance_ref(node: Node) -> InstanceRef:
    if node.spec.provider_id:
        return InstanceRef(node.metadata.name, node.spec.provider_id)
    return InstanceRef(node.metadata.name, system_uuid=node.status.node_info.system_uuid)


def known_as(node: Node, instance: Instance) -> str:
    """Return the cloud's name for the Node's machine: the Node's name if it is one of the instance's names, otherwise
    the instance's name."""
    return node.metadata.name if instance.is_named(node.metadata.name) else instance.name


def node_addresses(node: Node, cloud: Sequence[Address]) -> list[NodeAddress]:
    """Return the Node's desired addresses, in order; [] means: keep the current ones (the cloud reported none).

    The cloud's order is kept and duplicates are removed, because the API server refuses them. The kubelet's Hostname
    is kept if the cloud reports none. With `provided-node-ip`, the addresses with that IP come first and replace all
    others of the same types.
    Raises NodeRuleError if the annotation is malformed or names an IP that the cloud does not know.
    """
    desired = [NodeAddress(type=address.type.value, address=address.address) for address in cloud]
    if desired and not any(address.type == AddressType.HOSTNAME for address in desired):
        named = [address for address in node.status.addresses if address.type == AddressType.HOSTNAME]
        desired += named[:NODE_ADDRESSES]
    desired = list(dict.fromkeys(desired))
    provided = node.metadata.annotations.get(PROVIDED_NODE_IP)
    if provided is None:
        return desired
    preferred: list[NodeAddress] = []
    for ip in parse_provided_ips(provided):
        matches = [address for address in desired if _same_ip(address.address, ip)]
        if not matches:
            known = shorten(", ".join(address.address for address in desired), LISTED) or "none"
            raise NodeRuleError(
                f"the kubelet's --node-ip {ip} is not among the addresses that the cloud knows ({known}): "
                "correct --node-ip or the instance's network"
            )
        preferred += matches
    claimed = {address.type for address in preferred}
    return preferred + [address for address in desired if address.type not in claimed]


def primary_addresses(addresses: Iterable[NodeAddress]) -> list[str]:
    """Return the addresses that kube-proxy considers its host's own (GetNodeHostIPs in component-helpers): for each
    family the first InternalIP, or else the first ExternalIP."""
    listed = list(addresses)
    by_family: dict[int, str] = {}
    for kind in (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP):
        for address in listed:
            if address.type == kind:
                with contextlib.suppress(ValueError):
                    ip = _parse_ip(address.address)
                    by_family.setdefault(ip.version, str(ip))
    return list(by_family.values())


def other_machine(node: Node, instance: Instance, namesakes: Sequence[Instance]) -> str:
    """Return why the instance with the Node's providerID is not the Node's machine; "" if it may be.

    A different name alone proves nothing, because a Node whose kubelet was given the providerID may have another name
    than its instance. But if another instance has the Node's name (`namesakes`), the providerID was copied or the
    machine replaced.
    """
    if not node.spec.provider_id or instance.is_named(node.metadata.name) or not namesakes:
        return ""
    return (
        f"the Node's providerID {node.spec.provider_id} belongs to instance {instance.name!r}, but instance "
        f"{namesakes[0].provider_id} has the Node's name: delete the Node and restart its kubelet, so that it "
        "registers again"
    )


def foreign_provider_id(node: Node, provider: str) -> str:
    """Return the message about a tainted Node that stays tainted because its providerID is not one of `provider`'s."""
    return (
        f"providerID {node.spec.provider_id!r} does not belong to provider {provider!r}: this controller leaves the "
        "Node and its taint unchanged"
    )


def ready_but_not_listed(error: CloudError, namesakes: Sequence[Instance]) -> str:
    """Return what is reported about a Ready Node whose instance is missing from the listing (`error` says so)."""
    message = f"{error}. The Node is Ready, so it is kept and its addresses and labels stay unchanged"
    return message + _who_has_its_name(namesakes)


def not_found(error: CloudError, namesakes: Sequence[Instance]) -> str:
    """Return what is reported about a Node that cannot be initialised because its instance does not exist."""
    return f"not initialised: {error}{_who_has_its_name(namesakes)}"


def _who_has_its_name(namesakes: Sequence[Instance]) -> str:
    if not namesakes:
        return ""
    return (
        f". {namesakes[0].provider_id} has the Node's name: if that is its machine now, delete the Node so that it "
        "registers again"
    )


def parse_provided_ips(value: str) -> list[str]:
    """Parse the annotation: one IP, or an IPv4 and an IPv6 separated by a comma. IPv4 may have leading zeros. Raises
    NodeRuleError."""
    parts = value.split(",", 2)
    try:
        ips = [_parse_ip(part) for part in parts]
    except ValueError:
        raise NodeRuleError(
            f"annotation {PROVIDED_NODE_IP}={quoted(value)} is not an IP or a dual-stack pair"
        ) from None
    is_pair = {ip.version for ip in ips} == {4, 6} and not any(ip.is_unspecified for ip in ips)
    if len(ips) > 2 or (len(ips) == 2 and not is_pair):
        raise NodeRuleError(f"annotation {PROVIDED_NODE_IP}={quoted(value)} is not one IPv4 and one IPv6 address")
    return [str(ip) for ip in ips]


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text):
        text = ".".join(str(int(part)) for part in text.split("."))
    return ipaddress.ip_address(text)


def _same_ip(text: str, ip: str) -> bool:
    try:
        return str(_parse_ip(text)) == ip
    except ValueError:
        return False


def cloud_labels(instance: Instance, present: Mapping[str, str], *, legacy: bool = True) -> dict[str, str]:
    """Return the labels to set: only those that are missing or differ.

    Zone, region and type overwrite existing labels. Additional labels of the provider never do, and those in the
    domains of Kubernetes are left out. Labels that the API server would refuse are left out, too (`unusable_labels`),
    because a Node without a label is better than no Node.
    """
    missing = {key: value for key, value in own_labels(instance).items() if key not in present}
    desired = _topology(instance, legacy=legacy) | missing
    return {key: value for key, value in desired.items() if present.get(key) != value and is_label(key, value)}


def _topology(instance: Instance, *, legacy: bool) -> dict[str, str]:
    """Return the zone, region and type labels for which the cloud reports a value."""
    labels: dict[str, str] = {}
    for (deprecated, current), value in zip(
        LABEL_PAIRS.items(), (instance.zone, instance.region, instance.type), strict=True
    ):
        if value:
            labels |= {deprecated: value, current: value} if legacy else {current: value}
    return labels


def all_instance_labels(instance: Instance) -> dict[str, str]:
    """Return all labels of the instance: zone, region and type in both spellings, and the provider's own.

    Decisions about the cloud itself use these labels, because they must rely on the instance's values and not on the
    Node's.
    """
    return {**own_labels(instance), **_topology(instance, legacy=True)}


def unusable_labels(instance: Instance) -> list[str]:
    """Return labels of the instance, as `key=value`, that are not valid on a Node."""
    labels = {**_topology(instance, legacy=False), **instance.labels}
    return [f"{key}={value!r}" for key, value in labels.items() if not is_label(key, value)]


def reconciled_labels(present: Mapping[str, str], *, legacy: bool = True) -> dict[str, str]:
    """Return what to write to an initialised Node so that its current labels agree with the deprecated ones (N23-N25).

    Without `legacy`, nothing maintains the deprecated labels, so they determine nothing.
    """
    if not legacy:
        return {}
    return {
        current: present[deprecated]
        for deprecated, current in LABEL_PAIRS.items()
        if deprecated in present and present.get(current) != present[deprecated]
    }


class Plan(msgspec.Struct, frozen=True):
    """The patches of one Node; None means nothing to write. `problem`: why the addresses are not changed.

    The status patch (addresses) comes first, so that no Pod is scheduled to a Node without the cloud's addresses.
    """

    status: dict[str, Any] | None = None
    node: dict[str, Any] | None = None
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return self.status is None and self.node is None


def plan_initialisation(
    node: Node, instance: Instance, *, legacy: bool = True, refresh: Refresh = Refresh.MISSING
) -> Plan:
    """Return the patches for a tainted Node. Raises NodeRuleError if the Node must stay tainted."""
    provider_id = node.spec.provider_id or instance.provider_id
    if not provider_id:
        raise NodeRuleError("the cloud returned no providerID, and the Node cannot be used without one (N21)")
    if instance.incomplete:
        raise NodeRuleError(f"not initialised: {instance.incomplete}", reason="InstanceIncomplete")
    if problem := too_many_taints(node):
        raise NodeRuleError(problem)
    spec: dict[str, Any] = {"taints": taints_without(node.spec.taints, UNINITIALIZED_TAINT)}
    if not node.spec.provider_id:
        spec["providerID"] = provider_id
    patch: dict[str, Any] = {"spec": spec}
    labels = cloud_labels(instance, node.metadata.labels, legacy=legacy)
    if metadata := _metadata(node, instance, labels, refresh):
        patch["metadata"] = metadata
    return Plan(status_patch(node, instance), patch)


def plan_repair(
    node: Node, instance: Instance | None, *, legacy: bool = True, refresh: Refresh = Refresh.MISSING
) -> Plan:
    """Return the patches for an initialised Node: addresses that differ from its instance's, and labels.

    An existing zone, region or type label is kept, because an administrator may have set it; upstream never checks
    labels again, either. With `Refresh.ALWAYS`, it is overwritten with the instance's value, and the provider's own
    labels follow the instance (`node_label_rules`). With `Refresh.NEVER`, labels change only so that their two
    spellings agree. The same holds without an instance, or with one that is not the Node's: then addresses stay
    unchanged, too.
    """
    if is_uninitialized(node):
        return Plan()
    labels = reconciled_labels(node.metadata.labels, legacy=legacy)
    metadata: dict[str, Any] = {"labels": labels} if labels else {}
    status, problem = None, ""
    if instance is not None and instance.provider_id == node.spec.provider_id:
        if refresh is not Refresh.NEVER:
            labels |= _refreshed_labels(instance, {**node.metadata.labels, **labels}, legacy=legacy, refresh=refresh)
            labels = {key: value for key, value in labels.items() if node.metadata.labels.get(key) != value}
            metadata = _metadata(node, instance, labels, refresh)
        try:
            status = status_patch(node, instance)
        except NodeRuleError as error:
            problem = str(error)
    return Plan(status, {"metadata": metadata} if metadata else None, problem)


def _refreshed_labels(
    instance: Instance, present: Mapping[str, str], *, legacy: bool, refresh: Refresh
) -> dict[str, str]:
    kept = set() if refresh is Refresh.ALWAYS else _set_by_others(instance, present, legacy=legacy)
    desired = cloud_labels(instance, present, legacy=legacy)
    return {key: value for key, value in desired.items() if key not in kept}


def _metadata(node: Node, instance: Instance, labels: Mapping[str, str], refresh: Refresh) -> dict[str, Any]:
    """Return the metadata to write: these labels; with `Refresh.ALWAYS`, also the provider's own, which follow the
    instance, and their record.

    While the cloud cannot describe the instance, labels may be missing from it, so the Node keeps those that it has.
    """
    if refresh is not Refresh.ALWAYS or instance.incomplete:
        return {"labels": labels} if labels else {}
    own = followed(instance, node.metadata.labels, node.metadata.annotations)
    parts = {"labels": {**labels, **own.labels}, "annotations": own.record}
    return {name: part for name, part in parts.items() if part}


def _set_by_others(instance: Instance, present: Mapping[str, str], *, legacy: bool) -> set[str]:
    """Return the zone, region and type labels that somebody else set: if the Node's value differs from the instance's
    in one spelling of a label, all spellings of it. Without `legacy`, only the current spellings count."""
    topology = _topology(instance, legacy=legacy)
    theirs: set[str] = set()
    for pair in LABEL_PAIRS.items():
        spellings = pair if legacy else pair[1:]
        if any(label in present and present[label] != topology.get(label) for label in spellings):
            theirs.update(spellings)
    return theirs


def status_patch(node: Node, instance: Instance) -> dict[str, Any] | None:
    """Return the patch that sets the instance's addresses; None if the Node already has them in the same order, or if
    the cloud reports none. Raises NodeRuleError as `node_addresses` does."""
    desired = node_addresses(node, instance.addresses)
    if not desired or desired == list(node.status.addresses):
        return None
    return {"status": {"addresses": [{"type": address.type, "address": address.address} for address in desired]}}


def as_strategic(patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `status_patch` as a strategic merge patch, with the directive that replaces all addresses.

    Without the directive, the API server merges them by type, which loses one of two InternalIPs.
    """
    addresses = patch["status"]["addresses"]
    return {"status": {"addresses": [{"$patch": "replace"}, *addresses]}}


def too_many_taints(node: Node) -> str:
    """Return why the Node's taints cannot be written, "" if they can."""
    if len(node.spec.taints) <= NODE_TAINTS:
        return ""
    return f"the Node has more than {NODE_TAINTS} taints, so no taint is added or removed: remove unneeded taints"


def has_taint(taints: Iterable[Taint], key: str, effect: str) -> bool:
    """Return whether a taint has this key and effect; the value does not matter."""
    return any(taint.key == key and taint.effect == effect for taint in taints)


def taints_without(taints: Iterable[Taint], key: str, effect: str | None = None) -> list[dict[str, Any]] | None:
    """Return the remaining taints in wire form; None (which deletes the field) if none remain."""
    kept = [taint for taint in taints if taint.key != key or (effect is not None and taint.effect != effect)]
    return [taint_wire(taint) for taint in kept] or None


def taint_wire(taint: Taint) -> dict[str, Any]:
    wire = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: value for name, value in wire.items() if value}
