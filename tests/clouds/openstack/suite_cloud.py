# SPDX-License-Identifier: Apache-2.0
"""The adapter of `ccm-suite` for OpenStack: a project on the services of `make openstack`, behind a proxy that breaks
and counts the controller's calls.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccm_suite.cloud import Cloud, Fault, LoadBalancer, Machine, Route, Settings
from ccm_suite.errors import SuiteError, Unsupported
from openstack.exceptions import ConflictException
from rig import stack

from tools.clouds.openstack.rig.control import Control

from .customer import DATA, Site

ZONE = "zone-a"
#: How long Octavia needs for a change, in seconds.
DELAY = 0.1
#: How many servers are copied at once, and the address of the first copy, in the site's subnet.
BATCH, FIRST = 100, ipaddress.IPv4Address("10.30.128.0")
EVERYWHERE = ("0.0.0.0/0", "::/0")
_LISTINGS = tuple({"service": "compute", "method": "GET", "path": path} for path in ("/servers", "/servers/detail"))
_RULES: Mapping[Fault, Sequence[Mapping[str, Any]]] = {
    Fault.TIMEOUT: [{"kind": "hang"}],
    Fault.HANG_UP: [{"kind": "drop"}],
    Fault.UNAUTHORIZED: [{"status": 401}],
    Fault.FORBIDDEN: [{"status": 403}],
    Fault.THROTTLED: [{"status": 429, "headers": {"Retry-After": "1"}}],
    Fault.INTERNAL: [{"status": 500}],
    Fault.UNAVAILABLE: [{"status": 503}],
    Fault.GATEWAY_PAGE: [
        {"status": 502, "headers": {"Content-Type": "text/html"}, "body": "<html><body>502 Bad Gateway</body></html>"}
    ],
    Fault.EMPTY_LISTING: [{**calls, "status": 200, "body": '{"servers": []}'} for calls in _LISTINGS],
    Fault.HALF_LISTING: [{**calls, "kind": "half"} for calls in _LISTINGS],
}
_GOING = "('PENDING_DELETE', 'DELETED')"
#: Selects load balancers, with a row for each pair of member and source range. It reads the database, so that a poll
#: every half second does not keep Octavia from answering the controller.
_BALANCERS = f"""
select b.id, coalesce(f.floating_ip_address, v.ip_address), coalesce(l.protocol, ''), coalesce(l.protocol_port, 0),
 coalesce(m.ip_address, ''), coalesce(m.protocol_port, 0), coalesce(m.monitor_port, 0), coalesce(c.cidr, '')
 from octavia.load_balancer b join octavia.vip v on v.load_balancer_id = b.id
 left join neutron.floatingips f on f.fixed_port_id = v.port_id
 left join octavia.listener l on l.load_balancer_id = b.id and l.provisioning_status not in {_GOING}
 left join octavia.listener_cidr c on c.listener_id = l.id
 left join octavia.member m on m.pool_id = l.default_pool_id
  and m.provisioning_status not in {_GOING}
 where b.project_id = '{{project}}' and b.provisioning_status not in {_GOING}
"""


class OpenStack(Cloud):
    """A project of OpenStack. Variables for the command: {cloud_config}, {cluster}. `make openstack` starts the
    services.

    Machines are copies of one server, as rows in the databases, because nova takes seconds to create a server, and the
    suite needs hundreds. Nova renames, stops, starts and deletes copies like other servers.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._site: Site | None = None
        self._free: list[tuple[str, str]] = []
        self._batches = itertools.count()

    def start(self, folder: Path) -> Settings:
        if not (DATA / "world.json").exists():
            raise SuiteError("the OpenStack services do not run: `make openstack`")
        site = self._site = Site()
        site.rig = Control(DATA, site.name)  # another controller's run may use the services, too
        site.rig.load_balancers(DELAY)
        self._database = stack.running_database()
        self._region = str(site.world["region"])
        self._model = site.boot("suite-model", ZONE)
        self._type = str(site.cloud.compute.get_server(self._model).flavor["original_name"])
        self._copy()
        config = folder / "cloud.conf"
        # A health monitor is what the vendor's page recommends for externalTrafficPolicy Local.
        balancers = {"create-monitor": "true"}
        config.write_text(site.conf(LoadBalancer=balancers, Metadata={"request-timeout": "60s"}))
        return Settings({"cloud_config": str(config), "cluster": site.name})

    def stop(self) -> None:
        if self._site is not None:
            for number in range(next(self._batches)):
                self._site.forget_clones(self._prefix(number))
            self._site.close()
            self._site.rig.load_balancers(DELAY)

    @property
    def _customer(self) -> Site:
        assert self._site is not None
        return self._site

    def _prefix(self, batch: int) -> str:
        return f"{self._customer.name}-{batch}-"

    def _copy(self) -> None:
        number = next(self._batches)
        prefix = self._prefix(number)
        first = FIRST + number * BATCH
        self._customer.clone(self._model, BATCH, prefix, str(first))
        made = {each.name: each.id for each in self._customer.cloud.compute.servers(name=f"^{prefix}")}
        self._free = [(made[f"{prefix}{each:04}"], str(first + each)) for each in range(BATCH)]

    def create_machine(self, name: str) -> Machine:
        with self._lock:
            if not self._free:
                self._copy()
            id, address = self._free.pop(0)
        self._customer.cloud.compute.update_server(id, name=name)
        return Machine(
            id=id,
            name=name,
            addresses=(("InternalIP", address),),
            provider_id=f"openstack:///{id}",
            zone=ZONE,
            region=self._region,
            type=self._type,
        )

    def delete_machine(self, machine: Machine) -> None:
        self._customer.delete(machine.id)

    def stop_machine(self, machine: Machine) -> None:
        self._customer.stop(machine.id)

    def start_machine(self, machine: Machine) -> None:
        self._customer.cloud.compute.start_server(machine.id)

    def rename_machine(self, machine: Machine, name: str) -> None:
        self._customer.cloud.compute.update_server(machine.id, name=name)

    def sharing(self, balancer: LoadBalancer) -> Mapping[str, str]:
        return {"loadbalancer.openstack.org/load-balancer-id": balancer.id}

    def load_balancers(self) -> Sequence[LoadBalancer]:
        rows: dict[tuple[str, str], list[list[str]]] = defaultdict(list)
        for line in self._database.sql(_BALANCERS.format(project=self._customer.project)).splitlines():
            id, address, *more = line.split("\t")
            rows[id, address].append(more)
        return [self._balancer(id, address, parts) for (id, address), parts in rows.items()]

    @staticmethod
    def _balancer(id: str, address: str, parts: Sequence[Sequence[str]]) -> LoadBalancer:
        checks = {int(check) for *_, check, _ in parts} - {0}
        return LoadBalancer(
            id=id,
            address=address,
            ports=frozenset((protocol, int(port), int(to)) for protocol, port, _, to, *_ in parts if protocol),
            members=frozenset(member for _, _, member, *_ in parts if member),
            source_ranges=frozenset(cidr for *_, cidr in parts if cidr and cidr not in EVERYWHERE),
            health_check_port=checks.pop() if len(checks) == 1 else 0,
        )

    def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        site = self._customer
        while True:
            site.wait_for_balancer(balancer.id)
            with contextlib.suppress(ConflictException):  # the controller changed it at the same time
                site.cloud.load_balancer.delete_load_balancer(balancer.id, cascade=True)
                return

    def routes(self) -> Sequence[Route]:
        site = self._customer
        router = site.cloud.network.get_router(site.router)
        return [Route(each["destination"], self._machine_of(each["nexthop"])) for each in router.routes]

    def _machine_of(self, address: str) -> str:
        ports = self._customer.cloud.network.ports(fixed_ips=f"ip_address={address}")
        return next((str(port.device_id) for port in ports), "")

    def broken(self, fault: Fault) -> contextlib.AbstractContextManager[None]:
        if fault not in _RULES:
            raise Unsupported(f"the fault {fault}: the proxy keeps no former answers")
        return self._faults(*_RULES[fault])

    @contextlib.contextmanager
    def refusing_changes(self) -> Iterator[None]:
        refused = {"service": "load-balancer", "status": 400, "body": '{"faultstring": "the ports are refused"}'}
        changes = (("POST", "/listeners"), ("PUT", "/listeners/{id}"))
        with self._faults(*({**refused, "method": method, "path": path} for method, path in changes)):
            yield

    @contextlib.contextmanager
    def _faults(self, *rules: Mapping[str, Any]) -> Iterator[None]:
        for rule in rules:
            self._customer.rig.fault(**rule)
        try:
            yield
        finally:
            self._customer.rig.end_faults()

    def calls(self) -> Mapping[str, int]:
        counted = self._customer.rig.calls()
        reads = sum(count for call, count in counted.items() if " GET " in call)
        return {"read": reads, "write": sum(counted.values()) - reads}
