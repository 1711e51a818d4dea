# SPDX-License-Identifier: Apache-2.0
"""The clouds of test_several_clouds_audited, with one interface to break and change them: the simulated cloud, an
OpenStack in memory behind HTTP, and machines in a file."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from aiohttp import web

from ccm.cloud import CloudError, Conflict, NotFound, RetryAfter
from ccm_simcloud.testing import Simulator, running_simulator
from tests.unit.runtime.providers.openstack.fake_cloud import CONFIG, PROJECT, FakeCloud, serving
from tests.unit.runtime.providers.openstack.octavia_in_memory import BALANCER, NETWORK, FakeOpenStack, the
from tools.bench.several_clouds import install_metro


class AuditedCloud(Protocol):
    """A cloud of the test. `name`: the name of its provider, with which the names of its Nodes and Services begin.
    `secret`: the credential for its API, "" if it needs none.
    """

    name: str
    secret: str

    def conf(self, secret: str) -> str: ...

    def add_machines(self, names: Iterable[str], net: int) -> None:
        """Add machines with addresses of 10.`net`.0.0/16."""
        ...

    def delete_machines(self, names: Iterable[str]) -> None: ...

    def go_down(self) -> None: ...

    def come_back(self) -> None: ...

    def writes(self) -> int:
        """Return how many calls so far changed something in the cloud."""
        ...


def _addresses(names: Iterable[str], net: int) -> Iterable[tuple[str, str]]:
    return ((name, f"10.{net}.{number >> 8}.{number & 255}") for number, name in enumerate(names, 1))


class SimulatedCloud:
    def __init__(self, cloud: Simulator, name: str) -> None:
        self.name, self.cloud, self.secret = name, cloud, cloud.project().config.token

    def conf(self, secret: str) -> str:
        return self.cloud.conf(token=secret, request_timeout=60, calls_per_second=200, burst=200)

    def add_machines(self, names: Iterable[str], net: int) -> None:
        with self.cloud.server.world.batch():
            for name, address in _addresses(names, net):
                self.cloud.add_instance(name, addresses=[{"type": "InternalIP", "address": address}])

    def delete_machines(self, names: Iterable[str]) -> None:
        project, going = self.cloud.project(), set(names)
        for id_ in list(project.instances.ids):
            if project.instances.get(id_).name in going:
                project.delete_instance(id_)

    def go_down(self) -> None:
        self.cloud.fault(action="hang_up")

    def come_back(self) -> None:
        self.cloud.clear_faults()

    def writes(self) -> int:
        return sum(each.write and each.operation != "tokens.create" for each in self.cloud.journal())


def with_metro(folder: Path) -> tuple[str, ...]:
    """Return the arguments with which Python runs `ccm` with a second copy of the simulated cloud's provider, named
    metro. The other controller uses the name sim, and takes each providerID that begins with sim:// for its own.
    """
    return (
        "-c",
        f"import sys; sys.path.insert(0, {str(install_metro(folder))!r}); from ccm.cli import main; "
        "sys.exit(main(sys.argv[1:]))",
    )


class _Answers(FakeCloud):
    """Answers requests about servers as `FakeCloud` does, and requests about load balancers with Octavia and neutron in
    memory.
    """

    def __init__(self, secret: str) -> None:
        super().__init__()
        self.secret, self.is_down = secret, False
        self.balancers = FakeOpenStack()
        self.balancers.project_id = PROJECT  # of the token: a listing has only the load balancers of its project
        self.writes, self._addresses = 0, itertools.count(1)
        network = r"\w+ network /?(floatingips|security-group|subnets/).*"
        self.answer = {
            r"\w+ load-balancer .*": lambda request: self._of_balancers(request, BALANCER),
            network: lambda request: self._of_balancers(request, NETWORK),
        }

    async def _identity(self, request: web.Request) -> web.StreamResponse:
        self._answers_at_all(request)
        if request.method == "POST":
            asked = await request.json()
            if asked["auth"]["identity"]["password"]["user"]["password"] != self.secret:
                return web.json_response({"error": {"code": 401, "message": "not authorised"}}, status=401)
        return await super()._identity(request)

    async def _service(self, request: web.Request) -> web.StreamResponse:
        self._answers_at_all(request)
        self.writes += request.method != "GET"
        return await super()._service(request)

    def _answers_at_all(self, request: web.Request) -> None:
        if self.is_down:
            assert request.transport is not None
            request.transport.abort()
            raise web.HTTPServiceUnavailable

    async def _of_balancers(self, request: web.Request, service: str) -> web.StreamResponse:
        path = request.match_info["rest"] + (f"?{request.query_string}" if request.method == "DELETE" else "")
        body = self.bodies[-1]
        if request.method == "POST" and path.endswith("/loadbalancers"):
            number = next(self._addresses)
            body = {"loadbalancer": {**body["loadbalancer"], "vip_address": f"10.210.{number >> 8}.{number & 255}"}}
        try:
            found = await self.balancers.call(
                request.method,
                service,
                path,
                params=dict(request.query),
                body=body,
                headers=dict(request.headers),
                missing="any",
            )
        except CloudError as error:
            statuses = {NotFound: 404, Conflict: 409, RetryAfter: 409}
            status = next((number for kind, number in statuses.items() if isinstance(error, kind)), 400)
            told = {"faultcode": "Client", "faultstring": str(error)}
            if service == NETWORK:
                told = {"NeutronError": {"type": "x", "message": str(error)}}
            return web.json_response(told, status=status)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")


class OpenStackInMemory:
    name, secret = "openstack", "secret-of-openstack"

    def __init__(self) -> None:
        self.services = _Answers(self.secret)

    def conf(self, secret: str) -> str:
        text = CONFIG.format(url=self.services.url, project=PROJECT, more="")
        balancers = f"[LoadBalancer]\nsubnet-id = {the('sub-nodes')}\ninternal-lb = true\n"
        limits = "[Metadata]\nrequest-timeout = 60s\n[Runtime]\ncalls-per-second = 200\nburst = 200\n"
        return text.replace("very-secret", secret) + balancers + limits

    def add_machines(self, names: Iterable[str], net: int) -> None:
        for name, address in _addresses(names, net):
            self.services.add_server(name, address)

    def delete_machines(self, names: Iterable[str]) -> None:
        going = set(names)
        self.services.servers = [each for each in self.services.servers if each["name"] not in going]

    def go_down(self) -> None:
        self.services.is_down = True

    def come_back(self) -> None:
        self.services.is_down = False

    def writes(self) -> int:
        return self.services.writes


class MachinesInAFile:
    """Machines in a file, which the provider `static` reads. This cloud has no API, so it has no writes to count."""

    name, secret = "static", ""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "machines.yaml"
        self._machines: dict[str, str] = {}

    def conf(self, secret: str) -> str:
        return f"cluster: cellar\nmachines_file: {self._file}\nload_balancer_addresses: [10.203.0.1-10.203.3.250]\n"

    def add_machines(self, names: Iterable[str], net: int) -> None:
        self._machines |= dict(_addresses(names, net))
        self._write()

    def delete_machines(self, names: Iterable[str]) -> None:
        for name in names:
            del self._machines[name]
        self._write()

    def _write(self) -> None:
        rows = [{"name": name, "addresses": [address]} for name, address in self._machines.items()]
        self._file.write_bytes(msgspec.yaml.encode(rows))

    def go_down(self) -> None:
        self._file.unlink()
        self._file.mkdir()

    def come_back(self) -> None:
        self._file.rmdir()
        self._write()

    def writes(self) -> int:
        return 0


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[list[AuditedCloud], SimulatedCloud]]:
    """Yield the clouds of our process, and the simulated cloud of the other controller."""

    def config(region: str, addresses: str) -> dict[str, Any]:
        project = {"name": "demo", "token": f"{region}-token", "region": region, "load_balancer_addresses": addresses}
        return {"projects": [project]}

    openstack = OpenStackInMemory()
    async with (
        running_simulator(config("north", "10.201.0.0/16")) as sim,
        running_simulator(config("east", "10.202.0.0/16")) as peers,
        serving(openstack.services),
    ):
        yield [openstack, SimulatedCloud(sim, "metro"), MachinesInAFile(folder)], SimulatedCloud(peers, "peer")
