# SPDX-License-Identifier: Apache-2.0
"""The part of neutron that load balancers need, in memory: floating IPs, ports and security groups."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from typing import Any

from ccm.cloud import Conflict, NotFound, QuotaExceeded, RetryAfter, Transient


def the(name: str) -> str:
    """Return the ID, a UUID, of the object that a test calls by this name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


class Neutron:
    def __init__(self) -> None:
        self.busy = 3.0
        self.project_id = ""
        self.floating_quota = 100
        self.external = True
        self.external_networks = [the("net-public")]
        self.neutron_extensions = {"revision-if-match"}
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

    def server(self, number: int) -> None:
        """Create the port of a node: of the server the("server-N"), with address 10.0.0.N."""
        self.ports[f"port-{number}"] = {
            "id": f"port-{number}",
            "device_id": the(f"server-{number}"),
            "fixed_ips": [{"ip_address": f"10.0.0.{number}", "subnet_id": the("sub-nodes")}],
            "security_groups": ["sg-default"],
            "port_security_enabled": True,
            "revision_number": 1,
        }

    @staticmethod
    def _of_project(rows: Iterable[dict[str, Any]], params: Any) -> list[dict[str, Any]]:
        """Return the rows of the project in the query; without one, of all projects, as for administrators."""
        wanted = params.get("project_id")
        return [row for row in rows if wanted is None or row.get("project_id", wanted) == wanted]

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
            raise Transient(f"404 Security group {gone.pop()} does not exist")  # the port is not gone
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
            egress = [
                {"id": f"egress-{next(self._ids)}", "direction": "egress", "ethertype": f} for f in ("IPv4", "IPv6")
            ]
            row = {"id": f"sg-{next(self._ids)}", "security_group_rules": egress, **body["security_group"]}
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
