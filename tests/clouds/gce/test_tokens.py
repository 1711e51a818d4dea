# SPDX-License-Identifier: Apache-2.0
"""Tokens from a service account's key, from workload identity federation, and from the metadata server: how the
provider gets and renews them, and that it shows no secret."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud import ConfigError, InstanceRef, ProviderConfig, Transient, Unauthorized
from ccm.cloud.toolkit.access_tokens import EARLY
from ccm.providers.gce import GceCloud

from .face import PEM, SUBJECT, Face, running
from .project import PROJECT, ZONES, Project
from .world import config, gce


@pytest.fixture
async def face():
    project = Project()
    project.add("worker-0")
    async with running(project) as found:
        yield found


def cloud_with(face: Face, credentials: Path | None, **environment: str) -> GceCloud:
    text = f"[global]\napi-endpoint = {face.url}/compute/v1\n"
    variables = {"GCE_METADATA_HOST": face.host, **environment}
    if credentials is not None:
        variables["GOOGLE_APPLICATION_CREDENTIALS"] = str(credentials)
    return GceCloud(ProviderConfig(text, "gce.conf", variables))


async def test_on_gce_no_file_is_needed(face: Face) -> None:
    """On Compute Engine, project, zone and token come from the metadata server."""
    cloud = cloud_with(face, None)
    await cloud.start()
    found = await cloud.instances.get(InstanceRef("worker-0"))
    assert found.provider_id == f"gce://{PROJECT}/{ZONES[0]}/worker-0" and face.granted == {"metadata": 1}
    await cloud.close()


async def test_a_key_says_its_project(face: Face, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(face.key_file())
    cloud = cloud_with(face, path)
    assert list(cloud.watched_files) == [str(path)]
    await cloud.start()
    assert cloud.instances.owns(f"gce://{PROJECT}/{ZONES[0]}/worker-0") and face.granted == {"key": 1}
    await cloud.close()


@pytest.mark.parametrize("impersonates", [False, True])
@pytest.mark.parametrize("form", ["text", "json"])
async def test_workload_identity_federation(face: Face, tmp_path: Path, form: str, impersonates: bool) -> None:
    subject = tmp_path / "token"
    subject.write_text(f"{SUBJECT}\n" if form == "text" else json.dumps({"id": SUBJECT}))
    found: dict[str, Any] = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/kube/providers/kube",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{face.url}/token",
        "credential_source": {"file": str(subject)},
    }
    if form == "json":
        found["credential_source"]["format"] = {"type": "json", "subject_token_field_name": "id"}
    if impersonates:
        found["service_account_impersonation_url"] = f"{face.url}/impersonate"
    path = tmp_path / "federation.json"
    path.write_text(json.dumps(found))
    cloud = cloud_with(face, path)
    await cloud.start()
    assert (await cloud.instances.list_page(None)).instances
    assert face.granted == ({"federation": 1, "impersonation": 1} if impersonates else {"federation": 1})
    other = SUBJECT.replace("projected", "another")
    subject.write_text(other if form == "text" else json.dumps({"id": other}))
    await cloud.close()
    cloud = cloud_with(face, path)
    with pytest.raises(Unauthorized, match="invalid_grant") as raised:
        await cloud.start()
    assert other not in str(raised.value)
    subject.unlink()
    with pytest.raises(Unauthorized, match=r"cannot read .*token: No such file"):
        await cloud.start()
    await cloud.close()


async def test_a_token_serves_many_calls_and_is_renewed_before_its_end(face: Face, tmp_path: Path) -> None:
    cloud = GceCloud(config(face, tmp_path))
    now = 1000.0
    cloud._api._tokens._monotonic = lambda: now
    await cloud.start()
    await asyncio.gather(*(cloud.instances.list_page(None) for _ in range(20)))
    assert face.granted == {"key": 1}
    now += face.lifetime - EARLY + 1
    await asyncio.gather(*(cloud.instances.list_page(None) for _ in range(20)))
    assert face.granted == {"key": 2}
    await cloud.close()


async def test_a_refused_token_is_renewed_once(face: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccm.cloud.toolkit.access_tokens.PAUSE", 0.0)
    cloud = GceCloud(config(face, tmp_path))
    await cloud.start()
    face.tokens.clear()  # as after the key of the account was disabled and enabled again
    assert (await cloud.instances.list_page(None)).instances
    assert face.granted == {"key": 2}
    await cloud.close()


async def test_a_wrong_key_is_unauthorized_and_not_shown(face: Face, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "key.json").write_text(face.key_file(client_email="someone@else.example"))
    cloud = GceCloud(config(face, tmp_path))
    with pytest.raises(Unauthorized, match=r"Invalid JWT: .*key\.json") as raised:
        await cloud.start()
    shown = f"{raised.value} {cloud!r} {vars(cloud)} {caplog.text}"
    assert "eyJ" not in shown and not any(line in shown for line in PEM.splitlines()[1:-1])
    await cloud.close()


async def test_without_a_file_and_elsewhere_the_message_says_what_to_set() -> None:
    async with gce(1) as (face, _):
        host = face.host
    cloud = GceCloud(ProviderConfig("", "(no --cloud-config)", {"GCE_METADATA_HOST": host}))
    with pytest.raises(Transient, match="project-id is not set, and the metadata server does not say it"):
        await cloud.start()
    await cloud.close()


async def test_a_file_that_is_no_key_is_a_config_error(face: Face, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    cloud = GceCloud(config(face, tmp_path))
    for content, problem in {
        "": "it is not a JSON object",
        '{"type": "authorized_user"}': 'type: expected "service_account" or "external_account"',
        '{"type": "service_account", "client_email": "a@b"}': "private_key: is missing",
    }.items():
        path.write_text(content)
        with pytest.raises(ConfigError, match=problem):
            await cloud.start()
    path.unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*key.json: No such file"):
        await cloud.start()
    await cloud.close()
