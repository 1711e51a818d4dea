# SPDX-License-Identifier: Apache-2.0
"""``python -m rig.world PART...``: creates what an administrator of the cloud and a customer create before there is a
cluster.

It runs in the environment of the services. Existing objects stay, so a second run changes nothing. It writes
``world.json`` (identities), ``clouds.yaml`` and ``cloud.conf``.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import openstack

from bed.cluster import Bed
from bed.plan import Plan
from rig import beds
from rig.beds import Network
from rig.places import DATA, SERVICES, TLS, Ports, recorded
from rig.settings import HOSTS, PASSWORD, REGION

USER = PROJECT = "kubernetes"
# The path of the CA's certificate in cloud.conf, in the folder that cloud-provider-openstack's own manifest mounts.
CA_FILE = "/etc/config/ca.crt"
ROLES = ("member", "reader", "load-balancer_member")
NAMES = {
    "placement": "placement",
    "network": "neutron",
    "image": "glance",
    "load-balancer": "octavia",
    "compute": "nova",
    "block-storage": "cinder",
}


def credentials(url: str, user: str, project: str) -> dict[str, str]:
    return {
        "auth_url": url,
        "username": user,
        "password": PASSWORD,
        "project_name": project,
        "user_domain_name": "Default",
        "project_domain_name": "Default",
    }


def connect(ports: Ports, user: str, project: str) -> Any:
    """Connect to the services directly, not through the proxy."""
    auth = credentials(ports.internal_url("identity"), user, project)
    return openstack.connect(auth=auth, region_name=REGION, interface="internal")


def identity(ports: Ports) -> None:
    """Create the services' user, the customer, and the catalog, whose public addresses are the proxy's."""
    keystone = connect(ports, "admin", "admin").identity
    roles = {role.name: role for role in keystone.roles()}
    for name in ROLES:
        if name not in roles:
            roles[name] = keystone.create_role(name=name)
    _member(keystone, "services", "service", [roles["admin"], roles["service"]])
    _member(keystone, USER, PROJECT, [roles[name] for name in ROLES])
    known = {service.type: service.id for service in keystone.services()}
    endpoints = {(endpoint.service_id, endpoint.interface): endpoint for endpoint in keystone.endpoints()}
    for kind, name in NAMES.items():
        service = known.get(kind) or keystone.create_service(name=name, type=kind).id
        for interface, url in (("public", ports.public_url(kind)), ("internal", ports.internal_url(kind))):
            endpoint = endpoints.get((service, interface))
            if endpoint is None:
                keystone.create_endpoint(service_id=service, interface=interface, url=url, region_id=REGION)
            elif endpoint.url != url:
                keystone.update_endpoint(endpoint, url=url)


def _member(keystone: Any, user: str, project: str, roles: list[Any]) -> None:
    """Create a user and a project, unless they exist, and give the user these roles in the project."""
    home = keystone.find_project(project) or keystone.create_project(name=project, domain_id="default")
    found = keystone.find_user(user) or keystone.create_user(name=user, password=PASSWORD, domain_id="default")
    for role in roles:
        keystone.assign_project_role_to_user(home, found, role)


def network(ports: Ports, plan: Plan | None) -> dict[str, str]:
    """Create a public network with floating addresses, and the customer's network of nodes behind a router; return
    their IDs."""
    if plan:
        own, outside = beds.networks(plan)
    else:
        own, outside = Network("10.20.0.0/16"), Network("203.0.113.0/24")
    admin = connect(ports, "admin", "admin").network
    public = admin.find_network("public") or admin.create_network(
        name="public",
        is_router_external=True,
        provider_network_type="flat",
        provider_physical_network="public",
    )
    public_subnet = _subnet(admin, public, "public", outside, enable_dhcp=False)
    customer = connect(ports, USER, PROJECT).network
    nodes = customer.find_network("nodes", ignore_missing=True) or customer.create_network(name="nodes")
    subnet = _subnet(customer, nodes, "nodes", own)
    router = customer.find_router("nodes")
    if router is None:
        router = customer.create_router(name="nodes", external_gateway_info={"network_id": public.id})
        customer.add_interface_to_router(router, subnet=subnet.id)
    group = customer.find_security_group("nodes") or customer.create_security_group(name="nodes")
    return {
        "project": customer.get_project_id(),
        "public_network": public.id,
        "public_subnet": public_subnet.id,
        "network": nodes.id,
        "subnet": subnet.id,
        "router": router.id,
        "security_group": group.id,
    }


def _subnet(client: Any, of: Any, name: str, wanted: Network, **more: Any) -> Any:
    if wanted.gateway:
        more["gateway_ip"] = wanted.gateway
    if wanted.first:
        more["allocation_pools"] = [{"start": wanted.first, "end": wanted.last}]
    found = client.find_subnet(name, network_id=of.id)
    return found or client.create_subnet(name=name, network_id=of.id, cidr=wanted.cidr, ip_version=4, **more)


def compute(ports: Ports) -> dict[str, str]:
    """Create a flavor, an image with a few bytes (nothing boots it), and an availability zone for each host. Return the
    IDs of the flavor and the image."""
    cloud = connect(ports, "admin", "admin")
    aggregates = {aggregate.name for aggregate in cloud.compute.aggregates()}
    for host, zone in HOSTS.items():
        if zone not in aggregates:
            aggregate = cloud.compute.create_aggregate(name=zone, availability_zone=zone)
            cloud.compute.add_host_to_aggregate(aggregate, host)
    flavor = cloud.compute.find_flavor("m1.small") or cloud.compute.create_flavor(
        name="m1.small", ram=512, vcpus=1, disk=1
    )
    image = cloud.image.find_image("nothing") or cloud.image.create_image(
        name="nothing", data=b"nothing", disk_format="raw", container_format="bare", visibility="public"
    )
    return {"flavor": flavor.id, "image": image.id}


def machines(ports: Ports, plan: Plan) -> None:
    """Create a server for each machine of a bed, with the machine's name, and a port with the machine's address."""
    world = json.loads((DATA / "world.json").read_text())
    customer = connect(ports, USER, PROJECT)
    for node, zone in zip(plan.nodes, itertools.cycle(HOSTS.values()), strict=False):
        if customer.compute.find_server(node.name) is None:
            fixed = [{"subnet_id": world["subnet"], "ip_address": node.address}]
            port = customer.network.create_port(name=node.name, network_id=world["network"], fixed_ips=fixed)
            customer.compute.create_server(
                name=node.name,
                flavor_id=world["flavor"],
                image_id=world["image"],
                availability_zone=zone,
                networks=[{"port": port.id}],
            )
    for node in plan.nodes:
        customer.compute.wait_for_server(customer.compute.find_server(node.name), wait=300)


def files(ports: Ports, world: dict[str, Any]) -> None:
    (DATA / "world.json").write_text(json.dumps(world, indent=2) + "\n")
    clouds = {
        name: {
            "auth": credentials(ports.public_url("identity"), user, project),
            "region_name": REGION,
            "identity_api_version": 3,
            **({"cacert": str(TLS / "ca.crt")} if ports.tls else {}),
        }
        for name, user, project in (("rig", USER, PROJECT), ("rig-admin", "admin", "admin"))
    }
    (DATA / "clouds.yaml").write_text(json.dumps({"clouds": clouds}, indent=2) + "\n")  # JSON is YAML, too
    (DATA / "cloud.conf").write_text(f"""\
[Global]
auth-url = {ports.public_url("identity")}
username = {USER}
password = {PASSWORD}
tenant-name = {PROJECT}
domain-name = Default
region = {REGION}
{f"ca-file = {CA_FILE}{chr(10)}" if ports.tls else ""}
[LoadBalancer]
lb-provider = rig
floating-network-id = {world["public_network"]}
network-id = {world["network"]}
subnet-id = {world["subnet"]}

[Route]
router-id = {world["router"]}
""")


def main() -> None:
    record, parts = recorded(), sys.argv[1:]
    ports, plan = record.ports, Bed.load(record.bed).plan if record.bed else None
    if "identity" in parts:
        identity(ports)
    if "network" in parts:
        endpoints = {name: ports.public_url(name) for name in SERVICES}
        world: dict[str, Any] = {"control": f"http://127.0.0.1:{ports.control}", "region": REGION, "public": endpoints}
        world["internal"] = {name: ports.internal_url(name) for name in SERVICES}
        world |= network(ports, plan)
        if "compute" in parts:
            world |= {"zones": HOSTS, **compute(ports)}
        files(ports, world)
    if "machines" in parts and plan:
        machines(ports, plan)


if __name__ == "__main__":
    main()
