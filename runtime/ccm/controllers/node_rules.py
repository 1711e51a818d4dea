# SPDX-License-Identifier: Apache-2.0
"""What a Node should look like, given its instance: pure decisions, no I/O.

Rules and IDs: reference "Upstream cloud-controller-manager", sections 2.2-2.5 (N1-N38, A1-A18, T1-T10).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.cloud import Address, AddressType, Instance, InstanceRef
from ccm.engine.objects import Node, NodeAddress, Taint

from .errors import RuleError

UNINITIALIZED_TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
#: Set by the kubelet when it was started with `--node-ip` and `--cloud-provider=external`.
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"

#: Deprecated label -> its successor; both are written at initialisation, the deprecated one leads afterwards.
LABEL_PAIRS: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
_RESERVED_PREFIX = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")


class NodeRuleError(RuleError):
    """A Node cannot be initialised as things stand; the message names both sides of the contradiction."""


def is_uninitialized(node: Node) -> bool:
    """The taint counts by its key alone; value and effect do not matter."""
    return any(taint.key == UNINITIALIZED_TAINT for taint in node.spec.taints)


def is_ready(node: Node) -> bool:
    """Ready=True; a missing condition counts as Unknown."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def instance_ref(node: Node) -> InstanceRef:
    return InstanceRef(node.metadata.name, node.spec.provider_id or None)


def node_addresses(node: Node, cloud: Sequence[Address]) -> list[NodeAddress]:
    """The addresses the Node shall have, in order; [] means: leave those it has (the cloud named none).

    The cloud's order is kept. The kubelet's Hostname is kept where the cloud names none. With `provided-node-ip`, the
    addresses of that IP come first and replace all others of the types they have.
    Raises NodeRuleError when the annotation is malformed or names an IP that the cloud does not know.
    """
    wanted = [NodeAddress(type=address.type.value, address=address.address) for address in cloud]
    if wanted and not any(address.type == AddressType.HOSTNAME for address in wanted):
        wanted += [address for address in node.status.addresses if address.type == AddressType.HOSTNAME]
    provided = node.metadata.annotations.get(PROVIDED_NODE_IP)
    if provided is None:
        return wanted
    preferred: list[NodeAddress] = []
    for ip in parse_provided_ips(provided):
        matches = [address for address in wanted if _same_ip(address.address, ip)]
        if not matches:
            known = ", ".join(address.address for address in wanted) or "none"
            raise NodeRuleError(
                f"the kubelet's --node-ip {ip} is not among the addresses that the cloud knows ({known}): "
                "correct --node-ip or the instance's network"
            )
        preferred += matches
    claimed = {address.type for address in preferred}
    return preferred + [address for address in wanted if address.type not in claimed]


def parse_provided_ips(value: str) -> list[str]:
    """The annotation: one IP, or an IPv4 and an IPv6 with a comma between; leading zeros in IPv4 are accepted."""
    parts = value.split(",")
    try:
        ips = [_parse_ip(part) for part in parts]
    except ValueError:
        raise NodeRuleError(f"annotation {PROVIDED_NODE_IP}={value!r} is not an IP or a dual-stack pair") from None
    is_pair = {ip.version for ip in ips} == {4, 6} and not any(ip.is_unspecified for ip in ips)
    if len(ips) > 2 or (len(ips) == 2 and not is_pair):
        raise NodeRuleError(f"annotation {PROVIDED_NODE_IP}={value!r} is not one IPv4 and one IPv6 address")
    return [str(ip) for ip in ips]


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if re.fullmatch(r"\d+(\.\d+){3}", text):
        text = ".".join(str(int(part)) for part in text.split("."))
    return ipaddress.ip_address(text)


def _same_ip(text: str, ip: str) -> bool:
    try:
        return str(_parse_ip(text)) == ip
    except ValueError:
        return False


def cloud_labels(instance: Instance, present: Mapping[str, str]) -> dict[str, str]:
    """The labels to set: only those that are missing or differ.

    Zone, region and type overwrite. Additional labels of the provider never do, and may not be in the domains of
    Kubernetes itself.
    """
    values = (instance.zone, instance.region, instance.type)
    wanted: dict[str, str] = {}
    for (deprecated, current), value in zip(LABEL_PAIRS.items(), values, strict=True):
        if value:
            wanted[deprecated] = wanted[current] = value
    for key, value in instance.labels.items():
        if not _RESERVED_PREFIX.search(key) and key not in present:
            wanted[key] = value
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def reconciled_labels(present: Mapping[str, str]) -> dict[str, str]:
    """For an initialised Node: successors of deprecated labels that are missing or differ (N23-N25)."""
    return {
        current: present[deprecated]
        for deprecated, current in LABEL_PAIRS.items()
        if deprecated in present and present.get(current) != present[deprecated]
    }


@dataclass(frozen=True)
class Initialisation:
    """The two patches of an initialisation, in this order: addresses first, so that no Pod is ever scheduled to a node
    whose addresses are not the cloud's. `status` is None when the addresses are right already."""

    status: dict[str, Any] | None
    node: dict[str, Any]


def plan_initialisation(node: Node, instance: Instance) -> Initialisation:
    """What to write to a tainted Node. Raises NodeRuleError when it must stay tainted."""
    provider_id = node.spec.provider_id or instance.provider_id
    if not provider_id:
        raise NodeRuleError("the cloud gave no providerID, and without one the Node may not be used (N21)")
    spec: dict[str, Any] = {"taints": taints_without(node.spec.taints, UNINITIALIZED_TAINT)}
    if not node.spec.provider_id:
        spec["providerID"] = provider_id
    patch: dict[str, Any] = {"spec": spec}
    if labels := cloud_labels(instance, node.metadata.labels):
        patch["metadata"] = {"labels": labels}
    return Initialisation(status_patch(node, instance), patch)


def status_patch(node: Node, instance: Instance) -> dict[str, Any] | None:
    """The patch that gives the Node its instance's addresses; None when it has them, compared as ordered lists."""
    wanted = node_addresses(node, instance.addresses)
    if not wanted or wanted == list(node.status.addresses):
        return None
    return {"status": {"addresses": [{"type": address.type, "address": address.address} for address in wanted]}}


def taints_without(taints: Iterable[Taint], key: str, effect: str | None = None) -> list[dict[str, Any]] | None:
    """The remaining taints in wire form; None (which deletes the field) when none remain."""
    kept = [taint for taint in taints if taint.key != key or (effect is not None and taint.effect != effect)]
    return [taint_wire(taint) for taint in kept] or None


def taint_wire(taint: Taint) -> dict[str, Any]:
    wire = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: value for name, value in wire.items() if value}
