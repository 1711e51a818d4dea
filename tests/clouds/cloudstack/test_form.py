# SPDX-License-Identifier: Apache-2.0
"""The provider's calls and the stand-in's answers fit CloudStack's own description of its API. Another client lists the
same machines over HTTP."""

from __future__ import annotations

import dataclasses

import pytest

from ccm.cloud import Backends, Instance, InstanceRef, NotFound, Port, ProviderConfig
from ccm.providers.libcloud import LibcloudCloud

from .face import API_KEY, SECRET, Exchange
from .services import deleted, nodes, patiently, service, settled
from .shapes import problems, shapes
from .world import cloudstack


async def journey() -> list[Exchange]:
    """Make every kind of call that the provider makes, and return the calls."""
    async with cloudstack(3) as (face, cloud):
        page = await cloud.instances.list_page(None)
        for each in page.instances:
            assert await cloud.instances.get(InstanceRef(each.name, each.provider_id)) == each
            assert await cloud.instances.get(InstanceRef(each.name)) == each
        with pytest.raises(NotFound):
            nobody = "external-cloudstack://a5b7e7c4-5c2b-4f1a-9d39-0c1c3fd6d2d5"
            await cloud.instances.get(InstanceRef("nobody", nobody))
        backends = await nodes(cloud)
        spec, kept = service(source_ranges=("198.51.100.0/24",)), service(load_balancer_ip="203.0.113.12")
        await settled(cloud, kept, backends)
        await settled(cloud, spec, backends)
        await patiently(cloud.load_balancers.update_backends, spec, Backends(backends[1:]))
        for changed in (
            dataclasses.replace(spec, session_affinity="ClientIP"),
            dataclasses.replace(spec, ports=(Port("p", "UDP", 80, 31080), Port("q", "TCP", 80, 31081))),
            dataclasses.replace(spec, source_ranges=()),
        ):
            await settled(cloud, changed, backends)
        by_hand = next(iter(face.region.rules.values()))
        face.region.create_rule(by_hand | {"publicport": "8080", "name": "by-hand", "description": ""})
        for each in (spec, kept):
            await deleted(cloud, each)
        return face.exchanges


async def test_every_call_and_answer_has_the_described_form() -> None:
    exchanges = await journey()
    assert {problem for each in exchanges for problem in problems(each)} == set()
    assert {each.command for each in exchanges} == set(shapes())


async def test_libcloud_lists_the_same_machines() -> None:
    """libcloud's driver for CloudStack, in the provider `libcloud`, gives the same providerIDs, names, zones and
    states."""
    async with cloudstack(3) as (face, cloud):
        face.region.machines[next(iter(face.region.machines))]["state"] = "Stopped"
        text = f"driver: cloudstack\napi_url: {face.url}\napi_key: {API_KEY}\nsecret_key: {SECRET}\n"
        other = LibcloudCloud(ProviderConfig(text, "libcloud.yaml", {}))
        await other.start()
        try:
            theirs = (await other.instances.list_page(None)).instances
        finally:
            await other.close()
        ours = (await cloud.instances.list_page(None)).instances
        assert len(ours) == 3 and [_shown(each) for each in theirs] == [_shown(each) for each in ours]


def _shown(instance: Instance) -> tuple[object, ...]:
    return instance.provider_id, instance.name, instance.zone, instance.state


@pytest.mark.parametrize("spoilt", [{"id": 1}, {"surprise": "x"}, {"nic": [{"ipaddress": None}]}])
async def test_another_form_is_noticed(spoilt: dict[str, object]) -> None:
    async with cloudstack(1) as (face, cloud):
        await cloud.instances.list_page(None)
        exchange = face.exchanges[-1]
        assert list(problems(exchange)) == []
        exchange.answer["listvirtualmachinesresponse"]["virtualmachine"][0].update(spoilt)
        assert list(problems(exchange)) != []


@pytest.mark.parametrize("changed", [{"surprise": "x"}, {"page": "one"}, {"id": "5"}])
async def test_another_call_is_noticed(changed: dict[str, str]) -> None:
    async with cloudstack(1) as (face, cloud):
        await cloud.instances.list_page(None)
        exchange = face.exchanges[-1]
        exchange.fields.update(changed)
        assert list(problems(exchange)) != []
