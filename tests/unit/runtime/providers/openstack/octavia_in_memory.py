# SPDX-License-Identifier: Apache-2.0
"""The parts of Octavia and neutron that load balancers need, in memory: they answer as `api.Api` would.

As in Octavia, a load balancer is PENDING while it is changed, and refuses other changes until that is done.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec

from ccm.cloud import Conflict, Forbidden, Invalid, NotFound, RetryAfter, Transient
from ccm.providers.openstack.settings_sections import LoadBalancerClass, LoadBalancerSection

from .neutron_in_memory import Neutron, the

__all__ = ["BALANCER", "FakeOpenStack", "the"]

BALANCER, NETWORK = "load-balancer", "network"


class FakeOpenStack(Neutron):
    """Octavia with neutron. `at_once`: a change is done before its answer; otherwise, `settle` does it.

    `octavia`: version of Octavia's API. `interleaving`: each call takes a random number of turns of the event loop
    before and after it is carried out, and a change is done `CHANGING` turns after its answer. So the order of several
    callers differs with each seed.
    """

    #: Turns of the event loop. As with Octavia itself, a change takes longer than a read and the write that follows.
    CHANGING, LATENCY = 12, 3

    def __init__(self, section: LoadBalancerSection | None = None, **classes: LoadBalancerClass) -> None:
        super().__init__()
        section = section or LoadBalancerSection(subnet_id=the("sub-nodes"), floating_network_id=the("net-public"))
        self.settings = SimpleNamespace(
            load_balancer=section,
            load_balancer_classes=classes,
        )
        self.at_once = True
        self.interleaving: random.Random | None = None
        #: Kinds of parts whose writes, and load balancers whose failover, end in ERROR.
        self.broken: set[str] = set()
        self.region = ""
        self.octavia = (2, 27)
        self.fails: list[str] = []
        self.may_fail_over = False
        self.hides_states = False
        self.refuses_tags = False
        self.calls: Counter[str] = Counter()
        self.balancers: dict[str, dict[str, Any]] = {}
        self.listeners: dict[str, dict[str, Any]] = {}
        self.pools: dict[str, dict[str, Any]] = {}
        self.monitors: dict[str, dict[str, Any]] = {}
        self._settling: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # What tests set and read.

    def settle(self, state: str = "ACTIVE", only: set[str] | None = None) -> None:
        for row in list(self.balancers.values()):
            if only is not None and row["id"] not in only:
                continue
            if row["provisioning_status"] == "PENDING_DELETE":
                self._forget(row["id"])
            elif row["provisioning_status"].startswith("PENDING"):
                row["provisioning_status"] = state

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
        body = msgspec.json.decode(msgspec.json.encode(body))
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
        except NotFound as error:  # as `api.Api`: only a 404 about the requested object says that it is gone
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
        if method == "GET" and ids[1:] == ["status"] and self.hides_states:
            raise Forbidden("403: Policy does not allow this request to be performed.")
        if method == "GET" and ids[1:] == ["status"]:
            return {"statuses": {"loadbalancer": self._states(ids[0])}}
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
        changed: dict[str, Any] | None = None
        if kind == "pools" and len(ids) >= 2:
            self._change_members(method, self.pools[ids[0]], ids[2:], body)
        elif method == "POST":
            new = {"listeners": self._new_listener, "pools": self._new_pool, "healthmonitors": self._new_monitor}
            changed = new[kind](balancer, body[one])
        elif method == "PUT":
            self._check_options(balancer, body[one])
            table[ids[0]].update(body[one])
            if kind != "loadbalancers":
                table[ids[0]]["provisioning_status"] = self._state_of(kind)
            changed = table[ids[0]]
        else:
            self._drop(kind, ids[0])
        answer = {one: self._shown(changed)} if changed is not None else None
        self._settled()
        return answer

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

    def _states(self, balancer: str) -> dict[str, Any]:
        def states(row: dict[str, Any], **parts: Any) -> dict[str, Any]:
            return {"id": row["id"], "provisioning_status": row.get("provisioning_status", "ACTIVE"), **parts}

        pools = []
        for row in (each for each in self.pools.values() if each["_balancer"] == balancer):
            monitor = self.monitors.get(row["healthmonitor_id"])
            parts = {} if monitor is None else {"healthmonitor": states(monitor)}
            pools.append(states(row, members=[states(each) for each in row["_members"]], **parts))
        listeners = [
            states(row, pools=[each for each in pools if each["id"] == row["default_pool_id"]])
            for row in self.listeners.values()
            if row["_balancer"] == balancer
        ]
        return states(self.balancers[balancer], listeners=listeners, pools=pools)

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
        is_ipv6 = self.subnets.get(body.get("vip_subnet_id", ""), {}).get("ip_version") == 6
        row = {
            "id": the(f"lb-{number}"),
            "provisioning_status": "PENDING_CREATE",
            "vip_address": body.get("vip_address") or f"{'fd00::' if is_ipv6 else '10.0.1.'}{number}",
            "vip_port_id": body.get("vip_port_id") or the(f"vip-{number}"),
            "tags": [],
            "vip_subnet_id": "",
            "provider": "amphora",
            "project_id": self.project_id,
            **body,
            "additional_vips": [self._additional_vip(body, each, number) for each in body.get("additional_vips", ())],
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

    def _additional_vip(self, body: Any, vip: Any, number: int) -> dict[str, Any]:
        """Return an additional VIP. Raises 400 if its subnet is the first VIP's or is in another network, or if
        Octavia's API is too old for it."""
        first, other = self.subnets[body["vip_subnet_id"]], self.subnets[vip["subnet_id"]]
        if first.get("network_id") != other.get("network_id") or first is other or self.octavia < (2, 26):
            raise Invalid("400 All VIP subnets must belong to the same network.")
        address = f"2001:db8::{number}" if other["ip_version"] == 6 else f"10.0.9.{number}"
        return {"subnet_id": vip["subnet_id"], "ip_address": address, "port_id": the(f"vip-{number}")}

    @staticmethod
    def _check_options(balancer: dict[str, Any], body: Any) -> None:
        """Raise 501 for options that only another Octavia provider has, and 400 for ranges of both families if one has
        no VIP."""
        ovn = balancer.get("provider") == "ovn"
        no = [key for key in body if ovn and (key.startswith("timeout_") or key in ("allowed_cidrs", "url_path"))]
        if no or ("lb_algorithm" in body and (body["lb_algorithm"] == "SOURCE_IP_PORT") != ovn):
            raise Invalid(
                f"501 Provider '{balancer.get('provider')}' does not support a requested option: {no or body}"
            )
        vips = [balancer["vip_address"], *(each["ip_address"] for each in balancer.get("additional_vips", ()))]
        ranges = body.get("allowed_cidrs") or ()
        for cidr in ranges if len({":" in each for each in ranges}) > 1 else ():  # IPv6-only VIPs are not modelled
            if all((":" in cidr) != (":" in vip) for vip in vips):
                raise Invalid(f"400 CIDR {cidr} IP version incompatible with all VIPs {vips} IP version.")

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
        if method == "PUT":  # remaining members keep their IDs
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
