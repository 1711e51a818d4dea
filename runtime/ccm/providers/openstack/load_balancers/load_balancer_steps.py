# SPDX-License-Identifier: Apache-2.0
"""Computes the next requests to Octavia from a load balancer's present and desired state. No I/O.

Octavia accepts one change of a load balancer at a time and refuses others until it has carried it out. `steps` returns
everything left to do, in an order in which each step is possible. The caller runs one step, and calls `steps` again
with the parts as `after` or another read shows them. Steps that need the ID of a part that does not exist yet are not
returned.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ccm.cloud import Conflict
from ccm.cloud.toolkit.steps import Step

from .listener_rules import XFF, Listener, Member, Monitor, Pool

Row = Mapping[str, Any]
#: Name of a collection of parts in the API -> the name of one part.
ONE = {"listeners": "listener", "pools": "pool", "healthmonitors": "healthmonitor"}
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
EVERYBODY: Mapping[int, IPNetwork] = {
    version: ipaddress.ip_network(each) for version, each in ((4, "0.0.0.0/0"), (6, "::/0"))
}

#: Listener protocol -> transport protocol: listeners on one port must differ in the transport protocol. Other protocols
#: use TCP.
TRANSPORT = {"UDP": "UDP", "SCTP": "SCTP"}


@dataclass(frozen=True)
class Observed:
    """The parts of a load balancer as the API lists them. `members`, `monitors`: by the pool's ID."""

    listeners: Sequence[Row]
    pools: Sequence[Row]
    members: Mapping[str, Sequence[Row]]
    monitors: Mapping[str, Row]

    def pool_of(self, listener: Row) -> Row | None:
        return next((pool for pool in self.pools if pool["id"] == listener.get("default_pool_id")), None)

    def fits(self, balancer: Row) -> bool:
        """Return whether the load balancer, as it is listed, still has exactly these listeners and pools."""
        return all(
            {row["id"] for row in rows} == {each["id"] for each in balancer.get(kind) or ()}
            for kind, rows in (("listeners", self.listeners), ("pools", self.pools))
        )


def key_of(row: Row) -> tuple[str, int]:
    """Return the key of a listener: a load balancer can have only one listener for each key."""
    return TRANSPORT.get(str(row["protocol"]), "TCP"), int(row["protocol_port"])


def is_ours(listener: Row, name: str, *, owner: bool) -> bool:
    """Return whether a listener is the Service's. A listener without tags (of older releases, or of an older Octavia)
    belongs to the owner."""
    tags = listener.get("tags") or ()
    return name in tags or (owner and not tags)


def certificates(listeners: Sequence[Row], name: str, *, owner: bool) -> set[str]:
    """Return the certificates of the Service's own listeners."""
    refs = (each.get("default_tls_container_ref") for each in listeners if is_ours(each, name, owner=owner))
    return {str(ref) for ref in refs if ref}


def steps(
    balancer_id: str, name: str, listeners: Sequence[Listener], observed: Observed, *, owner: bool, serial: bool = False
) -> list[Step]:
    """Return all steps that are possible now for the Service whose load balancer is named `name`; [] if none is needed.

    A listener whose port the Service no longer has is deleted last, so that it serves until Octavia has accepted the
    new listeners. `owner`: the load balancer was created for this Service. `serial`: change members one by one. Raises
    Conflict if another Service's listener uses a port.
    """
    present = {key_of(row): row for row in observed.listeners}
    keys = {(TRANSPORT.get(each.protocol, "TCP"), each.port): each for each in listeners}
    todo: list[Step] = []
    left: list[Step] = []
    for key, row in present.items():
        each = keys.get(key)
        ours = is_ours(row, name, owner=owner)
        if each is not None and not ours:
            raise Conflict(
                f"port {key[1]}/{key[0]} of load balancer {balancer_id} is already used by listener {row['id']}, which "
                "belongs to another Service"
            )
        if ours and each is None:
            left += removal(row, observed)
        elif ours and each is not None and each.protocol != row["protocol"]:  # two listeners cannot share the port
            todo += removal(row, observed)
    for key, desired in keys.items():
        listener = present.get(key)
        if listener is None:
            todo.append(Step("POST", "/listeners", {"listener": desired.body() | {"loadbalancer_id": balancer_id}}))
        elif listener["protocol"] == desired.protocol:
            todo += _listener_steps(desired, listener, observed, serial)
    return todo + left


def after(observed: Observed, step: Step, answer: Any) -> Observed | None:
    """Return the parts after a step that Octavia accepted with this answer; None if they must be read again."""
    kind, *ids = step.path.strip("/").split("/")
    if step.repairs:
        return None
    if kind == "pools" and len(ids) > 1:
        if step.method != "PUT":
            return None
        return replace(observed, members={**observed.members, ids[0]: step.body["members"]})
    row = (answer or {}).get(ONE[kind])
    if step.method != "DELETE" and row is None:
        return None
    if kind == "listeners":
        return replace(observed, listeners=_written(observed.listeners, ids, row))
    if kind == "pools":
        changed = replace(observed, pools=_written(observed.pools, ids, row))
        if step.method == "PUT":
            return changed
        listener, pool = (step.body["pool"].get("listener_id"), row["id"]) if row else (None, None)
        listeners = [
            {**each, "default_pool_id": pool} if each["id"] == listener or each.get("default_pool_id") in ids else each
            for each in observed.listeners
        ]
        return replace(changed, listeners=listeners)
    monitors = {pool: each for pool, each in observed.monitors.items() if each["id"] not in ids}
    pool = step.body["healthmonitor"].get("pool_id") if step.method == "POST" else _pool_of_monitor(observed, ids[0])
    return replace(observed, monitors=monitors if row is None else {**monitors, str(pool): row})


def _written(rows: Sequence[Row], ids: Sequence[str], row: Row | None) -> list[Row]:
    """Return the rows after a write: the written one is replaced by `row`, or removed if `row` is None."""
    return [each for each in rows if each["id"] not in ids] + ([row] if row is not None else [])


def _pool_of_monitor(observed: Observed, monitor: str) -> str:
    return next((pool for pool, row in observed.monitors.items() if row["id"] == monitor), "")


def removal(listener: Row, observed: Observed) -> list[Step]:
    """Return the steps that delete a listener's pool, with members and monitor, and then the listener."""
    pool = observed.pool_of(listener)
    gone = [Step("DELETE", f"/listeners/{listener['id']}")]
    return [Step("DELETE", f"/pools/{pool['id']}"), *gone] if pool is not None else gone


def _listener_steps(desired: Listener, listener: Row, observed: Observed, serial: bool) -> list[Step]:
    todo = []
    if change := _to_write(desired.settings, listener):
        if "tags" in change:
            change["tags"] = sorted({*(listener.get("tags") or ()), *change["tags"]})
        if "insert_headers" in change:  # keep headers that others set
            kept = {key: value for key, value in (listener.get("insert_headers") or {}).items() if key != XFF}
            change["insert_headers"] = kept | change["insert_headers"]
        todo.append(Step("PUT", f"/listeners/{listener['id']}", {"listener": change}, _in_error("listener", listener)))
    pool = observed.pool_of(listener)
    if pool is None:
        return [*todo, Step("POST", "/pools", {"pool": desired.pool.body() | {"listener_id": listener["id"]}})]
    if pool["protocol"] != desired.pool.protocol:
        return [*todo, Step("DELETE", f"/pools/{pool['id']}")]
    if change := _to_write(desired.pool.settings, pool):
        todo.append(Step("PUT", f"/pools/{pool['id']}", {"pool": change}, _in_error("pool", pool)))
    todo += member_steps(desired.pool, pool, observed.members.get(pool["id"], ()), serial)
    return todo + _monitor_steps(desired.pool.monitor, pool, observed.monitors.get(pool["id"]))


def member_steps(desired: Pool, pool: Row, present: Sequence[Row], serial: bool) -> list[Step]:
    weighs = not serial and all(member.weighs for member in desired.members)
    there = {_member(row, weighs): row for row in present if row.get("provisioning_status") != "PENDING_DELETE"}
    in_error = [text for row in there.values() if (text := _in_error("member", row))]
    same = there.keys() == set(desired.members)
    if same and not in_error:
        return []
    if not serial:
        put = members_put(str(pool["id"]), [member.body() for member in desired.members])
        return [replace(put, repairs=f"members of pool {pool['id']}") if same else put]
    path = f"/pools/{pool['id']}/members"
    if same:
        return [
            Step("DELETE", f"{path}/{row['id']}", None, text)
            for row in there.values()
            if (text := _in_error("member", row))
        ]
    gone = [Step("DELETE", f"{path}/{row['id']}") for member, row in there.items() if member not in desired.members]
    return gone + [Step("POST", path, {"member": member.body()}) for member in desired.members if member not in there]


def members_put(pool_id: str, bodies: Sequence[Mapping[str, Any]] | msgspec.Raw) -> Step:
    """Return the step that replaces all members: those that are not included are removed."""
    return Step("PUT", f"/pools/{pool_id}/members", {"members": bodies})


def _member(row: Row, weighs: bool) -> Member:
    return Member(
        row.get("name") or "",
        row["address"],
        int(row["protocol_port"]),
        row.get("subnet_id") or "",
        row.get("monitor_port"),
        weighs and row.get("weight") == 0,
    )


def _monitor_steps(desired: Monitor | None, pool: Row, monitor: Row | None) -> list[Step]:
    if desired is None:
        return [] if monitor is None else [Step("DELETE", f"/healthmonitors/{monitor['id']}")]
    if monitor is None:
        return [Step("POST", "/healthmonitors", {"healthmonitor": desired.body() | {"pool_id": pool["id"]}})]
    if monitor["type"] != desired.type:
        return [Step("DELETE", f"/healthmonitors/{monitor['id']}")]
    if change := _to_write(desired.settings, monitor):
        path, text = f"/healthmonitors/{monitor['id']}", _in_error("monitor", monitor)
        return [Step("PUT", path, {"healthmonitor": change}, text)]
    return []


def _in_error(kind: str, row: Row) -> str:
    """Return the part's name for a message if it is in ERROR; "" otherwise."""
    return f"{kind} {row['id']}" if row.get("provisioning_status") == "ERROR" else ""


def _to_write(settings: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """Return the settings that differ in the cloud; all of them if the part is in ERROR."""
    return dict(settings) if _in_error("", row) else _changed(settings, row)


def _changed(settings: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """Return the settings that differ in the cloud. Attributes that are not in `settings` stay unchanged."""
    return {key: value for key, value in settings.items() if not _same(key, value, row.get(key))}


def _same(key: str, desired: Any, present: Any) -> bool:
    if key == "tags":
        return set(desired) <= set(present or ())
    if key == "allowed_cidrs":
        versions = {ipaddress.ip_network(each, strict=False).version for each in (*(desired or ()), *(present or ()))}
        return _clients(desired or (), versions) == _clients(present or (), versions)
    if key == "insert_headers":
        return bool((desired or {}).get(XFF)) == (str((present or {}).get(XFF, "false")).lower() == "true")
    if key == "session_persistence":
        return (desired or {}).get("type") == (present or {}).get("type")
    return bool(desired == present)


def _clients(cidrs: Sequence[str], versions: Iterable[int]) -> frozenset[IPNetwork]:
    """Return the networks that may connect, without those inside a network of all addresses. If there are no CIDRs, all
    addresses of these IP versions may connect."""
    networks = {ipaddress.ip_network(cidr, strict=False) for cidr in cidrs}
    whole = {EVERYBODY[version] for version in (versions if not networks else ())}
    whole |= {EVERYBODY[network.version] for network in networks if network.prefixlen == 0}
    open_to = {each.version for each in whole}
    return frozenset(whole | {network for network in networks if network.version not in open_to})
