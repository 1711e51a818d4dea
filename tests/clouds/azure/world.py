# SPDX-License-Identifier: Apache-2.0
"""The stand-in for Azure as the conformance kit's world, and a provider that runs on it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from ccm.cloud import ProviderConfig
from ccm.conformance import NotRun, Subject, Trouble, World
from ccm.providers.azure import AzureCloud
from tests.kit import PATIENT

from .face import CLIENT, SECRET, TENANT, Face, Fault, running
from .resources import BASE, GROUP, SUBSCRIPTION, Group

#: Rows in a page of a listing.
PAGE = 3
ONE_ID = "a providerID contains the name of its machine, so a machine of the same name has the same providerID"
#: Why one trouble cannot be shown. Azure neither counts machines nor reports that some are missing.
NEVER_SHORT = "Azure's listings say nothing about what they leave out"
FAULTS: dict[Trouble, dict[str, Any]] = {
    Trouble.SERVER_ERROR: {"kind": "status", "status": 503},
    Trouble.PROXY_PAGE: {"kind": "html", "status": 404},
    Trouble.CUT_ANSWER: {"kind": "truncate"},
    Trouble.LATER_PAGE: {"kind": "status", "status": 503, "path": ".*/virtualMachineScaleSets/pool-[a-z]/.*"},
    Trouble.HANG: {"kind": "hang"},
    Trouble.UNAUTHORIZED: {"kind": "status", "status": 401, "code": "ExpiredAuthenticationToken"},
    Trouble.RATE_LIMITED: {
        "kind": "status",
        "status": 429,
        "code": "TooManyRequests",
        "headers": {"Retry-After": str(int(World.RETRY_AFTER))},
    },
}


class AzureWorld(World):
    """The stand-in as the conformance kit's `World`. `in_sets`: whether machines are created in a scale set, which
    never reuses numbers.
    """

    def __init__(self, face: Face, in_sets: bool) -> None:
        self._face, self._group, self._in_sets = face, face.group, in_sets
        self._gone: set[str] = set()

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        if kind is Trouble.SHORT_LISTING:
            raise NotRun(NEVER_SHORT)
        with self._face.fault(Fault(**FAULTS[kind])):
            yield

    async def create_instance(self, name: str) -> None:
        if self._in_sets:
            self._group.add_to_set("pool-a", name)
            return
        if name in self._gone:
            raise NotRun(ONE_ID)
        taken = {row["name"] for row in self._group.machines.values()}
        self._group.add(name if name not in taken else f"{name}-b", name)

    async def delete_instance(self, provider_id: str) -> None:
        with contextlib.suppress(StopIteration):
            self._gone.add(self._group.row(provider_id)["properties"]["osProfile"]["computerName"])
        self._group.remove(provider_id)

    async def stop_instance(self, provider_id: str) -> None:
        view = self._group.row(provider_id)["properties"]["instanceView"]
        view["statuses"][1] = {"code": "PowerState/deallocated", "level": "Info", "displayStatus": "VM deallocated"}

    async def untag_instance(self, provider_id: str) -> None:
        del self._group.row(provider_id)["tags"]


def config(face: Face, **more: Any) -> ProviderConfig:
    """Return an azure.json with a secret."""
    found = {
        "cloud": "AzurePublicCloud",
        "resourceManagerEndpoint": face.url,
        "tenantId": TENANT,
        "subscriptionId": SUBSCRIPTION,
        "resourceGroup": GROUP,
        "location": "westeurope",
        "vmType": "vmss",
        "aadClientId": CLIENT,
        "aadClientSecret": SECRET,
        "loadBalancerSku": "standard",
        "runtime": {"requestTimeout": f"{PATIENT}s", "callsPerSecond": 10000, "burst": 1000},
    }
    found |= more
    variables = {"AZURE_AUTHORITY_HOST": face.url, "AZURE_POD_IDENTITY_AUTHORITY_HOST": face.url}
    text = json.dumps({name: value for name, value in found.items() if value is not None}, indent=2)
    return ProviderConfig(text, "azure.json", variables)


def filled() -> Group:
    """Return a group in which worker-0 and worker-1 are single machines, and the others are in scale sets."""
    group = Group()
    group.add("Worker-0", zone="", availabilitySet={"id": f"{BASE}/Microsoft.Compute/availabilitySets/KUBE"})
    group.add("vm-1", "worker-1", zone="2")
    for number, name in enumerate(("pool-a", "pool-b")):
        group.add_set(name)
        group.add_to_set(name, f"worker-{number + 2}")
    group.add_set("pool-empty")
    group.add_set("pool-flex", "Flexible")
    return group


@contextlib.asynccontextmanager
async def azure(**more: Any) -> AsyncIterator[tuple[Face, AzureCloud]]:
    """Yield the stand-in with the resource group `filled`, and a provider that was started on it."""
    async with running(filled()) as face:
        cloud = AzureCloud(config(face, **more))
        try:
            await cloud.start()
            yield face, cloud
        finally:
            await cloud.close()


@contextlib.asynccontextmanager
async def subject(in_sets: bool) -> AsyncIterator[Subject]:
    """Yield the conformance kit's subject: the provider, its configuration, and a world that can break its cloud."""
    async with running(filled()) as face:
        face.page_limit = PAGE
        world = AzureWorld(face, in_sets)
        yield Subject("azure", AzureCloud, config(face), allow_writes=True, world=world, secrets=(SECRET,))
