# SPDX-License-Identifier: Apache-2.0
"""Compares a load balancer with its desired state, and returns the commands that are still needed, in stages. Pure.

Commands of one stage do not depend on one another, so their jobs run at the same time. The next stage starts when those
jobs are done. A superfluous rule is deleted after the changes, or first if it is not active or a new rule needs its
port.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ccm.cloud.toolkit.service_checks import EVERYONE

from .load_balancer_rules import DesiredState, Row, Rule, ip_protocol


class Stage(enum.IntEnum):
    #: Tag the network with the address before the last rule of the address is deleted, because otherwise nothing would
    #: record the owner of the address.
    INTENT = 0
    MAKE_ROOM = 1
    CREATE = 2
    CHANGE = 3
    CLEAN_UP = 4
    MARK = 5


@dataclass(frozen=True)
class Step:
    """One command. `what`: the difference, one sentence."""

    stage: Stage
    command: str
    fields: Mapping[str, str]
    what: str


@dataclass(frozen=True)
class Present:
    """The load balancer as it is now. `address_id`, `address`: the public address. `associated`: whether it was
    associated for the Service. `assigned`: ID of a rule -> machines. `firewall`: rules for the address, None if the
    network has no firewall. `intent`: whether a tag of the network names the address for the Service."""

    address_id: str
    address: str
    network_id: str
    associated: bool
    rules: Sequence[Row] = ()
    assigned: Mapping[str, Set[str]] = field(default_factory=dict)
    firewall: Sequence[Row] | None = None
    intent: bool = False


@dataclass(frozen=True)
class Texts:
    """Texts to write. `first`, `others`: descriptions of the first rule and of the others. `intent_key`: the key of the
    network's tag that names the address."""

    first: str
    others: str
    intent_key: str


def steps(
    present: Present,
    desired: DesiredState,
    cidrs: tuple[Sequence[str], Sequence[str]],
    machines: Sequence[str],
    texts: Texts,
) -> list[Step]:
    """Return all commands that are still needed, sorted by stage. `cidrs`: the CIDRs that the rules should admit, and
    those that the firewall should admit. `machines`: the desired targets."""
    by_name = {str(row["name"]): row for row in present.rules}
    kept = {
        rule.name: row
        for rule in desired.rules
        if (row := by_name.get(rule.name)) is not None and _is_right(row, rule, present, cidrs[0])
    }
    missing = [rule for rule in desired.rules if rule.name not in kept]
    todo = [
        *_removals(present, kept, missing, texts),
        *_creations(present, desired, missing, cidrs[0], texts),
        *_firewall(present, desired, cidrs[1]),
        *_changes(present, desired, kept, machines),
        *_marks(present, desired, kept, missing, texts),
    ]
    return sorted(todo, key=lambda each: each.stage)


def target_steps(present: Present, rows: Sequence[Row], machines: Sequence[str]) -> Iterator[Step]:
    """Yield the commands after which exactly these machines are the targets of the rules."""
    for row in rows:
        there, expected = present.assigned.get(row["id"], frozenset()), set(machines)
        for command, ids, verb in (
            ("assignToLoadBalancerRule", expected - there, "are missing behind"),
            ("removeFromLoadBalancerRule", there - expected, "are superfluous behind"),
        ):
            if ids:
                fields = {"id": row["id"], "virtualmachineids": ",".join(sorted(ids))}
                yield Step(Stage.CHANGE, command, fields, f"{len(ids)} machines {verb} {row['name']}")


def _is_right(row: Row, rule: Rule, present: Present, cidrs: Sequence[str]) -> bool:
    """Return whether a rule can stay. The API changes only algorithm and protocol in place, and CIDRs since 4.22."""
    return (
        row["state"] == "Active"
        and row["publicipid"] == present.address_id
        and (int(row["publicport"]), int(row["privateport"])) == (rule.port, rule.node_port)
        and cidrs_of(row) == set(cidrs)
    )


def cidrs_of(row: Row) -> set[str]:
    """Return the CIDRs that a rule admits; the empty set for everyone. The API separates them by spaces or commas."""
    cidrs = set(str(row.get("cidrlist") or "").replace(",", " ").split())
    return set() if EVERYONE in cidrs else cidrs


def _key(row: Row) -> tuple[str, int]:
    return ip_protocol(str(row["protocol"])), int(row["publicport"])


def _removals(present: Present, kept: Mapping[str, Row], missing: Sequence[Rule], texts: Texts) -> Iterator[Step]:
    needed = {rule.key for rule in missing}
    going = [row for row in present.rules if kept.get(str(row["name"])) is not row]
    early = [row for row in going if _key(row) in needed or row["state"] != "Active"]
    if early and len(early) == len(present.rules) and present.associated and not present.intent:
        yield intent(present.network_id, texts.intent_key, present.address)
    for row in going:
        stage = Stage.MAKE_ROOM if row in early else Stage.CLEAN_UP
        why = "has other values" if row in early else "is superfluous"
        yield Step(stage, "deleteLoadBalancerRule", {"id": row["id"]}, f"rule {row['name']} {why}")


def intent(network_id: str, key: str, address: str) -> Step:
    fields = {"resourcetype": "Network", "resourceids": network_id, "tags[0].key": key, "tags[0].value": address}
    return Step(Stage.INTENT, "createTags", fields, f"no tag names the address {address}")


def no_intent(network_id: str, key: str) -> Step:
    fields = {"resourcetype": "Network", "resourceids": network_id, "tags[0].key": key}
    return Step(Stage.MARK, "deleteTags", fields, "the tag that names the address is superfluous")


def _creations(
    present: Present, desired: DesiredState, missing: Sequence[Rule], cidrs: Sequence[str], texts: Texts
) -> Iterator[Step]:
    for rule in missing:
        fields = {
            "name": rule.name,
            "description": texts.others,
            "algorithm": desired.algorithm,
            "protocol": rule.protocol,
            "publicport": str(rule.port),
            "privateport": str(rule.node_port),
            "publicipid": present.address_id,
            "networkid": present.network_id,
            "cidrlist": ",".join(cidrs) or EVERYONE,
            # The firewall gets rules of its own, with the Service's ranges.
            "openfirewall": "false",
        }
        yield Step(Stage.CREATE, "createLoadBalancerRule", fields, f"rule {rule.name} is missing")


def _firewall(present: Present, desired: DesiredState, cidrs: Sequence[str]) -> Iterator[Step]:
    """Yield the commands after which the firewall admits exactly the desired CIDRs to the Service's ports, and nobody
    to its former ports. Rules for other ports, and for ranges of ports, stay."""
    if present.firewall is None:
        return
    expected = set(cidrs) or {EVERYONE}
    ports = {rule.key for rule in desired.rules}
    going = {_key(row) for row in present.rules} - ports
    open_: set[tuple[str, int]] = set()
    for row in present.firewall:
        key = firewall_port(row)
        if key in going:
            yield _closed(row, Stage.CLEAN_UP, "is superfluous")
        elif key in ports and key not in open_ and set(str(row.get("cidrlist") or "").split(",")) == expected:
            open_.add(key)
        elif key in ports:
            yield _closed(row, Stage.MAKE_ROOM, "admits others")
    for protocol, port in sorted(ports - open_):
        fields = {
            "ipaddressid": present.address_id,
            "protocol": protocol,
            "startport": str(port),
            "endport": str(port),
            "cidrlist": ",".join(sorted(expected)),
        }
        yield Step(Stage.CREATE, "createFirewallRule", fields, f"the firewall does not admit {protocol} {port}")


def firewall_port(row: Row) -> tuple[str, int] | None:
    """Return protocol and port of a rule for exactly one port, None for any other."""
    start, end = row.get("startport"), row.get("endport")
    return None if start is None or start != end else (str(row["protocol"]).lower(), int(start))


def _closed(row: Row, stage: Stage, why: str) -> Step:
    return Step(stage, "deleteFirewallRule", {"id": row["id"]}, f"firewall rule {row['id']} {why}")


def _changes(
    present: Present, desired: DesiredState, kept: Mapping[str, Row], machines: Sequence[str]
) -> Iterator[Step]:
    for row in kept.values():
        if row["algorithm"] != desired.algorithm:
            fields = {"id": row["id"], "algorithm": desired.algorithm}
            yield Step(Stage.CHANGE, "updateLoadBalancerRule", fields, f"rule {row['name']} is not {desired.algorithm}")
    yield from target_steps(present, list(kept.values()), machines)


def _marks(
    present: Present, desired: DesiredState, kept: Mapping[str, Row], missing: Sequence[Rule], texts: Texts
) -> Iterator[Step]:
    for number, rule in enumerate(desired.rules):
        text = texts.others if number else texts.first
        if (row := kept.get(rule.name)) is not None and str(row.get("description") or "") != text:
            yield described(row, text)
    if present.intent and not missing:
        yield no_intent(present.network_id, texts.intent_key)


def described(row: Row, text: str) -> Step:
    fields = {"id": row["id"], "description": text}
    return Step(Stage.MARK, "updateLoadBalancerRule", fields, f"rule {row['name']} has another mark")


def deletions(own: Sequence[Row], firewall: Sequence[Row]) -> Iterator[Step]:
    """Yield the steps that delete the rules of a load balancer, and the firewall's rules for the same ports."""
    ports = {_key(row) for row in own}
    for row in firewall:
        if firewall_port(row) in ports:
            yield _closed(row, Stage.CLEAN_UP, "is superfluous")
    for row in own:
        yield Step(Stage.CLEAN_UP, "deleteLoadBalancerRule", {"id": row["id"]}, f"rule {row['name']} is superfluous")
