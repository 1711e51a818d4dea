# SPDX-License-Identifier: Apache-2.0
"""Load balancers that hcloud-cloud-controller-manager or a person created or changed, and requests that are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.cloud import Conflict, Invalid, LoadBalancerSpec, NotFound
from ccm.providers.hetzner import HetznerCloud

from .face import Face
from .services import nodes, patiently, service, settled
from .world import hetzner

UID = "hcloud-ccm/service-uid"


def original(face: Face, spec: LoadBalancerSpec, labels: dict[str, str], name: str = "") -> Any:
    """Create what hcloud-cloud-controller-manager creates for this Service: TCP checks on the node port, one target for
    each server."""
    row, _ = face.project.create_load_balancer(
        {
            "name": name or spec.default_name,
            "load_balancer_type": "lb11",
            "location": "fsn1",
            "labels": labels,
            "network": next(iter(face.project.networks)),
            "services": [
                {
                    "protocol": "tcp",
                    "listen_port": port.port,
                    "destination_port": port.node_port,
                    "health_check": {"protocol": "tcp", "port": port.node_port},
                }
                for port in spec.ports
            ],
            "targets": [{"type": "server", "server": {"id": each}} for each in face.project.servers],
        }
    )
    face.project.end_actions()
    return row


async def test_one_of_the_original_is_taken_over_by_its_label_with_one_write() -> None:
    async with hetzner() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        row, before = original(face, spec, {UID: spec.uid, "team": "web"}), len(face.exchanges)
        address = row["public_net"]["ipv4"]["ip"]
        found = await cloud.load_balancers.ensure(spec, backends)
        assert face.calls(before) == ["GET /load_balancers", f"PUT /load_balancers/{row['id']}"]
        assert found.ingress[0].ip == address and len(face.project.load_balancers) == 1
        assert row["labels"][UID] == spec.uid and row["labels"]["team"] == "web"
        listed = await cloud.load_balancers.list(spec.cluster)
        assert [each.fingerprint for each in listed] == [cloud.load_balancers.fingerprint(spec, backends)]


async def test_before_the_take_over_it_is_found_but_not_listed_as_ours() -> None:
    async with hetzner() as (face, cloud):
        spec = service()
        original(face, spec, {UID: spec.uid})
        assert (await cloud.load_balancers.get(spec)).fingerprint == ""
        assert await cloud.load_balancers.list(spec.cluster) == []


async def test_one_that_a_person_made_is_taken_over_by_its_name_if_that_is_allowed() -> None:
    async with hetzner(HCLOUD_LOAD_BALANCERS_ADOPT_BY_NAME="true") as (face, cloud):
        backends, spec = await nodes(cloud), service(name="edge")
        row = original(face, spec, {}, "edge")
        await settled(cloud, spec, backends)
        assert list(face.project.load_balancers) == [row["id"]] and row["labels"][UID] == spec.uid


async def test_one_that_a_person_made_is_not_taken_over_by_its_name() -> None:
    async with hetzner() as (face, cloud):
        spec = service(name="edge")
        row = original(face, spec, {}, "edge")
        with pytest.raises(Conflict, match="ADOPT_BY_NAME"):
            await cloud.load_balancers.ensure(spec, await nodes(cloud))
        assert row["labels"] == {}


async def test_nobody_gets_the_load_balancer_of_another_service_by_its_name() -> None:
    async with hetzner() as (face, cloud):
        backends, owner = await nodes(cloud), service(name="edge")
        row = original(face, owner, {UID: owner.uid}, "edge")
        for _ in range(2):  # with the original's label, then with ours
            with pytest.raises(Conflict, match="belongs to"):
                await cloud.load_balancers.ensure(service(name="edge"), backends)
            await settled(cloud, owner, backends)
        assert row["labels"][UID] == owner.uid


async def test_a_protected_one_stays_when_its_service_is_deleted_and_can_be_taken_over() -> None:
    async with hetzner(HCLOUD_LOAD_BALANCERS_ADOPT_BY_NAME="true") as (face, cloud):
        backends, spec = await nodes(cloud), service(name="edge")
        await settled(cloud, spec, backends)
        row = next(iter(face.project.load_balancers.values()))
        row["protection"]["delete"] = True
        await cloud.load_balancers.delete(spec)
        assert row["labels"] == {} and await cloud.load_balancers.list(spec.cluster) == []
        with pytest.raises(NotFound):
            await cloud.load_balancers.delete(spec)
        await settled(cloud, service(name="edge"), backends)
        assert len(face.project.load_balancers) == 1


async def test_a_change_by_hand_is_reported_and_repaired() -> None:
    async with hetzner() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        row = next(iter(face.project.load_balancers.values()))
        assert await cloud.load_balancers.deviations(spec, backends) == []
        row["services"][0]["destination_port"] = 1
        del row["targets"][0]
        found = await cloud.load_balancers.deviations(spec, backends)
        assert len(found) == 2 and "port 80 has other values" in found[0]
        await patiently(cloud.load_balancers.ensure, spec, backends)
        assert await cloud.load_balancers.deviations(spec, backends) == []


async def refused(cloud: HetznerCloud, spec: LoadBalancerSpec, **more: Any) -> str:
    with pytest.raises(Invalid) as caught:
        await cloud.load_balancers.ensure(dataclasses.replace(spec, **more), await nodes(cloud))
    return str(caught.value)


async def test_what_the_cloud_cannot_do_is_refused_with_the_fields_name() -> None:
    async with hetzner() as (face, cloud):
        assert "spec.loadBalancerSourceRanges" in await refused(cloud, service(), source_ranges=("192.0.2.0/24",))
        assert "spec.loadBalancerIP" in await refused(cloud, service(), load_balancer_ip="192.0.2.1")
        told = await refused(cloud, service(health_check_port="many", http_timeout_idle="1s", tpye="lb11"))
        assert "health-check-port" in told and "http-timeout-idle" in told and "tpye" in told
        udp = dataclasses.replace(service(53).ports[0], protocol="UDP")
        assert "spec.ports" in await refused(cloud, service(), ports=(udp,))
        assert not face.project.load_balancers
        some = service(443)
        assert "UDP 53" in await refused(cloud, some, ports=(*some.ports, udp))
