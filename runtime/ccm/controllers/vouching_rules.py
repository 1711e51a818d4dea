# SPDX-License-Identifier: Apache-2.0
"""What of a Node the cloud vouches for: pure decisions, no I/O.

A kubelet writes its own Node. NodeRestriction limits which Node it writes, not the providerID, pod CIDRs, addresses
and most labels that it chooses there. A controller with the rights of the cloud must not act on these unseen: it would
write for the kubelet what the kubelet may not write (a confused deputy). So whatever goes from a Node to the cloud
passes `judge` first.

Three rules:

1. One machine, one Node. Of several Nodes with one providerID, one is used.
2. Addresses are the instance's.
3. Labels that the cloud knows have the instance's values.

Pod CIDRs are judged in `route_rules`.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ccm.cloud import Address, AddressType, CloudError, Instance, NotFound
from ccm.engine.objects import Node

from . import node_rules

IP = ipaddress.IPv4Address | ipaddress.IPv6Address

_TYPES = {kind.value: kind for kind in AddressType}
_IPS = (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)
#: A first listing is believed when it has at least this share of the Ready Nodes. An attacker who invents some Nodes
#: does not reach that; credentials of another project, or a wrong filter, do.
BELIEVED_SHARE = 0.5
_AGAIN = "delete the Node and restart its kubelet, so that it registers again"


class Reason(enum.StrEnum):
    """Why a Node, or something that it says, is not used; labels of `ccm_nodes_not_vouched`."""

    #: The cloud did not answer yet, or could not say.
    CLOUD_UNKNOWN = "CloudUnknown"
    #: The cloud says that there is no such instance.
    INSTANCE_NOT_FOUND = "InstanceNotFound"
    #: Another Node has the same providerID, and holds it.
    SAME_PROVIDER_ID = "SameProviderID"
    #: Another instance has the Node's name.
    OTHER_MACHINE = "OtherMachine"
    #: The Node is used, but not this address of it.
    ADDRESS_NOT_VOUCHED = "AddressNotVouched"
    #: The first listing lacks most Nodes: nothing is written yet.
    LISTING_NOT_BELIEVED = "ListingNotBelieved"


@dataclass(frozen=True, slots=True)
class Vouched:
    """What load balancers and routes may use. `ignored`: addresses that the Node claims and its instance does not have.

    `own`: all IP addresses that the cloud names for the instance.
    """

    addresses: tuple[Address, ...]
    labels: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    ignored: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The Node gets no new route and is no backend. `message`: what contradicts what, and what to do."""

    reason: Reason
    message: str


Verdict = Vouched | Refused
#: The verdict about a Node, None when it is not one of this cloud.
Judge = Callable[[Node], Verdict | None]


def judge(
    node: Node,
    instance: Instance | None,
    claimants: Iterable[Node],
    namesakes: Sequence[Instance] | None,
    doubt: CloudError | None = None,
) -> Verdict:
    """Judge a Node of this cloud.

    `instance`: what the cloud has for its providerID, None when that is not known, and then `doubt` says why.
    `claimants`: the other Nodes with this providerID, in whatever spelling. `namesakes`: the instances with the Node's
    name, None when that is not known; it matters only where the instance has another name and no such alias.
    """
    if instance is None:
        return _unknown(node, doubt)
    if problem := other_holder(node, instance, claimants):
        return Refused(Reason.SAME_PROVIDER_ID, problem)
    if not instance.is_named(node.metadata.name):
        if namesakes is None:
            return _unknown(node, doubt)
        if problem := node_rules.other_machine(node, instance, namesakes):
            return Refused(Reason.OTHER_MACHINE, problem)
    addresses, ignored = own_addresses(node, instance)
    own = tuple(each.address for each in instance.addresses if each.type in _IPS)
    return Vouched(addresses, own_labels(node.metadata.labels, instance), ignored, own)


def _unknown(node: Node, doubt: CloudError | None) -> Refused:
    if isinstance(doubt, NotFound):
        return Refused(
            Reason.INSTANCE_NOT_FOUND,
            f"the cloud has no instance for its providerID {node.spec.provider_id} ({doubt}): {_AGAIN}",
        )
    why = f": {doubt}" if doubt is not None else " yet"
    return Refused(Reason.CLOUD_UNKNOWN, f"the cloud has not said which instance {node.spec.provider_id} is{why}")


def other_holder(node: Node, instance: Instance, claimants: Iterable[Node]) -> str:
    """Rule 1: why another Node holds this providerID; "" when this one does.

    The Node with the instance's name holds it, then one with an alias of it, otherwise the oldest: a kubelet that
    deletes its Node and creates it again with a providerID that it copied comes too late (CVE-2025-5187).
    """

    def precedence(each: Node) -> tuple[bool, bool, str, str]:
        meta = each.metadata
        return meta.name != instance.name, not instance.is_named(meta.name), meta.creation_timestamp or "", meta.name

    first = min((*(each for each in claimants if each.metadata.name != node.metadata.name), node), key=precedence)
    if first is node:
        return ""
    holder = first.metadata.name
    why = "has the instance's name" if instance.is_named(holder) else "is older"
    return (
        f"its providerID {node.spec.provider_id} is also that of node {holder}, which {why} and keeps it. "
        f"If this Node is the machine, delete node {holder}; otherwise {_AGAIN}"
    )


def own_addresses(node: Node, instance: Instance) -> tuple[tuple[Address, ...], tuple[str, ...]]:
    """Rule 2: those addresses of the Node that are its instance's, as the cloud spells them; and the IPs that are not.

    When no IP is left, all of the instance's are used: the cloud vouches for these, and a Node whose `--node-ip` the
    cloud does not know stays reachable. A cloud that names no address gives nothing to compare with: the Node's are
    used as they are. A Hostname must be the name of the Node or of the instance; DNS names must be the instance's.
    """
    claimed = [Address(_TYPES[each.type], each.address) for each in node.status.addresses if each.type in _TYPES]
    if not instance.addresses:
        return tuple(claimed), ()
    ips = {parsed: each.address for each in instance.addresses if each.type in _IPS and (parsed := _ip(each.address))}
    names = {each.address.casefold() for each in instance.addresses if each.type not in _IPS}
    hostnames = names | {each.casefold() for each in (node.metadata.name, *instance.names)}
    kept: list[Address] = []
    ignored: list[str] = []
    for each in claimed:
        if each.type in _IPS:
            found = ips.get(parsed) if (parsed := _ip(each.address)) else None
            if not ips:
                kept.append(each)
            elif found is not None:
                kept.append(Address(each.type, found))
            else:
                ignored.append(each.address)
        elif each.address.casefold() in (hostnames if each.type is AddressType.HOSTNAME else names):
            kept.append(each)
    if ignored and not any(each.type in _IPS for each in kept):
        kept = [*(each for each in instance.addresses if each.type in _IPS), *kept]
    return tuple(kept), tuple(ignored)


def ignored_message(node: Node, verdict: Vouched) -> str:
    """What to tell about addresses that are left out."""
    return (
        f"{', '.join(verdict.ignored)} is not an address of its instance {node.spec.provider_id} "
        f"({', '.join(verdict.own)}): load balancers and routes do not use it. Correct the kubelet's --node-ip or the "
        "instance's network"
    )


def own_labels(labels: Mapping[str, str], instance: Instance) -> Mapping[str, str]:
    """Rule 3: the Node's labels, with the instance's values of all that the cloud knows.

    What the cloud leaves empty, and all other labels, are the Node's own: a kubelet can choose them, except those below
    `node-restriction.kubernetes.io/`.
    """
    known = {
        key: value
        for key, value in node_rules.steering_labels(instance).items()
        if labels.get(key) != value and (key in labels or key not in node_rules.LABEL_PAIRS)
    }
    return {**labels, **known} if known else labels


def is_believable(found: int, ready: int) -> bool:
    """Whether a first listing may decide about backends and routes: it has `found` of `ready` Nodes."""
    return found >= ready * BELIEVED_SHARE


@functools.lru_cache(maxsize=65536)
def _ip(text: str) -> IP | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
