# SPDX-License-Identifier: Apache-2.0
"""A private certificate authority for one address, as many sites have for their services."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFE = datetime.timedelta(days=30)


def server(folder: Path, address: str) -> ssl.SSLContext:
    """Return a context for a server at `address` with ``server.pem`` of this folder; clients trust ``ca.crt``. Both
    files are made if ``server.pem`` is missing."""
    pair = folder / "server.pem"
    if not pair.exists():
        folder.mkdir(parents=True, exist_ok=True)
        authority, certificate, key = _made(address)
        (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
        unencrypted = serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)
        pair.touch(mode=0o600)
        pair.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return context


def _made(address: str) -> tuple[x509.Certificate, x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority's certificate, and the server's certificate and key. The authority's key is not kept."""
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("authority of the rig")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    authority = (
        _builder(issuer, issuer, root.public_key())
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(usage, True)
        .sign(root, hashes.SHA256())
    )
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    certificate = (
        _builder(_name(address), issuer, key.public_key()).add_extension(alternative, False).sign(root, hashes.SHA256())
    )
    return authority, certificate, key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFE)
    )
