# SPDX-License-Identifier: Apache-2.0
"""The state of a CloudStack-shaped cloud: machines, networks, addresses, rules, tags, and jobs that take time.

A new object is visible at once, in a state for incomplete objects, until the job of its command ends. Any other job
takes effect when it ends. Jobs end in the order in which they started.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

ZONE = "zone-1"
ACCOUNT = {"account": "kube", "domain": "ROOT", "domainid": "0f0f0f0f-0000-4000-8000-000000000001"}


class Refusal(Exception):
    """An error of the API."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Region:
    """A region of the cloud. `job_seconds`: how long a job takes. `free`: the number of free public addresses."""

    def __init__(self, *, job_seconds: float = 0.0, free: int = 20) -> None:
        self.job_seconds = job_seconds
        self.machines: dict[str, Row] = {}
        self.networks: dict[str, Row] = {}
        self.addresses: dict[str, Row] = {}
        self.rules: dict[str, Row] = {}
        self.firewall: dict[str, Row] = {}
        #: Rule -> the machines behind it.
        self.assigned: dict[str, list[str]] = {}
        #: Kind and ID of an object -> its tags.
        self.tags: dict[tuple[str, str], dict[str, str]] = {}
        self.jobs: dict[str, Row] = {}
        self._effects: dict[str, tuple[float, Callable[[], None], Callable[[], None]]] = {}
        for number in range(free):
            self.add_address(f"203.0.113.{number + 10}")

    # Objects that a person creates.

    def add_network(self, *services: str, **more: Any) -> Row:
        row = {
            "id": new_id(),
            "name": f"guest-{len(self.networks)}",
            "type": "Isolated",
            "state": "Implemented",
            "traffictype": "Guest",
            "zoneid": new_id(),
            "zonename": ZONE,
            "service": [{"name": each} for each in services or ("Lb", "Firewall", "SourceNat", "Dhcp")],
            **ACCOUNT,
            **more,
        }
        self.networks[row["id"]] = row
        return row

    def add_machine(self, name: str, *networks: Row, **more: Any) -> Row:
        number = len(self.machines) + 11
        nics = [
            {
                "id": new_id(),
                "networkid": each["id"],
                "networkname": each["name"],
                "ipaddress": f"10.1.{place}.{number}",
                "isdefault": place == 0,
                "type": "Isolated",
                "traffictype": "Guest",
            }
            for place, each in enumerate(networks)
        ]
        row = {
            "id": new_id(),
            "name": name,
            "displayname": name,
            "state": "Running",
            "zonename": ZONE,
            "serviceofferingname": "Medium Instance",
            "nic": nics,
            "hypervisor": "KVM",
            "created": "2026-01-01T00:00:00+0000",
            **ACCOUNT,
            **more,
        }
        self.machines[row["id"]] = row
        return row

    def delete_machine(self, id_: str) -> None:
        """Delete a machine, and remove it from rules, as CloudStack does."""
        self.machines.pop(id_, None)
        self.assigned = {rule: [each for each in there if each != id_] for rule, there in self.assigned.items()}

    def add_address(self, address: str, network: Row | None = None, **more: Any) -> Row:
        row = {
            "id": new_id(),
            "ipaddress": address,
            "state": "Free",
            "zonename": ZONE,
            "issourcenat": False,
            "isstaticnat": False,
            "forvirtualnetwork": True,
            **more,
        }
        self.addresses[row["id"]] = row
        if network is not None:
            self._allocate(row, network)
        return row

    # Jobs.

    def start(self, command: str, effect: Callable[[], None], undo: Callable[[], None] = lambda: None) -> str:
        """Start a job and return its ID. `undo`: what happens if the job fails."""
        job = new_id()
        self.jobs[job] = {"jobid": job, "cmd": command, "jobstatus": 0, "jobresultcode": 0, "jobprocstatus": 0}
        self._effects[job] = (time.monotonic() + self.job_seconds, effect, undo)
        return job

    def fail(self, job: str, refusal: Refusal) -> None:
        """Make a running job fail without an effect."""

        def effect() -> None:
            raise refusal

        ends, _, undo = self._effects[job]
        self._effects[job] = (ends, effect, undo)

    def tick(self, *, all_: bool = False) -> None:
        """End the jobs whose time is over; with `all_`, end every job."""
        for job in list(self._effects):
            ends, effect, undo = self._effects[job]
            if not all_ and time.monotonic() < ends:
                return
            del self._effects[job]
            try:
                effect()
            except Refusal as refusal:
                undo()
                result = {"errorcode": refusal.code, "errortext": refusal.text}
                self.jobs[job] |= {"jobstatus": 2, "jobresultcode": refusal.code, "jobresult": result}
            else:
                self.jobs[job] |= {"jobstatus": 1, "jobresult": {"success": True}}

    # Addresses.

    def associate(self, address: str, network: Row) -> tuple[str, str]:
        free = [each for each in self.addresses.values() if each["state"] == "Free"]
        row = next((each for each in free if address in ("", each["ipaddress"])), None)
        if row is None:
            raise Refusal(533, f"Insufficient address capacity: {address or 'no address is free'}")
        row["state"] = "Allocating"
        back = {"state": "Free"}
        return row["id"], self.start(
            "AssociateIPAddrCmd", lambda: self._allocate(row, network), lambda: row.update(back)
        )

    def _allocate(self, row: Row, network: Row) -> None:
        row |= {
            "state": "Allocated",
            "allocated": "2026-01-01T00:00:00+0000",
            "associatednetworkid": network["id"],
            "associatednetworkname": network["name"],
            **ACCOUNT,
        }

    def release(self, id_: str) -> str:
        row = _known(self.addresses, id_)
        if row["issourcenat"]:
            raise Refusal(431, "the source NAT address of a network cannot be released")

        def effect() -> None:
            for rule in [each["id"] for each in self.rules.values() if each["publicipid"] == id_]:
                self._forget_rule(rule)
            for each in [each["id"] for each in self.firewall.values() if each["ipaddressid"] == id_]:
                del self.firewall[each]
            for name in ("allocated", "associatednetworkid", "associatednetworkname", *ACCOUNT):
                row.pop(name, None)
            row["state"] = "Free"

        return self.start("DisassociateIPAddrCmd", effect)

    # Rules.

    def create_rule(self, parameters: Row) -> tuple[str, str]:
        address = _known(self.addresses, parameters["publicipid"])
        if address["state"] != "Allocated" or address["associatednetworkid"] != parameters["networkid"]:
            raise Refusal(431, f"the address {address['ipaddress']} is not associated with the network")
        same = ("publicipid", "publicport")
        for each in self.rules.values():
            both = {each["protocol"], parameters["protocol"]}
            if all(each[key] == parameters[key] for key in same) and (len(both) == 1 or "udp" not in both):
                raise Refusal(537, f"the port {parameters['publicport']} conflicts with the rule {each['id']}")
        row = {
            "id": new_id(),
            "state": "Add",
            "publicip": address["ipaddress"],
            "cidrlist": parameters.pop("cidrlist", "").replace(",", " "),
            "zonename": ZONE,
            "tags": [],
            **ACCOUNT,
            **parameters,
        }
        self.rules[row["id"]], self.assigned[row["id"]] = row, []
        return row["id"], self.start("CreateLoadBalancerRuleCmd", lambda: row.update(state="Active"))

    def update_rule(self, id_: str, changed: Row) -> str:
        row = _known(self.rules, id_)
        return self.start("UpdateLoadBalancerRuleCmd", lambda: row.update(changed))

    def delete_rule(self, id_: str) -> str:
        _known(self.rules, id_)
        return self.start("DeleteLoadBalancerRuleCmd", lambda: self._forget_rule(id_))

    def _forget_rule(self, id_: str) -> None:
        self.rules.pop(id_, None)
        self.assigned.pop(id_, None)

    def assign(self, id_: str, machines: list[str]) -> str:
        rule = _known(self.rules, id_)

        def effect() -> None:
            if rule["state"] != "Active":
                raise Refusal(530, "the rule is not active")
            for each in machines:
                nics = self.machines[each]["nic"] if each in self.machines else []
                if rule["networkid"] not in {nic["networkid"] for nic in nics}:
                    raise Refusal(431, f"the machine {each} has no interface in the network of the rule")
            self.assigned[id_] += [each for each in machines if each not in self.assigned[id_]]

        return self.start("AssignToLoadBalancerRuleCmd", effect)

    def remove(self, id_: str, machines: list[str]) -> str:
        _known(self.rules, id_)

        def effect() -> None:
            self.assigned[id_] = [each for each in self.assigned.get(id_, ()) if each not in machines]

        return self.start("RemoveFromLoadBalancerRuleCmd", effect)

    def target_addresses(self, rule: Row) -> set[str]:
        """Return the addresses to which a rule sends traffic."""
        return {
            nic["ipaddress"]
            for each in self.assigned[rule["id"]]
            for nic in self.machines[each]["nic"]
            if nic["networkid"] == rule["networkid"]
        }

    # Firewall.

    def open_port(self, parameters: Row) -> tuple[str, str]:
        address = _known(self.addresses, parameters["ipaddressid"])
        keys = ("ipaddressid", "protocol", "startport", "endport")
        for each in self.firewall.values():
            if all(each[key] == parameters[key] for key in keys):
                raise Refusal(537, f"the port {parameters['startport']} conflicts with the firewall rule {each['id']}")
        row = {"id": new_id(), "state": "Add", "ipaddress": address["ipaddress"], "tags": [], **parameters}
        self.firewall[row["id"]] = row
        return row["id"], self.start("CreateFirewallRuleCmd", lambda: row.update(state="Active"))

    def close_port(self, id_: str) -> str:
        _known(self.firewall, id_)
        return self.start("DeleteFirewallRuleCmd", lambda: (self.firewall.pop(id_, None), None)[1])

    # Tags.

    def tag(self, kind: str, ids: list[str], tags: dict[str, str]) -> str:
        for each in ids:
            if tags.keys() & self.tags.get((kind, each), {}).keys():
                raise Refusal(431, f"a tag {', '.join(tags)} is already on the object")

        def effect() -> None:
            for each in ids:
                self.tags.setdefault((kind, each), {}).update(tags)

        return self.start("CreateTagsCmd", effect)

    def untag(self, kind: str, ids: list[str], keys: list[str]) -> str:
        def effect() -> None:
            for each in ids:
                for key in keys:
                    self.tags.get((kind, each), {}).pop(key, None)

        return self.start("DeleteTagsCmd", effect)

    def parts(self) -> frozenset[str]:
        """Return all parts of load balancers, some of which would be left after an incomplete deletion."""
        allocated = [
            f"address {each['ipaddress']}"
            for each in self.addresses.values()
            if each["state"] in ("Allocating", "Allocated")
        ]
        tags = [f"tag {key} of {kind} {id_}" for (kind, id_), there in self.tags.items() for key in there]
        rules = [f"rule {each}" for each in self.rules]
        return frozenset([*allocated, *tags, *rules, *(f"firewall rule {each}" for each in self.firewall)])


def new_id() -> str:
    return str(uuid.uuid4())


def _known(rows: dict[str, Row], id_: str) -> Row:
    if id_ not in rows:
        raise missing(id_)
    return rows[id_]


def missing(id_: str) -> Refusal:
    """Return the API's error for an ID that does not exist."""
    return Refusal(
        431,
        "Unable to execute API command due to invalid value. Invalid parameter id value="
        f"{id_} due to incorrect long value format, or entity does not exist or due to incorrect parameter annotation "
        "for the field in api cmd class.",
    )
