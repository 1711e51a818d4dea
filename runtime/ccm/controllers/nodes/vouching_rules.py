# SPDX-License-Identifier: Apache-2.0
"""Decide which statements of a Node the cloud vouches for. No I/O.

A kubelet writes its own Node. NodeRestriction limits which Node it writes, but not the providerID, pod CIDRs, addresses
and most labels that it sets there. A controller with permissions in the cloud must not trust these values. Otherwise it
would write on the kubelet's behalf what the kubelet may not write (a confused deputy). Therefore `judge` first checks
everything that goes from a Node to the cloud.

Three rules:

1. One machine, one Node. If several Nodes have the same providerID, one of them is used.
2. Only addresses of the instance are used.
3. For labels that the cloud knows, the instance's values are used.

`route_rules` checks pod CIDRs.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ccm.cloud import Address, AddressType, CloudError, Conflict, Instance, InstanceState, Invalid, NotFound
from ccm.engine.objects import Node

from . import node_rules

#: Errors that say something about an instance. Others say nothing, and "unknown" takes no Node out of a load balancer.
ANSWERS = (NotFound, Conflict, Invalid)
#: Seconds until the load balancers of the first listing are written although the cloud has not answered about a Node,
#: because one machine that the cloud cannot describe must not block the writes of all load balancers.
PATIENCE = 900.0


def are_answers(doubts: Iterable[CloudError | None]) -> bool:
    """Return whether each doubt says something about its instance."""
    return all(isinstance(doubt, ANSWERS) for doubt in doubts)


IP = ipaddress.IPv4Address | ipaddress.IPv6Address

_TYPES = {kind.value: kind for kind in AddressType}
_IPS = (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)
#: A first listing is plausible if it contains at least this share of the Ready Nodes. An attacker who invents some
#: Nodes cannot push it below that share; credentials of another project or a wrong filter do.
BELIEVED_SHARE = 0.5
#: `GONE_FOR`: seconds for which an instance that the cloud reported gone gets no new Node. `LOOK_AGAIN`: seconds
#: between reads meanwhile. A cloud's answer may show an older state than the answer before, and a machine may have the
#: name of the one that it replaces.
GONE_FOR, LOOK_AGAIN = 120.0, 10.0
_AGAIN = "delete the Node and restart its kubelet, so that it registers again"


class Reason(enum.StrEnum):
    """Why a Node, or something that it claims, is not used; labels of `ccm_nodes_not_vouched`."""

    #: The cloud has not answered yet, or could not.
    CLOUD_UNKNOWN = "CloudUnknown"
    #: The cloud reports that the instance does not exist.
    INSTANCE_NOT_FOUND = "InstanceNotFound"
    #: Another Node has the same providerID and takes precedence.
    SAME_PROVIDER_ID = "SameProviderID"
    #: Another instance has the Node's name.
    OTHER_MACHINE = "OtherMachine"
    #: The Node is used, but not this address.
    ADDRESS_NOT_VOUCHED = "AddressNotVouched"
    #: More than half of the Ready Nodes are missing from the first listing: nothing is written yet.
    LISTING_NOT_BELIEVED = "ListingNotBelieved"


@dataclass(frozen=True, slots=True)
class Vouched:
    """The addresses and labels of a Node that load balancers and routes may use.

    `ignored`: addresses that the Node claims and its instance does not have. `own`: all IP addresses that the cloud
    reports for the instance.
    """

    addresses: tuple[Address, ...]
    labels: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    ignored: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """The Node gets no new route and is no backend. `message`: the contradiction, and what to do."""

    reason: Reason
    message: str


Verdict = Vouched | Refused
#: Returns the verdict about a Node, None if it does not belong to this cloud.
Judge = Callable[[Node], Verdict | None]


def judge(
    node: Node,
    instance: Instance | None,
    claimants: Iterable[Node],
    namesakes: Sequence[Instance] | None,
    doubt: CloudError | None = None,
) -> Verdict:
    """Judge a Node of this cloud.

    `instance`: the cloud's instance with the Node's providerID, None if unknown; `doubt` then says why. `claimants`:
    the Nodes with this providerID, whatever its spelling. `namesakes`: the instances with the Node's name, None
    if unknown; they matter only if neither the instance's name nor an alias is the Node's name.
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
    own = tuple(address.address for address in instance.addresses if address.type in _IPS)
    return Vouched(addresses, own_labels(node.metadata.labels, instance), ignored, own)


def _unknown(node: Node, doubt: CloudError | None) -> Refused:
    if isinstance(doubt, NotFound):
        return Refused(
            Reason.INSTANCE_NOT_FOUND,
            f"the cloud has no instance with the Node's providerID {node.spec.provider_id} ({doubt}): {_AGAIN}",
        )
    why = f": {doubt}" if doubt is not None else " yet"
    return Refused(Reason.CLOUD_UNKNOWN, f"the cloud has not reported instance {node.spec.provider_id}{why}")


def other_holder(node: Node, instance: Instance, claimants: Iterable[Node]) -> str:
    """Apply rule 1: return why another Node holds this providerID; "" if this Node holds it.

    The Node with the instance's name holds it, then a Node with one of its aliases, then the oldest. A kubelet that
    deletes its Node and creates it again with a copied providerID therefore comes last (CVE-2025-5187).
    """

    def precedence(claimant: Node) -> tuple[bool, bool, str, str]:
        meta = claimant.metadata
        return meta.name != instance.name, not instance.is_named(meta.name), meta.creation_timestamp or "", meta.name

    first = min((*(each for each in claimants if each.metadata.name != node.metadata.name), node), key=precedence)
    if first is node:
        return ""
    holder = first.metadata.name
    why = "it has the instance's name" if instance.is_named(holder) else "it is older"
    return (
        f"the Node's providerID {node.spec.provider_id} also belongs to node {holder}, which keeps it because {why}. "
        f"If this Node is the real machine, delete node {holder}; otherwise {_AGAIN}"
    )


def former_machine(instance: Instance, gone_for: float | None) -> str:
    """Return why an instance that was found by a Node's name is not yet believed to be the Node's machine, "" if it is.

    A Node keeps its first providerID, so it would keep that of a former machine. `gone_for`: seconds since a listing
    and a single read reported the instance gone; None if they never did.
    """
    if gone_for is None or gone_for >= GONE_FOR:
        return ""
    return (
        f"the cloud shows instance {instance.provider_id}, which it reported gone {gone_for:.0f} s ago. This answer "
        "may be old, so the Node waits until the cloud shows another instance, or for "
        f"{GONE_FOR:.0f} s in all"
    )


def stopped_namesake(node: Node, instance: Instance) -> Refused | None:
    """Return why an instance that was found by a Node's name is not the Node's machine, None if it may be.

    A machine that does not run has no kubelet. It may be a former machine of this name, which is kept for a while, or
    one of another project. Once the Node has its providerID, the cloud would report the Node's own machine off. Then
    the Node would be tainted, and its volumes could be given to other machines while it writes to them.
    """
    if instance.state is InstanceState.RUNNING or not node_rules.has_kubelet(node):
        return None
    return Refused(
        Reason.OTHER_MACHINE,
        f"the Node's kubelet runs, and the cloud reports instance {instance.provider_id}, which has the Node's name, "
        f"as {instance.state.value}: the kubelet seems to run on another machine. Rename or delete that instance, or "
        "give the kubelet its own --provider-id",
    )


def own_addresses(node: Node, instance: Instance) -> tuple[tuple[Address, ...], tuple[str, ...]]:
    """Apply rule 2: return the Node's addresses that its instance has, as the cloud spells them, and the other IPs.

    If no IP is left, all IPs of the instance are used, because the cloud vouches for them, and a Node with a
    `--node-ip` that the cloud does not know stays reachable. If the cloud reports no IP, the Node's IPs are used
    unchanged; if the cloud reports no address at all, so are the Node's other addresses. Otherwise a Hostname is left
    out if it is not a name of the Node or the instance, and a DNS name if it is not the instance's.
    """
    claimed = [
        Address(_TYPES[address.type], address.address) for address in node.status.addresses if address.type in _TYPES
    ]
    if not instance.addresses:
        return tuple(claimed), ()
    ips = {
        parsed: address.address
        for address in instance.addresses
        if address.type in _IPS and (parsed := _ip(address.address))
    }
    names = {address.address.casefold() for address in instance.addresses if address.type not in _IPS}
    hostnames = names | {each.casefold() for each in (node.metadata.name, *instance.names)}
    kept: list[Address] = []
    ignored: list[str] = []
    for claim in claimed:
        if claim.type in _IPS:
            of_instance = ips.get(parsed) if (parsed := _ip(claim.address)) else None
            if not ips:
                kept.append(claim)
            elif of_instance is not None:
                kept.append(Address(claim.type, of_instance))
            else:
                ignored.append(claim.address)
        elif claim.address.casefold() in (hostnames if claim.type is AddressType.HOSTNAME else names):
            kept.append(claim)
    if ignored and not any(each.type in _IPS for each in kept):
        kept = [*(address for address in instance.addresses if address.type in _IPS), *kept]
    return tuple(kept), tuple(ignored)


def ignored_message(node: Node, verdict: Vouched) -> str:
    """Return the message about addresses that are left out."""
    return (
        f"address {', '.join(verdict.ignored)} does not belong to the Node's instance {node.spec.provider_id} "
        f"({', '.join(verdict.own)}), so load balancers and routes do not use it. Correct the kubelet's --node-ip or "
        "the instance's network"
    )


def own_labels(labels: Mapping[str, str], instance: Instance) -> Mapping[str, str]:
    """Apply rule 3: return the Node's labels, with the instance's values for all that the cloud knows.

    Values that the cloud leaves empty and all other labels are the Node's own. A kubelet can choose those, except
    labels below `node-restriction.kubernetes.io/`. A deprecated zone, region or type label that the Node does not have
    is not added.
    """
    from_cloud = {
        key: value
        for key, value in node_rules.all_instance_labels(instance).items()
        if labels.get(key) != value and (key in labels or key not in node_rules.LABEL_PAIRS)
    }
    return {**labels, **from_cloud} if from_cloud else labels


def is_plausible(listed: int, ready: int) -> bool:
    """Return whether a first listing with `listed` of `ready` Nodes may decide about backends and routes."""
    return listed >= ready * BELIEVED_SHARE


@functools.lru_cache(maxsize=65536)
def _ip(text: str) -> IP | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
