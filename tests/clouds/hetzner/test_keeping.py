# SPDX-License-Identifier: Apache-2.0
"""Load balancers that outlive their Service, or that the cloud must not delete. The kit's cases cover the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ccm.cloud import Conflict, Invalid, Kept, KeptLoadBalancer
from ccm.providers.hetzner.load_balancer_owners import KEPT_FOR

from .services import nodes, patiently, service, settled
from .test_takeover import refused
from .world import hetzner


async def test_a_protected_one_is_protected_in_the_cloud_until_its_service_says_otherwise() -> None:
    async with hetzner(2) as (face, cloud):
        backends, plain = await nodes(cloud), service()
        spec = replace(plain, protected=True)
        await settled(cloud, spec, backends)
        (row,) = face.project.load_balancers.values()
        assert row["protection"]["delete"] and (await cloud.load_balancers.list(spec.cluster))[0].protected
        row["protection"]["delete"] = False  # as somebody does in the console
        assert "it is not protected against deletion" in (await cloud.load_balancers.deviations(spec, backends))[0]
        await settled(cloud, spec, backends)
        assert row["protection"]["delete"]
        await settled(cloud, plain, backends)
        assert not row["protection"]["delete"] and not (await cloud.load_balancers.list(spec.cluster))[0].protected


async def test_what_the_service_protected_is_deleted_once_the_framework_asks_for_it() -> None:
    """The annotation is removed from a Service that is already being deleted, so no other write precedes the
    deletion."""
    async with hetzner(2) as (face, cloud):
        spec = replace(service(), protected=True)
        await settled(cloud, spec, await nodes(cloud))
        await patiently(cloud.load_balancers.delete, replace(spec, protected=False))
        assert not face.project.load_balancers


async def test_the_protection_of_a_person_stays() -> None:
    async with hetzner(2) as (face, cloud):
        backends, spec = await nodes(cloud), service()
        await settled(cloud, spec, backends)
        (row,) = face.project.load_balancers.values()
        row["protection"]["delete"] = True
        await settled(cloud, replace(spec, keep=Kept.LOAD_BALANCER), backends)
        await patiently(cloud.load_balancers.delete, spec)
        assert row["protection"]["delete"] and row["labels"][KEPT_FOR] == "default" and row["targets"] == []


async def test_one_that_is_kept_has_lost_the_protection_of_its_service() -> None:
    async with hetzner(2) as (face, cloud):
        spec = replace(service(name="edge"), keep=Kept.LOAD_BALANCER, protected=True)
        await settled(cloud, spec, await nodes(cloud))
        await patiently(cloud.load_balancers.delete, spec)
        (row,) = face.project.load_balancers.values()
        assert not row["protection"]["delete"] and row["services"], "it keeps its ports"
        address = row["public_net"]["ipv4"]["ip"]
        assert await cloud.load_balancers.kept("kubernetes") == [KeptLoadBalancer("edge", "default", address)]


async def test_nobody_gets_one_that_is_kept_by_its_name() -> None:
    async with hetzner(2, HCLOUD_LOAD_BALANCERS_ADOPT_BY_NAME="true") as (face, cloud):
        backends, spec = await nodes(cloud), replace(service(name="edge"), keep=Kept.LOAD_BALANCER)
        await settled(cloud, spec, backends)
        await patiently(cloud.load_balancers.delete, spec)
        with pytest.raises(Conflict, match=r"kept for namespace default.*take-back-load-balancer"):
            await cloud.load_balancers.ensure(replace(service(name="edge"), namespace="other"), backends)
        (row,) = face.project.load_balancers.values()
        await settled(cloud, replace(service(name="edge"), take_back="edge"), backends)
        assert list(face.project.load_balancers.values()) == [row] and len(row["targets"]) == 2


async def test_what_contradicts_itself_is_refused() -> None:
    async with hetzner(2) as (face, cloud):
        managed = service(
            protocol="https", certificate_type="managed", http_managed_certificate_domains="example.org"
        )
        message = await refused(cloud, managed, keep=Kept.LOAD_BALANCER)
        assert "certificate-type: a managed certificate is deleted with its Service" in message
        message = await refused(cloud, service(name="front"), take_back="edge")
        assert "name: the Service takes back the load balancer edge" in message
        backends, spec = await nodes(cloud), service(name="edge")
        await settled(cloud, spec, backends)
        other = replace(spec, take_back="other", annotations={})
        with pytest.raises(Conflict, match="has the load balancer edge, and cannot take back other"):
            await cloud.load_balancers.ensure(other, backends)
        assert cloud.load_balancers.fingerprint(other, backends) != cloud.load_balancers.fingerprint(
            replace(spec, annotations={}), backends
        ), "so the Service is looked at, and the refusal reported"
        with pytest.raises(Invalid):
            await cloud.load_balancers.ensure(replace(managed, keep=Kept.LOAD_BALANCER), backends)
        assert len(face.project.load_balancers) == 1 and not face.project.certificates
