# SPDX-License-Identifier: Apache-2.0
"""Octavia and neutron in memory, as far as load balancers need them: what `session.Api` would answer.

It keeps Octavia's rule that matters here: what is being changed is PENDING, and nothing else of it can be changed.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import random
import uuid
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from ccm.cloud import Conflict, Forbidden, Invalid, NotFound, QuotaExceeded, RetryAfter, Transient
from ccm.providers.openstack.config_sections import LoadBalancerClass, LoadBalancerSection

BALANCER, NETWORK = "load-balancer", "network"


def the(name: str) -> str:
    """The ID of what a test calls by this name: IDs are UUIDs."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


class FakeOpenStack:
    """`at_once`: changes are carried out before they are answered; else by `settle`. `version`: of Octavia's API.

    `interleaving`: each call takes a random number of turns of the event loop before and after it is carried out, and a
    change is carried out `CHANGING` turns after it was answered. So several callers meet in ever other orders.
    """

    #: Turns of the event loop. More than a read and the write that follows it take, as with Octavia itself.
    CHANGING, LATENCY = 12, 3

    def __init__(self, section: LoadBalancerSection | None = None, **classes: LoadBalancerClass) -> None:
        section = section or LoadBalancerSection(subnet_id=the("sub-nodes"), floating_network_id=the("net-public"))
        self.settings = SimpleNamespace(
            load_balancer=section,
            load_balancer_classes=classes,
        )
        self.at_once = True
        self.interleaving: random.Random | None = None
        self.busy = 3.0
        #: Writes of these kinds of parts end in ERROR, and so does a failover of a load balancer.
        self.broken: set[str] = set()
        self.region = ""
        self.project_id = ""
        self.octavia = (2, 27)
        self.fails: list[str] = []
        self.floating_quota = 100
        self.may_fail_over = False
        self.external = True
        self.external_networks = [the("net-public")]
        self.neutron_extensions = {"revision-if-match"}
        self.refuses_tags = False
        self.calls: Counter[str] = Counter()
        self.balancers: dict[str, dict[str, Any]] = {}
        self.listeners: dict[str, dict[str, Any]] = {}
        self.pools: dict[str, dict[str, Any]] = {}
        self.monitors: dict[str, dict[str, Any]] = {}
        self.floating: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.ports: dict[str, dict[str, Any]] = {}
        self.subnets = {
            the("sub-nodes"): {"id": the("sub-nodes"), "name": "nodes", "cidr": "10.0.0.0/24", "ip_version": 4},
            the("sub-a"): {
                "id": the("sub-a"), "name": "public-a", "network_id": the("net-public"), "ip_version": 4, "tags": ["a"],
                "cidr": "203.0.113.0/24",
            },
            the("sub-b"): {
                "id": the("sub-b"), "name": "public-b", "network_id": the("net-public"), "ip_version": 4, "tags": ["b"],
                "cidr": "198.51.100.0/24",
            },
        }  # fmt: skip
        self._ids = itertools.count(1)
        self._settling: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # What tests say and ask.

    def settle(self, state: str = "ACTIVE", only: set[str] | None = None) -> None:
        for row in list(self.balancers.values()):
            if only is not None and row["id"] not in only:
                continue
            if row["provisioning_status"] == "PENDING_DELETE":
                self._forget(row["id"])
            elif row["provisioning_status"].startswith("PENDING"):
                row["provisioning_status"] = state

    def server(self, number: int) -> None:
        """A node's port: of the("server-N"), with 10.0.0.N."""
        self.ports[f"port-{number}"] = {
            "id": f"port-{number}",
            "device_id": the(f"server-{number}"),
            "fixed_ips": [{"ip_address": f"10.0.0.{number}", "subnet_id": the("sub-nodes")}],
            "security_groups": ["sg-default"],
            "port_security_enabled": True,
            "revision_number": 1,
        }

    def members(self, pool_id: str) -> set[tuple[str, int]]:
        return {(row["address"], row["protocol_port"]) for row in self.pools[pool_id]["_members"]}

    @property
    def count(self) -> int:
        return self.calls.total()

    # session.Api

    async def version(self, service: str) -> tuple[int, int]:
        return self.octavia

    async def extensions(self) -> frozenset[str]:
        return frozenset(self.neutron_extensions)

    async def pages(
        self, service: str, path: str, name: str, params: Any = (), *, missing: str = ""
    ) -> list[dict[str, Any]]:
        answer = await self.call("GET", service, path, params=params, missing=missing)
        return list(answer[name])

    async def call(
        self, method: str, service: str, path: str, *, params: Any = None, body: Any = None, headers: Any = None,
        missing: str = "",
    ) -> Any:  # fmt: skip
        path, _, query = path.partition("?")
        parts = path.strip("/").split("/")
        shape = [part if index % 2 == 0 else "ID" for index, part in enumerate(parts[service == BALANCER :])]
        self.calls[f"{method} {'/'.join(shape)}"] += 1
        params = dict(params or {})
        await self._pass()
        try:
            if service == BALANCER:
                found = copy.deepcopy(self._octavia(method, parts[1:], params, body or {}, query))
            else:
                found = copy.deepcopy(self._neutron(method, parts, params, body or {}, headers or {}))
        except NotFound as error:  # as `session.Api`: only an answer about what was asked for says that it is gone
            raise error if missing else Transient(str(error)) from None
        await self._pass()
        return found

    async def _pass(self) -> None:
        for _ in range(self.interleaving.randint(0, self.LATENCY) if self.interleaving else 0):
            await asyncio.sleep(0)

    # Octavia

    def _octavia(self, method: str, parts: list[str], params: Any, body: Any, query: str) -> Any:
        kind, ids = parts[0], parts[1:]
        tables = {
            "loadbalancers": (self.balancers, "loadbalancer"),
            "listeners": (self.listeners, "listener"),
            "pools": (self.pools, "pool"),
            "healthmonitors": (self.monitors, "healthmonitor"),
        }
        table, one = tables[kind]
        if method == "GET" and kind == "pools" and len(ids) == 2 and ids[0] in self.pools:
            return {"members": self.pools[ids[0]]["_members"]}
        if method == "GET" and not ids:
            wanted = params.get("loadbalancer_id")
            rows = self._of_project(table.values(), params) if kind == "loadbalancers" else table.values()
            return {kind: [self._shown(row) for row in rows if wanted in (None, row.get("_balancer"))]}
        if ids and ids[0] not in table:
            raise NotFound(f"{kind} {ids[0]} not found")
        if method == "GET":
            return {one: self._shown(table[ids[0]])}
        if method == "POST" and kind == "loadbalancers":
            return {one: self._shown(self._new_balancer(body[one]))}
        if kind == "loadbalancers" and ids[1:] == ["failover"]:
            if not self.may_fail_over:
                raise Forbidden("403: Policy does not allow this request to be performed.")
            table[ids[0]]["provisioning_status"] = "ERROR" if kind in self.broken else "PENDING_UPDATE"
            return self._settled()
        if kind == "loadbalancers" and method == "DELETE":
            row = table[ids[0]]
            if row["provisioning_status"].startswith("PENDING"):
                raise RetryAfter("immutable", self.busy)
            if row["listeners"] and "cascade=true" not in query:
                raise Conflict("load balancer has children")
            row["provisioning_status"] = "PENDING_DELETE"
            return self._settled()
        balancer = self._balancer_of(kind, ids, body.get(one, {}))
        if balancer["provisioning_status"] != "ACTIVE":
            raise RetryAfter(f"load balancer {balancer['id']} is immutable", self.busy)
        balancer["provisioning_status"] = "PENDING_UPDATE"
        if kind == "pools" and len(ids) >= 2:
            self._change_members(method, self.pools[ids[0]], ids[2:], body)
        elif method == "POST":
            {"listeners": self._new_listener, "pools": self._new_pool, "healthmonitors": self._new_monitor}[kind](
                balancer, body[one]
            )
        elif method == "PUT":
            self._check_options(balancer, body[one])
            table[ids[0]].update(body[one])
            if kind != "loadbalancers":
                table[ids[0]]["provisioning_status"] = self._state_of(kind)
        else:
            self._drop(kind, ids[0])
        return self._settled()

    @staticmethod
    def _of_project(rows: Iterable[dict[str, Any]], params: Any) -> list[dict[str, Any]]:
        """Administrators are told the rows of all projects, unless they ask for one."""
        wanted = params.get("project_id")
        return [row for row in rows if wanted is None or row.get("project_id", wanted) == wanted]

    def _settled(self) -> None:
        if self.interleaving is not None:
            pending = [row["id"] for row in self.balancers.values() if row["provisioning_status"].startswith("PENDING")]
            task = asyncio.create_task(self._settle_later([each for each in pending if each not in self._settling]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._settling |= set(pending)
        elif self.at_once:
            self.settle()

    async def _settle_later(self, ids: list[str]) -> None:
        for _ in range(self.CHANGING):
            await asyncio.sleep(0)
        self._settling -= set(ids)
        self.settle(only=set(ids))

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in row.items() if not key.startswith("_")} | (
            {
                "listeners": [{"id": each["id"]} for each in self.listeners.values() if each["_balancer"] == row["id"]],
                "pools": [{"id": each["id"]} for each in self.pools.values() if each["_balancer"] == row["id"]],
            }
            if "vip_address" in row
            else {}
        )

    def _balancer_of(self, kind: str, ids: list[str], body: Any) -> dict[str, Any]:
        if kind == "loadbalancers":
            return self.balancers[ids[0]]
        if not ids:
            where = body.get("loadbalancer_id")
            if "listener_id" in body:
                where = self.listeners[body["listener_id"]]["_balancer"]
            if "pool_id" in body:
                where = self.pools[body["pool_id"]]["_balancer"]
            return self.balancers[where]
        table = {"listeners": self.listeners, "pools": self.pools, "healthmonitors": self.monitors}[kind]
        return self.balancers[table[ids[0]]["_balancer"]]

    def _new_balancer(self, body: Any) -> dict[str, Any]:
        number = next(self._ids)
        row = {
            "id": the(f"lb-{number}"),
            "provisioning_status": "PENDING_CREATE",
            "vip_address": body.get("vip_address") or f"10.0.1.{number}",
            "vip_port_id": body.get("vip_port_id") or the(f"vip-{number}"),
            "tags": [],
            "vip_subnet_id": "",
            "provider": "amphora",
            "project_id": self.project_id,
            **body,
        }
        listeners = row.pop("listeners", [])
        row["listeners"], row["pools"] = [], []
        self.balancers[row["id"]] = row
        for listener in listeners:
            pool = listener.pop("default_pool")
            members, monitor = pool.pop("members", []), pool.pop("healthmonitor", None)
            made = self._new_pool(row, pool | {"listener_id": self._new_listener(row, listener)["id"]})
            self._change_members("PUT", made, [], {"members": members})
            if monitor is not None:
                self._new_monitor(row, monitor | {"pool_id": made["id"]})
        if any(part in row["name"] for part in self.fails):
            row["provisioning_status"] = "ERROR"
        self._settled()
        return row

    @staticmethod
    def _check_options(balancer: dict[str, Any], body: Any) -> None:
        """501: what the provider of a load balancer has not, and what it alone has."""
        ovn = balancer.get("provider") == "ovn"
        no = [key for key in body if ovn and (key.startswith("timeout_") or key in ("allowed_cidrs", "url_path"))]
        if no or ("lb_algorithm" in body and (body["lb_algorithm"] == "SOURCE_IP_PORT") != ovn):
            raise Invalid(
                f"501 Provider '{balancer.get('provider')}' does not support a requested option: {no or body}"
            )

    def _new_listener(self, balancer: dict[str, Any], body: Any) -> dict[str, Any]:
        self._check_options(balancer, body)
        for each in self.listeners.values():
            same_port = each["_balancer"] == balancer["id"] and each["protocol_port"] == body["protocol_port"]
            if same_port and (each["protocol"] == "UDP") == (body["protocol"] == "UDP"):
                raise Conflict("another listener has this port")
        id = the(f"li-{next(self._ids)}")
        row = {"id": id, "tags": [], "default_pool_id": None, **body, "_balancer": balancer["id"]}
        self.listeners[row["id"]] = row
        return row

    def _new_pool(self, balancer: dict[str, Any], body: Any) -> dict[str, Any]:
        self._check_options(balancer, body)
        listener = self.listeners[body["listener_id"]]
        if listener["default_pool_id"]:
            raise Conflict("the listener has a pool")
        row = {"id": the(f"po-{next(self._ids)}"), **body, "_balancer": balancer["id"], "_members": []}
        row["healthmonitor_id"] = None
        listener["default_pool_id"] = row["id"]
        self.pools[row["id"]] = row
        return row

    def _new_monitor(self, balancer: dict[str, Any], body: Any) -> dict[str, Any]:
        row = {"id": the(f"hm-{next(self._ids)}"), **body, "_balancer": balancer["id"]}
        pool = self.pools[body["pool_id"]]
        if pool["healthmonitor_id"]:
            raise Conflict("the pool has a monitor")
        pool["healthmonitor_id"] = row["id"]
        self.monitors[row["id"]] = row
        return row

    def _change_members(self, method: str, pool: dict[str, Any], ids: list[str], body: Any) -> None:
        if method == "PUT":  # those that stay keep their IDs
            before = {(row["address"], row["protocol_port"]): row["id"] for row in pool["_members"]}
            pool["_members"] = [
                self._new_member(each, before.get((each["address"], each["protocol_port"]))) for each in body["members"]
            ]
        elif method == "POST":
            pool["_members"].append(self._new_member(body["member"]))
        else:
            pool["_members"] = [each for each in pool["_members"] if each["id"] != ids[0]]
        keys = [(each["address"], each["protocol_port"]) for each in pool["_members"]]
        if len(keys) != len(set(keys)):
            raise Conflict("the same member twice")

    def _new_member(self, body: Any, id: str | None = None) -> dict[str, Any]:
        return {
            "id": id or the(f"me-{next(self._ids)}"), **body, "provisioning_status": self._state_of("members"),
        }  # fmt: skip

    def _state_of(self, kind: str) -> str:
        return "ERROR" if kind in self.broken else "ACTIVE"

    def _drop(self, kind: str, gone: str) -> None:
        if kind == "listeners":
            del self.listeners[gone]
        elif kind == "healthmonitors":
            del self.monitors[gone]
            for pool in self.pools.values():
                if pool["healthmonitor_id"] == gone:
                    pool["healthmonitor_id"] = None
        elif kind == "pools":
            monitor = self.pools.pop(gone)["healthmonitor_id"]
            self.monitors.pop(monitor, None)
            for listener in self.listeners.values():
                if listener["default_pool_id"] == gone:
                    listener["default_pool_id"] = None

    def _forget(self, gone: str) -> None:
        port = self.balancers.pop(gone)["vip_port_id"]
        for table in (self.listeners, self.pools, self.monitors):
            for key in [key for key, row in table.items() if row["_balancer"] == gone]:
                del table[key]
        for row in self.floating.values():
            if row["port_id"] == port:
                row["port_id"] = None

    # neutron

    def _neutron(self, method: str, parts: list[str], params: Any, body: Any, headers: Any) -> Any:
        kind = parts[0]
        if kind == "floatingips":
            return self._floating_ips(method, parts, params, body, headers or {})
        if kind == "networks":
            more = {"router:external": self.external, "subnets": [the("sub-a"), the("sub-b")]}
            return {"networks": [{"id": each, **more} for each in self.external_networks]}
        if kind == "subnets":
            if parts[1:]:
                return {"subnet": self.subnets[parts[1]]}
            network = params.get("network_id")
            return {"subnets": [row for row in self.subnets.values() if network in (None, row.get("network_id"))]}
        if kind == "ports":
            return self._ports(method, parts, params, body, headers)
        return self._security_groups(method, parts, params, body)

    def _floating_ips(self, method: str, parts: list[str], params: Any, body: Any, headers: Any) -> Any:
        if method == "GET":
            keys = [key for key in ("port_id", "description", "floating_ip_address") if key in params]
            rows = self._of_project(self.floating.values(), params)
            return {"floatingips": [dict(row) for row in rows if all(row[key] == params[key] for key in keys)]}
        if method == "DELETE":
            if parts[1] not in self.floating:
                raise NotFound("no such floating IP")
            del self.floating[parts[1]]
            return None
        if method == "PUT":
            row = self.floating[parts[1]]
            if "revision_number" in row:
                if headers.get("If-Match") not in (None, f"revision_number={row['revision_number']}"):
                    raise RetryAfter("412", self.busy)
                row["revision_number"] += 1
            row.update(body["floatingip"])
            return {"floatingip": self.floating[parts[1]]}
        asked = body["floatingip"].get("floating_ip_address")
        if asked and any(row["floating_ip_address"] == asked for row in self.floating.values()):
            raise Conflict(f"IP address {asked} already allocated, in use")
        if len(self.floating) >= self.floating_quota:
            raise QuotaExceeded("floatingip quota")
        number = next(self._ids)
        network = "198.51.100" if body["floatingip"].get("subnet_id") == the("sub-b") else "203.0.113"
        row = {"id": f"fip-{number}", "floating_ip_address": f"{network}.{number}", "project_id": self.project_id}
        row |= body["floatingip"]
        self.floating[row["id"]] = row
        return {"floatingip": row}

    def _ports(self, method: str, parts: list[str], params: Any, body: Any, headers: Any) -> Any:
        if method == "GET" and parts[1:]:
            if (row := next((row for row in self.ports.values() if row["id"] == parts[1]), None)) is None:
                raise NotFound(f"port {parts[1]} could not be found")
            return {"port": dict(row)}
        if method == "GET":
            rows = list(self.ports.values())
            if "device_id" in params:
                rows = [row for row in rows if row["device_id"] == params["device_id"]]
            if "security_groups" in params:
                rows = [row for row in rows if params["security_groups"] in row["security_groups"]]
            return {"ports": [dict(row) for row in rows]}
        row = self.ports[parts[1]]
        if gone := set(body["port"].get("security_groups", ())) - self.groups.keys() - {"sg-default"}:
            raise Transient(f"404 Security group {gone.pop()} does not exist")  # says nothing about the port
        checked = "revision-if-match" in self.neutron_extensions
        if headers.get("If-Match") != (f"revision_number={row['revision_number']}" if checked else None):
            raise RetryAfter("412", self.busy)
        row.update(body["port"], revision_number=row["revision_number"] + 1)
        return {"port": dict(row)}

    def _security_groups(self, method: str, parts: list[str], params: Any, body: Any) -> Any:
        if parts[0] == "security-group-rules":
            if method == "DELETE":
                for group in self.groups.values():
                    group["security_group_rules"] = [
                        each for each in group["security_group_rules"] if each["id"] != parts[1]
                    ]
                return None
            for rule in body["security_group_rules"]:
                self.groups[rule["security_group_id"]]["security_group_rules"].append(
                    {"id": f"rule-{next(self._ids)}", **rule}
                )
            return {}
        if method == "GET":
            rows = self._of_project(self.groups.values(), params)
            return {"security_groups": [row for row in rows if params.get("name") in (None, row["name"])]}
        if method == "POST":
            row = {"id": f"sg-{next(self._ids)}", "security_group_rules": [], **body["security_group"]}
            row["project_id"] = self.project_id
            self.groups[row["id"]] = row
            return {"security_group": row}
        if method == "DELETE":
            if any(parts[1] in port["security_groups"] for port in self.ports.values()):
                raise Conflict("in use")
            del self.groups[parts[1]]
        elif parts[2:] == ["tags"]:
            if self.refuses_tags:
                raise Transient("503")
            self.groups[parts[1]]["tags"] = body["tags"]
        return None
