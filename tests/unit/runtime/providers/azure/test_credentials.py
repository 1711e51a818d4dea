# SPDX-License-Identifier: Apache-2.0
"""The certificate of an application: its forms, what it signs, and that no message contains the key."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from ccm.cloud import ConfigError
from ccm.providers.azure.credentials import parse

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = ec.generate_private_key(ec.SECP256R1())
PLAIN = serialization.NoEncryption()
LOCKED = serialization.BestAvailableEncryption(b"hush")


def certificate(key: Any) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ccm")])
    start, end = datetime.datetime(2026, 1, 1), datetime.datetime(2046, 1, 1)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1).not_valid_before(start).not_valid_after(end)
    return made.sign(key, hashes.SHA256())


CERTIFICATE = certificate(KEY)
CERTIFICATE_PEM = CERTIFICATE.public_bytes(serialization.Encoding.PEM)


def pem(key: Any, protection: Any = PLAIN, form: Any = serialization.PrivateFormat.PKCS8) -> bytes:
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, protection))


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (CERTIFICATE_PEM + pem(KEY), ""),
        (pem(KEY) + CERTIFICATE_PEM, ""),
        (pem(KEY) + CERTIFICATE_PEM, "a password that nobody needs"),
        (pem(KEY, form=serialization.PrivateFormat.TraditionalOpenSSL) + CERTIFICATE_PEM, ""),
        (CERTIFICATE_PEM + pem(KEY, LOCKED), "hush"),
        (pkcs12.serialize_key_and_certificates(b"a", KEY, CERTIFICATE, None, PLAIN), ""),
        (pkcs12.serialize_key_and_certificates(b"a", KEY, CERTIFICATE, None, LOCKED), "hush"),
    ],
)
def test_forms(content: bytes, password: str) -> None:
    found = parse(content, password, "a.pem")
    assert found.fingerprint == CERTIFICATE.fingerprint(hashes.SHA256())
    assert "key" not in repr(found) and "fingerprint" not in repr(found)


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"", ""),
        (b"hush", ""),
        (CERTIFICATE_PEM, ""),
        (pem(KEY), ""),
        (CERTIFICATE_PEM + pem(KEY, LOCKED), ""),
        (CERTIFICATE_PEM + pem(KEY, LOCKED), "wrong"),
        (certificate(OTHER).public_bytes(serialization.Encoding.PEM) + pem(OTHER), ""),
        (pkcs12.serialize_key_and_certificates(b"a", KEY, CERTIFICATE, None, LOCKED), "wrong"),
    ],
)
def test_what_is_no_certificate_with_its_key(content: bytes, password: str) -> None:
    with pytest.raises(ConfigError, match=r"a\.pem: expected a certificate and its RSA key") as raised:
        parse(content, password, "a.pem")
    assert "hush" not in str(raised.value) and "wrong" not in str(raised.value)


def test_an_assertion_is_what_entra_asks_for() -> None:
    found = parse(CERTIFICATE_PEM + pem(KEY), "", "a.pem")
    head, claims, signature = found.assertion("https://login/t/token", "client", "42", 1_700_000_000.7).split(".")
    named = json.loads(_bytes(head))
    assert (named["alg"], named["typ"]) == ("PS256", "JWT") and _bytes(named["x5t#S256"]) == found.fingerprint
    assert json.loads(_bytes(claims)) == {
        "aud": "https://login/t/token",
        "iss": "client",
        "sub": "client",
        "jti": "42",
        "nbf": 1_700_000_000,
        "exp": 1_700_000_600,
    }
    salted = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    KEY.public_key().verify(_bytes(signature), f"{head}.{claims}".encode(), salted, hashes.SHA256())


def _bytes(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
