# SPDX-License-Identifier: Apache-2.0
"""Parses files with Google's credentials: the key of a service account, or workload identity federation. No I/O.

Neither messages nor the `repr` of an object show a secret.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from ccm.cloud import ConfigError, Unauthorized

#: The scope of all tokens for the API. It allows only reads, because the provider never writes.
SCOPE = "https://www.googleapis.com/auth/compute.readonly"
#: With federation, the scope of the token that requests a service account's token.
PLATFORM_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URL = "https://oauth2.googleapis.com/token"
STS_URL = "https://sts.googleapis.com/v1/token"
#: How long an assertion is valid, in seconds: the longest that Google accepts.
LIFETIME = 3600
URL = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")


@dataclass(frozen=True)
class ServiceAccountKey:
    """The key of a service account. `project`: the account's project, "" if the file does not name it."""

    email: str
    key: rsa.RSAPrivateKey = field(repr=False)
    key_id: str = ""
    token_url: str = TOKEN_URL
    project: str = ""

    def assertion(self, now: float) -> str:
        """Return the signed claim that is exchanged for a token (RFC 7523). `now`: Unix time in seconds."""
        claims = {
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_url,
            "iat": int(now),
            "exp": int(now) + LIFETIME,
        }
        head = {"alg": "RS256", "typ": "JWT", **({"kid": self.key_id} if self.key_id else {})}
        signed = f"{_segment(head)}.{_segment(claims)}"
        return f"{signed}.{_encoded(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@dataclass(frozen=True)
class Federation:
    """A token of another issuer, in a file that is read for each exchange. `field`: the token's field if that file is
    JSON, "" if the file is the token itself. `impersonation_url`: the URL that returns a token of the service account,
    "" without a service account."""

    audience: str
    token_type: str
    file: str
    field: str = ""
    token_url: str = STS_URL
    impersonation_url: str = ""

    def subject(self, content: str) -> str:
        """Return the token in the file's content. Raises Unauthorized if there is none."""
        token: Any = content.strip()
        if self.field:
            try:
                token = json.loads(content)[self.field]
            except (ValueError, LookupError, TypeError, RecursionError):
                raise Unauthorized(f"{self.file}: it has no JSON object with the field {self.field}") from None
        if not isinstance(token, str) or not token:
            raise Unauthorized(f"{self.file}: it contains no token")
        return token


def parse(content: str, path: str) -> ServiceAccountKey | Federation:
    """Parse the file at `path`. Raises ConfigError with all of its problems."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ConfigError([f"{path}: it is not a JSON object"])
    match document.get("type"):
        case "service_account":
            return _service_account(document, path)
        case "external_account":
            return _federation(document, path)
    raise ConfigError([f'{path}: type: expected "service_account" or "external_account"'])


def _service_account(document: Mapping[str, Any], path: str) -> ServiceAccountKey:
    reader = _Reader(document, path)
    email, pem = reader.text("client_email"), reader.text("private_key")
    key_id, url = reader.text("private_key_id", ""), reader.url("token_uri", TOKEN_URL)
    project = reader.text("project_id", "")
    private: Any = None
    if pem:
        with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
            private = serialization.load_pem_private_key(pem.encode(), password=None)
        if not isinstance(private, rsa.RSAPrivateKey):
            reader.problems.append(f"{path}: private_key: it is no RSA key in PEM")
    reader.finish()
    return ServiceAccountKey(email, private, key_id, url, project)


def _federation(document: Mapping[str, Any], path: str) -> Federation:
    reader = _Reader(document, path)
    audience, kind = reader.text("audience"), reader.text("subject_token_type")
    url = reader.url("token_url", STS_URL)
    impersonation = reader.url("service_account_impersonation_url", "")
    source = document.get("credential_source")
    file = name = ""
    if not isinstance(source, dict) or not isinstance(source.get("file"), str) or not source["file"]:
        reader.problems.append(f"{path}: credential_source: only a file with the token is supported")
    else:
        file = source["file"]
        form = source.get("format") or {}
        if isinstance(form, dict) and form.get("type", "text") in ("text", "json"):
            name = str(form.get("subject_token_field_name") or "") if form.get("type") == "json" else ""
        else:
            reader.problems.append(f'{path}: credential_source.format.type: expected "text" or "json"')
        if isinstance(form, dict) and form.get("type") == "json" and not name:
            reader.problems.append(f"{path}: credential_source.format.subject_token_field_name: is missing")
    reader.finish()
    return Federation(audience, kind, file, name, url, impersonation)


class _Reader:
    """Takes texts out of a JSON object and collects problems."""

    def __init__(self, document: Mapping[str, Any], path: str) -> None:
        self._document, self._path = document, path
        self.problems: list[str] = []

    def text(self, name: str, default: str | None = None) -> str:
        value = self._document.get(name, default)
        if isinstance(value, str) and (value or default == ""):
            return value
        self.problems.append(f"{self._path}: {name}: {'is missing' if value is None else 'expected a text'}")
        return ""

    def url(self, name: str, default: str) -> str:
        value = self.text(name, default) or default
        if value and not URL.fullmatch(value):
            self.problems.append(f"{self._path}: {name}: expected https://HOST/PATH, without credentials")
        return value

    def finish(self) -> None:
        if self.problems:
            raise ConfigError(self.problems)


def _segment(value: Mapping[str, Any]) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
