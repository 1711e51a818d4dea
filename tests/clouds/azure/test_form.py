# SPDX-License-Identifier: Apache-2.0
"""The stand-in answers as Azure does, and the provider's calls are as Azure expects. Two oracles show that: the
published API description, and Microsoft's own clients for Python, which read the stand-in over HTTP."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ResourceNotFoundError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient

from ccm.cloud import InstanceRef, NotFound
from tests.clouds.stand_in import Exchange

from .description import operation_of, problems
from .face import Face
from .resources import GROUP, SUBSCRIPTION
from .world import azure


async def journey() -> tuple[list[Exchange], list[str]]:
    """Make every kind of call that the provider makes. Return the calls, and what Microsoft's clients read
    afterwards."""
    async with azure() as (face, cloud):
        face.page_limit = 1
        known = []
        token: str | None = None
        while True:
            page = await cloud.instances.list_page(token)
            known += page.instances
            if (token := page.next) is None:
                break
        for each in known:
            assert await cloud.instances.get(InstanceRef(each.name, each.provider_id)) == each
            assert await cloud.instances.get(InstanceRef(each.name)) == each
            gone = each.provider_id.replace("vm-1", "vm-9").replace("Worker-0", "vm-9")
            if each.provider_id == gone:
                gone = f"{each.provider_id}99"
            with pytest.raises(NotFound):
                await cloud.instances.get(InstanceRef(each.name, gone))
        return list(face.exchanges), await asyncio.to_thread(told_by_the_clients, face)


class _Credential:
    """Credentials with a token of the stand-in."""

    def __init__(self, face: Face) -> None:
        self._token = next(iter(face.tokens))

    def get_token(self, *scopes: str, **more: Any) -> AccessToken:
        return AccessToken(self._token, int(time.time()) + 3600)


class _Authorised(SansIOHTTPPolicy):  # type: ignore[type-arg]
    """Sends the token without TLS, which Microsoft's own policy refuses."""

    def __init__(self, face: Face) -> None:
        self._token = next(iter(face.tokens))

    def on_request(self, request: Any) -> None:
        request.http_request.headers["Authorization"] = f"Bearer {self._token}"


def told_by_the_clients(face: Face) -> list[str]:
    more: dict[str, Any] = {
        "base_url": face.url,
        "authentication_policy": _Authorised(face),
        "credential_scopes": [f"{face.url}/.default"],
    }
    compute = ComputeManagementClient(_Credential(face), SUBSCRIPTION, **more)
    network = NetworkManagementClient(_Credential(face), SUBSCRIPTION, **more)
    told = []
    views = {each.id: each.instance_view for each in compute.virtual_machines.list_all(status_only="true")}
    for machine in compute.virtual_machines.list(GROUP):
        statuses = [each.code for each in views[machine.id].statuses]
        told.append(f"{machine.name} {machine.hardware_profile.vm_size.value} {machine.zones} {statuses[-1]}")
    for scale_set in compute.virtual_machine_scale_sets.list(GROUP):
        told.append(f"{scale_set.name} {scale_set.orchestration_mode.value}")
        for each in compute.virtual_machine_scale_set_vms.list(GROUP, scale_set.name, expand="instanceView"):
            told.append(f"{each.os_profile.computer_name} {each.sku.name} {each.instance_view.platform_fault_domain}")
    for interface in network.network_interfaces.list(GROUP):
        told += [each.private_ip_address for each in interface.ip_configurations]
    told += [each.ip_address for each in network.public_ip_addresses.list(GROUP)]
    sets = network.network_interfaces.list_virtual_machine_scale_set_network_interfaces(GROUP, "pool-a")
    told += [each.name for each in sets]
    with pytest.raises(ResourceNotFoundError) as missing:
        compute.virtual_machines.get(GROUP, "nobody")
    told.append(str(missing.value.error.code if missing.value.error else ""))
    return told


async def test_every_call_and_answer_has_the_published_form() -> None:
    exchanges, _ = await journey()
    assert {problem for each in exchanges for problem in problems(each)} == set()
    asked = {found[0].name for each in exchanges if (found := operation_of(each))}
    assert asked == {
        "virtual_machines_list",
        "virtual_machines_list_all",
        "virtual_machines_get",
        "virtual_machine_scale_sets_list",
        "virtual_machine_scale_set_vms_list",
        "virtual_machine_scale_set_vms_get",
        "network_interfaces_list",
        "network_interfaces_get",
        "network_interfaces_list_virtual_machine_scale_set_network_interfaces",
        "network_interfaces_list_virtual_machine_scale_set_vm_network_interfaces",
        "public_ip_addresses_list",
        "public_ip_addresses_get",
        "public_ip_addresses_list_virtual_machine_scale_set_public_ip_addresses",
    }


async def test_microsofts_clients_read_every_answer() -> None:
    _, said = await journey()
    assert "Worker-0 Standard_D4s_v3 None PowerState/running" in said
    assert "vm-1 Standard_D4s_v3 ['2'] PowerState/running" in said
    assert {"pool-a Uniform", "pool-b Uniform", "pool-empty Uniform", "pool-flex Flexible"} <= set(said)
    assert "worker-2 Standard_D8s_v3 1" in said and "10.240.0.8" in said and "203.0.113.5" in said
    assert "pool-a-nic" in said and said[-1] == "ResourceNotFound"


@pytest.mark.parametrize(
    "spoilt", [{"id": 1}, {"surprise": 1}, {"tags": []}, {"zones": "1"}, {"properties": {"vmSize": "big"}}]
)
async def test_another_form_is_noticed(spoilt: dict[str, object]) -> None:
    async with azure() as (face, _):
        exchange = face.exchanges[-1]
        assert list(problems(exchange)) == []
        exchange.answer["value"][0].update(spoilt)
        assert list(problems(exchange)) != []


@pytest.mark.parametrize(
    "query", [{"$expand": "everything"}, {"$expand": "instanceView"}, {"$top": "5"}, {"api-version": "2016-03-30"}]
)
async def test_another_request_is_noticed(query: dict[str, str]) -> None:
    async with azure() as (face, _):
        exchange = face.exchanges[-1]
        exchange.query.update(query)
        assert list(problems(exchange)) != []
