# SPDX-License-Identifier: Apache-2.0
"""The webhook persistentvolume-label between a request and a cloud that answers, fails or is silent."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import REGISTRY

from ccm.base.start_error import StartError
from ccm.cloud import Invalid, Limits, NotFound, NotImplementedByCloud, Transient, VolumeRef, Webhook
from ccm.controllers.built_in_webhooks import VOLUMES, VOLUMES_PATH, Webhooks
from ccm.controllers.volumes.volume_rules import PROVISIONED_BY, REGION, ZONE
from ccm.controllers.volumes.volume_webhook import BURST, CONCURRENCY, DEADLINE, VolumeWebhook
from ccm.gateway.gateway import Gateway

from ..gateway.fake import FakeCloud
from ..gateway.virtual import in_virtual_time, now
from .test_volume_webhook_rules import CSI, raw, request

FOUND = {ZONE: "north-a", REGION: "north"}


class FakeVolumes:
    """Answers every question with `answer` after `latency` seconds."""

    def __init__(self, answer: Any = None, latency: float = 0.0) -> None:
        self.answer, self.latency = FOUND if answer is None else answer, latency
        self.asked: list[VolumeRef] = []
        self.at_once = self.most_at_once = 0

    async def labels(self, ref: VolumeRef) -> Mapping[str, str]:
        self.asked.append(ref)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.latency)
        finally:
            self.at_once -= 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        answer: Mapping[str, str] = self.answer
        return answer


def cloud(volumes: FakeVolumes | None) -> FakeCloud:
    made = FakeCloud(limits=Limits(calls_per_second=1e6, burst=10**6, concurrency=1000))
    made.volumes = volumes
    return made


def webhook(volumes: FakeVolumes) -> VolumeWebhook:
    return VolumeWebhook(Gateway(cloud(volumes), clock=now), clock=now)


def count(result: str) -> float:
    return REGISTRY.get_sample_value("ccm_volume_reviews_total", {"result": result}) or 0


@in_virtual_time
async def test_a_volume_of_the_cloud_is_completed():
    volumes, before = FakeVolumes(), count("Completed")
    answer = await webhook(volumes).handle(request(raw()))
    assert [each["path"] for each in json.loads(base64.b64decode(answer["patch"]))] == [
        "/metadata/labels",
        "/spec/nodeAffinity",
    ]
    assert volumes.asked == [VolumeRef("d.example", "v-1")]
    assert count("Completed") == before + 1


@pytest.mark.parametrize(
    "asked",
    [
        request(raw({"nfs": {"server": "s", "path": "/"}})),
        request(raw(labels=FOUND)),
        request(raw(annotations={PROVISIONED_BY: "d.example"})),
        request(raw(), operation="UPDATE"),
        request(None, operation="DELETE"),
        request({"spec": {"csi": 7}}),
        request(raw(), kind={"group": "", "version": "v1", "kind": "Pod"}),
    ],
)
def test_what_the_controller_leaves_alone_is_admitted_without_a_question(asked: dict[str, Any]):
    @in_virtual_time
    async def run() -> None:
        volumes, before = FakeVolumes(), count("Unchanged")
        assert await webhook(volumes).handle(asked) == {"allowed": True}
        assert (volumes.asked, count("Unchanged")) == ([], before + 1)

    run()


@pytest.mark.parametrize(
    ("answer", "warning"),
    [
        (NotImplementedByCloud("of another driver"), None),
        ({}, None),
        ({ZONE: ""}, None),
        (NotFound("no volume v-1"), "no volume v-1"),
        (Invalid("handle 'x' is not of the form v-…"), "not of the form"),
        (Transient("503 from the cloud"), "503 from the cloud"),
        ({ZONE: "a____b"}, "a zone is empty"),
        (ValueError("a bug"), "raised ValueError"),
    ],
)
def test_an_answer_without_a_zone_admits_the_volume_as_it_is(answer: Any, warning: str | None):
    @in_virtual_time
    async def run() -> None:
        result = "Unknown" if warning else "Unchanged"
        before = count(result)
        response = await webhook(FakeVolumes(answer)).handle(request(raw()))
        assert response["allowed"] is True and "patch" not in response
        assert count(result) == before + 1
        if warning is None:
            assert "warnings" not in response
        else:
            assert warning in response["warnings"][0]

    run()


@in_virtual_time
async def test_a_silent_cloud_delays_a_volume_for_less_than_the_api_server_waits():
    started = now()
    response = await webhook(FakeVolumes(latency=3600)).handle(request(raw()))
    assert now() - started == DEADLINE < 10
    assert (response["allowed"], "patch" in response) == (True, False)
    (warning,) = response["warnings"]
    assert "the cloud did not answer within 8 s; persistentvolume-label-controller, if it runs" in warning


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@in_virtual_time
async def test_a_flood_of_requests_asks_the_cloud_few_questions():
    """The webhook shares the cloud's rate limits with the controllers."""
    volumes, before = FakeVolumes(latency=0.1), count("Limited")
    hook = webhook(volumes)
    answers = await asyncio.gather(*(hook.handle(request(raw())) for _ in range(500)))
    assert len(volumes.asked) == BURST and volumes.most_at_once == CONCURRENCY
    refused = [each for each in answers if "warnings" in each]
    assert len(refused) == 500 - BURST == count("Limited") - before
    assert all(each["allowed"] and "too many volumes" in each["warnings"][0] for each in refused)
    await asyncio.sleep(1)
    assert "patch" in await hook.handle(request(raw()))


@in_virtual_time
async def test_a_dry_run_checks_whether_the_webhook_answers():
    volumes = FakeVolumes()
    document = raw(annotations={"ccm.outoftree.dev/volume-webhook": "check"})
    response = await webhook(volumes).handle(request(document, dryRun=True))
    assert b"answered" in base64.b64decode(response["patch"]) and volumes.asked == []


@in_virtual_time
async def test_the_framework_serves_it_if_the_provider_has_volumes():
    async def handle(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"allowed": True}

    own = Webhook("/own", handle)
    with_volumes, without = cloud(FakeVolumes()), cloud(None)
    with_volumes.webhooks = without.webhooks = {"own": own}
    assert Webhooks(Gateway(without)).offered() == {"own": own}
    offered = Webhooks(Gateway(with_volumes)).offered()
    assert offered.keys() == {"own", VOLUMES} and offered[VOLUMES].path == VOLUMES_PATH
    for name, path in ((VOLUMES, "/own"), ("own", VOLUMES_PATH)):
        with_volumes.webhooks = {name: Webhook(path, handle)}
        with pytest.raises(StartError, match=f"provider 'fake' has a webhook '{name}' at {path}.*rename"):
            Webhooks(Gateway(with_volumes))


@in_virtual_time
async def test_a_reloaded_cloud_answers():
    gateway, newer = Gateway(cloud(FakeVolumes({ZONE: "old"})), clock=now), FakeVolumes({ZONE: "new"})
    hook = VolumeWebhook(gateway, clock=now)
    await gateway.replace(cloud(newer))
    assert b'"new"' in base64.b64decode((await hook.handle(request(raw(CSI))))["patch"])
    assert len(newer.asked) == 1


@in_virtual_time
async def test_the_cloud_that_has_the_driver_answers_beside_one_that_hangs_and_one_that_is_down():
    class Others(FakeVolumes):
        """Volumes of another driver. `error` is raised instead, as by a gateway whose breaker is open."""

        def __init__(self, error: Exception | None = None, latency: float = 0.0) -> None:
            super().__init__()
            self.error, self.latency = error, latency

        async def labels(self, ref):
            await asyncio.sleep(self.latency)
            raise self.error or NotImplementedByCloud("another driver")

    ours = FakeVolumes({ZONE: "ours"})

    def hook(*volumes):
        gateways = (Gateway(cloud(each), clock=now, name=f"c{number}") for number, each in enumerate(volumes))
        return VolumeWebhook(*gateways, clock=now)

    began = now()
    answer = await hook(Others(latency=20.0), Others(Transient("503")), ours).handle(request(raw(CSI)))
    assert b'"ours"' in base64.b64decode(answer["patch"]) and now() - began < 1
    assert await hook(Others(), Others()).handle(request(raw(CSI))) == {"allowed": True}
    for volumes in ((Others(), Others(Transient("503"))), (Others(Transient("503")), Others())):
        assert "503" in (await hook(*volumes).handle(request(raw(CSI))))["warnings"][0]


@in_virtual_time
async def test_clouds_that_fail_while_another_one_answers_leave_nothing_to_log():
    class Fails(FakeVolumes):
        """Fails after some turns of the event loop."""

        def __init__(self, turns: int) -> None:
            super().__init__()
            self.turns = turns

        async def labels(self, ref):
            for _ in range(self.turns):
                await asyncio.sleep(0)
            raise Transient("503")

    left: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context))
    volumes = [FakeVolumes({ZONE: "ours"}), *(Fails(turns) for turns in range(20))]
    gateways = (Gateway(cloud(each), clock=now, name=str(number)) for number, each in enumerate(volumes))
    answer = await VolumeWebhook(*gateways, clock=now).handle(request(raw(CSI)))
    await asyncio.sleep(DEADLINE)
    gc.collect()
    assert b'"ours"' in base64.b64decode(answer["patch"]) and not left


@in_virtual_time
async def test_two_providers_cannot_have_the_same_webhook():
    async def handle(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"allowed": True}

    def offering(**paths: str) -> Gateway:
        made = cloud(None)
        made.webhooks = {name: Webhook(path, handle) for name, path in paths.items()}
        return Gateway(made)

    assert set(Webhooks(offering(a="/a"), offering(b="/b")).offered()) == {"a", "b"}
    for other in (offering(a="/b"), offering(b="/a")):
        with pytest.raises(StartError, match="a webhook of the provider 'fake' already has this name or path: rename"):
            Webhooks(offering(a="/a"), other)
