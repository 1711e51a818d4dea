# SPDX-License-Identifier: Apache-2.0
"""Users who may create Services cannot take another Service's address, with a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccm.controllers.services.service_rules import FINALIZER
from ccm.engine.client import KubeClient

from .conftest import StartCcm
from .support import NODES, SERVICES, event_messages, eventually, get_service, node_body

POOL = "192.0.2.10-192.0.2.13"
STOLEN = {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}}


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    body = {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": body}


async def addresses(kube: KubeClient, name: str) -> list[str]:
    return [entry.ip for entry in (await get_service(kube, name)).status.load_balancer.ingress]


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_the_api_server_takes_a_status_from_nobody_who_writes_a_service(kube: KubeClient) -> None:
    """The status is the record of who has which address: `create`, `update` and `patch` of Services cannot write it."""
    await kube.create(SERVICES, {**service("liar"), "status": STOLEN})
    assert await addresses(kube, "liar") == []
    await kube.patch(f"{SERVICES}/liar", {"status": STOLEN, "metadata": {"labels": {"written": "yes"}}})
    assert (await get_service(kube, "liar")).metadata.labels == {"written": "yes"}
    assert await addresses(kube, "liar") == []


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_the_roles_of_tenants_do_not_write_the_status_of_services(kube: KubeClient) -> None:
    """The roles `edit` and `admin` aggregate the checked ClusterRoles."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregate-to-"
    parts = [await kube.get(path + name, dict) for name in ("view", "edit", "admin")]
    rules = [rule for part in parts for rule in part["rules"]]
    found = [set(rule["verbs"]) for rule in rules if {"services/status", "*"} & set(rule["resources"])]
    assert found and set.union(*found) == {"get", "list", "watch"}


async def test_a_service_that_wants_no_load_balancer_any_more_loses_its_status(kube: KubeClient) -> None:
    """The API server behaves as `test_static_tenants.py` assumes."""
    await kube.create(SERVICES, service("switched"))
    await kube.patch(f"{SERVICES}/switched/status", {"status": STOLEN, "metadata": {"finalizers": [FINALIZER]}})
    assert await addresses(kube, "switched") == ["192.0.2.10"]
    await kube.patch(f"{SERVICES}/switched", {"spec": {"type": "ClusterIP"}})
    assert await addresses(kube, "switched") == []


@pytest.mark.threat("tenant-own-load-balancers-only")
async def test_an_address_stays_its_services_over_a_restart(
    kube: KubeClient, tmp_path: Path, start_ccm: StartCcm
) -> None:
    machines = tmp_path / "machines.yaml"
    machines.write_text("- {name: pool-0, addresses: [10.0.1.1]}\n")
    conf = f"cluster: cellar\nmachines_file: {machines}\nload_balancer_addresses: [{POOL}]\n"
    ccm = start_ccm(conf=conf, cloud_provider="static", configure_cloud_routes="false")
    await ccm.leading()
    await kube.create(NODES, node_body("pool-0"))
    for number in range(3):
        await kube.create(SERVICES, service(f"victim-{number}"))

    async def served() -> list[str]:
        found = [ip for number in range(3) for ip in await addresses(kube, f"victim-{number}")]
        return found if len(found) == 3 else []

    before = await eventually(served)
    await ccm.stop()
    for number, wanted in enumerate(before):
        # The thieves are handled first: they are first in every listing, and already have the finalizer.
        thief = service(f"a-thief-{number}", loadBalancerIP=wanted)
        thief["metadata"]["finalizers"] = [FINALIZER]
        await kube.create(SERVICES, thief)
    ccm = start_ccm(conf=conf, cloud_provider="static", configure_cloud_routes="false")
    await ccm.leading()
    for number, wanted in enumerate(before):

        async def refused(name: str = f"a-thief-{number}") -> list[str]:
            return await event_messages(kube, "SyncLoadBalancerFailed", name)

        (message,) = await eventually(refused)
        assert message == f"Error syncing load balancer: the address {wanted} is in use"
        assert await addresses(kube, f"a-thief-{number}") == []
    await kube.create(SERVICES, service("newcomer"))

    async def newcomers() -> list[str]:
        return await addresses(kube, "newcomer")

    (new,) = await eventually(newcomers)
    assert await served() == before
    assert new not in before
