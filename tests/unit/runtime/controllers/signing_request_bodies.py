# SPDX-License-Identifier: Apache-2.0
"""Requests for serving certificates: valid ones, as kubelets send them, and invalid ones."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ccm.controllers.serving_certificates.signing_requests import SIGNER, SigningRequest, SigningRequestSpec
from ccm.engine.objects import ObjectMeta

KEY = ec.generate_private_key(ec.SECP256R1())
USAGES = ["digital signature", "server auth"]
GROUPS = ["system:nodes", "system:authenticated"]


def san(name: str) -> x509.GeneralName:
    """Return the name as a SAN: an IP address, or else a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def pem(
    common_name: str = "system:node:n1",
    names: Sequence[str | x509.GeneralName] = ("n1", "10.0.0.1"),
    *,
    organisations: Sequence[str] = ("system:nodes",),
    subject: Sequence[x509.NameAttribute] = (),
    extensions: Sequence[x509.ExtensionType] = (),
    attributes: Sequence[tuple[x509.ObjectIdentifier, bytes]] = (),
) -> bytes:
    """Return a signed request. `subject`, `extensions` and `attributes` are added to what a kubelet sends."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations]
    if common_name:
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([*parts, *subject]))
    if names:
        alternatives = [each if isinstance(each, x509.GeneralName) else san(each) for each in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    for oid, value in attributes:
        builder = builder.add_attribute(oid, value)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def request(
    content: bytes | None = None,
    *,
    name: str = "csr-1",
    username: str = "system:node:n1",
    groups: Sequence[str] = GROUPS,
    usages: Sequence[str] = USAGES,
    created: str = "2026-01-01T00:00:00Z",
    **status: Any,
) -> SigningRequest:
    spec = SigningRequestSpec(SIGNER, username, list(groups), list(usages), pem() if content is None else content)
    return SigningRequest(ObjectMeta(name, "", "uid-1", "7", created), spec, **status)
