# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a Service, a server's name, the project, cloud.conf or the credentials is reported: by an Event on
the object, or in the log if the process cannot start. Quotas are also read before one is full."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm.cloud import ProviderConfig
from ccm.engine.client import KubeClient
from ccm.providers.openstack import OpenStackCloud
from tests.integration.runtime.support import (
    NODES,
    SERVICES,
    event_messages,
    eventually,
    get_node,
    get_service,
    initialised,
    node_body,
)

from .conftest import StartCcm
from .customer import PASSWORD, Site
from .test_services_and_routes import NO_ROUTES, SECONDS, joined, served, service_body

#: The ID of a second external network that does not exist. It sorts after the real network's ID.
NOBODYS = "ffffffff-ffff-4fff-8fff-ffffffffffff"
REFUSED = json.dumps({"error": {"message": "The request you have made requires authentication.", "code": 401}})


async def told(kube: KubeClient, service: str, *words: str, reason: str = "SyncLoadBalancerFailed") -> str:
    """Wait for an Event of this Service whose message has all these words; return the message."""

    async def found() -> str:
        messages = await event_messages(kube, reason, service)
        return next((each for each in messages if all(word in each for word in words)), "")

    return await eventually(found, SECONDS, f"an Event {reason} of Service {service} with {words}")


@pytest.fixture
async def reader(site: Site) -> AsyncIterator[str]:
    """Yield a user who may only read in the site's project."""
    identity, name = site.admin.identity, f"{site.name}-looks"

    def make() -> Any:
        user = identity.create_user(name=name, password=PASSWORD, domain_id="default")
        identity.assign_project_role_to_user(site.project, user, identity.find_role("reader"))
        return user

    user = await asyncio.to_thread(make)
    yield name
    await asyncio.to_thread(identity.delete_user, user)


async def test_what_a_project_lacks_is_told_on_the_service_and_served_later(
    kube: KubeClient, site: Site, start_ccm: StartCcm, reader: str
) -> None:
    """A role is missing, two quotas are full, a token is refused half-way. An Event reports each, nothing is created
    twice, and all Services are served in the end."""
    octavia, network = site.admin.load_balancer, site.admin.network
    names = ("role", "balancers", "addresses", "token")
    try:
        looks = start_ccm(conf=site.conf(Global={"username": reader}), **NO_ROUTES)
        await joined(kube, "node-0")
        await kube.create(SERVICES, service_body("role"))
        message = await told(kube, "role", "is missing a role for this call: member")
        assert "POST load-balancer /lbaas/loadbalancers" in message
        await looks.stop()

        await asyncio.to_thread(octavia.update_quota, site.project, load_balancers=0)
        start_ccm(**NO_ROUTES)
        await kube.create(SERVICES, service_body("balancers"))
        await told(kube, "balancers", "Quota has been met")
        await asyncio.to_thread(octavia.delete_quota, site.project)
        await asyncio.to_thread(network.update_quota, site.project, floating_ips=0)
        await kube.create(SERVICES, service_body("addresses"))
        await told(kube, "addresses", "Quota exceeded", "floatingip")
        await asyncio.to_thread(network.delete_quota, site.project)

        # Keystone's token is refused only when the floating IP is requested, after the load balancer was created. The
        # other Services already have their floating IPs, so only one Service makes refused requests, one after the
        # other. Its last refused request may still be running.
        await eventually(lambda: served(kube, *names[:3]), SECONDS)
        site.rig.reset()
        site.rig.load_balancers(0.1)
        site.rig.fault(service="network", method="POST", path="/floatingips", status=401, body=REFUSED)
        await kube.create(SERVICES, service_body("token"))
        message = await told(kube, "token", "refused the token", "POST network /floatingips")
        refused = [call for call in site.rig.journal() if call["status"] == 401]
        assert len(refused) <= 2 * site.rig.logins() + 1, "each attempt asks for one new token"
        assert PASSWORD not in message
        site.rig.end_faults()

        await eventually(lambda: served(kube, *names), SECONDS)
        assert len(await asyncio.to_thread(site.balancers)) == len(names)
        assert len(list(network.ips(project_id=site.project))) == len(names)
    finally:
        await asyncio.to_thread(octavia.delete_quota, site.project)
        await asyncio.to_thread(network.delete_quota, site.project)


async def test_an_external_network_that_nobody_chose(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """Without an external network, a Service is served at its VIP. With two, the first network is used. Events say
    so."""
    start_ccm(conf=site.conf(LoadBalancer={"floating-network-id": None}), **NO_ROUTES)
    await joined(kube, "node-0")
    site.rig.fault(service="network", method="GET", path="/networks", status=200, body='{"networks": []}')
    await kube.create(SERVICES, service_body("inside"))
    await told(kube, "inside", "no external network to take a floating IP from", reason="LoadBalancerWarning")
    (service,) = await eventually(lambda: served(kube, "inside"), SECONDS)
    (balancer,) = await asyncio.to_thread(site.balancers)
    assert service.status.load_balancer.ingress[0].ip == balancer.vip_address

    site.rig.end_faults()
    public = site.world["public_network"]
    more = {"router:external": True, "subnets": [site.world["public_subnet"]]}
    rows = [{"id": public, "name": "public", **more}, {"id": NOBODYS, "name": "other", **more}]
    body = json.dumps({"networks": rows})
    site.rig.fault(service="network", method="GET", path="/networks", status=200, body=body)
    await kube.create(SERVICES, service_body("outside"))
    message = await told(kube, "outside", "2 external networks", reason="LoadBalancerWarning")
    assert f"public ({public})" in message and f"other ({NOBODYS})" in message and "floating-network-id" in message
    (service,) = await eventually(lambda: served(kube, "outside"), SECONDS)
    (floating,) = site.cloud.network.ips(project_id=site.project)
    assert service.status.load_balancer.ingress[0].ip == floating.floating_ip_address
    assert floating.floating_network_id == public


async def test_annotations_that_cannot_be_understood(kube: KubeClient, site: Site, start_ccm: StartCcm) -> None:
    """One Event names all invalid values, and nothing is created. Once they are corrected, the Service is served. An
    unknown annotation is only a warning."""
    start_ccm(**NO_ROUTES)
    await joined(kube, "node-0")
    prefix = "loadbalancer.openstack.org"
    wrong = {f"{prefix}/connection-limit": "many", f"{prefix}/proxy-protocol": "v3", f"{prefix}/misspelt": "1"}
    body = service_body("web")
    body["metadata"]["annotations"] = wrong
    await kube.create(SERVICES, body)
    message = await told(kube, "web", "connection-limit", "proxy-protocol")
    assert "'many'" in message and "'v3'" in message
    assert await asyncio.to_thread(site.balancers) == []
    right = {f"{prefix}/connection-limit": "9", f"{prefix}/proxy-protocol": None}
    await kube.patch(f"{SERVICES}/web", {"metadata": {"annotations": right}})
    await eventually(lambda: served(kube, "web"), SECONDS)
    await told(kube, "web", f"{prefix}/misspelt", reason="LoadBalancerWarning")
    assert (await get_service(kube, "web")).status.load_balancer.ingress


async def test_two_servers_of_one_name_and_names_that_differ_in_case(
    kube: KubeClient, site: Site, start_ccm: StartCcm
) -> None:
    """Of two servers with the same name, none is chosen, as with cloud-provider-openstack. A server whose name has
    capitals is found by its Node's name."""
    rename = site.cloud.compute.update_server
    one, other = site.servers[1:3]
    try:
        start_ccm(controllers="cloud-node", configure_cloud_routes="false")
        for node_name, server_name in (("twin", "twin"), ("pair", "PAIR")):
            await asyncio.to_thread(rename, one, name=server_name)
            await asyncio.to_thread(rename, other, name=node_name)
            await kube.create(NODES, node_body(node_name))

            async def ambiguous(name: str = node_name) -> bool:
                messages = await event_messages(kube, "CloudNotAvailable", name)
                return any(f"are named '{name}'" in each and one in each and other in each for each in messages)

            await eventually(ambiguous, SECONDS, "an Event that names both servers")
            node = await get_node(kube, node_name)
            assert node is not None and not node.spec.provider_id
        await asyncio.to_thread(rename, other, name="another")
        await eventually(lambda: initialised(kube, "pair"), SECONDS)
        node = await get_node(kube, "pair")
        assert node is not None and node.spec.provider_id == f"openstack:///{one}"
    finally:
        for number, server in enumerate((one, other), 1):
            await asyncio.to_thread(rename, server, name=f"node-{number}")


async def test_wrong_credentials_end_the_start_and_are_told_without_the_secret(site: Site, start_ccm: StartCcm) -> None:
    ccm = start_ccm(conf=site.conf(Global={"password": "another-secret-word"}))
    assert await ccm.wait() == 1
    assert "keystone does not accept the credentials of [Global]" in ccm.text
    assert "another-secret-word" not in ccm.text


async def test_all_that_is_wrong_with_the_file_is_told_at_once_with_its_lines(site: Site, start_ccm: StartCcm) -> None:
    """All unknown and contradictory keys are reported. Missing keys are reported only if there are no unknown ones,
    because an unknown key may be the missing one, misspelt."""
    lines = [
        "[Global]",
        f"auth-url = {site.world['public']['identity']}",
        "username = somebody",
        "password = another-secret-word",
        "tls-insecure = true",
        "ca-file = /etc/ca.crt",
        "colour = blue",
        "[LoadBalancer]",
        "lb-method = BEST",
    ]
    for conf, problems in (
        (lines, ((7, "colour"), (9, "lb-method"), (5, "ca-file"))),
        ([line for line in lines if "colour" not in line], ((5, "ca-file"), (3, "user-domain-name"), (4, "tenant-id"))),
    ):
        ccm = start_ccm(conf="\n".join(conf))
        assert await ccm.wait() == 1
        for line, words in problems:
            assert any(f"line {line}:" in told and words in told for told in ccm.text.splitlines()), (
                line,
                words,
                ccm.text,
            )
        assert "another-secret-word" not in ccm.text


async def test_quotas_of_the_project_are_read_with_the_customers_own_role(site: Site, reader: str) -> None:
    """Neutron reports usage, Octavia only the limit; -1 means no quota. A user with the role reader can read both."""
    octavia, network = site.admin.load_balancer, site.admin.network
    try:
        await asyncio.to_thread(octavia.update_quota, site.project, load_balancers=5)
        await asyncio.to_thread(network.update_quota, site.project, floating_ips=7, security_groups=-1)
        in_use = len(await asyncio.to_thread(site.balancers)), len(list(network.ips(project_id=site.project)))
        for user in ({}, {"username": reader}):
            cloud = OpenStackCloud(ProviderConfig(site.conf(Global=user), "cloud.conf"))
            try:
                await cloud.start()
                found = {each.kind: (each.used, each.limit) for each in await cloud.quotas.list()}
            finally:
                await cloud.close()
            assert found["load balancers"] == (in_use[0], 5) and found["floating IPs"] == (in_use[1], 7)
            assert "security groups" not in found
    finally:
        await asyncio.to_thread(octavia.delete_quota, site.project)
        await asyncio.to_thread(network.delete_quota, site.project)
