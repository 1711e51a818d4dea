# SPDX-License-Identifier: Apache-2.0
"""Pages, scale sets, spellings and broken answers: the provider never reports an existing machine as gone."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import (
    CloudError,
    Conflict,
    Instance,
    InstanceRef,
    InstanceState,
    NotFound,
    RateLimited,
    Transient,
    Unauthorized,
)
from ccm.providers.azure import AzureCloud

from .face import Fault
from .resources import BASE, GROUP, SUBSCRIPTION
from .world import azure

ALONE = f"azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/kube-rg/providers/Microsoft.Compute/virtualMachines/vm-1"


STATUSES = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines"


async def listed(cloud: AzureCloud) -> list[Instance]:
    token: str | None = None
    found: list[Instance] = []
    while True:
        page = await cloud.instances.list_page(token)
        found += page.instances
        if (token := page.next) is None:
            return found


async def test_a_listing_costs_requests_for_sets_and_not_for_machines() -> None:
    async with azure() as (face, cloud):
        for number in range(60):
            face.group.add(f"more-{number}")
            face.group.add_to_set("pool-a", f"pool-a-{number}")
        before = len(face.exchanges)
        assert len(await listed(cloud)) == 124
        calls = face.calls(before)
        assert sorted(calls[:6]) == [
            "GET /Microsoft.Compute/virtualMachineScaleSets",
            "GET /Microsoft.Compute/virtualMachines",
            "GET /Microsoft.Compute/virtualMachines/Worker-0",  # its fault domain is only there
            "GET /Microsoft.Network/networkInterfaces",
            "GET /Microsoft.Network/publicIPAddresses",
            f"GET {STATUSES}",
        ]
        # Three calls for each uniform scale set, one for the empty set. Machines of the flexible set come with the
        # single machines.
        assert len(calls) == 6 + 3 + 3 + 1 and not any("pool-flex" in each for each in calls)


async def test_without_a_role_on_the_subscription_machines_are_read_one_by_one() -> None:
    async with azure() as (face, cloud):
        face.group.machines[f"{BASE}/Microsoft.Compute/virtualMachines/vm-1"]["properties"]["instanceView"][
            "statuses"
        ] = [{"code": "PowerState/stopped", "level": "Info"}]
        before = await listed(cloud)
        assert [each.state for each in before if each.name == "worker-1"] == [InstanceState.SHUTDOWN]
        face.may_read_statuses = False
        assert await listed(cloud) == before
        assert "GET /Microsoft.Compute/virtualMachines/vm-1" in face.calls()


async def test_a_machine_that_goes_during_a_listing_is_gone() -> None:
    async with azure() as (face, cloud):
        fault = Fault(
            "status", status=404, code="ResourceNotFound", path=f"{BASE}/Microsoft.Compute/virtualMachines/.*"
        )
        with face.fault(fault):
            assert {each.name for each in await listed(cloud)} == {"worker-1", "worker-2", "worker-3"}


@pytest.mark.parametrize("kind", ["standard", "vmssflex"])
async def test_without_uniform_scale_sets_none_is_read(kind: str) -> None:
    async with azure(vmType=kind) as (face, cloud):
        assert {each.name for each in await listed(cloud)} == {"worker-0", "worker-1"}
        assert not any("ScaleSets" in call for call in face.calls())


async def test_pages_are_followed_by_their_links() -> None:
    async with azure() as (face, cloud):
        face.page_limit = 1
        assert {each.name for each in await listed(cloud)} == {f"worker-{number}" for number in range(4)}


async def test_a_link_to_another_host_gets_no_token() -> None:
    async with azure() as (face, cloud):
        answer = {"value": [], "nextLink": "https://evil.example/subscriptions/"}
        with face.fault(Fault("answer", answer=answer)), pytest.raises(Transient, match="another host"):
            await cloud.instances.list_page(None)


async def test_a_link_that_repeats_itself_ends() -> None:
    async with azure() as (face, cloud):
        answer = {"value": [], "nextLink": f"{face.url}/subscriptions/x"}
        with face.fault(Fault("answer", answer=answer)), pytest.raises(Transient, match="repeats a page"):
            await cloud.instances.list_page(None)


async def test_every_spelling_of_an_id_is_the_same_machine() -> None:
    async with azure() as (_, cloud):
        (found,) = (each for each in await listed(cloud) if each.name == "worker-2")
        assert f"/resourceGroups/{GROUP.lower()}/" in found.provider_id
        for spelling in (found.provider_id.upper().replace("AZURE:", "azure:"), found.provider_id.lower()):
            assert cloud.instances.owns(spelling) and cloud.instances.canonical(spelling) == found.provider_id
            assert await cloud.instances.get(InstanceRef("worker-2", spelling)) == found


async def test_when_azure_spells_an_id_in_another_way_it_stays_the_same() -> None:
    async with azure() as (face, cloud):
        before = await listed(cloud)
        for row in face.group.machines.values():
            row["id"] = row["id"].replace("Worker-0", "WORKER-0").replace(GROUP, GROUP.lower())
        assert await listed(cloud) == before


async def test_interfaces_and_addresses_of_other_resource_groups_are_read_one_by_one() -> None:
    async with azure() as (face, cloud):
        before = await listed(cloud)
        hidden = {"value": []}
        face.faults.append(Fault("answer", path=f"{BASE}/Microsoft.Network/networkInterfaces", answer=hidden))
        face.faults.append(Fault("answer", path=f"{BASE}/Microsoft.Network/publicIPAddresses", answer=hidden))
        assert await listed(cloud) == before


async def test_a_machine_without_an_interface_exists_and_initialises_no_node() -> None:
    async with azure() as (face, cloud):
        face.group.interfaces.clear()
        face.group.set_interfaces["pool-a"].clear()
        found = {each.name: each.incomplete for each in await listed(cloud)}
        assert found == {
            **dict.fromkeys(("worker-0", "worker-1", "worker-2"), "Azure shows no address of it yet"),
            "worker-3": "",
        }


async def test_names_are_those_of_the_computer_and_of_the_machine() -> None:
    async with azure() as (face, cloud):
        by_computer = await cloud.instances.get(InstanceRef("worker-1"))
        assert await cloud.instances.get(InstanceRef("vm-1")) == by_computer
        assert by_computer.provider_id == ALONE and by_computer.zone == "westeurope-2"
        face.group.add_to_set("pool-b", "worker-1")
        with pytest.raises(Conflict, match="2 virtual machines are named 'worker-1'"):
            await cloud.instances.get(InstanceRef("worker-1"))


async def test_a_machine_that_left_its_scale_set_is_gone_whatever_azure_says_about_its_number() -> None:
    async with azure() as (face, cloud):
        (found,) = (each for each in await listed(cloud) if each.name == "worker-2")
        face.group.remove(found.provider_id)
        ref = InstanceRef("worker-2", found.provider_id)
        for code, status in (("NotFound", 404), ("InvalidParameter", 400), ("ResourceNotFound", 404)):
            fault = Fault("status", status=status, code=code, path=r".*/virtualMachines/\d+")
            with face.fault(fault), pytest.raises(NotFound, match="scale set pool-a has no machine"):
                await cloud.instances.get(ref)
        del face.group.sets["pool-a"]
        with pytest.raises(NotFound):
            await cloud.instances.get(ref)


async def test_a_machine_that_its_scale_set_still_lists_is_not_gone() -> None:
    async with azure() as (face, cloud):
        (found,) = (each for each in await listed(cloud) if each.name == "worker-2")
        fault = Fault("status", status=404, code="NotFound", path=r".*/virtualMachines/\d+")
        with face.fault(fault), pytest.raises(Transient, match="scale set pool-a lists machine"):
            await cloud.instances.get(InstanceRef("worker-2", found.provider_id))


async def test_of_a_machine_of_its_own_only_one_code_says_that_it_is_gone() -> None:
    async with azure() as (face, cloud):
        for code in ("NotFound", "ParentResourceNotFound", "NoRegisteredProviderFound"):
            fault = Fault("status", status=404, code=code, path=".*/Microsoft.Compute/virtualMachines/.*")
            with face.fault(fault), pytest.raises(Transient, match=code):
                await cloud.instances.get(InstanceRef("worker-1", ALONE))
        face.group.remove(ALONE)
        with pytest.raises(NotFound):
            await cloud.instances.get(InstanceRef("worker-1", ALONE))


#: How an answer is broken, and the error that it may cause, which is never NotFound.
BROKEN: dict[str, tuple[dict[str, Any], type[CloudError]]] = {
    "5xx": ({"kind": "status", "status": 503}, Transient),
    "a proxy's page": ({"kind": "html", "status": 404}, Transient),
    "a proxy's page with 200": ({"kind": "html", "status": 200}, Transient),
    "no resource group": ({"kind": "status", "status": 404, "code": "ResourceGroupNotFound"}, Transient),
    "no subscription": ({"kind": "status", "status": 404, "code": "SubscriptionNotFound"}, Transient),
    "half an answer": ({"kind": "truncate"}, Transient),
    "no connection": ({"kind": "drop"}, Transient),
    "nothing": ({"kind": "answer", "answer": {}}, Transient),
    "null": ({"kind": "answer", "answer": None}, Transient),
    "a list": ({"kind": "answer", "answer": []}, Transient),
    "values that are no list": ({"kind": "answer", "answer": {"value": {}}}, Transient),
    "a row without an ID": ({"kind": "answer", "answer": {"value": [{"name": "a"}]}}, Transient),
    "429": (
        {"kind": "status", "status": 429, "code": "TooManyRequests", "headers": {"Retry-After": "11"}},
        RateLimited,
    ),
    "no permission": ({"kind": "status", "status": 403, "code": "AuthorizationFailed"}, Unauthorized),
    "no longer valid": ({"kind": "status", "status": 401, "code": "ExpiredAuthenticationToken"}, Unauthorized),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_no_broken_answer_makes_a_machine_look_gone(how: str) -> None:
    what, kind = BROKEN[how]
    async with azure() as (face, cloud):
        known = await listed(cloud)
        refs = [InstanceRef(each.name, each.provider_id) for each in known] + [InstanceRef("worker-0")]
        with face.fault(Fault(**what)):
            for ref in refs:
                with pytest.raises(kind) as raised:
                    await cloud.instances.get(ref)
                assert type(raised.value) is kind
                assert not any(token in str(raised.value) for token in face.tokens)
                assert raised.value.retry_after == (11 if kind is RateLimited else None)
            with pytest.raises(kind):
                await cloud.instances.list_page(None)
            with pytest.raises(kind):
                await cloud.instances.list_page("pool-a,pool-b")
        assert await listed(cloud) == known


PARTS = [
    "/Microsoft.Compute/virtualMachines",
    "/Microsoft.Compute/virtualMachines/Worker-0",
    "/Microsoft.Compute/virtualMachineScaleSets",
    "/Microsoft.Compute/virtualMachineScaleSets/pool-b/virtualMachines",
    "/Microsoft.Compute/virtualMachineScaleSets/pool-b/networkInterfaces",
    "/Microsoft.Compute/virtualMachineScaleSets/pool-b/publicipaddresses",
    "/Microsoft.Network/networkInterfaces",
    "/Microsoft.Network/publicIPAddresses",
]


@pytest.mark.parametrize("part", PARTS)
async def test_a_listing_of_which_one_part_breaks_is_no_listing(part: str) -> None:
    async with azure() as (face, cloud):
        with face.fault(Fault("status", status=503, path=BASE + part)), pytest.raises(Transient):
            await listed(cloud)
        with face.fault(Fault("status", status=503, path=STATUSES)), pytest.raises(Transient):
            await listed(cloud)


async def test_machines_of_other_groups_and_subscriptions_are_left_alone() -> None:
    async with azure() as (_, cloud):
        for other in (ALONE.replace("kube-rg", "other"), ALONE.replace(SUBSCRIPTION, SUBSCRIPTION[::-1])):
            assert not cloud.instances.owns(other) and cloud.instances.canonical(other) is None
            with pytest.raises(Conflict):
                await cloud.instances.get(InstanceRef("worker-1", other))
