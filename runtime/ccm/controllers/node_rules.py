# SPDX-License-Identifier: Apache-2.0
"""What a Node should look like, given its instance: pure decisions, no I/O.

What upstream does, and where these rules differ: docs/reference/parity.md, N1-N38, A1-A18 and T1-T10.
Labels come in two spellings; `legacy` (`--legacy-node-labels`) says whether the deprecated one is written, too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.base.text import quoted, shorten
from ccm.cloud import Address, AddressType, Instance, InstanceRef
from ccm.engine.objects import Node, NodeAddress, Taint

from .limits import LISTED, NODE_ADDRESSES, NODE_TAINTS
from .rule_error import RuleError

UNINITIALIZED_TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
#: Set by the kubelet when it was started with `--node-ip` and `--cloud-provider=external`.
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"

#: Deprecated label -> its successor; both are written, and between refreshes the deprecated one leads, as upstream.
LABEL_PAIRS: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
_RESERVED_PREFIX = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")
#: What the API server accepts (k8s.io/apimachinery `util/validation`); one label it refuses costs the whole patch.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_LABEL_VALUE = re.compile(rf"(?:{_NAME})?")
_LABEL_KEY = re.compile(rf"(?:(?P<prefix>{_DNS_LABEL}(?:\.{_DNS_LABEL})*)/)?(?P<name>{_NAME})")


class NodeRuleError(RuleError):
    """A Node cannot be initialised as things stand; the message names both sides of the contradiction.

    `reason`: of the Event and the metric.
    """

    def __init__(self, message: str, reason: str = "InitializationFailed") -> None:
        super().__init__(message)
        self.reason = reason


def is_uninitialized(node: Node) -> bool:
    """The taint counts by its key alone; value and effect do not matter."""
    return any(taint.key == UNINITIALIZED_TAINT for taint in node.spec.taints)


def asks_anew(old: Node, new: Node) -> bool:
    """Whether a tainted Node may be initialised now although it could not be before: it is another one, was tainted
    just now, or what it says of itself changed."""
    return (
        old.metadata.uid != new.metadata.uid
        or not is_uninitialized(old)
        or old.spec.provider_id != new.spec.provider_id
        or old.metadata.annotations.get(PROVIDED_NODE_IP) != new.metadata.annotations.get(PROVIDED_NODE_IP)
    )


def is_ready(node: Node) -> bool:
    """Ready=True; a missing condition counts as Unknown."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def instance_ref(node: Node) -> InstanceRef:
    return InstanceRef(node.metadata.name, node.spec.provider_id or None)


def known_as(node: Node, instance: Instance) -> str:
    """The name by which the cloud knows the Node's machine: the Node's own where it is one of the instance's names."""
    return node.metadata.name if instance.is_named(node.metadata.name) else instance.name


def node_addresses(node: Node, cloud: Sequence[Address]) -> list[NodeAddress]:
    """The addresses the Node shall have, in order; [] means: leave those it has (the cloud named none).

    The cloud's order is kept, repetitions are not (the API server refuses them). The kubelet's Hostname is kept where
    the cloud names none. With `provided-node-ip`, the addresses of that IP come first and replace all others of the
    types they have.
    Raises NodeRuleError when the annotation is malformed or names an IP that the cloud does not know.
    """
    wanted = [NodeAddress(type=address.type.value, address=address.address) for address in cloud]
    if wanted and not any(address.type == AddressType.HOSTNAME for address in wanted):
        named = [address for address in node.status.addresses if address.type == AddressType.HOSTNAME]
        wanted += named[:NODE_ADDRESSES]
    wanted = list(dict.fromkeys(wanted))
    provided = node.metadata.annotations.get(PROVIDED_NODE_IP)
    if provided is None:
        return wanted
    preferred: list[NodeAddress] = []
    for ip in parse_provided_ips(provided):
        matches = [address for address in wanted if _same_ip(address.address, ip)]
        if not matches:
            known = shorten(", ".join(address.address for address in wanted), LISTED) or "none"
            raise NodeRuleError(
                f"the kubelet's --node-ip {ip} is not among the addresses that the cloud knows ({known}): "
                "correct --node-ip or the instance's network"
            )
        preferred += matches
    claimed = {address.type for address in preferred}
    return preferred + [address for address in wanted if address.type not in claimed]


def other_machine(node: Node, instance: Instance, namesakes: Sequence[Instance]) -> str:
    """Why the instance with the Node's providerID is not the Node's machine; "" when nothing speaks against it.

    A name alone proves nothing: a Node that was given its providerID may be called otherwise than its instance. But
    when another instance has the Node's name (`namesakes`), the providerID was copied or its machine replaced.
    """
    if not node.spec.provider_id or instance.is_named(node.metadata.name) or not namesakes:
        return ""
    return (
        f"its providerID {node.spec.provider_id} is that of the instance {instance.name!r}, and "
        f"{namesakes[0].provider_id} has its name: delete the Node and restart its kubelet, so that it registers anew"
    )


def parse_provided_ips(value: str) -> list[str]:
    """The annotation: one IP, or an IPv4 and an IPv6 with a comma between; leading zeros in IPv4 are accepted."""
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
    """The labels to set: only those that are missing or differ.

    Zone, region and type overwrite. Additional labels of the provider never do, and may not be in the domains of
    Kubernetes itself. What the API server would refuse is left out (see `unusable_labels`): a Node without a label is
    better than no Node.
    """
    wanted = _topology(instance, legacy=legacy)
    for key, value in instance.labels.items():
        if not _RESERVED_PREFIX.search(key) and key not in present:
            wanted[key] = value
    return {key: value for key, value in wanted.items() if present.get(key) != value and _is_label(key, value)}


def _topology(instance: Instance, *, legacy: bool) -> dict[str, str]:
    """Zone, region and type, as far as the cloud names them."""
    wanted: dict[str, str] = {}
    for (deprecated, current), value in zip(
        LABEL_PAIRS.items(), (instance.zone, instance.region, instance.type), strict=True
    ):
        if value:
            wanted |= {deprecated: value, current: value} if legacy else {current: value}
    return wanted


def steering_labels(instance: Instance) -> dict[str, str]:
    """All labels that the cloud knows of the instance: zone, region and type in both spellings, and the provider's own.

    For decisions about the cloud itself, where the instance's values count and not those on the Node.
    """
    own = {key: value for key, value in instance.labels.items() if not _RESERVED_PREFIX.search(key)}
    return {**own, **_topology(instance, legacy=True)}


def _is_label(key: str, value: str) -> bool:
    """Whether the API server accepts it: parts of 63 characters at most, a DNS prefix of 253."""
    match = _LABEL_KEY.fullmatch(key)
    if match is None or len(match["name"]) > 63 or len(match["prefix"] or "") > 253:
        return False
    return len(value) <= 63 and _LABEL_VALUE.fullmatch(value) is not None


def unusable_labels(instance: Instance) -> list[str]:
    """Labels of the instance, as `key=value`, that cannot be labels of a Node."""
    labels = {**_topology(instance, legacy=False), **instance.labels}
    return [f"{key}={value!r}" for key, value in labels.items() if not _is_label(key, value)]


def reconciled_labels(present: Mapping[str, str], *, legacy: bool = True) -> dict[str, str]:
    """For an initialised Node: successors of deprecated labels that are missing or differ (N23-N25).

    Without `legacy` nobody keeps the deprecated ones true, so they lead nothing.
    """
    if not legacy:
        return {}
    return {
        current: present[deprecated]
        for deprecated, current in LABEL_PAIRS.items()
        if deprecated in present and present.get(current) != present[deprecated]
    }


@dataclass(frozen=True)
class Plan:
    """The patches of one Node, in this order: addresses first, so that no Pod is ever scheduled to a node whose
    addresses are not the cloud's. None: nothing to write. `problem`: why the addresses stay as they are."""

    status: dict[str, Any] | None = None
    node: dict[str, Any] | None = None
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return self.status is None and self.node is None


def plan_initialisation(node: Node, instance: Instance, *, legacy: bool = True) -> Plan:
    """What to write to a tainted Node. Raises NodeRuleError when it must stay tainted."""
    provider_id = node.spec.provider_id or instance.provider_id
    if not provider_id:
        raise NodeRuleError("the cloud gave no providerID, and without one the Node may not be used (N21)")
    if problem := too_many_taints(node):
        raise NodeRuleError(problem)
    spec: dict[str, Any] = {"taints": taints_without(node.spec.taints, UNINITIALIZED_TAINT)}
    if not node.spec.provider_id:
        spec["providerID"] = provider_id
    patch: dict[str, Any] = {"spec": spec}
    if labels := cloud_labels(instance, node.metadata.labels, legacy=legacy):
        patch["metadata"] = {"labels": labels}
    return Plan(status_patch(node, instance), patch)


def plan_repair(node: Node, instance: Instance | None, *, legacy: bool = True, refresh_labels: bool = False) -> Plan:
    """What to write to an initialised Node: addresses that are not (any more) its instance's, and labels that it lacks.

    A zone, region or type that the Node has stays, as upstream, where nobody looks at labels again: an administrator
    may have set it. With `refresh_labels` it becomes the instance's. Without an instance, or with another one than the
    Node's, only the two spellings of labels are made to agree.
    """
    if is_uninitialized(node):
        return Plan()
    labels = reconciled_labels(node.metadata.labels, legacy=legacy)
    status, problem = None, ""
    if instance is not None and instance.provider_id == node.spec.provider_id:
        present = {**node.metadata.labels, **labels}
        kept = set() if refresh_labels else _set_by_others(instance, present, legacy=legacy)
        wanted = cloud_labels(instance, present, legacy=legacy)
        labels |= {key: value for key, value in wanted.items() if key not in kept}
        try:
            status = status_patch(node, instance)
        except NodeRuleError as error:
            problem = str(error)
    labels = {key: value for key, value in labels.items() if node.metadata.labels.get(key) != value}
    return Plan(status, {"metadata": {"labels": labels}} if labels else None, problem)


def _set_by_others(instance: Instance, present: Mapping[str, str], *, legacy: bool) -> set[str]:
    """The spellings of each label that the Node has, in one of them, with another value than the instance's."""
    wanted = _topology(instance, legacy=legacy)
    found: set[str] = set()
    for pair in LABEL_PAIRS.items():
        spellings = pair if legacy else pair[1:]
        if any(label in present and present[label] != wanted.get(label) for label in spellings):
            found.update(spellings)
    return found


def status_patch(node: Node, instance: Instance) -> dict[str, Any] | None:
    """The patch that gives the Node its instance's addresses; None when it has them, compared as ordered lists."""
    wanted = node_addresses(node, instance.addresses)
    if not wanted or wanted == list(node.status.addresses):
        return None
    return {"status": {"addresses": [{"type": address.type, "address": address.address} for address in wanted]}}


def too_many_taints(node: Node) -> str:
    """Why no taint of the Node is written, "" when they can be."""
    if len(node.spec.taints) <= NODE_TAINTS:
        return ""
    return f"the Node has more than {NODE_TAINTS} taints, so none is added or removed: remove those that nobody needs"


def has_taint(taints: Iterable[Taint], key: str, effect: str) -> bool:
    """Taints are told apart by key and effect; the value does not matter."""
    return any(taint.key == key and taint.effect == effect for taint in taints)


def taints_without(taints: Iterable[Taint], key: str, effect: str | None = None) -> list[dict[str, Any]] | None:
    """The remaining taints in wire form; None (which deletes the field) when none remain."""
    kept = [taint for taint in taints if taint.key != key or (effect is not None and taint.effect != effect)]
    return [taint_wire(taint) for taint in kept] or None


def taint_wire(taint: Taint) -> dict[str, Any]:
    wire = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: value for name, value in wire.items() if value}
