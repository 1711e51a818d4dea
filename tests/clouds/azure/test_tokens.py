# SPDX-License-Identifier: Apache-2.0
"""Tokens for a secret, a certificate, a federated token, and for managed identities: how the provider gets and renews
them, and that it shows no secret."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from ccm.cloud import ConfigError, ProviderConfig, Unauthorized
from ccm.cloud.toolkit.access_tokens import EARLY
from ccm.providers.azure import AzureCloud

from .face import CERTIFICATE, CLIENT, FEDERATED, KEY, PEM, SECRET, Face, running
from .world import config, filled


@pytest.fixture
async def face():
    async with running(filled()) as found:
        yield found


async def granted(face: Face, settings: ProviderConfig) -> dict[str, int]:
    """Start a provider, and return how many times each kind of credentials got a token."""
    cloud = AzureCloud(settings)
    try:
        await cloud.start()
        assert (await cloud.instances.list_page(None)).instances
    finally:
        await cloud.close()
    return face.granted


def in_environment(settings: ProviderConfig, **variables: str) -> ProviderConfig:
    return dataclasses.replace(settings, environment={**settings.environment, **variables})


async def test_a_secret(face: Face) -> None:
    assert await granted(face, config(face)) == {"secret": 1}


async def test_a_secret_from_the_environment_counts_first(face: Face) -> None:
    given = config(face, aadClientSecret="another", aadClientId="another")
    given = in_environment(given, AZURE_CLIENT_ID=CLIENT, AZURE_CLIENT_SECRET=SECRET)
    assert await granted(face, given) == {"secret": 1}


@pytest.mark.parametrize("form", ["pem", "pem with password", "pkcs12", "pkcs12 with password"])
async def test_a_certificate(face: Face, tmp_path: Path, form: str) -> None:
    path, password = tmp_path / "certificate", b"hush-password" if "password" in form else None
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    if "pkcs12" in form:
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"ccm", KEY, CERTIFICATE, None, protection))
    else:
        key = KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
        path.write_bytes(CERTIFICATE.public_bytes(serialization.Encoding.PEM) + key)
    more = {"aadClientCertPassword": password.decode()} if password else {}
    given = config(face, aadClientSecret=None, aadClientCertPath=str(path), **more)
    assert list(AzureCloud(given).watched_files) == [str(path)]
    assert await granted(face, given) == {"certificate": 1}


async def test_a_wrong_password_of_a_certificate_is_a_config_error(face: Face, tmp_path: Path) -> None:
    path = tmp_path / "certificate.pfx"
    protection = serialization.BestAvailableEncryption(b"right")
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"ccm", KEY, CERTIFICATE, None, protection))
    given = config(face, aadClientSecret=None, aadClientCertPath=str(path), aadClientCertPassword="hush-wrong")
    with pytest.raises(ConfigError, match=r"certificate\.pfx: expected a certificate and its RSA key") as raised:
        await granted(face, given)
    assert "hush" not in str(raised.value)
    path.unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*certificate\.pfx: No such file"):
        await granted(face, given)


@pytest.mark.parametrize("by", ["environment", "file"])
async def test_workload_identity(face: Face, tmp_path: Path, by: str) -> None:
    token = tmp_path / "token"
    token.write_text(f"{FEDERATED}\n")
    if by == "environment":
        given = in_environment(config(face), AZURE_FEDERATED_TOKEN_FILE=str(token))
    else:
        more = {"useFederatedWorkloadIdentityExtension": True, "aadFederatedTokenFile": str(token)}
        given = config(face, aadClientSecret=None, **more)
    assert await granted(face, given) == {"federated": 1}
    token.unlink()
    with pytest.raises(Unauthorized, match=r"cannot read .*token: No such file"):
        await granted(face, given)


@pytest.mark.parametrize(
    ("identity", "kind"),
    [(None, "identity"), (CLIENT, f"identity {CLIENT}"), ("/subscriptions/s/x/y", "identity /subscriptions/s/x/y")],
)
async def test_a_managed_identity(face: Face, identity: str | None, kind: str) -> None:
    """azure.json of AKS Engine and others has `msi` instead of the client's ID and secret."""
    more = {"useManagedIdentityExtension": True, "userAssignedIdentityID": identity, "tenantId": None}
    given = config(face, aadClientId="msi", aadClientSecret="msi", **more)
    assert await granted(face, given) == {kind: 1}


async def test_an_identity_that_the_machine_does_not_have_is_unauthorized(face: Face) -> None:
    given = config(face, useManagedIdentityExtension=True, userAssignedIdentityID="somebody")
    with pytest.raises(Unauthorized, match=r"Identity not found.*the managed identity"):
        await granted(face, given)


async def test_a_token_serves_many_calls_and_is_renewed_before_its_end(face: Face) -> None:
    cloud = AzureCloud(config(face))
    now = 1000.0
    cloud._api._tokens._monotonic = lambda: now
    await cloud.start()
    await asyncio.gather(*(cloud.instances.list_page("pool-a") for _ in range(20)))
    assert face.granted == {"secret": 1}
    now += face.lifetime - EARLY + 1
    await asyncio.gather(*(cloud.instances.list_page("pool-a") for _ in range(20)))
    assert face.granted == {"secret": 2}
    await cloud.close()


async def test_a_refused_token_is_renewed_once(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccm.cloud.toolkit.access_tokens.PAUSE", 0.0)
    cloud = AzureCloud(config(face))
    await cloud.start()
    face.tokens.clear()
    assert (await cloud.instances.list_page("pool-a")).instances
    assert face.granted == {"secret": 2}
    await cloud.close()


async def test_a_wrong_secret_is_unauthorized_and_not_shown(face: Face, caplog: Any) -> None:
    """The stand-in for Microsoft Entra ID quotes the secret in its error, but nothing shows it."""
    caplog.set_level(logging.DEBUG)
    cloud = AzureCloud(config(face, aadClientSecret="hush-wrong-secret"))
    with pytest.raises(Unauthorized, match=r"AADSTS7000215.*azure\.json") as raised:
        await cloud.start()
    assert "hush" not in f"{raised.value} {cloud!r} {vars(cloud)} {caplog.text}"
    await cloud.close()


async def test_no_representation_has_a_key(face: Face, tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    path.write_text(PEM)
    cloud = AzureCloud(config(face, aadClientSecret=None, aadClientCertPath=str(path)))
    await cloud.start()
    shown = f"{cloud!r} {vars(cloud)} {vars(cloud._api)} {vars(cloud._api._entra)}"
    assert not any(line in shown for line in PEM.splitlines() if "-----" not in line)
    await cloud.close()
