# SPDX-License-Identifier: Apache-2.0
"""The stand-in answers as Google does, and the provider's calls are as Google expects. Two oracles show that: Google's
published description of the API, and Google's own Python clients, which get tokens and read everything over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import google.auth.compute_engine
import google.auth.transport.requests
import pytest
from google.oauth2 import service_account
from googleapiclient import discovery
from googleapiclient.errors import HttpError

from ccm.cloud import CloudError, InstanceRef, NotFound
from ccm.providers.gce.credentials import SCOPE
from tests.clouds.stand_in import Exchange

from .description import method_of, problems
from .face import Face
from .project import NUMBER, PROJECT, ZONES
from .world import CONF, gce


async def journey() -> tuple[list[Exchange], list[str]]:
    """Make every kind of call that the provider makes. Return the calls, and what Google's clients read afterwards."""
    conf = CONF.replace("{project}", NUMBER)
    async with gce(5, page=2, conf=conf) as (face, cloud):
        token: str | None = None
        while True:
            page = await cloud.instances.list_page(token)
            if (token := page.next) is None:
                break
        known = page.instances[0]
        await cloud.instances.get(InstanceRef(known.name))
        await cloud.instances.get(InstanceRef(known.aliases[0]))
        await cloud.instances.get(InstanceRef(known.name, known.provider_id))
        with pytest.raises(NotFound):
            await cloud.instances.get(InstanceRef("nobody", f"gce://{PROJECT}/{ZONES[0]}/nobody"))
        with pytest.raises(NotFound):
            await cloud.instances.get(InstanceRef("nobody"))
        with contextlib.suppress(CloudError):
            await cloud.instances.get(InstanceRef("nobody", f"gce://{PROJECT}/europe-west9-z/nobody"))
        return list(face.exchanges), await asyncio.to_thread(told_by_the_clients, face)


def told_by_the_clients(face: Face) -> list[str]:
    key = service_account.Credentials.from_service_account_info(json.loads(face.key_file()), scopes=[SCOPE])
    compute: Any = discovery.build(
        "compute", "v1", credentials=key, client_options={"api_endpoint": f"{face.url}/compute/v1/"}
    )
    told = []
    request = compute.instances().aggregatedList(project=PROJECT, maxResults=2)
    while request is not None:
        answer = request.execute()
        for scope in answer["items"].values():
            told += [f"{row['name']} {row['status']}" for row in scope.get("instances", ())]
        request = compute.instances().aggregatedList_next(request, answer)
    row = compute.instances().get(project=PROJECT, zone=ZONES[1], instance="worker-1").execute()
    told.append(row["networkInterfaces"][0]["accessConfigs"][0]["natIP"])
    with pytest.raises(HttpError) as refused:
        compute.instances().get(project=PROJECT, zone=ZONES[1], instance="nobody").execute()
    told.append(refused.value.reason)
    told.append(compute.projects().get(project=NUMBER).execute()["name"])
    return told


async def test_every_call_and_answer_has_the_published_form() -> None:
    exchanges, _ = await journey()
    assert {problem for each in exchanges for problem in problems(each)} == set()
    asked = {found[0]["id"] for each in exchanges if (found := method_of(each))}
    assert asked == {"compute.instances.aggregatedList", "compute.instances.get", "compute.projects.get"}


async def test_the_provider_asks_for_the_smallest_scope_that_the_api_accepts() -> None:
    exchanges, _ = await journey()
    for each in exchanges:
        found = method_of(each)
        assert found is not None and SCOPE in found[0]["scopes"] and SCOPE.endswith(".readonly")


async def test_googles_client_reads_every_answer_with_a_token_of_its_own() -> None:
    _, said = await journey()
    assert [f"worker-{number} RUNNING" for number in range(5)] == sorted(said[:5])
    assert said[5].startswith("198.51.100.")
    assert said[6] == f"The resource 'projects/{PROJECT}/zones/{ZONES[1]}/instances/nobody' was not found"
    assert said[7] == PROJECT


async def test_googles_client_takes_the_token_of_the_metadata_server() -> None:
    async with gce(1) as (face, _):
        credentials = google.auth.compute_engine.Credentials(service_account_email="default", scopes=[SCOPE])

        def refresh() -> None:
            credentials.refresh(_redirected(face))

        await asyncio.to_thread(refresh)
        assert credentials.token in face.tokens


def _redirected(face: Face) -> Any:
    """Return a transport that sends requests for the metadata server to the stand-in."""
    send = google.auth.transport.requests.Request()

    def request(url: str, *arguments: Any, **more: Any) -> Any:
        return send(url.replace("metadata.google.internal", face.host), *arguments, **more)

    return request


@pytest.mark.parametrize(
    "spoilt", [{"id": "seven"}, {"status": "ASLEEP"}, {"surprise": 1}, {"labels": []}, {"name": "No Name"}]
)
async def test_another_form_is_noticed(spoilt: dict[str, object]) -> None:
    async with gce(1) as (face, _):
        exchange = face.exchanges[-1]
        assert list(problems(exchange)) == []
        exchange.answer["items"][f"zones/{ZONES[0]}"]["instances"][0].update(spoilt)
        assert list(problems(exchange)) != []


@pytest.mark.parametrize("query", [{"maxResults": "-1"}, {"maxResults": "all"}, {"returnEverything": "true"}])
async def test_another_parameter_is_noticed(query: dict[str, str]) -> None:
    async with gce(1) as (face, _):
        face.exchanges[-1].query.update(query)
        assert list(problems(face.exchanges[-1])) != []
