# SPDX-License-Identifier: Apache-2.0
"""Files with Google's credentials: what they mean, every mistake, and that no message contains a secret."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from ccm.cloud import ConfigError, Transient, Unauthorized
from ccm.providers.gce.credentials import SCOPE, STS_URL, TOKEN_URL, Federation, ServiceAccountKey, parse
from ccm.providers.gce.tokens import impersonated

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: Any) -> str:
    form = serialization.PrivateFormat.PKCS8
    return str(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode())


ACCOUNT = {"type": "service_account", "client_email": "ccm@p.iam.gserviceaccount.com", "private_key": pem(KEY)}
POOL = {
    "type": "external_account",
    "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/a/providers/b",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "credential_source": {"file": "/token"},
}


def read(key: dict[str, Any]) -> ServiceAccountKey | Federation:
    return parse(json.dumps(key), "key.json")


def test_an_assertion_is_what_google_asks_for() -> None:
    key = read({**ACCOUNT, "private_key_id": "9ba2", "project_id": "p"})
    assert isinstance(key, ServiceAccountKey) and (key.project, key.token_url) == ("p", TOKEN_URL)
    head, claims, signature = key.assertion(1_700_000_000.7).split(".")
    assert json.loads(_bytes(head)) == {"alg": "RS256", "typ": "JWT", "kid": "9ba2"}
    assert json.loads(_bytes(claims)) == {
        "iss": ACCOUNT["client_email"],
        "scope": SCOPE,
        "aud": TOKEN_URL,
        "iat": 1_700_000_000,
        "exp": 1_700_003_600,
    }
    KEY.public_key().verify(_bytes(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())


def _bytes(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def test_a_representation_has_no_key() -> None:
    assert "BEGIN" not in repr(read(ACCOUNT)) and "private_key" not in repr(read(ACCOUNT))


def test_federation() -> None:
    found = read(POOL)
    assert isinstance(found, Federation)
    assert (found.file, found.field, found.token_url, found.impersonation_url) == ("/token", "", STS_URL, "")
    assert found.subject(" abc\n") == "abc"


def test_a_token_in_json() -> None:
    source = {"file": "/token", "format": {"type": "json", "subject_token_field_name": "id"}}
    found = read({**POOL, "credential_source": source})
    assert isinstance(found, Federation) and found.subject('{"id": "abc"}') == "abc"
    for content in ("abc", "[]", "{}", '{"id": 1}', '{"id": ""}'):
        with pytest.raises(Unauthorized, match="/token: "):
            found.subject(content)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"private_key": "hush"}, "private_key: it is no RSA key in PEM"),
        ({"private_key": pem(ec.generate_private_key(ec.SECP256R1()))}, "private_key: it is no RSA key in PEM"),
        ({"private_key": 1}, "private_key: expected a text"),
        ({"client_email": None}, "client_email: is missing"),
        ({"token_uri": "https://user:hush@host/"}, "token_uri: expected https://HOST/PATH, without credentials"),
    ],
)
def test_mistakes_in_a_key(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read({**ACCOUNT, **change})
    assert raised.value.problems == [f"key.json: {problem}"] and "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"audience": ""}, "audience: expected a text"),
        ({"credential_source": {"url": "http://169.254.169.254"}}, "credential_source: only a file"),
        ({"credential_source": {"file": "/t", "format": {"type": "xml"}}}, 'expected "text" or "json"'),
        ({"credential_source": {"file": "/t", "format": {"type": "json"}}}, "subject_token_field_name: is missing"),
        ({"token_url": "ftp://sts"}, "token_url: expected https"),
    ],
)
def test_mistakes_in_federation(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read({**POOL, **change})


def test_the_token_of_a_service_account_ends_when_google_says() -> None:
    answer = {"accessToken": "ya29.x", "expireTime": "2023-11-14T23:13:20Z"}
    assert impersonated(answer, "https://iam", 1_700_000_000).lifetime == 3600
    for broken in ({}, {**answer, "expireTime": "soon"}, {**answer, "accessToken": "a b"}):
        with pytest.raises(Transient, match="no access token"):
            impersonated(broken, "https://iam", 1_700_000_000)
    with pytest.raises(Transient):
        impersonated(answer, "https://iam", 1_700_003_600)
