# SPDX-License-Identifier: Apache-2.0
"""CertificateSigningRequests as the cache keeps them. No I/O, and no parser of certificates, because a standby imports
this."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from ccm.engine.objects import ObjectMeta

from ..shared.watched_kinds import Watched

GROUP = "certificates.k8s.io"
#: The signer of the certificates with which kubelets serve (KEP-1513).
SIGNER = "kubernetes.io/kubelet-serving"
#: The group of all kubelets, as requester and as the organisation in the request.
NODES_GROUP = "system:nodes"
#: The maximum size of one request, in bytes. A kubelet's has less than 2 KiB, even with an RSA key and many addresses.
REQUEST_BYTES = 16 * 1024
#: How many key usages of one request are kept. A kubelet names three at most.
USAGES = 10


class RequestCondition(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    type: str = ""


class SigningRequestSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    """What is requested, and by whom. `request`: PEM. `username` and `groups`: who created it; the API server sets
    them."""

    signer_name: str = ""
    username: str = ""
    groups: list[str] = []
    usages: list[str] = []
    request: bytes = b""


class SigningRequestStatus(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    conditions: list[RequestCondition] = []


class SigningRequest(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    MESSAGE: ClassVar[str] = "k8s.io.api.certificates.v1.CertificateSigningRequest"
    metadata: ObjectMeta = ObjectMeta()
    spec: SigningRequestSpec = SigningRequestSpec()
    status: SigningRequestStatus = SigningRequestStatus()


def is_waiting(request: SigningRequest) -> bool:
    """Return whether this is a request for a kubelet's serving certificate that is neither approved, denied, failed,
    nor being deleted."""
    return (
        request.spec.signer_name == SIGNER and not request.status.conditions and not request.metadata.deletion_timestamp
    )


def kept_request(request: SigningRequest) -> SigningRequest:
    """Return what the cache keeps of a request: identity, signer and requester. In addition, it keeps the usages and
    bytes, at most one more than the limits, of a request that waits, and the first condition of any other request."""
    meta, spec = request.metadata, request.spec
    identity = ObjectMeta(
        meta.name, "", meta.uid, meta.resource_version, meta.creation_timestamp, meta.deletion_timestamp
    )
    if not is_waiting(request):
        short = SigningRequestSpec(spec.signer_name, spec.username)
        return SigningRequest(identity, short, SigningRequestStatus(request.status.conditions[:1]))
    trimmed = replace(
        spec,
        groups=[NODES_GROUP] if NODES_GROUP in spec.groups else [],
        usages=spec.usages[: USAGES + 1],
        request=spec.request[: REQUEST_BYTES + 1],
    )
    return SigningRequest(identity, trimmed)


SIGNING_REQUESTS: Watched[SigningRequest] = Watched(
    "certificatesigningrequests", SigningRequest, group=GROUP, keep=kept_request
)
