# SPDX-License-Identifier: Apache-2.0
"""Makes a thousand servers, or a hundred load balancers, in a second, as copies of one that the services created.

A copy has its own ports, addresses and names. It consists of rows in the databases of nova, neutron and octavia, like
the original, so the real APIs list and show it. No driver knows a copied load balancer, so it can only be read.
Copied servers can be renamed, stopped, started and deleted.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bed.errors import BedError
from rig.mariadb import Database


@dataclass(frozen=True)
class _Copied:
    """How to copy the rows of one table.

    `where`: the SQL condition that finds the original's rows; @NAME in it stands for a value of the original.
    `changed`: column -> SQL expression for the copy, in which `s` is the original row and `c` the row that describes
    the copy. All other columns keep the original's value. At least one column must be equal to a column of `c`, so that
    the copies can be found again.
    """

    table: str
    where: str
    changed: Mapping[str, str]


def _port(id: str, device: str, address: str, mac: str, attributes: str) -> tuple[_Copied, ...]:
    """Return how to copy the rows that neutron has about a port. `id`, `address`, `mac` and `attributes` are
    columns of `c`; MariaDB's user variables of the same names hold the original's values."""
    of = {"port_id": f"c.{id}"}
    where = f"port_id = @{id}"
    own = {"id": f"c.{id}", "device_id": device, "mac_address": f"c.{mac}", "standard_attr_id": f"c.{attributes}"}
    return (
        _Copied("neutron.standardattributes", f"id = @{attributes}", {"id": f"c.{attributes}"}),
        _Copied("neutron.ports", f"id = @{id}", own),
        _Copied("neutron.ipallocations", where, {**of, "ip_address": f"c.{address}"}),
        _Copied("neutron.ml2_port_bindings", where, of),
        _Copied("neutron.ml2_port_binding_levels", where, of),
        _Copied("neutron.securitygroupportbindings", where, of),
        _Copied("neutron.portsecuritybindings", where, of),
    )


_OF_SERVER = {"id": "null", "instance_uuid": "c.server"}
_SERVERS = (
    _Copied(
        "nova_cell1.instances",
        "uuid = @server",
        {"id": "null", "uuid": "c.server", "hostname": "c.name", "display_name": "c.name"},
    ),
    _Copied("nova_cell1.instance_extra", "instance_uuid = @server", _OF_SERVER),
    _Copied("nova_cell1.instance_system_metadata", "instance_uuid = @server", _OF_SERVER),
    _Copied(
        "nova_cell1.instance_info_caches",
        "instance_uuid = @server",
        {
            **_OF_SERVER,
            "network_info": "replace(replace(replace(s.network_info, @port, c.port), @mac, c.mac),"
            " concat('\"', @address, '\"'), concat('\"', c.address, '\"'))",
        },
    ),
    _Copied("nova_api.instance_mappings", "instance_uuid = @server", _OF_SERVER),
    *_port("port", "c.server", "address", "mac", "attributes"),
)
_BALANCERS = (
    *_port("vip_port", "concat('lb-', c.balancer)", "vip", "vip_mac", "vip_attributes"),
    *_port("floating_port", "c.floating", "address", "mac", "attributes"),
    _Copied(
        "neutron.standardattributes",
        "id = @floating_attributes",
        {"id": "c.floating_attributes", "description": "c.floating_description"},
    ),
    _Copied(
        "neutron.floatingips",
        "id = @floating",
        {
            "id": "c.floating",
            "floating_ip_address": "c.address",
            "floating_port_id": "c.floating_port",
            "fixed_port_id": "c.vip_port",
            "fixed_ip_address": "c.vip",
            "standard_attr_id": "c.floating_attributes",
        },
    ),
    _Copied(
        "octavia.load_balancer",
        "id = @balancer",
        {"id": "c.balancer", "name": "c.name", "description": "c.description"},
    ),
    _Copied(
        "octavia.vip",
        "load_balancer_id = @balancer",
        {"load_balancer_id": "c.balancer", "ip_address": "c.vip", "port_id": "c.vip_port"},
    ),
    _Copied("octavia.pool", "id = @pool", {"id": "c.pool", "load_balancer_id": "c.balancer"}),
    _Copied(
        "octavia.listener",
        "id = @listener",
        {"id": "c.listener", "load_balancer_id": "c.balancer", "default_pool_id": "c.pool"},
    ),
    _Copied("octavia.member", "pool_id = @pool", {"id": "uuid()", "pool_id": "c.pool"}),
    _Copied("octavia.tags", "resource_id = @listener", {"resource_id": "c.listener", "tag": "c.name"}),
)
_ROWS = {
    "rig.servers": "server id, port id, name text, mac mac, address address, attributes number",
    "rig.balancers": "balancer id, listener id, pool id, name text, description text, vip_port id, vip address,"
    " vip_mac mac, vip_attributes number, floating id, floating_port id, floating_description text,"
    " floating_attributes number, address address, mac mac, attributes number",
}
_TYPES = {
    "id": "varchar(36)",
    "text": "varchar(255)",
    "mac": "varchar(17)",
    "address": "varchar(15)",
    "number": "bigint",
}


def make(database: Database, server: str, count: int, prefix: str, first: str) -> None:
    """Make `count` copies of a server, named PREFIX0000 and so on, with the addresses from `first` on. Raises BedError
    if no port belongs to the server."""
    server = str(uuid.UUID(server))
    start = ipaddress.IPv4Address(first)
    found = database.sql(
        "select p.id, p.mac_address, a.ip_address, p.standard_attr_id from neutron.ports p"
        f" join neutron.ipallocations a on a.port_id = p.id where p.device_id = '{server}' limit 1"
    ).split()
    if not found:
        raise BedError(f"no port in neutron belongs to a server {server}")
    original = dict(zip(("port", "mac", "address", "attributes"), found, strict=True)) | {"server": server}
    last = _last(database)
    rows = [
        {
            "server": uuid.uuid4(),
            "port": uuid.uuid4(),
            "name": f"{prefix}{number:04}",
            "mac": _mac(start + number),
            "address": start + number,
            "attributes": last + number,
        }
        for number in range(count)
    ]
    _make(database, "rig.servers", original, rows, _SERVERS)


def make_balancers(
    database: Database, balancer: str, copies: Sequence[Mapping[str, Any]], vip: str, first: str
) -> None:
    """Make a copy for each mapping: ``name``, ``description``, ``tags``, and ``floating_description`` of the floating
    IP.

    The copies' VIPs are the addresses from `vip` on, and their floating IPs those from `first` on. The original must
    have one listener with a pool, and a floating IP. Raises BedError if it does not.
    """
    balancer = str(uuid.UUID(balancer))
    found = database.sql(
        "select l.id, l.default_pool_id, v.port_id, p.standard_attr_id, f.id, f.standard_attr_id, f.floating_port_id,"
        " q.standard_attr_id from octavia.vip v join octavia.listener l on l.load_balancer_id = v.load_balancer_id"
        " join neutron.ports p on p.id = v.port_id join neutron.floatingips f on f.fixed_port_id = v.port_id"
        f" join neutron.ports q on q.id = f.floating_port_id where v.load_balancer_id = '{balancer}'"
    ).splitlines()
    if len(found) != 1:
        raise BedError(f"load balancer {balancer} has {len(found)} listeners with a floating IP; one can be copied")
    names = (
        *("listener", "pool", "vip_port", "vip_attributes", "floating", "floating_attributes", "floating_port"),
        "attributes",
    )
    original = dict(zip(names, found[0].split(), strict=True)) | {"balancer": balancer}
    vips, addresses, last = ipaddress.IPv4Address(vip), ipaddress.IPv4Address(first), _last(database)
    rows = [
        {each: uuid.uuid4() for each in ("balancer", "listener", "pool", "vip_port", "floating", "floating_port")}
        | {each: copy[each] for each in ("name", "description", "floating_description")}
        | {"vip": vips + number, "vip_mac": _mac(vips + number)}
        | {"address": addresses + number, "mac": _mac(addresses + number)}
        | {"vip_attributes": last + 3 * number}
        | {"floating_attributes": last + 3 * number + 1, "attributes": last + 3 * number + 2}
        for number, copy in enumerate(copies)
    ]
    tags = [(row["balancer"], tag) for row, copy in zip(rows, copies, strict=True) for tag in copy["tags"]]
    more = f"insert into octavia.tags (resource_id, tag) values {_values(tags)};"
    _make(database, "rig.balancers", original, rows, _BALANCERS, more)


def remove(database: Database, prefix: str) -> None:
    """Remove all copies whose names begin with `prefix`."""
    statements = _schema()
    for table, copied in (("rig.servers", _SERVERS), ("rig.balancers", _BALANCERS)):
        mine = f"from {table} where left(name, {len(prefix)}) = {_quoted(prefix)}"
        if table == "rig.balancers":
            statements.append(f"delete from octavia.tags where resource_id in (select balancer {mine});")
        else:  # what nova wrote about servers that were stopped or deleted
            which = f"where instance_uuid in (select server {mine})"
            actions = f"nova_cell1.instance_actions {which}"
            statements += [
                f"delete from nova_cell1.instance_actions_events where action_id in (select id from {actions});",
                f"delete from {actions};",
                f"delete from nova_cell1.instance_faults {which};",
            ]
        for each in reversed(copied):
            column, of = next((name, value) for name, value in each.changed.items() if value.startswith("c."))
            statements.append(f"delete from {each.table} where {column} in (select {of.removeprefix('c.')} {mine});")
        statements.append(f"delete {mine};")
    database.sql("\n".join(statements))


def _make(
    database: Database,
    table: str,
    original: Mapping[str, object],
    rows: Sequence[Mapping[str, object]],
    copied: Iterable[_Copied],
    more: str = "",
) -> None:
    """Insert all rows of the copies in one transaction."""
    columns = list(rows[0])
    own = f"insert into {table} ({', '.join(columns)}) values {_values(row.values() for row in rows)};"
    variables = " ".join(f"set @{name} = {_quoted(value)};" for name, value in original.items())
    names = ", ".join(_quoted(row["name"]) for row in rows)
    copies = [_copy(database, each, f"{table} c", f"c.name in ({names})") for each in copied]
    database.sql("\n".join([*_schema(), "start transaction;", own, variables, *copies, more, "commit;"]))


def _schema() -> list[str]:
    created = ["create database if not exists rig;"]
    for table, described in _ROWS.items():
        pairs = [each.split() for each in described.split(",")]
        columns = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in pairs)
        created.append(f"create table if not exists {table} ({columns}) charset utf8mb3;")
    return created


def _copy(database: Database, copied: _Copied, rows: str, which: str) -> str:
    schema, name = copied.table.split(".")
    columns = database.sql(
        "select column_name from information_schema.columns"
        f" where table_schema = '{schema}' and table_name = '{name}' and extra not like '%GENERATED%'"
    ).split()
    values = ", ".join(copied.changed.get(column, f"s.`{column}`") for column in columns)
    names = ", ".join(f"`{column}`" for column in columns)
    source = f"{copied.table} s, {rows} where s.{copied.where} and {which}"
    return f"insert into {copied.table} ({names}) select {values} from {source};"


def _last(database: Database) -> int:
    """Return an ID well above neutron's last one, so that rows which neutron creates meanwhile do not collide."""
    return int(database.sql("select max(id) from neutron.standardattributes")) + 1000


def _values(rows: Iterable[Iterable[object]]) -> str:
    return ",".join(f"({', '.join(map(_quoted, row))})" for row in rows)


def _quoted(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def _mac(address: ipaddress.IPv4Address) -> str:
    return "fa:17:" + ":".join(f"{byte:02x}" for byte in address.packed)
