# SPDX-License-Identifier: Apache-2.0
"""Compares the provider's calls and the stand-in's answers with the published description of Hetzner's API. Also reads
the stand-in over HTTP with the vendor's Python client, which must understand all answers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import hcloud
import pytest

from ccm.cloud import Backends, CloudError, InstanceRef, Kept, Route
from tests.clouds.stand_in import Exchange

from .face import TOKEN
from .services import changed, nodes, patiently, service, settled
from .shapes import problems
from .world import hetzner

HTTPS = {
    "protocol": "https",
    "certificate_type": "managed",
    "http_managed_certificate_domains": "example.org",
    "http_sticky_sessions": "true",
    "http_timeout_idle": "60s",
    "health_check_protocol": "http",
    "health_check_http_path": "/healthz",
    "http_status_codes": "200,3??",
}


async def journey() -> tuple[list[Exchange], list[str]]:
    """Make every kind of call that the provider makes. Return the calls, and what the vendor's client reads
    afterwards."""
    async with hetzner(3) as (face, cloud):
        backends, plain = await nodes(cloud), service(80, 443)
        await cloud.instances.get(InstanceRef("worker-0"))
        await cloud.instances.get(InstanceRef("worker-0", backends[0].provider_id))
        await settled(cloud, plain, Backends(backends[:2]))
        await settled(cloud, service(443, **HTTPS), backends)
        other = changed(plain, type="lb21", algorithm_type="least_connections", uses_proxyprotocol="true")
        for wanted in (
            other,
            changed(other, use_private_ip="true", name="front", health_check_interval="5s"),
            changed(other, private_ipv4="10.0.1.99", disable_public_network="true", ipv4_rdns="front.example.org"),
            changed(other, disable_public_network="false"),
        ):
            await patiently(cloud.load_balancers.ensure, wanted, backends)
        await patiently(cloud.load_balancers.update_backends, other, Backends(backends[1:]))
        fewer = service(8080)
        await patiently(cloud.load_balancers.ensure, dataclasses.replace(other, ports=fewer.ports), backends)
        for what in (cloud.routes.create, cloud.routes.delete):
            route = Route("10.244.1.0/24", backends[0].provider_id, id="10.0.0.2")
            await patiently(what, "kubernetes", route)
        await patiently(cloud.routes.create, "kubernetes", route)
        said = await asyncio.to_thread(told_by_the_client, face.url)
        gone = service(443, **HTTPS)
        await settled(cloud, gone, backends)
        await patiently(cloud.load_balancers.delete, gone)
        kept = dataclasses.replace(service(8443), keep=Kept.LOAD_BALANCER, protected=True)
        await settled(cloud, kept, backends)
        await patiently(cloud.load_balancers.delete, kept)
        with contextlib.suppress(CloudError):
            await cloud.instances.get(InstanceRef("nobody", "hcloud://1"))
        return face.exchanges, said


def told_by_the_client(url: str) -> list[str]:
    client = hcloud.Client(token=TOKEN, api_endpoint=url)
    told = [f"{each.name} {each.status} {each.server_type.name}" for each in client.servers.get_all()]
    for network in client.networks.get_all():
        told += [f"{network.name}: {route.destination} {route.gateway}" for route in network.routes]
        told.append(f"{network.name} has {len(network.servers)} servers")
    for balancer in client.load_balancers.get_all():
        kinds = {each.type for each in balancer.targets}
        ports = sorted(each.listen_port for each in balancer.services)
        checks = {each.health_check.protocol for each in balancer.services}
        told.append(f"{balancer.load_balancer_type.name} {kinds} {ports} {checks} {balancer.algorithm.type}")
        told.append(f"{balancer.location.name} {bool(balancer.public_net.ipv4.ip)} {len(balancer.private_net)}")
        told += {each.status for each in client.load_balancers.get_actions(balancer)}
    told += [f"{each.name[:23]} {each.type} {each.domain_names}" for each in client.certificates.get_all()]
    with pytest.raises(hcloud.APIException) as refused:
        client.servers.get_by_id(1)
    told.append(refused.value.code)
    return told


async def test_every_call_and_answer_has_the_published_form() -> None:
    exchanges, _ = await journey()
    found = {problem for each in exchanges for problem in problems(each)}
    assert found == set()
    actions = {each.path.rpartition("/")[2] for each in exchanges if "/actions/" in each.path}
    assert actions == {
        "add_route",
        "delete_route",
        "add_service",
        "update_service",
        "delete_service",
        "add_target",
        "remove_target",
        "attach_to_network",
        "detach_from_network",
        "change_algorithm",
        "change_type",
        "change_dns_ptr",
        "change_protection",
        "enable_public_interface",
        "disable_public_interface",
    }


async def test_the_vendors_client_reads_every_answer() -> None:
    _, said = await journey()
    assert "worker-0 running cx22" in said and "kube has 3 servers" in said
    assert "kube: 10.244.1.0/24 10.0.0.2" in said
    assert "lb21 {'server'} [8080] {'tcp'} least_connections" in said
    assert "lb11 {'server'} [443] {'http'} round_robin" in said
    assert "ccm-managed-certificate managed ['example.org']" in said
    assert "success" in said and "not_found" in said


@pytest.mark.parametrize("spoilt", [{"id": "1"}, {"status": "asleep"}, {"surprise": 1}, {"labels": None}])
async def test_another_form_is_noticed(spoilt: dict[str, object]) -> None:
    async with hetzner(1) as (face, cloud):
        await nodes(cloud)
        exchange = face.exchanges[-1]
        assert list(problems(exchange)) == []
        exchange.answer["servers"][0].update(spoilt)
        assert list(problems(exchange)) != []
