# SPDX-License-Identifier: Apache-2.0
"""Pages, zones that do not answer, and broken answers: the provider never reports an existing instance as gone."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import CloudError, Conflict, Instance, InstanceRef, NotFound, RateLimited, Transient, Unauthorized
from ccm.providers.gce import GceCloud

from .face import Fault
from .project import PROJECT, ZONES
from .world import CONF, gce

KNOWN = InstanceRef("worker-0", f"gce://{PROJECT}/{ZONES[0]}/worker-0")


async def listed(cloud: GceCloud) -> tuple[list[Instance], str]:
    token, found, doubts = None, [], []
    while True:
        page = await cloud.instances.list_page(token)
        found += page.instances
        doubts += [page.unreachable] if page.unreachable else []
        if (token := page.next) is None:
            return found, "; ".join(doubts)


async def test_one_request_answers_for_500_instances_in_all_zones() -> None:
    async with gce(500) as (face, cloud):
        before = len(face.exchanges)
        found, unreachable = await listed(cloud)
        assert len(found) == 500 and not unreachable
        assert face.calls(before) == [f"GET /projects/{PROJECT}/aggregated/instances"]


async def test_pages_end_where_the_api_says_so_and_not_where_one_is_short() -> None:
    async with gce(7) as (face, cloud):
        face.page_limit = 2
        assert len((await listed(cloud))[0]) == 7
        assert (await cloud.instances.get(InstanceRef("worker-6"))).name == "worker-6"


@pytest.mark.parametrize("how", ["warning of a zone", "warning of all", "unreachables"])
async def test_instances_of_a_zone_that_does_not_answer_are_unknown(how: str) -> None:
    async with gce(6) as (face, cloud):
        if how == "warning of a zone":
            face.project.doubts = {ZONES[1]: "UNREACHABLE"}
        elif how == "unreachables":
            face.project.unreachables = [f"zones/{ZONES[1]}"]
        else:
            answer = {"kind": "compute#instanceAggregatedList", "warning": {"code": "PARTIAL_SUCCESS"}}
            face.faults.append(Fault("answer", path=".*/aggregated/.*", answer=answer))
        _, unreachable = await listed(cloud)
        assert (ZONES[1] if how != "warning of all" else "PARTIAL_SUCCESS") in unreachable
        with pytest.raises(Transient, match="unknown whether an instance is named 'nobody'"):
            await cloud.instances.get(InstanceRef("nobody"))
        with pytest.raises(NotFound):
            await cloud.instances.get(InstanceRef("nobody", f"gce://{PROJECT}/{ZONES[0]}/nobody"))


LISTING = {"kind": "compute#instanceAggregatedList"}
#: How an answer is broken, and the error that it may cause, which is never NotFound.
BROKEN: dict[str, tuple[dict[str, Any], type[CloudError]]] = {
    "5xx": ({"kind": "status", "status": 503}, Transient),
    "a proxy's page": ({"kind": "html", "status": 404}, Transient),
    "a proxy's page with 200": ({"kind": "html", "status": 200}, Transient),
    "404 about the project": ({"kind": "status", "status": 404, "reason": "projectNotFound"}, Transient),
    "half an answer": ({"kind": "truncate"}, Transient),
    "no connection": ({"kind": "drop"}, Transient),
    "nothing": ({"kind": "answer", "answer": {}}, Transient),
    "null": ({"kind": "answer", "answer": None}, Transient),
    "a list": ({"kind": "answer", "answer": []}, Transient),
    "another kind": ({"kind": "answer", "answer": {"kind": "compute#operation"}}, Transient),
    "a row without a name": (
        {"kind": "answer", "answer": {**LISTING, "items": {"zones/a": {"instances": [{"id": "1"}]}}}},
        Transient,
    ),
    "scopes that are a list": ({"kind": "answer", "answer": {**LISTING, "items": [{}]}}, Transient),
    "429": ({"kind": "status", "status": 429, "reason": "rateLimitExceeded"}, RateLimited),
    "a quota": ({"kind": "status", "status": 403, "reason": "rateLimitExceeded"}, RateLimited),
    "another quota": ({"kind": "status", "status": 403, "reason": "quotaExceeded"}, RateLimited),
    "no permission": ({"kind": "status", "status": 403, "reason": "forbidden"}, Unauthorized),
    "the API is off": ({"kind": "status", "status": 403, "reason": "accessNotConfigured"}, Unauthorized),
    "no longer valid": ({"kind": "status", "status": 401, "reason": "authError"}, Unauthorized),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_no_broken_answer_makes_an_instance_look_gone(how: str) -> None:
    what, kind = BROKEN[how]
    async with gce(3) as (face, cloud):
        with face.fault(Fault(**what)):
            for call in (
                lambda: cloud.instances.get(KNOWN),
                lambda: cloud.instances.get(InstanceRef("worker-0")),
                lambda: cloud.instances.list_page(None),
            ):
                with pytest.raises(kind) as raised:
                    await call()
                assert type(raised.value) is kind
                assert not any(token in str(raised.value) for token in face.tokens)
        assert (await cloud.instances.get(KNOWN)).name == "worker-0"
        assert len((await listed(cloud))[0]) == 3


async def test_a_404_about_the_project_proves_nothing_about_an_instance() -> None:
    async with gce(1) as (_, cloud):
        with pytest.raises(Transient, match="zones/europe-west9-z"):
            await cloud.instances.get(InstanceRef("worker-0", f"gce://{PROJECT}/europe-west9-z/worker-0"))


async def test_an_answer_about_another_instance_is_no_answer() -> None:
    async with gce(2) as (face, cloud):
        other = face.project.rows[ZONES[1], "worker-1"]
        with face.fault(Fault("answer", answer=other)), pytest.raises(Transient, match="is about"):
            await cloud.instances.get(KNOWN)


async def test_a_throttled_read_says_when_to_come_back() -> None:
    async with gce(1) as (face, cloud):
        throttled = Fault("status", status=429, reason="rateLimitExceeded", headers={"Retry-After": "11"})
        with face.fault(throttled), pytest.raises(RateLimited) as raised:
            await cloud.instances.list_page(None)
        assert raised.value.retry_after == 11


async def test_an_instance_is_found_by_every_name_that_a_kubelet_may_use() -> None:
    async with gce(2) as (face, cloud):
        face.project.rows[ZONES[1], "worker-1"]["hostname"] = "one.kube.example"
        names = {
            "worker-1",
            "one.kube.example",
            f"worker-1.{ZONES[1]}.c.{PROJECT}.internal",
            f"worker-1.c.{PROJECT}.internal",
        }
        for name in names:
            found = await cloud.instances.get(InstanceRef(name))
            assert found.provider_id == f"gce://{PROJECT}/{ZONES[1]}/worker-1" and set(found.names) == names


async def test_names_count_in_the_zones_of_the_cluster_and_providerids_in_all() -> None:
    conf = CONF.replace("multizone = true\n", "")
    async with gce(4, conf=conf) as (face, cloud):
        face.project.add("worker-0", ZONES[1])
        assert (await cloud.instances.get(InstanceRef("worker-0"))).zone == ZONES[0]
        with pytest.raises(NotFound, match=f"zone {ZONES[0]} of project {PROJECT} has no instance"):
            await cloud.instances.get(InstanceRef("worker-1"))
        elsewhere = f"gce://{PROJECT}/{ZONES[1]}/worker-0"
        assert cloud.instances.owns(elsewhere)
        assert (await cloud.instances.get(InstanceRef("worker-0", elsewhere))).provider_id == elsewhere
        assert len((await listed(cloud))[0]) == 5


async def test_in_a_region_two_instances_of_one_name_are_a_conflict() -> None:
    async with gce(1) as (face, cloud):
        face.project.add("worker-0", ZONES[3])  # in another region
        assert (await cloud.instances.get(InstanceRef("worker-0"))).zone == ZONES[0]
        face.project.add("worker-0", ZONES[1])
        with pytest.raises(Conflict, match=f"2 instances in region europe-west1 of project {PROJECT}"):
            await cloud.instances.get(InstanceRef("worker-0"))


async def test_nodes_of_another_project_are_left_alone() -> None:
    async with gce(1) as (_, cloud):
        assert not cloud.instances.owns(f"gce://other/{ZONES[0]}/worker-0")
        with pytest.raises(Conflict):
            await cloud.instances.get(InstanceRef("worker-0", f"gce://other/{ZONES[0]}/worker-0"))
