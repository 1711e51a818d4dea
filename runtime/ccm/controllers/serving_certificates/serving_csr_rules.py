# SPDX-License-Identifier: Apache-2.0
"""Decide whether a kubelet's request for a serving certificate may be approved. No I/O.

A kubelet asks for a certificate with the names and addresses of its Node. It writes those itself, so the cloud is the
only witness: a request is approved if the requester is the Node, and if the cloud reports, for the Node's instance, all
names and addresses in the request. Everything else waits. Nothing is denied, because nobody can approve a denied
request.

The signer copies the subject, DNS names and IP addresses into the certificate (KEP-1513). This module accepts only
what a kubelet sends (`k8s.io/kubernetes/pkg/kubelet/certificate`), so that no other reading of the bytes exists: one
PEM block in its strict form, a subject of two parts, and no extension other than one list of names.
"""

from __future__ import annotations

import binascii
import enum
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from ccm.base.text import quoted, shorten
from ccm.cloud import AddressType, Instance, InstanceState
from ccm.engine.objects import Node

from ..nodes import vouching_rules
from ..nodes.vouching_rules import IP
from ..shared.limits import LISTED
from ..shared.rule_error import RuleError
from .signing_requests import NODES_GROUP, REQUEST_BYTES, SigningRequest

USER_PREFIX = "system:node:"
#: The key usages of a serving certificate. Kubelets with an ECDSA key leave out the first.
OPTIONAL_USAGE, USAGES = "key encipherment", frozenset({"digital signature", "server auth"})
#: The maximum number of names and addresses in one request. A Node has at most 32 addresses (`limits.NODE_ADDRESSES`).
NAMES = 100
#: How many waiting requests of one requester are read, the newest first.
READ = 10
#: The largest RSA key, in bits, whose signature is checked; larger ones cost time, and kubelets use ECDSA.
RSA_BITS = 8192

_PEM = re.compile(
    rb"-----BEGIN CERTIFICATE REQUEST-----\r?\n((?:[A-Za-z0-9+/=]{1,76}\r?\n)+)-----END CERTIFICATE REQUEST-----\s*"
)
#: The attribute of a request that has its extensions (PKCS #9, extensionRequest).
_EXTENSIONS = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
_IPS = (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)


class Reason(enum.StrEnum):
    """Why a request waits; labels of `ccm_serving_certificate_requests_waiting`."""

    #: The requester is not a kubelet, or not the Node that the request names.
    REQUESTER = "Requester"
    #: It is not what a kubelet sends: unreadable, too large, other extensions.
    MALFORMED = "Malformed"
    #: It asks for other key usages.
    USAGES = "Usages"
    #: The requester has more waiting requests than are read.
    TOO_MANY = "TooMany"
    #: There is no such Node, it is being deleted or not initialised, or it belongs to another cloud.
    NODE = "Node"
    #: The cloud does not confirm that the Node's instance is the machine of that name and runs.
    INSTANCE = "Instance"
    #: The cloud does not say that the instance has a name or an address in the request.
    NAMES = "Names"
    #: The cloud has not answered.
    CLOUD = "Cloud"
    #: The API server refused the approval.
    API = "API"


class WaitError(RuleError):
    """The request is not approved now. The message says why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RequestedNames:
    """The names and addresses that the certificate would have. `dns_names` are in lower case."""

    dns_names: tuple[str, ...]
    ips: tuple[IP, ...]


def node_name(username: str) -> str:
    """Return the name of the Node in a kubelet's user name, "" for another user."""
    return username.removeprefix(USER_PREFIX) if username.startswith(USER_PREFIX) else ""


def concerned(request: SigningRequest) -> str:
    """Return the name of the Node that the request is about: the requester, or the Node whose name somebody else asks
    for; "" if the request names no Node or cannot be read."""
    if own := node_name(request.spec.username):
        return own
    try:
        names = parse(request.spec.request).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except Exception:  # it does not come from a kubelet, and an unreadable request names no Node
        return ""
    return node_name(str(names[0].value)) if len(names) == 1 else ""


def newest(requests: Iterable[SigningRequest]) -> tuple[list[SigningRequest], list[SigningRequest]]:
    """Return the READ newest requests, which the controller reads, and the older ones; both newest first."""

    def age(request: SigningRequest) -> tuple[str, str]:
        return request.metadata.creation_timestamp or "", request.metadata.name

    ordered = sorted(requests, key=age, reverse=True)
    return ordered[:READ], ordered[READ:]


def read(request: SigningRequest) -> RequestedNames:
    """Return what the request of a kubelet asks for. Raises WaitError if it is not what that kubelet may ask for."""
    spec = request.spec
    if not node_name(spec.username) or NODES_GROUP not in spec.groups:
        raise WaitError(
            Reason.REQUESTER,
            f"its requester {quoted(spec.username)} is not a kubelet, that is, a user {USER_PREFIX}NAME in the "
            f"group {NODES_GROUP}",
        )
    if not USAGES <= set(spec.usages) <= USAGES | {OPTIONAL_USAGE} or len(set(spec.usages)) < len(spec.usages):
        usages = shorten(", ".join(spec.usages) or "none", LISTED)
        raise WaitError(Reason.USAGES, f"its key usages ({usages}) are not those of a serving certificate")
    parsed = parse(spec.request)
    _check_subject(parsed, spec.username)
    return _names(parsed)


def parse(pem: bytes) -> x509.CertificateSigningRequest:
    """Parse a request. Raises WaitError if it is longer than REQUEST_BYTES, is not one PEM block, cannot be read, has
    too large a key, or has a wrong signature."""
    if len(pem) > REQUEST_BYTES:
        raise WaitError(Reason.MALFORMED, f"it is larger than {REQUEST_BYTES} bytes")
    if (block := _PEM.fullmatch(pem)) is None:
        raise WaitError(Reason.MALFORMED, "it is not exactly one PEM block CERTIFICATE REQUEST")
    try:
        der = binascii.a2b_base64(re.sub(rb"\s", b"", block[1]), strict_mode=True)
        parsed = x509.load_der_x509_csr(der)
        key = parsed.public_key()
        size = getattr(key, "key_size", 0)
        if size > RSA_BITS:
            raise WaitError(Reason.MALFORMED, f"its key has {size} bits, more than {RSA_BITS}")
        signed = parsed.is_signature_valid
    except WaitError:
        raise
    except Exception as error:  # the parser raises many types of exceptions for untrusted bytes
        raise WaitError(Reason.MALFORMED, f"it cannot be read: {type(error).__name__}: {quoted(str(error))}") from None
    if not signed:
        raise WaitError(Reason.MALFORMED, "its signature is wrong: the requester does not show that it has the key")
    return parsed


def _check_subject(parsed: x509.CertificateSigningRequest, username: str) -> None:
    try:
        subject = [(each.oid, each.value) for each in parsed.subject]
    except Exception as error:
        raise WaitError(Reason.MALFORMED, f"its subject cannot be read: {quoted(str(error))}") from None
    expected = {(NameOID.ORGANIZATION_NAME, NODES_GROUP), (NameOID.COMMON_NAME, username)}
    if len(subject) == len(expected) and set(subject) == expected:
        return
    names = [str(value) for oid, value in subject if oid == NameOID.COMMON_NAME]
    if names != [username]:
        raise WaitError(
            Reason.REQUESTER,
            f"its common name {quoted(', '.join(names))} is not its requester {quoted(username)}",
        )
    raise WaitError(Reason.MALFORMED, f"its subject is not O={NODES_GROUP}, CN={shorten(username, LISTED)} alone")


def _names(parsed: x509.CertificateSigningRequest) -> RequestedNames:
    """Return the names and addresses. Raises WaitError for all other extensions and kinds of names, and if there are
    none, too many, or two that are the same."""
    try:
        attributes = [attribute.oid for attribute in parsed.attributes]
        if attributes.count(_EXTENSIONS) > 1:
            raise WaitError(Reason.MALFORMED, "it has more than one list of extensions")
        extensions = list(parsed.extensions)
    except WaitError:
        raise
    except Exception as error:
        raise WaitError(Reason.MALFORMED, f"its extensions cannot be read: {quoted(str(error))}") from None
    others = [oid.dotted_string for oid in attributes if oid != _EXTENSIONS]
    for extension in extensions:
        if extension.oid != ExtensionOID.SUBJECT_ALTERNATIVE_NAME:
            others.append(f"{type(extension.value).__name__} ({extension.oid.dotted_string})")
    if others:
        listed = shorten(", ".join(others), LISTED)
        raise WaitError(Reason.MALFORMED, f"it asks for more than names and addresses: {listed}")
    names = list(extensions[0].value) if extensions else []
    if not names:
        raise WaitError(Reason.MALFORMED, "it has no name and no address")
    if len(names) > NAMES:
        raise WaitError(Reason.MALFORMED, f"it has {len(names)} names and addresses, more than {NAMES}")
    dns: list[str] = []
    ips: list[IP] = []
    for name in names:
        if isinstance(name, x509.DNSName):
            dns.append(name.value.lower())
        elif isinstance(name, x509.IPAddress) and isinstance(name.value, ipaddress.IPv4Address | ipaddress.IPv6Address):
            ips.append(name.value)
        else:
            raise WaitError(
                Reason.MALFORMED, f"it has a {type(name).__name__}, and a kubelet has only DNS names and IP addresses"
            )
    if len({*dns, *ips}) < len(names):
        raise WaitError(Reason.MALFORMED, "it names something twice")
    return RequestedNames(tuple(dns), tuple(ips))


def check_node(node: Node | None, name: str, *, owned: bool) -> Node:
    """Return the Node. Raises WaitError if there is none, it is being deleted, has no providerID, or belongs to another
    cloud. `owned`: whether its providerID is one of this provider's."""
    if node is None:
        raise WaitError(Reason.NODE, f"there is no Node {quoted(name)}")
    if node.metadata.deletion_timestamp:
        raise WaitError(Reason.NODE, "its Node is being deleted")
    if not node.spec.provider_id:
        raise WaitError(Reason.NODE, "its Node is not initialised: it has no providerID")
    if not owned:
        raise WaitError(Reason.NODE, f"its Node's providerID {quoted(node.spec.provider_id)} is not of this cloud")
    return node


def check_instance(
    node: Node, by_id: Instance, by_name: Instance, *, same: bool, claimants: Iterable[Node], gone_for: float | None
) -> None:
    """Check that the cloud's instance is the requester's machine, is described completely, and runs. Raises WaitError.

    `by_id`: the instance with the Node's providerID; `by_name`: the only one with the Node's name; `same`: whether they
    are one instance. `claimants`: all Nodes with this providerID. `gone_for`: seconds since the cloud reported the
    instance gone, or None.

    The name and the providerID must lead to one instance. A kubelet writes its providerID, so a Node whose name is no
    instance's name could claim any machine. A machine that replaced another one may have the former machine's name.
    """
    if not same or not by_id.is_named(node.metadata.name):
        raise WaitError(
            Reason.INSTANCE,
            f"instance {by_name.provider_id} has the Node's name, and its Node's providerID is "
            f"{quoted(node.spec.provider_id)}: if the machine was replaced, delete the Node, so that it registers "
            "again",
        )
    if problem := vouching_rules.other_holder(node, by_id, claimants):
        raise WaitError(Reason.INSTANCE, problem)
    if problem := vouching_rules.former_machine(by_id, gone_for):
        raise WaitError(Reason.INSTANCE, problem)
    if by_id.incomplete:
        raise WaitError(Reason.INSTANCE, f"the cloud cannot describe instance {by_id.provider_id}: {by_id.incomplete}")
    if by_id.state is not InstanceState.RUNNING:
        raise WaitError(Reason.INSTANCE, f"the cloud says that instance {by_id.provider_id} is {by_id.state.value}")


def check_names(requested: RequestedNames, instance: Instance) -> None:
    """Check that the cloud reports all requested names and addresses for the instance. Raises WaitError, which
    names those that the cloud does not report."""
    names = _own_names(instance)
    ips = {
        parsed
        for address in instance.addresses
        if address.type in _IPS and (parsed := _ip(address.address)) is not None
    }
    foreign = [quoted(name) for name in requested.dns_names if name not in names]
    foreign += [str(ip) for ip in requested.ips if ip not in ips]
    if foreign:
        has = [*sorted(names), *sorted(map(str, ips))]
        raise WaitError(
            Reason.NAMES,
            f"it asks for {shorten(', '.join(foreign), LISTED)}, and the cloud says that instance "
            f"{instance.provider_id} has {shorten(', '.join(has), LISTED) or 'nothing'}",
        )


def _own_names(instance: Instance) -> set[str]:
    """Return the names under which the instance's Node may register, and its host and DNS names, in lower case."""
    listed = (each.address for each in instance.addresses if each.type not in _IPS)
    return {name.lower() for name in (*instance.names, *listed)}


def _ip(text: str) -> IP | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def approval(request: SigningRequest, instance: Instance, now: str) -> dict[str, Any]:
    """Return the merge patch of `approval` for exactly the request that was judged. `now`: RFC 3339."""
    meta = request.metadata
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "CloudVouches",
        "message": f"The cloud says that instance {instance.provider_id} has all names and addresses of this request.",
        "lastUpdateTime": now,
    }
    return {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"conditions": [condition]},
    }


def message(request: SigningRequest, problem: Exception) -> str:
    """Return the message of an Event about a request that waits."""
    return (
        f"CertificateSigningRequest {request.metadata.name} for the kubelet's serving certificate is not approved: "
        f"{problem}"
    )


def addresses_changed(old: Node | None, new: Node) -> bool:
    """Return whether to judge the Node's requests again: the Node is new, was initialised, or has other addresses."""
    return (
        old is None
        or old.metadata.uid != new.metadata.uid
        or old.spec.provider_id != new.spec.provider_id
        or _listed(old) != _listed(new)
    )


def _listed(node: Node) -> Sequence[tuple[str, str]]:
    return [(each.type, each.address) for each in node.status.addresses]
