# SPDX-License-Identifier: Apache-2.0
"""Tests how many calls the provider needs. On a similar stand-in, hcloud-cloud-controller-manager needed 27 calls to
create a load balancer, 7 without a change, and 7 when a node left."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ccm.cloud import Backend, Backends, Kept, NotFound, Transient

from .face import Fault
from .services import changed, nodes, patiently, service, settled
from .world import hetzner


async def test_a_service_of_two_ports_and_five_nodes_takes_four_calls() -> None:
    async with hetzner() as (face, cloud):
        backends, spec, before = await nodes(cloud), service(), len(face.exchanges)
        found = await settled(cloud, spec, backends)
        row = next(iter(face.project.load_balancers.values()))
        assert face.calls(before) == [
            "GET /load_balancers",
            "POST /load_balancers",
            "GET /load_balancers",
            f"GET /load_balancers/{row['id']}/actions",
        ]
        assert {each["listen_port"] for each in row["services"]} == {80, 443}
        assert {each["server"]["id"] for each in row["targets"]} == set(face.project.servers)
        assert found.ingress[0].ip == row["public_net"]["ipv4"]["ip"] and found.ingress[0].ip_mode == "VIP"


async def test_an_unchanged_service_takes_the_listing_only() -> None:
    async with hetzner() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        before = len(face.exchanges)
        await cloud.load_balancers.ensure(spec, backends)
        assert face.calls(before) == ["GET /load_balancers"]
        listed = (await cloud.load_balancers.list(spec.cluster))[0]
        assert listed.fingerprint == cloud.load_balancers.fingerprint(spec, backends)


async def test_many_services_share_one_listing() -> None:
    async with hetzner() as (face, cloud):
        backends, specs = await nodes(cloud), [service() for _ in range(6)]
        for spec in specs:
            await settled(cloud, spec, backends)
        before = len(face.exchanges)
        await asyncio.gather(*(cloud.load_balancers.ensure(spec, backends) for spec in specs))
        assert face.calls(before) == ["GET /load_balancers"]


async def test_a_node_that_leaves_takes_two_calls() -> None:
    async with hetzner() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        left, before = Backends(backends[1:]), len(face.exchanges)
        found = await cloud.load_balancers.update_backends(spec, left)
        row = next(iter(face.project.load_balancers.values()))
        path = f"/load_balancers/{row['id']}/actions/remove_target"
        assert face.calls(before) == ["GET /load_balancers", f"POST {path}"]
        assert found.ready
        listed = (await cloud.load_balancers.list(spec.cluster))[0]
        assert listed.fingerprint == cloud.load_balancers.fingerprint(spec, left)


async def test_to_keep_one_and_to_take_it_back_writes_once_for_each_target() -> None:
    """Taking a load balancer back also writes its mark, first and last."""
    async with hetzner(3) as (face, cloud):
        backends, written = await nodes(cloud), []
        keeping, taking = replace(service(name="edge"), keep=Kept.LOAD_BALANCER), replace(service(), take_back="edge")
        await settled(cloud, keeping, backends)
        for work in (patiently(cloud.load_balancers.delete, keeping), settled(cloud, taking, backends)):
            before = len(face.exchanges)
            await work
            written.append([call.split("/")[-1] for call in face.calls(before) if not call.startswith("GET")])
        (number,) = face.project.load_balancers
        assert written == [["remove_target"] * 3 + [str(number)], [str(number)] + ["add_target"] * 3 + [str(number)]]


async def test_with_a_label_selector_nodes_cost_nothing() -> None:
    selector = {"HCLOUD_LOAD_BALANCERS_TARGET_SELECTOR": "cluster=prod"}
    async with hetzner(**selector) as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        row = next(iter(face.project.load_balancers.values()))
        assert [each["label_selector"] for each in row["targets"]] == [{"selector": "cluster=prod"}]
        shape = cloud.load_balancers.fingerprint
        assert shape(spec, backends) == shape(spec, Backends(backends[1:]))


async def test_a_locked_load_balancer_is_asked_for_again() -> None:
    """Several changes need one call after the other, because the cloud locks a load balancer during a change."""
    async with hetzner() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        wanted = changed(spec, type="lb21", algorithm_type="least_connections", uses_proxyprotocol="true")
        await patiently(cloud.load_balancers.ensure, wanted, Backends(backends[2:]))
        row = next(iter(face.project.load_balancers.values()))
        assert (row["load_balancer_type"]["name"], row["algorithm"]["type"]) == ("lb21", "least_connections")
        assert all(each["proxyprotocol"] for each in row["services"]) and len(row["targets"]) == 3
        refused = [each for each in face.exchanges if each.status == 423]
        assert refused == [], "it asked while an action that it had started ran"
        again = await cloud.load_balancers.ensure(wanted, Backends(backends[2:]))
        assert again.ingress[0].ip_mode == "Proxy"


#: A Service that needs every kind of call.
FULL = {
    "name": "front",
    "protocol": "https",
    "certificate_type": "managed",
    "http_managed_certificate_domains": "example.org,*.example.org",
    "private_ipv4": "10.0.1.77",
    "use_private_ip": "true",
    "ipv4_rdns": "front.example.org",
}


async def _calls_of_a_create() -> list[str]:
    async with hetzner(2) as (face, cloud):
        before = len(face.exchanges)
        await settled(cloud, service(**FULL), await nodes(cloud))
        return face.calls(before)[1:]


async def test_nothing_is_left_behind_after_any_call_of_a_create_failed() -> None:
    """Each call fails once, before or after its effect. Then the Service is deleted, at once or after another attempt
    to create its load balancer."""
    number = len(await _calls_of_a_create())
    assert number >= 8
    for at in range(number):
        for late, again in ((False, False), (True, False), (True, True)):
            async with hetzner(2) as (face, cloud):
                backends, spec = await nodes(cloud), service(**FULL)
                fault = _Nth(at, late)
                with face.fault(fault), pytest.raises(Transient):
                    await settled(cloud, spec, backends)
                if again:
                    await settled(cloud, spec, backends)
                await _deleted(cloud, spec)
                what = f"call {at} failed {'after' if late else 'before'} its effect"
                assert not face.project.load_balancers and not face.project.certificates, what


class _Nth(Fault):
    """Fails the call with this number, once."""

    def __init__(self, at: int, late: bool) -> None:
        super().__init__("status", status=503, late=late)
        self._left = at

    def concerns(self, request: object) -> bool:
        self._left -= 1
        return self._left == -1


async def _deleted(cloud: object, spec: object) -> None:
    """Delete again and again, at most five times, until the provider raises NotFound because nothing is left. The
    framework stops at the first success."""
    for _ in range(5):
        try:
            await patiently(cloud.load_balancers.delete, spec)  # type: ignore[attr-defined]
        except NotFound:
            return
    raise AssertionError("it is never gone")


async def test_too_many_nodes_are_reported_and_not_written_again_and_again() -> None:
    async with hetzner(27) as (face, cloud):
        backends, spec = await nodes(cloud), service(80)
        found = await settled(cloud, spec, backends)
        found = await patiently(cloud.load_balancers.ensure, spec, backends)
        row = next(iter(face.project.load_balancers.values()))
        assert len(row["targets"]) == 25 and "2 of 27 nodes" in found.warnings[0]
        listed = (await cloud.load_balancers.list(spec.cluster))[0]
        assert listed.fingerprint == cloud.load_balancers.fingerprint(spec, backends)
        fewer = Backends(backends[:5])
        await patiently(cloud.load_balancers.update_backends, spec, fewer)
        listed = (await cloud.load_balancers.list(spec.cluster))[0]
        assert listed.fingerprint == cloud.load_balancers.fingerprint(spec, fewer)


async def test_robot_nodes_are_no_targets_and_robot_targets_stay() -> None:
    async with hetzner(2) as (face, cloud):
        robot = Backend("bare-metal", "hrobot://321", (await nodes(cloud))[0].addresses)
        backends, spec = await nodes(cloud), service(80)
        await settled(cloud, spec, Backends([*backends, robot]))
        row = next(iter(face.project.load_balancers.values()))
        row["targets"].append({"type": "ip", "ip": {"ip": "192.0.2.5"}, "health_status": []})
        assert len(row["targets"]) == 3
        before = len(face.exchanges)
        await cloud.load_balancers.ensure(spec, Backends([*backends, robot]))
        assert face.calls(before) == ["GET /load_balancers"]
        assert not cloud.instances.owns("hrobot://321") and not cloud.instances.owns("hcloud://bm-321")
