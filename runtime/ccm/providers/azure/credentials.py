# SPDX-License-Identifier: Apache-2.0
"""The certificate of an application of Microsoft Entra ID, and the assertions that it signs. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from ccm.cloud import ConfigError

#: How long an assertion is valid, in seconds.
LIFETIME = 600
BY_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True)
class Certificate:
    key: rsa.RSAPrivateKey = field(repr=False)
    fingerprint: bytes = field(repr=False)

    def assertion(self, url: str, client: str, number: str, now: float) -> str:
        """Return the signed claim that authenticates the application at `url` (RFC 7523). `number`: a text that is
        different each time. `now`: Unix time in seconds."""
        head = {"alg": "PS256", "typ": "JWT", "x5t#S256": _encoded(self.fingerprint)}
        claims = {
            "aud": url,
            "iss": client,
            "sub": client,
            "jti": number,
            "nbf": int(now),
            "exp": int(now) + LIFETIME,
        }
        signed = f"{_segment(head)}.{_segment(claims)}"
        salted = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
        return f"{signed}.{_encoded(self.key.sign(signed.encode(), salted, hashes.SHA256()))}"


def parse(content: bytes, password: str, path: str) -> Certificate:
    """Return the certificate and its key in a file, PEM or PKCS #12. Raises ConfigError."""
    secret = password.encode() if password else None
    try:
        if b"-----BEGIN" in content:
            key: Any = serialization.load_pem_private_key(_keys(content), secret if b"ENCRYPTED" in content else None)
            certificate: x509.Certificate | None = x509.load_pem_x509_certificate(content)
        else:
            key, certificate, _ = pkcs12.load_key_and_certificates(content, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = certificate = None
    if not isinstance(key, rsa.RSAPrivateKey) or certificate is None:
        raise ConfigError(
            [f"{path}: expected a certificate and its RSA key, in PEM or PKCS #12; is aadClientCertPassword right?"]
        )
    return Certificate(key, certificate.fingerprint(hashes.SHA256()))


def _keys(content: bytes) -> bytes:
    """Return the lines of private keys in a PEM file, without the certificate, which may come first."""
    lines, kept = content.splitlines(keepends=True), b""
    within = False
    for line in lines:
        within = within or (line.startswith(b"-----BEGIN") and b"PRIVATE KEY" in line)
        kept += line if within else b""
        within = within and not line.startswith(b"-----END")
    return kept


def _segment(value: Mapping[str, Any]) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
