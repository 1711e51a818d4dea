# SPDX-License-Identifier: Apache-2.0
"""Load balancers that cloudstack-kubernetes-provider created. Its rules have the same names as ours, and no mark."""

from __future__ import annotations

import pytest

from ccm.cloud import LoadBalancerSpec, NotFound

from .face import Face
from .services import deleted, nodes, service, settled
from .world import cloudstack


def made_by_theirs(face: Face, spec: LoadBalancerSpec, *, requested: str = "") -> str:
    """Create an address with rules as cloudstack-kubernetes-provider 1.2.0 does; return the address."""
    region, network = face.region, next(iter(face.region.networks.values()))
    row = region.add_address(requested or "203.0.113.77", network)
    for port in spec.ports:
        name = f"{spec.default_name}-tcp-{port.port}"
        given = {"name": name, "algorithm": "roundrobin", "protocol": "tcp", "publicipid": row["id"]}
        ports = {"publicport": str(port.port), "privateport": str(port.node_port)}
        rule, _ = region.create_rule(given | ports | {"networkid": network["id"], "cidrlist": "0.0.0.0/0"})
        region.tick(all_=True)
        region.assign(rule, list(region.machines))
        open_ = {"ipaddressid": row["id"], "protocol": "tcp", "cidrlist": "0.0.0.0/0"}
        region.open_port(open_ | {"startport": port.port, "endport": port.port})
    region.tick(all_=True)
    return str(row["ipaddress"])


async def test_one_of_theirs_gets_a_mark_and_nothing_else() -> None:
    async with cloudstack() as (face, cloud):
        backends, spec = await nodes(cloud), service()
        address = made_by_theirs(face, spec)
        before, rules = len(face.exchanges), set(face.region.rules)
        found = await settled(cloud, spec, backends)
        assert [each.ip for each in found.ingress] == [address] and set(face.region.rules) == rules
        writes = [each for each in face.calls(before) if not each.startswith(("list", "query"))]
        assert writes == ["updateLoadBalancerRule"] * 2
        (listed,) = await cloud.load_balancers.list(spec.cluster)
        assert listed.fingerprint == cloud.load_balancers.fingerprint(spec, backends)


@pytest.mark.parametrize(
    ("requested", "annotations", "goes"),
    [
        ("", {}, True),
        ("203.0.113.99", {}, False),
        ("203.0.113.99", {"ip-associated-by-controller": "true"}, True),
    ],
)
async def test_their_address_goes_with_the_service_as_it_would_with_them(
    requested: str, annotations: dict[str, str], goes: bool
) -> None:
    async with cloudstack() as (face, cloud):
        backends = await nodes(cloud)
        spec = service(annotations=annotations, load_balancer_ip=requested)
        address = made_by_theirs(face, spec, requested=requested)
        await settled(cloud, spec, backends)
        await deleted(cloud, spec)
        assert face.region.parts() == (frozenset() if goes else {f"address {address}"})


async def test_one_that_was_never_taken_over_is_deleted_by_its_name() -> None:
    async with cloudstack() as (face, cloud):
        spec = service()
        made_by_theirs(face, spec)
        await deleted(cloud, spec)
        assert face.region.parts() == frozenset()


async def test_another_services_is_left_alone() -> None:
    async with cloudstack() as (face, cloud):
        made_by_theirs(face, service())
        before = face.region.parts()
        with pytest.raises(NotFound):
            await cloud.load_balancers.get(service())
        assert await cloud.load_balancers.list("kubernetes") == []
        with pytest.raises(NotFound):
            await cloud.load_balancers.delete(service())
        assert face.region.parts() == before
