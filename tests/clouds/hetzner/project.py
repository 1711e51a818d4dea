# SPDX-License-Identifier: Apache-2.0
"""A project of the Hetzner-shaped cloud: its resources in the API's form, and actions that take time.

While an action runs on a resource, the resource is locked. The effect of an action is visible at once, but the action
ends later.
"""

from __future__ import annotations

import copy
import ipaddress
import time
from collections.abc import Mapping
from typing import Any

from .facts import BALANCER_TYPES, DEFAULT_CHECK, DEFAULT_CHECK_HTTP, DEFAULT_HTTP, LOCATIONS, Refusal, Row, stamp


class Project:
    """A project. `action_seconds`: how long an action takes."""

    def __init__(self, *, action_seconds: float = 0.0, page_limit: int = 50) -> None:
        self.action_seconds, self.page_limit = action_seconds, page_limit
        self.servers: dict[int, Row] = {}
        self.networks: dict[int, Row] = {}
        self.load_balancers: dict[int, Row] = {}
        self.certificates: dict[int, Row] = {}
        self.actions: list[Row] = []
        self._numbers = iter(range(4711, 10**6))
        self.limit, self.remaining = 3600, 3600

    # Objects that a person creates.

    def add_network(self, name: str = "kube", ip_range: str = "10.0.0.0/8") -> Row:
        number = next(self._numbers)
        subnet = {"type": "cloud", "ip_range": "10.0.0.0/16", "network_zone": "eu-central", "gateway": "10.0.0.1"}
        row = {
            "id": number,
            "name": name,
            "ip_range": ip_range,
            "subnets": [subnet],
            "routes": [],
            "servers": [],
            "load_balancers": [],
            "protection": {"delete": False},
            "labels": {},
            "created": stamp(),
            "expose_routes_to_vswitch": False,
        }
        self.networks[number] = row
        return row

    def add_server(self, name: str, *, location: str = "fsn1", network: Row | None = None, **more: Any) -> Row:
        number, place = next(self._numbers), len(self.servers) + 10 + len(self.actions)
        number_ = place % 240 + 2
        row = {
            "id": number,
            "name": name,
            "status": "running",
            "created": stamp(),
            "public_net": {
                "ipv4": {
                    "id": number + 10**6,
                    "ip": f"198.51.{number % 100}.{number_}",
                    "blocked": False,
                    "dns_ptr": "x",
                },
                "ipv6": {"id": number + 10**7, "ip": f"2001:db8:{number:x}::/64", "blocked": False, "dns_ptr": []},
                "floating_ips": [],
                "firewalls": [],
            },
            "private_net": [],
            "server_type": self._server_type(),
            "location": self.location(location),
            "datacenter": self._datacenter(location),
            "image": None,
            "iso": None,
            "rescue_enabled": False,
            "locked": False,
            "backup_window": None,
            "outgoing_traffic": None,
            "ingoing_traffic": None,
            "included_traffic": 654321,
            "protection": {"delete": False, "rebuild": False},
            "labels": {},
            "volumes": [],
            "load_balancers": [],
            "primary_disk_size": 40,
            "placement_group": None,
        } | more
        if network is not None:
            taken = {each["ip"] for server in self.servers.values() for each in server["private_net"]}
            address = next(f"10.0.0.{part}" for part in range(2, 250) if f"10.0.0.{part}" not in taken)
            row["private_net"] = [
                {"network": network["id"], "ip": address, "alias_ips": [], "mac_address": "86:00:ff:2a:7d:e1"}
            ]
            network["servers"].append(number)
        self.servers[number] = row
        return row

    def delete_server(self, number: int) -> None:
        """Delete a server, and remove it from load balancers, as Hetzner Cloud does."""
        self.servers.pop(number, None)
        for balancer in self.load_balancers.values():
            balancer["targets"] = [each for each in balancer["targets"] if each.get("server", {}).get("id") != number]

    # Facts.

    @staticmethod
    def location(name: str) -> Row:
        number = list(LOCATIONS).index(name) + 1
        return {
            "id": number,
            "name": name,
            "description": f"{name} park",
            "country": "DE",
            "city": name,
            "latitude": 50.1,
            "longitude": 12.3,
            "network_zone": LOCATIONS[name],
        }

    def _datacenter(self, location: str) -> Row:
        types = {"supported": [1], "available": [1], "available_for_migration": [1]}
        place = self.location(location)
        return {"id": 4, "name": f"{location}-dc14", "description": "", "location": place, "server_types": types}

    @staticmethod
    def _server_type() -> Row:
        return {
            "id": 1,
            "name": "cx22",
            "description": "CX22",
            "category": "cost_optimized",
            "cores": 2,
            "memory": 4.0,
            "disk": 40,
            "deprecated": False,
            "deprecation": None,
            "prices": [],
            "storage_type": "local",
            "cpu_type": "shared",
            "architecture": "x86",
            "locations": [],
        }

    @staticmethod
    def balancer_type(name: str) -> Row:
        if name not in BALANCER_TYPES:
            raise Refusal(422, "invalid_input", "unknown type", {"load_balancer_type": "not found"})
        targets, services = BALANCER_TYPES[name]
        return {
            "id": list(BALANCER_TYPES).index(name) + 1,
            "name": name,
            "description": name.upper(),
            "max_connections": 10000,
            "max_services": services,
            "max_targets": targets,
            "max_assigned_certificates": 10,
            "deprecated": None,
            "prices": [],
        }

    # Actions.

    def start(self, command: str, kind: str, row: Row) -> Row:
        """Start an action. Raises Refusal while another one runs on the resource."""
        self.check_lock(kind, row)
        number = next(self._numbers)
        action = {
            "id": number,
            "command": command,
            "status": "running" if self.action_seconds else "success",
            "progress": 0 if self.action_seconds else 100,
            "started": stamp(),
            "finished": None if self.action_seconds else stamp(),
            "resources": [{"id": row["id"], "type": kind}],
            "error": None,
        }
        self.actions.append(action | {"ends": time.monotonic() + self.action_seconds})
        return action

    def check_lock(self, kind: str, row: Row) -> None:
        if any(each["status"] == "running" for each in self.actions_of(kind, row["id"])):
            raise Refusal(423, "locked", f"{kind} is locked: an action is running")

    def actions_of(self, kind: str, number: int) -> list[Row]:
        """Return the actions of a resource in their current state, the newest first."""
        found = []
        for action in reversed(self.actions):
            if {"id": number, "type": kind} not in action["resources"]:
                continue
            if action["status"] == "running" and time.monotonic() >= action["ends"]:
                action |= {"status": "success", "progress": 100, "finished": stamp()}
            found.append({key: value for key, value in action.items() if key != "ends"})
        return found

    def end_actions(self) -> None:
        for action in self.actions:
            action["ends"] = 0.0

    def fail_last(self, kind: str, number: int) -> None:
        """Make the resource's newest action fail."""
        action = next(each for each in reversed(self.actions) if {"id": number, "type": kind} in each["resources"])
        error = {"code": "action_failed", "message": "Action failed"}
        action |= {"status": "error", "finished": stamp(), "error": error, "ends": 0.0}

    # Networks.

    def add_route(self, network: Row, body: Row) -> Row:
        destination = str(ipaddress.ip_network(body["destination"]))
        if any(each["destination"] == destination for each in network["routes"]):
            raise Refusal(
                422, "invalid_input", "invalid input in field 'destination'", {"destination": "must be unique"}
            )
        action = self.start("add_route", "network", network)
        network["routes"].append({"destination": destination, "gateway": body["gateway"]})
        return action

    def delete_route(self, network: Row, body: Row) -> Row:
        row = {"destination": body["destination"], "gateway": body["gateway"]}
        if row not in network["routes"]:
            raise Refusal(404, "not_found", "route not found")
        action = self.start("delete_route", "network", network)
        network["routes"].remove(row)
        return action

    # Certificates.

    def create_certificate(self, body: Row) -> Row:
        self._unique(self.certificates, body["name"])
        number = next(self._numbers)
        row = {
            "id": number,
            "name": body["name"],
            "labels": body.get("labels", {}),
            "type": body.get("type", "uploaded"),
            "certificate": None,
            "created": stamp(),
            "not_valid_before": None,
            "not_valid_after": None,
            "domain_names": body.get("domain_names", []),
            "fingerprint": None,
            "status": {"issuance": "pending", "renewal": "unavailable", "error": None},
            "used_by": [],
        }
        self.certificates[number] = row
        return row

    @staticmethod
    def _unique(rows: Mapping[int, Row], name: str, but: int = 0) -> None:
        if any(row["name"] == name and row["id"] != but for row in rows.values()):
            raise Refusal(409, "uniqueness_error", "name is already used", {"name": "must be unique"})

    # Load balancers.

    def create_load_balancer(self, body: Row) -> tuple[Row, Row]:
        self._unique(self.load_balancers, body["name"])
        if bool(body.get("location")) == bool(body.get("network_zone")):
            raise Refusal(422, "invalid_input", "either location or network_zone", {"location": "is missing"})
        zones = {zone: name for name, zone in reversed(LOCATIONS.items())}
        location = body.get("location") or zones.get(body["network_zone"], "")
        if location not in LOCATIONS:
            raise Refusal(422, "invalid_input", "unknown location", {"location": "not found"})
        number = next(self._numbers)
        row: Row = {
            "id": number,
            "name": body["name"],
            "public_net": {
                "enabled": body.get("public_interface", True),
                "ipv4": {"ip": f"203.0.{number % 100}.{number % 250 + 1}", "dns_ptr": f"static.{number}.example"},
                "ipv6": {"ip": f"2001:db8:ffff:{number:x}::1", "dns_ptr": None},
            },
            "private_net": [],
            "location": self.location(location),
            "load_balancer_type": self.balancer_type(body["load_balancer_type"]),
            "protection": {"delete": False},
            "labels": dict(body.get("labels", {})),
            "targets": [],
            "services": [],
            "algorithm": dict(body.get("algorithm") or {"type": "round_robin"}),
            "created": stamp(),
            "included_traffic": 20 * 10**12,
            "outgoing_traffic": None,
            "ingoing_traffic": None,
        }
        if body.get("network"):
            self._attach(row, {"network": body["network"]})
        for service in body.get("services", []):
            self._add_service(row, service)
        for target in body.get("targets", []):
            self._add_target(row, target)
        self.load_balancers[number] = row
        return row, self.start("create_load_balancer", "load_balancer", row)

    def change_load_balancer(self, row: Row, body: Row) -> Row:
        if "name" in body:
            self._unique(self.load_balancers, body["name"], row["id"])
            row["name"] = body["name"]
        if "labels" in body:
            row["labels"] = dict(body["labels"])
        return row

    def delete_load_balancer(self, row: Row) -> None:
        if row["protection"]["delete"]:
            raise Refusal(423, "protected", "load balancer is protected against deletion")
        self.check_lock("load_balancer", row)
        del self.load_balancers[row["id"]]

    def act(self, row: Row, command: str, body: Row) -> Row:
        """Run the load balancer's action that the path names, and return the action. If it raises Refusal, the load
        balancer is unchanged."""
        self.check_lock("load_balancer", row)
        before = copy.deepcopy(row)
        try:
            getattr(self, f"_{command}")(row, body)
        except Refusal:
            row.clear()
            row.update(before)
            raise
        return self.start(command, "load_balancer", row)

    def _change_algorithm(self, row: Row, body: Row) -> None:
        row["algorithm"] = {"type": body["type"]}

    def _change_type(self, row: Row, body: Row) -> None:
        row["load_balancer_type"] = self.balancer_type(body["load_balancer_type"])

    def _change_protection(self, row: Row, body: Row) -> None:
        row["protection"]["delete"] = body["delete"]

    def _change_dns_ptr(self, row: Row, body: Row) -> None:
        kind = "ipv6" if ":" in body["ip"] else "ipv4"
        row["public_net"][kind]["dns_ptr"] = body["dns_ptr"]

    def _enable_public_interface(self, row: Row, body: Row) -> None:
        row["public_net"]["enabled"] = True

    def _disable_public_interface(self, row: Row, body: Row) -> None:
        row["public_net"]["enabled"] = False

    def _attach_to_network(self, row: Row, body: Row) -> None:
        self._attach(row, body)

    def _attach(self, row: Row, body: Row) -> None:
        if body["network"] not in self.networks:
            raise Refusal(422, "invalid_input", "network not found", {"network": "not found"})
        if row["private_net"]:
            raise Refusal(409, "load_balancer_already_attached", "load balancer is already attached to a network")
        taken = {each["ip"] for other in self.load_balancers.values() for each in other["private_net"]}
        address = body.get("ip") or next(f"10.0.1.{part}" for part in range(2, 250) if f"10.0.1.{part}" not in taken)
        if address in taken:
            raise Refusal(409, "ip_not_available", "the IP is in use")
        row["private_net"] = [{"network": body["network"], "ip": address}]
        self.networks[body["network"]]["load_balancers"].append(row["id"])

    def _detach_from_network(self, row: Row, body: Row) -> None:
        row["private_net"] = [each for each in row["private_net"] if each["network"] != body["network"]]

    def _add_service(self, row: Row, body: Row) -> None:
        if any(each["listen_port"] == body["listen_port"] for each in row["services"]):
            raise Refusal(409, "source_port_already_used", "listen_port is already in use")
        if len(row["services"]) >= row["load_balancer_type"]["max_services"]:
            raise Refusal(403, "resource_limit_exceeded", "too many services")
        row["services"].append(_filled({"proxyprotocol": False} | body))

    def _update_service(self, row: Row, body: Row) -> None:
        service = next((each for each in row["services"] if each["listen_port"] == body["listen_port"]), None)
        if service is None:
            raise Refusal(404, "not_found", "service not found")
        for key in ("http", "health_check"):
            if key in body:
                merged = {**service.get(key, {}), **body[key]}
                if key == "health_check" and "http" in body[key]:
                    merged["http"] = {**service.get(key, {}).get("http", {}), **body[key]["http"]}
                body = body | {key: merged}
        service |= body
        service |= _filled(service)

    def _delete_service(self, row: Row, body: Row) -> None:
        row["services"] = [each for each in row["services"] if each["listen_port"] != body["listen_port"]]

    def _add_target(self, row: Row, body: Row) -> None:
        if _key(body) in {_key(each) for each in row["targets"]}:
            raise Refusal(409, "target_already_defined", "target is already defined")
        if len(row["targets"]) >= row["load_balancer_type"]["max_targets"]:
            raise Refusal(403, "resource_limit_exceeded", "too many targets")
        if body.get("use_private_ip") and not row["private_net"]:
            raise Refusal(422, "load_balancer_not_attached_to_network", "load balancer is in no network")
        target = copy.deepcopy(body) | {"use_private_ip": bool(body.get("use_private_ip"))}
        if body["type"] == "server":
            server = self.servers.get(body["server"]["id"])
            if server is None:
                raise Refusal(422, "invalid_input", "server not found", {"server": "not found"})
            if body.get("use_private_ip") and not server["private_net"]:
                raise Refusal(422, "server_not_attached_to_network", "server is not in the load balancer's network")
            target["health_status"] = []
        if body["type"] == "label_selector":
            target["targets"] = []
        if body["type"] == "ip":
            target.pop("use_private_ip")
            target["health_status"] = []
        row["targets"].append(target)

    def _remove_target(self, row: Row, body: Row) -> None:
        if _key(body) not in {_key(each) for each in row["targets"]}:
            raise Refusal(404, "not_found", "target not found")
        row["targets"] = [each for each in row["targets"] if _key(each) != _key(body)]

    def target_addresses(self, row: Row) -> set[str]:
        """Return the addresses to which a load balancer sends traffic."""
        found = set()
        for target in row["targets"]:
            server = self.servers.get(target.get("server", {}).get("id"))
            if server is not None:
                private, public = server["private_net"], server["public_net"]["ipv4"]
                found.add(private[0]["ip"] if target["use_private_ip"] else public["ip"])
        return found


def _key(target: Row) -> str:
    return str(target[target["type"]])


def _filled(service: Row) -> Row:
    """Return a service with its defaults, as the cloud shows it."""
    check = DEFAULT_CHECK | service["health_check"]
    check.pop("http", None) if check["protocol"] == "tcp" else None
    if check["protocol"] != "tcp":
        check["http"] = DEFAULT_CHECK_HTTP | check.get("http", {})
    http = {"http": DEFAULT_HTTP | service.get("http", {})} if service["protocol"] != "tcp" else {}
    return {key: value for key, value in service.items() if key != "http"} | {"health_check": check} | http
