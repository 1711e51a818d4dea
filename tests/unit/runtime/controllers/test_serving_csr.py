# SPDX-License-Identifier: Apache-2.0
"""kubelet-serving-csr-controller in virtual time: what it reads, and what it approves while something fails."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pytest

from ccm.base import cloud_metrics
from ccm.cloud import Transient
from ccm.controllers.nodes.owners import Owners, Share
from ccm.controllers.nodes.ownership_rules import Declarations
from ccm.controllers.serving_certificates import serving_csr
from ccm.controllers.serving_certificates.serving_csr import ServingCsrController
from ccm.controllers.serving_certificates.signing_requests import (
    RequestCondition,
    SigningRequest,
    SigningRequestStatus,
    kept_request,
)
from ccm.engine.api_errors import ConflictError
from ccm.engine.objects import ObjectMeta
from ccm.gateway.gateway import Gateway

from ..gateway.virtual import in_virtual_time, now
from .nodes_harness import Cluster, FakeCloud, Machines, machine, until
from .signing_request_bodies import pem, request

GOOD, BAD = pem(), pem(names=["n1", "10.0.0.2"])
EVENT = "ServingCertificateNotApproved"


class Requests:
    """A cache of signing requests that shows an approval as soon as it is written."""

    def __init__(self, c: Cluster) -> None:
        self.store: dict[str, SigningRequest] = {}
        self._handlers: list[Callable[..., None]] = []
        self.approved: list[str] = []
        self.conflicts = 0
        patch = c.api.patch

        async def approving(path: str, body: dict[str, Any], **how: Any) -> ObjectMeta:
            if not path.endswith("/approval"):
                return await patch(path, body, **how)
            name = path.split("/")[-2]
            if self.conflicts:
                self.conflicts -= 1
                raise ConflictError(409, "Conflict", "changed")
            self.approved.append(name)
            self.put(
                msgspec.structs.replace(self.store[name], status=SigningRequestStatus([RequestCondition("Approved")]))
            )
            return ObjectMeta(name)

        c.api.patch = approving  # type: ignore[method-assign]

    def put(self, new: SigningRequest) -> None:
        old = self.store.get(new.metadata.name)
        self.store[new.metadata.name] = new
        for handler in self._handlers:
            handler(old, new)

    def ask(self, content: bytes, name: str, **how: Any) -> None:
        self.put(kept_request(request(content, name=name, **how)))

    def remove(self, name: str) -> None:
        old = self.store.pop(name)
        for handler in self._handlers:
            handler(old, None)

    def get(self, name: str) -> SigningRequest | None:
        return self.store.get(name)

    def add_handler(self, handler: Callable[..., None]) -> None:
        self._handlers.append(handler)
        for each in list(self.store.values()):
            handler(None, each)

    async def wait_synced(self) -> None:
        return None


def start(c: Cluster, node: str = "n1") -> Requests:
    requests = Requests(c)
    c.api.add(node, tainted=False, providerID=f"fake://{node}")
    c.run(ServingCsrController(c.context, requests))  # type: ignore[arg-type]
    return requests


def waiting(reason: str) -> float:
    return serving_csr.WAITING.labels(reason)._value.get()


@in_virtual_time
async def test_one_listing_answers_for_all_requests_of_a_node():
    async with Cluster(machine("n1")) as c:
        requests = start(c)
        for number in range(5):
            requests.ask(GOOD, f"csr-{number}")
        await until(lambda: len(requests.approved) == 5)
        assert c.cloud.calls == ["list"] and c.api.told(EVENT) == []


@in_virtual_time
async def test_a_flood_of_one_requester_is_read_only_in_part_and_delays_nobody():
    async with Cluster(machine("n1"), machine("n2", "10.0.0.2")) as c:
        requests = start(c)
        c.api.add("n2", tainted=False, providerID="fake://n2")
        for number in range(500):
            requests.ask(b"forged", f"csr-{number:03}")
        requests.ask(pem("system:node:n2", ["n2"]), "honest", username="system:node:n2")
        await until(lambda: requests.approved == ["honest"], 5)
        assert (waiting("TooMany"), waiting("Malformed")) == (490, 10)
        requests.remove("csr-499")
        await until(lambda: waiting("TooMany") == 489)
        for name in list(requests.store):
            requests.remove(name)
        assert waiting("TooMany") == waiting("Malformed") == 0


@in_virtual_time
async def test_an_address_that_comes_to_the_instance_is_followed():
    async with Cluster(machine("n1")) as c:
        requests = start(c)
        requests.ask(BAD, "csr-1")
        await until(lambda: c.api.told(EVENT))
        assert "asks for 10.0.0.2" in c.api.told(EVENT)[0] and waiting("Names") == 1
        c.cloud.put(machine("n1", "10.0.0.2"))
        c.api.change("n1", {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}})
        await until(lambda: requests.approved == ["csr-1"], 10)
        assert waiting("Names") == 0


@in_virtual_time
async def test_nothing_is_approved_while_the_cloud_is_away():
    async with Cluster(machine("n1")) as c:
        requests = start(c)
        c.cloud.error = Transient("away")
        requests.ask(GOOD, "csr-1")
        await until(lambda: c.api.told(EVENT))
        assert requests.approved == [] and waiting("Cloud") == 1
        c.cloud.error = None
        await until(lambda: requests.approved == ["csr-1"], 60)


@in_virtual_time
async def test_a_machine_that_was_replaced_gets_nothing_in_the_name_of_the_former_one():
    async with Cluster(machine("n1")) as c:
        requests = start(c)
        c.cloud.put(machine("n1", provider_id="fake://new"))
        requests.ask(GOOD, "csr-1")
        await until(lambda: c.api.told(EVENT))
        assert requests.approved == [] and waiting("Instance") == 1


@in_virtual_time
async def test_two_instances_of_one_name_approve_nothing():
    async with Cluster(machine("n1")) as c:
        requests = start(c)
        c.cloud.all.append(machine("n1", provider_id="fake://twin"))
        requests.ask(GOOD, "csr-1")
        await until(lambda: c.api.told(EVENT))
        assert "2 instances are named 'n1'" in c.api.told(EVENT)[0] and requests.approved == []


@in_virtual_time
async def test_another_node_with_the_same_provider_id_does_not_get_its_names():
    async with Cluster(machine("n1")) as c:
        requests = start(c)
        c.api.add("rogue", tainted=False, providerID="fake://n1")
        requests.ask(pem("system:node:rogue", ["n1", "10.0.0.1"]), "csr-1", username="system:node:rogue")
        await until(lambda: c.api.told(EVENT, "rogue"))
        assert requests.approved == []


@in_virtual_time
async def test_a_node_that_comes_later_is_judged_then():
    async with Cluster(machine("n1"), machine("late", "10.0.0.9")) as c:
        requests = start(c)
        requests.ask(pem("system:node:late", ["late"]), "csr-1", username="system:node:late")
        await until(lambda: waiting("Node") == 1)
        c.api.add("late", tainted=False, providerID="fake://late")
        await until(lambda: requests.approved == ["csr-1"], 5)


@in_virtual_time
async def test_a_conflict_is_tried_again():
    async with Cluster(machine("n1")) as c:
        requests = start(c)
        requests.conflicts = 2
        requests.ask(GOOD, "csr-1")
        await until(lambda: requests.approved == ["csr-1"], 10)


class MetalMachines(Machines):
    def owns(self, provider_id: str) -> bool:
        return provider_id.startswith("metal://")


@in_virtual_time
async def test_of_several_clouds_only_that_of_the_node_answers():
    """The other cloud has a machine of that name, too, with the address of the request. A request about a Node that
    belongs to no cloud is reported once.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloud_metrics, "_of_clouds", WeakKeyDictionary())
        async with Cluster(machine("n1")) as c:
            metal = MetalMachines(
                machine("n1", "10.0.0.2", provider_id="metal://n1"), machine("m1", provider_id="metal://m1")
            )
            other = Gateway(FakeCloud(metal), clock=now, name="second")
            directories = {"first": c.gateway.instances, "second": other.instances}
            owners = Owners(directories, Declarations(tuple(directories), {}), monotonic=now)
            requests = Requests(c)
            c.api.add("n1", tainted=False, providerID="fake://n1")
            c.api.add("m1", tainted=False, providerID="metal://m1")
            for name, context in (("first", c.context), ("second", dataclasses.replace(c.context, gateway=other))):
                c.run(ServingCsrController(context, requests, share=Share(owners, name)))  # type: ignore[arg-type]
            requests.ask(BAD, "bad")
            requests.ask(pem("system:node:m1", ["m1"]), "good", username="system:node:m1")
            requests.ask(pem("system:node:new", ["new"]), "unknown", username="system:node:new")
            await until(lambda: requests.approved and c.api.told(EVENT))
            await asyncio.sleep(300)
            assert requests.approved == ["good"] and len(c.api.told(EVENT)) == 1
            assert not [call for call in metal.calls if "n1" in call], metal.calls
            second = serving_csr.WAITING.of("second")
            assert (waiting("Names"), waiting("Node")) == (1, 1)
            assert [second.labels(reason)._value.get() for reason in ("Names", "Node")] == [0, 0]
            await other.close()
