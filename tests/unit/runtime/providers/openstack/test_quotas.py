# SPDX-License-Identifier: Apache-2.0
"""Which quotas Neutron and Octavia report, and what their figures mean."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from ccm.cloud import Quota, Transient
from ccm.providers.openstack.quotas import balancer_limit, of_neutron

from .fake_cloud import PROJECT, FakeCloud, running

NEUTRON, OCTAVIA = f"GET network /quotas/{PROJECT}/details.json", f"GET load-balancer /lbaas/quotas/{PROJECT}"
ROW = {"used": 3, "limit": 10, "reserved": 1}


def answering(neutron: Any, octavia: Any, balancers: int = 2) -> FakeCloud:
    cloud = FakeCloud()
    cloud.extensions.append("quota_details")
    rows = [{"id": f"lb-{number}"} for number in range(balancers)]
    cloud.answer = {
        NEUTRON: lambda request: web.json_response(neutron),
        OCTAVIA: lambda request: web.json_response(octavia),
        "GET load-balancer /lbaas/loadbalancers": lambda request: web.json_response({"loadbalancers": rows}),
    }
    return cloud


async def test_quotas_are_those_of_what_load_balancers_need() -> None:
    neutron = {"quota": {"floatingip": ROW, "port": ROW | {"limit": -1}, "subnet": ROW}}
    async with running(answering(neutron, {"quota": {"load_balancer": 5}})) as (cloud, provider):
        assert await provider.quotas.list() == [Quota("floating IPs", 4, 10), Quota("load balancers", 2, 5)]
        assert ("project_id", PROJECT) in cloud.queries[-1]  # otherwise an administrator counts all projects


async def test_without_the_extension_or_a_limit_nothing_is_counted() -> None:
    cloud = answering({}, {"quota": {"load_balancer": -1}})
    cloud.extensions.remove("quota_details")
    async with running(cloud) as (_, provider):
        assert await provider.quotas.list() == []
        assert not any("loadbalancers" in call or "/quotas/" in call for call in cloud.calls if "network" in call)
        assert "GET load-balancer /lbaas/loadbalancers" not in cloud.calls
    async with running(answering({"quota": {}}, {}), more="[LoadBalancer]\nenabled=false") as (cloud, provider):
        assert await provider.quotas.list() == []
        assert not any("load-balancer" in call for call in cloud.calls)


@pytest.mark.parametrize(("neutron", "octavia"), [([], {"quota": {}}), ({"quota": {}}, {"quotas": []})])
async def test_an_answer_of_another_shape_says_nothing(neutron: Any, octavia: Any) -> None:
    async with running(answering(neutron, octavia)) as (_, provider):
        with pytest.raises(Transient, match="has no quota"):
            await provider.quotas.list()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (ROW, [Quota("ports", 4, 10)]),
        ({"used": 3, "limit": 10}, [Quota("ports", 3, 10)]),
        ({"used": 0, "limit": 0, "reserved": 0}, [Quota("ports", 0, 0)]),
        ({"used": 3, "limit": -1}, []),
        ({"used": None, "limit": 10}, []),
        ({"used": True, "limit": 10}, []),
        (10, []),
    ],
)
def test_what_a_row_of_neutron_means(row: Any, expected: list[Quota]) -> None:
    assert of_neutron({"port": row, "network": ROW}) == expected


@pytest.mark.parametrize(
    ("quota", "limit"),
    [
        ({"load_balancer": 7}, 7),
        ({"loadbalancer": 7}, 7),
        ({"load_balancer": -1}, None),
        ({"load_balancer": None}, None),
        ({}, None),
    ],
)
def test_the_limit_of_load_balancers(quota: dict[str, Any], limit: int | None) -> None:
    assert balancer_limit(quota) == limit
