# SPDX-License-Identifier: Apache-2.0
"""Ways to log in at a real keystone, a revoked token, and the errors for a wrong password and a missing role."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud import Forbidden, ProviderConfig, Route, Unauthorized
from ccm.providers.openstack import OpenStackCloud

from .conftest import Provider
from .customer import PASSWORD, Site

SECRET = "secret-of-this-test"
#: Removes the site's own user from cloud.conf.
NOBODY: dict[str, Any] = dict.fromkeys(("username", "password", "tenant-name", "domain-name"))


@pytest.fixture(scope="module")
def application_credential(site: Site) -> Iterator[Any]:
    identity = site.cloud.identity
    made = identity.create_application_credential(user=site.user, name=site.name, secret=SECRET)
    yield made
    identity.delete_application_credential(site.user, made)


@pytest.fixture(scope="module")
def trust(site: Site) -> Iterator[tuple[str, str]]:
    """Yield the IDs of a trust by the site's user, and of the user who is trusted."""
    trustee = site.admin.identity.create_user(name=f"{site.name}-trustee", password=SECRET, domain_id="default").id
    made = site.cloud.identity.create_trust(
        trustor_user_id=site.user,
        trustee_user_id=trustee,
        project_id=site.project,
        impersonation=True,
        roles=[{"name": "member"}],
    )
    yield made.id, trustee
    site.cloud.identity.delete_trust(made)
    site.admin.identity.delete_user(trustee)


async def sees_its_servers(cloud: OpenStackCloud, site: Site) -> bool:
    token, found = None, set()
    while True:
        page = await cloud.instances.list_page(token)
        found |= {each.provider_id.rpartition("/")[2] for each in page.instances}
        if (token := page.next) is None:
            return set(site.servers) <= found


async def test_names_and_ids(site: Site, provider: Provider) -> None:
    by_id = NOBODY | {"user-id": site.user, "password": PASSWORD, "tenant-id": site.project}
    for changed in ({}, by_id):
        async with provider(Global=changed) as cloud:
            assert await sees_its_servers(cloud, site)


async def test_application_credentials(site: Site, provider: Provider, application_credential: Any) -> None:
    secret = {"application-credential-secret": SECRET}
    by_id = {"application-credential-id": application_credential.id}
    by_name = {"application-credential-name": site.name, "username": site.name, "domain-name": "Default"}
    for changed in (by_id, by_name, by_name | by_id):
        async with provider(Global=NOBODY | secret | changed) as cloud:
            assert await sees_its_servers(cloud, site)


async def test_a_trust(site: Site, provider: Provider, trust: tuple[str, str]) -> None:
    as_a_trustee = {"trustee-id": trust[1], "trustee-password": SECRET}
    as_magnum_writes_it = {"user-id": trust[1], "password": SECRET}
    for given in (as_a_trustee, as_magnum_writes_it):
        async with provider(Global=NOBODY | given | {"trust-id": trust[0]}) as cloud:
            assert await sees_its_servers(cloud, site)


async def test_a_token(site: Site, provider: Provider) -> None:
    token = await asyncio.to_thread(lambda: site.cloud.auth_token)
    async with provider(Global=NOBODY | {"token": token, "tenant-id": site.project}) as cloud:
        assert await sees_its_servers(cloud, site)


async def test_clouds_yaml(site: Site, provider: Provider, tmp_path: Path) -> None:
    auth = {
        "auth_url": site.world["public"]["identity"],
        "username": site.name,
        "password": PASSWORD,
        "project_name": site.name,
        "user_domain_name": "Default",
        "project_domain_name": "Default",
    }
    path = tmp_path / "clouds.yaml"
    path.write_text(json.dumps({"clouds": {"mine": {"auth": auth, "region_name": site.world["region"]}}}))
    given = {"use-clouds": True, "clouds-file": path, "cloud": "mine", "auth-url": None, "region": None}
    async with provider(Global=NOBODY | given) as cloud:
        assert await sees_its_servers(cloud, site)
        assert (await cloud.instances.list_page(None)).next


async def test_a_token_that_was_revoked_is_renewed_once(site: Site, provider: Provider) -> None:
    async with provider() as cloud:
        assert await sees_its_servers(cloud, site)
        session = cloud._api._session
        assert session is not None
        headers = {"X-Subject-Token": session.get_token()}
        await asyncio.to_thread(site.admin.identity.delete, "/auth/tokens", headers=headers)
        site.rig.reset()
        # nova may accept the revoked token for some time, because it caches tokens that it has verified. This fault is
        # nova's answer after that time. nova asks keystone about the new token.
        site.rig.fault(service="compute", status=401, times=1)
        assert await sees_its_servers(cloud, site)
        assert site.rig.logins() == 1


async def test_a_wrong_password(site: Site) -> None:
    config = ProviderConfig(site.conf(Global={"password": SECRET}), "cloud.conf")
    cloud = OpenStackCloud(config)
    with pytest.raises(Unauthorized, match=r"keystone does not accept the credentials of \[Global\]") as caught:
        await cloud.start()
    await cloud.close()
    assert SECRET not in str(caught.value)


async def test_a_reader_is_told_which_call_needs_more(site: Site, provider: Provider) -> None:
    name = f"{site.name}-reader"
    identity = site.admin.identity
    user = await asyncio.to_thread(identity.create_user, name=name, password=SECRET, domain_id="default")
    try:
        role = await asyncio.to_thread(identity.find_role, "reader")
        await asyncio.to_thread(identity.assign_project_role_to_user, site.project, user, role)
        async with provider(Global={"username": name, "password": SECRET}) as cloud:
            assert await sees_its_servers(cloud, site)
            assert cloud.routes is not None
            route = Route("10.244.7.0/24", f"openstack:///{site.servers[0]}")
            with pytest.raises(Forbidden, match=r"PUT network .* is missing a role for this call: member"):
                await cloud.routes.create("c", route)
    finally:
        await asyncio.to_thread(identity.delete_user, user)
