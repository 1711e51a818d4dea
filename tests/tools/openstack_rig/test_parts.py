# SPDX-License-Identifier: Apache-2.0
"""The parts of tools/clouds/openstack/rig that need no running service: ports, configuration files, which calls are
counted, copies in databases, and the commands.
"""

from __future__ import annotations

import configparser
import ipaddress
import socket
from collections import Counter
from pathlib import Path

import pytest
from rig import clones, places
from rig.cli import parser
from rig.control import without_versions
from rig.places import SERVICES, Ports
from rig.settings import DATABASES, HOSTS, Settings

from bed.errors import BedError


def test_no_port_is_two_things() -> None:
    ports = Ports(15000)
    used = [ports.database, ports.control, *map(ports.public, SERVICES), *map(ports.behind, SERVICES)]
    assert len(set(used)) == len(used) and set(used) <= set(ports.all())


def test_clients_are_sent_to_the_proxy_and_services_past_it() -> None:
    ports = Ports(15000)
    assert ports.public_url("identity") == "http://127.0.0.1:15000/v3"
    assert ports.internal_url("identity") == "http://127.0.0.1:15010/v3"


def test_a_block_with_a_port_in_use_is_passed_over_or_refused() -> None:
    free = places.free_ports()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", free.database))
        listener.listen()
        with pytest.raises(BedError, match=rf"{free.database} is in use; choose another --port"):
            places.free_ports(free.base)
        assert places.free_ports().base > free.base


def test_a_fingerprint_changes_with_the_content(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = places.fingerprint(tmp_path)
    assert places.fingerprint(tmp_path) == before != places.fingerprint(tmp_path, more=["x"])
    (tmp_path / "a.py").write_text("2")
    assert places.fingerprint(tmp_path) != before


@pytest.fixture
def written(tmp_path: Path) -> dict[str, configparser.RawConfigParser]:
    settings = Settings(tmp_path, tmp_path / "venv", Ports(15000))
    settings.write()
    settings.write()  # writing again must work, too
    found = {}
    for file in (tmp_path / "etc").iterdir():
        found[file.stem] = configparser.RawConfigParser()
        found[file.stem].read(file)
    return found


def test_every_service_has_its_file_and_a_database_of_its_own(
    written: dict[str, configparser.RawConfigParser],
) -> None:
    used = {
        value.rpartition("/")[2]
        for parsed in written.values()
        for section in parsed.sections()
        for key, value in parsed.items(section)
        if key == "connection"
    }
    assert used | {"nova_cell0"} == set(DATABASES)
    assert set(written) == {"keystone", "placement", "neutron", "glance-api", "octavia", "nova", "cinder"}


def test_services_ask_one_another_past_the_proxy_so_that_only_clients_are_counted(
    written: dict[str, configparser.RawConfigParser],
) -> None:
    ports = Ports(15000)
    proxied = {f"127.0.0.1:{ports.public(service)}" for service in SERVICES}
    told = {
        f"{name} [{section}] {key}"
        for name, parsed in written.items()
        for section in parsed.sections()
        for key, value in parsed.items(section)
        if any(each in value for each in proxied)
    }
    # Services give clients only two addresses: where to log in, and where octavia's links lead.
    assert {each for each in told if "www_authenticate_uri" not in each} == {"octavia [api_settings] api_base_uri"}


def test_what_a_process_is_told_by_its_environment(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path / "venv", Ports(15000))
    assert settings.environment("compute")["RIG_HOSTS"] == ",".join(HOSTS)
    assert settings.database("nova_api") == "mysql+pymysql://os:os@127.0.0.1:15009/nova_api"


def test_versions_are_counted_apart_but_only_once_for_each_service() -> None:
    calls = Counter({"compute GET /": 1, "network GET /": 1, "network GET /ports": 2})
    assert without_versions(calls) == {"network GET /ports": 2}
    with pytest.raises(AssertionError):
        without_versions(calls + Counter({"compute GET /": 1}))


class Statements:
    """A database that records statements, and returns prepared answers."""

    def __init__(self, **answers: str) -> None:
        self.answers, self.told = answers, []

    def sql(self, text: str) -> str:
        self.told.append(text)
        return next((answer for words, answer in self.answers.items() if words.replace("_", " ") in text), "")


def test_copies_of_a_server_have_names_addresses_and_ids_of_their_own() -> None:
    server = "8966d986-aa0d-4eb6-998f-b8d154778e3c"
    database = Statements(
        select_p="port-1 fa:16:3e:00:00:01 10.30.0.5 7", select_max="40", information="id\nuuid\nport_id"
    )
    clones.make(database, server, 3, "copy-", "10.30.100.254")  # type: ignore[arg-type]
    rows = next(line for line in database.told[-1].splitlines() if line.startswith("insert into rig.servers"))
    for number, address in enumerate(("10.30.100.254", "10.30.100.255", "10.30.101.0")):
        assert f"'copy-{number:04}'" in rows and f"'{address}'" in rows
    assert len({row.split("'")[1] for row in rows.split("(")[2:]}) == 3
    assert clones._mac(ipaddress.IPv4Address("10.30.101.0")) == "fa:17:0a:1e:65:00"


def test_only_a_server_with_a_port_can_be_copied() -> None:
    with pytest.raises(BedError, match="no port"):
        clones.make(Statements(), "8966d986-aa0d-4eb6-998f-b8d154778e3c", 1, "c-", "10.0.0.1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="badly formed"):
        clones.make(Statements(), "'; drop table", 1, "c-", "10.0.0.1")  # type: ignore[arg-type]


BALANCER = "0b2f4a4e-52e2-4b8e-9d62-3d3b0a2b5f3c"
DESIRED = [
    {"name": "web-1", "description": "it's one", "tags": ["web-1", "ccm:v1:c:u1:n:f:f"], "floating_description": "one"},
    {"name": "web-2", "description": "two", "tags": ["web-2"], "floating_description": "2"},
]


def test_copies_of_a_load_balancer_have_parts_addresses_and_tags_of_their_own() -> None:
    found = "listener pool vip-port 5 floating 6 floating-port 7"
    database = Statements(select_l="\t".join(found.split()), select_max="40", information="id\nname\ndescription")
    clones.make_balancers(database, BALANCER, DESIRED, "10.30.200.1", "203.0.113.120")  # type: ignore[arg-type]
    made = database.told[-1]
    tags = next(line for line in made.splitlines() if line.startswith("insert into octavia.tags (resource_id, tag)"))
    assert made.index("start transaction;") < made.index("insert into") and made.endswith("commit;"), "all or nothing"
    rows = next(line for line in made.splitlines() if line.startswith("insert into rig.balancers"))
    assert "'it''s one'" in rows and "'203.0.113.121'" in rows and "'10.30.200.2'" in rows
    columns = [each.strip() for each in rows.partition("(")[2].partition(")")[0].split(",")]
    values = [row.strip("(); ").split(", ") for row in rows.partition(" values ")[2].split("),(")]
    one, two = (dict(zip(columns, row, strict=True)) for row in values)
    assert not [key for key in columns if one[key] == two[key]], "nothing is shared"
    ids = [each for row in (one, two) for key, each in row.items() if key.endswith("attributes")]
    assert len(set(ids)) == 6, "each thing of neutron's has attributes of its own"
    assert "set @vip_port = 'vip-port'" in made and "set @floating_attributes = '6'" in made
    assert tags.count(one["balancer"]) == 2 and tags.count(two["balancer"]) == 1 and "ccm:v1:c:u1:n:f:f" in tags


def test_only_a_load_balancer_with_one_listener_and_a_floating_ip_can_be_copied() -> None:
    with pytest.raises(BedError, match="has 0 listeners"):
        clones.make_balancers(Statements(), BALANCER, DESIRED, "10.0.0.1", "10.0.0.9")  # type: ignore[arg-type]


def test_copies_are_removed_by_their_names_from_every_table_they_are_in() -> None:
    database = Statements()
    clones.remove(database, "web_")  # type: ignore[arg-type]
    (told,) = database.told
    assert "left(name, 4) = 'web_'" in told, "the name is no pattern"
    made = {each.table for each in (*clones._SERVERS, *clones._BALANCERS)}
    assert all(f"delete from {table} where" in told for table in made)
    assert told.index("delete from neutron.floatingips") < told.rindex("delete from neutron.ports"), "keys lead there"


def test_the_commands() -> None:
    assert parser().parse_args(["up"]).no_compute is False
    assert parser().parse_args(["clone", "id", "5", "p-", "10.0.0.1"]).count == 5
    with pytest.raises(SystemExit):
        parser().parse_args([])
