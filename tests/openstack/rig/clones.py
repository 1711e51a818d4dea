# SPDX-License-Identifier: Apache-2.0
"""A thousand servers in a second: copies of one that nova booted, with ports, addresses and names of their own.

They are rows in nova's and neutron's databases, as those of the original are; the real APIs list and show them. No fake
hypervisor knows them, so they are for reading.
"""

from __future__ import annotations

import ipaddress
import uuid

from bed.errors import BedError
from rig.mariadb import Database

# Table -> column -> expression; all other columns are the original's. `c` is the row of rig.clones.
_TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "nova_cell1.instances": (
        "uuid = @server",
        {"id": "null", "uuid": "c.server", "hostname": "c.name", "display_name": "c.name"},
    ),
    "nova_cell1.instance_extra": ("instance_uuid = @server", {"id": "null", "instance_uuid": "c.server"}),
    "nova_cell1.instance_system_metadata": ("instance_uuid = @server", {"id": "null", "instance_uuid": "c.server"}),
    "nova_cell1.instance_info_caches": (
        "instance_uuid = @server",
        {
            "id": "null",
            "instance_uuid": "c.server",
            "network_info": "replace(replace(replace(s.network_info, @port, c.port), @mac, c.mac),"
            " concat('\"', @address, '\"'), concat('\"', c.address, '\"'))",
        },
    ),
    "nova_api.instance_mappings": ("instance_uuid = @server", {"id": "null", "instance_uuid": "c.server"}),
    "neutron.standardattributes": ("id = @attributes", {"id": "c.attributes"}),
    "neutron.ports": (
        "id = @port",
        {"id": "c.port", "device_id": "c.server", "mac_address": "c.mac", "standard_attr_id": "c.attributes"},
    ),
    "neutron.ipallocations": ("port_id = @port", {"port_id": "c.port", "ip_address": "c.address"}),
    "neutron.ml2_port_bindings": ("port_id = @port", {"port_id": "c.port"}),
    "neutron.ml2_port_binding_levels": ("port_id = @port", {"port_id": "c.port"}),
    "neutron.securitygroupportbindings": ("port_id = @port", {"port_id": "c.port"}),
    "neutron.portsecuritybindings": ("port_id = @port", {"port_id": "c.port"}),
}
_CLONES = """
create database if not exists rig;
create table if not exists rig.clones (
  server varchar(36), port varchar(36), name varchar(64), mac varchar(17), address varchar(15), attributes bigint
) charset utf8mb3;
"""


def make(database: Database, server: str, count: int, prefix: str, first: str) -> None:
    """`count` copies called PREFIX0000 and so on, with the addresses from `first` on. BedError without the original."""
    server = str(uuid.UUID(server))
    start = ipaddress.IPv4Address(first)
    found = database.sql(
        "select p.id, p.mac_address, a.ip_address, p.standard_attr_id from neutron.ports p"
        f" join neutron.ipallocations a on a.port_id = p.id where p.device_id = '{server}' limit 1"
    ).split()
    if not found:
        raise BedError(f"no port in neutron belongs to a server {server}")
    last = int(database.sql("select max(id) from neutron.standardattributes"))
    rows = ",".join(
        f"('{uuid.uuid4()}','{uuid.uuid4()}','{prefix}{number:04}','{_mac(start + number)}','{start + number}',"
        f"{last + 1000 + number})"
        for number in range(count)
    )
    original = f"set @server='{server}', @port='{found[0]}', @mac='{found[1]}', @address='{found[2]}';"
    original += f" set @attributes={found[3]};"
    copies = [_copy(database, table, where, changed, prefix) for table, (where, changed) in _TABLES.items()]
    database.sql("\n".join([_CLONES, f"insert into rig.clones values {rows};", original, *copies]))


def remove(database: Database, prefix: str) -> None:
    """All copies with names that begin so."""
    mine = f"from rig.clones where name like '{prefix}%'"
    statements = [_CLONES]
    for table, (_, changed) in reversed(_TABLES.items()):
        column, of = next((name, value) for name, value in changed.items() if value.startswith("c."))
        statements.append(f"delete from {table} where {column} in (select {of.removeprefix('c.')} {mine});")
    database.sql("\n".join([*statements, f"delete {mine};"]))


def _copy(database: Database, table: str, where: str, changed: dict[str, str], prefix: str) -> str:
    schema, name = table.split(".")
    columns = database.sql(
        "select column_name from information_schema.columns"
        f" where table_schema = '{schema}' and table_name = '{name}' and extra not like '%GENERATED%'"
    ).split()
    values = ", ".join(changed.get(column, f"s.`{column}`") for column in columns)
    names = ", ".join(f"`{column}`" for column in columns)
    source = f"{table} s, rig.clones c where s.{where} and c.name like '{prefix}%'"
    return f"insert into {table} ({names}) select {values} from {source};"


def _mac(address: ipaddress.IPv4Address) -> str:
    return "fa:17:" + ":".join(f"{byte:02x}" for byte in address.packed)
