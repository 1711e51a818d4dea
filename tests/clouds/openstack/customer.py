# SPDX-License-Identifier: Apache-2.0
"""A customer of the rig, which is the set of OpenStack services that `make openstack` starts: a project with a network
and a router, in which a test creates servers and counts calls.

The methods block; a test with other tasks in its event loop must use `asyncio.to_thread`.
"""

from __future__ import annotations

import configparser
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import openstack
from openstack.exceptions import NotFoundException

from ccm.conformance import Listener
from tools.clouds.openstack.rig.control import Control

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("OUTOFTREE_RIG") or REPOSITORY / "build" / "openstack")
PASSWORD = "secret-of-the-site"
ROLES = ("member", "load-balancer_member")
SERVER_SECONDS = 300.0


class Site:
    """A customer's project, made for a session of tests, and removed afterwards with everything in it."""

    def __init__(self) -> None:
        self.rig = Control(DATA)
        self.servers: list[str] = []
        self.world = self.rig.world
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        # This connection and `cloud` bypass the proxy, so calls that prepare a test are neither counted nor broken.
        self.admin = self._connect("admin", "secret", "admin")
        identity = self.admin.identity
        self.project = identity.create_project(name=self.name, domain_id="default").id
        self.user = identity.create_user(name=self.name, password=PASSWORD, domain_id="default").id
        self.give(*ROLES)
        self.cloud = self._connect(self.name, PASSWORD, self.name)
        network = self.cloud.network
        self.network = network.create_network(name="nodes").id
        self.subnet = network.create_subnet(network_id=self.network, cidr="10.30.0.0/16", ip_version=4).id
        gateway = {"network_id": self.world["public_network"]}
        self.router = network.create_router(name="nodes", external_gateway_info=gateway).id
        network.add_interface_to_router(self.router, subnet=self.subnet)

    def give(self, *roles: str) -> None:
        identity = self.admin.identity
        for role in roles:
            identity.assign_project_role_to_user(self.project, self.user, identity.find_role(role))

    def take(self, role: str) -> None:
        identity = self.admin.identity
        identity.unassign_project_role_from_user(self.project, self.user, identity.find_role(role))

    def conf(self, **changed: dict[str, Any]) -> str:
        """Return a cloud.conf. Keyword arguments change sections: ``LoadBalancer={"internal-lb": True}``; None removes
        a key."""
        sections: dict[str, dict[str, Any]] = {
            "Global": {
                "auth-url": self.world["public"]["identity"],
                "username": self.name,
                "password": PASSWORD,
                "tenant-name": self.name,
                "domain-name": "Default",
                "region": self.world["region"],
            },
            "LoadBalancer": {
                "lb-provider": "rig",
                "subnet-id": self.subnet,
                "floating-network-id": self.world["public_network"],
            },
            "Route": {"router-id": self.router},
            # The timeout is generous: only tests about slow answers depend on time. Beside a cluster on two cores nova
            # may need a minute, and upstream's controller creates a load balancer twice if it does not wait long
            # enough.
            "Metadata": {"request-timeout": "300s"},
            "Runtime": {"calls-per-second": 1000, "burst": 1000},
        }
        for section, options in changed.items():
            sections[section] = sections.get(section, {}) | options
        parser = configparser.RawConfigParser(default_section="none")
        for section, options in sections.items():
            parser[section] = {key: str(value) for key, value in options.items() if value is not None}
        text = io.StringIO()
        parser.write(text)
        return text.getvalue()

    # Servers

    def boot(self, name: str, zone: str = "zone-a") -> str:
        """Create a server, wait until it is ACTIVE, and return its ID."""
        return self.boot_all({name: zone})[0]

    def boot_all(self, zones: Mapping[str, str]) -> list[str]:
        """Create servers in these zones, by name; return their IDs when all are ACTIVE."""
        common = {"flavor_id": self.world["flavor"], "image_id": self.world["image"]}
        create, networks = self.cloud.compute.create_server, [{"uuid": self.network}]
        servers = [
            create(name=name, availability_zone=zone, networks=networks, **common).id for name, zone in zones.items()
        ]
        for server in servers:
            _until(lambda server=server: self._active(server), f"server {server} is ACTIVE")
        return servers

    def boot_in(self, name: str, networks: Sequence[str]) -> str:
        """Create a server in these networks, wait until it is ACTIVE, and return its ID."""
        uuids = [{"uuid": network} for network in networks]
        images = {"flavor_id": self.world["flavor"], "image_id": self.world["image"]}
        server = self.cloud.compute.create_server(name=name, networks=uuids, **images).id
        _until(lambda: self._active(server), f"server {server} is ACTIVE")
        return str(server)

    def wait_for_address(self, server: str, address: str) -> None:
        """Wait until nova shows a floating IP, which takes some seconds after neutron has created it."""
        _until(
            lambda: address in json.dumps(self.cloud.compute.get_server(server).addresses),
            f"{address} is an address of server {server}",
        )

    def _active(self, server: str) -> bool:
        found = self.cloud.compute.get_server(server)
        if found.status == "ERROR":
            raise AssertionError(f"nova could not make server {server}: {found.fault}")
        return found.status == "ACTIVE" and bool(found.addresses)

    def address(self, server: str) -> str:
        (port,) = self.cloud.network.ports(device_id=server)
        return str(port.fixed_ips[0]["ip_address"])

    def stop(self, server: str) -> None:
        self.cloud.compute.stop_server(server)
        _until(lambda: self.cloud.compute.get_server(server).status == "SHUTOFF", f"server {server} is SHUTOFF")

    def untag(self, server: str) -> None:
        """Tag a server, then remove all its tags and metadata."""
        compute = self.cloud.compute
        for answer in (
            compute.put(f"/servers/{server}/tags/somebody", microversion="2.26"),
            compute.delete(f"/servers/{server}/tags", microversion="2.26"),
            compute.put(f"/servers/{server}/metadata", json={"metadata": {}}),
        ):
            openstack.exceptions.raise_from_response(answer)

    def delete(self, server: str) -> None:
        self.cloud.compute.delete_server(server, ignore_missing=True)
        _until(lambda: self.cloud.compute.find_server(server) is None, f"server {server} is deleted")

    def clone(self, server: str, count: int, prefix: str, first: str) -> None:
        """Copy a server `count` times in the databases of nova and neutron."""
        self._rig("clone", server, str(count), prefix, first)

    def forget_clones(self, prefix: str) -> None:
        self._rig("forget", prefix)

    # Load balancers

    def clone_balancer(self, balancer: str, copies: Sequence[Mapping[str, Any]]) -> None:
        """Copy a load balancer in the databases of octavia and neutron (`rig.clones.make_balancers`)."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(copies, file)
            file.flush()
            # The copies' addresses start here, outside the ranges from which neutron assigns addresses.
            self._rig("clone-balancer", balancer, file.name, "10.31.0.1", "198.51.100.1")

    def balancers(self) -> list[Any]:
        return list(self.cloud.load_balancer.load_balancers())

    def balancer_parts(self) -> frozenset[str]:
        """Return kind and ID of load balancers that are not being deleted, floating addresses, and security groups."""
        network, going = self.cloud.network, ("PENDING_DELETE", "DELETED")
        balancers = [each for each in self.balancers() if each.provisioning_status not in going]
        groups = [each for each in network.security_groups(project_id=self.project) if each.name != "default"]
        parts = [*balancers, *network.ips(project_id=self.project), *groups]
        return frozenset(f"{type(each).__name__} {each.id}" for each in parts)

    def listeners(self, name: str) -> tuple[Listener, ...]:
        """Return the listeners of the load balancer with this name, as the conformance kit compares them."""
        service, found = self.cloud.load_balancer, []
        for row in service.listeners(loadbalancer_id=self.balancer_id(name)):
            pool = service.get_pool(row.default_pool_id)
            members = list(service.members(pool))
            ranges = frozenset(row.allowed_cidrs or ()) - {"0.0.0.0/0", "::/0"}
            affine = (pool.session_persistence or {}).get("type") == "SOURCE_IP"
            found.append(
                Listener(
                    int(row.protocol_port),
                    str(row.protocol),
                    frozenset((str(each.address), int(each.protocol_port)) for each in members if each.weight),
                    ranges,
                    "ClientIP" if affine else "None",
                    next((int(member.monitor_port) for member in members if member.monitor_port), 0),
                )
            )
        return tuple(found)

    def balancer_id(self, name: str) -> str:
        (found,) = [each for each in self.balancers() if each.name == name]
        return str(found.id)

    def break_balancer(self, name: str) -> None:
        """Put a load balancer into ERROR, by a failover that fails."""
        balancer = self.cloud.load_balancer.find_load_balancer(name, ignore_missing=False)
        _until(lambda: self._state(balancer.id) in ("ACTIVE", "ERROR"), f"load balancer {name} is settled")
        self.rig.load_balancers(0.1, [name])
        try:
            self.admin.load_balancer.failover_load_balancer(balancer.id)
            _until(lambda: self._state(balancer.id) == "ERROR", f"load balancer {name} is in ERROR")
        finally:
            self.rig.load_balancers(0.1)

    def wait_for_balancer(self, balancer: str) -> None:
        _until(lambda: self._state(balancer) == "ACTIVE", f"load balancer {balancer} is ACTIVE")

    def _state(self, balancer: str) -> str:
        return str(self.cloud.load_balancer.get_load_balancer(balancer).provisioning_status)

    # Volumes

    def make_volume(self, zone: str) -> str:
        """Request a volume; returns its ID. No backend creates it, so it can only be read and deleted."""
        made = self.cloud.block_storage.create_volume(size=1, availability_zone=zone)
        self.admin.block_storage.reset_volume_status(made.id, "error")
        return str(made.id)

    def delete_volume(self, volume: str) -> None:
        volumes = self.cloud.block_storage

        def gone() -> bool:
            try:
                volumes.get_volume(volume)
            except NotFoundException:
                return True
            return False

        volumes.delete_volume(volume, ignore_missing=True)
        _until(gone, f"volume {volume} is deleted")

    # Cleaning up

    def clean_balancers(self) -> None:
        """Remove load balancers, floating addresses and security groups that tests left."""
        self.rig.reset()
        self.rig.load_balancers(0.0)
        octavia, network = self.cloud.load_balancer, self.cloud.network
        for balancer in self.balancers():
            with contextlib.suppress(NotFoundException):  # it was being deleted already
                _until(
                    lambda one=balancer: not self._state(one.id).startswith("PENDING"), f"{balancer.name} is settled"
                )
                octavia.delete_load_balancer(balancer, cascade=True)
        _until(lambda: not self.balancers(), "load balancers are gone")
        for address in network.ips(project_id=self.project):
            network.delete_ip(address)
        for group in network.security_groups(project_id=self.project):
            if group.name != "default":
                network.delete_security_group(group)

    def close(self) -> None:
        self.clean_balancers()
        compute, network = self.cloud.compute, self.cloud.network
        servers = [server.id for server in compute.servers()]
        for server in servers:
            compute.delete_server(server)
        for server in servers:
            _until(lambda server=server: compute.find_server(server) is None, f"server {server} is deleted")
        network.update_router(self.router, routes=[])
        network.remove_interface_from_router(self.router, subnet=self.subnet)
        network.delete_router(self.router)
        self._remove_ports_of_nothing()
        network.delete_network(self.network)
        self.admin.identity.delete_user(self.user)
        self.admin.identity.delete_project(self.project)

    def _remove_ports_of_nothing(self) -> None:
        """Remove ports of VIPs that Octavia left. Octavia creates the port in neutron before its own transaction ends.
        If that fails, for example by a deadlock in the database, the load balancer is rolled back and the port
        stays."""
        for port in list(self.admin.network.ports(network_id=self.network, device_owner="Octavia")):
            print(f"octavia left port {port.id} of {port.device_id}, {port.name}")
            self.admin.network.delete_port(port)

    def _connect(self, user: str, password: str, project: str) -> Any:
        return openstack.connect(
            auth_url=self.world["internal"]["identity"],
            username=user,
            password=password,
            project_name=project,
            user_domain_name="Default",
            project_domain_name="Default",
            region_name=self.world["region"],
            interface="internal",
        )

    def _rig(self, *arguments: str) -> None:
        path = os.pathsep.join(str(REPOSITORY / "tools" / folder) for folder in ("bed", "clouds/openstack"))
        command = [sys.executable, "-m", "rig", *arguments]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


def _until(done: Callable[[], bool], what: str, seconds: float = SERVER_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.3)
