# SPDX-License-Identifier: Apache-2.0
"""Reads and creates certificates. `certificates` imports this module only when it is used, because the import takes 60
ms and 10 MiB. As a program, it prints a self-signed certificate with its key."""

from __future__ import annotations

import datetime
import ipaddress
import sys
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def names_in(pem: bytes) -> tuple[str, ...]:
    """Return the DNS names of a certificate; its common names if it has no alternative names at all. Raises ValueError
    if `pem` is no certificate."""
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return tuple(names.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        common: Iterable[x509.NameAttribute[str | bytes]] = certificate.subject.get_attributes_for_oid(
            x509.NameOID.COMMON_NAME
        )
        return tuple(str(name.value) for name in common)


def self_signed() -> bytes:
    """Return key and certificate for localhost, valid for a year, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cloud-controller-manager")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))],
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)


if __name__ == "__main__":
    sys.stdout.buffer.write(self_signed())
