# SPDX-License-Identifier: Apache-2.0
"""The state file: what survives a restart, and which files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccm_simcloud import config, world
from ccm_simcloud.model import LoadBalancerBody, Port, RouteBody, VolumeBody
from ccm_simcloud.storage import Storage, StorageError
from ccm_simcloud.testing import running_simulator


def settings(*names: str, **more: Any) -> dict[str, Any]:
    instances = [{"name": name, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]} for name in names]
    pool = "10.0.1.1-10.0.1.9"
    return {
        "projects": [{"name": "demo", "token": "t", "load_balancer_addresses": pool, "instances": instances}]
    } | more


def names(cloud: Any) -> list[str]:
    return [row.name for row in cloud.project().instances.rows.values()]


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    timing = {"timing": {"load_balancer_create": 50}}
    async with running_simulator(settings("w1", **timing), state=state) as cloud:
        project = cloud.project()
        instance = project.instances.ids[0]
        project.create_route(RouteBody("10.244.1.0/24", instance))
        project.create_volume(VolumeBody("data"))
        project.create_load_balancer(LoadBalancerBody("web", (Port(80, 30080),), tags={"cluster": "c"}))
        before = {kind: table.rows for kind, table in project.tables.items()}
    async with running_simulator(settings("w1", **timing), state=state) as cloud:
        project = cloud.project()
        assert {kind: table.rows for kind, table in project.tables.items()} == before
        assert cloud.add_instance("w2").id > max(max(rows, key=lambda id_: id_[-12:])[-12:] for rows in before.values())
        assert next(iter(project.load_balancers.rows.values())).state == "creating"
        cloud.advance(51)  # the operation that the restart interrupted completes
        assert next(iter(project.load_balancers.rows.values())).state == "active"


async def test_what_a_batch_changed_before_an_error_survives_a_restart(tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    async with running_simulator(settings("w1"), state=state) as cloud:
        with pytest.raises(world.Refusal), cloud.server.world.batch():
            cloud.add_instance("w2")
            cloud.project().delete_instance("never-there")
        assert names(cloud) == ["w1", "w2"]
    async with running_simulator(settings("w1"), state=state) as cloud:
        assert names(cloud) == ["w1", "w2"]


async def test_seeds_are_sown_once_and_new_ones_added(tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    async with running_simulator(settings("w1", "w2"), state=state) as cloud:
        first, second = cloud.project().instances.ids
        cloud.project().delete_instance(first)
    async with running_simulator(settings("w1", "w2", "w3"), state=state) as cloud:
        assert names(cloud) == ["w2", "w3"]
        assert cloud.project().instances.ids[0] == second


async def test_a_project_that_is_not_configured_for_a_while_keeps_its_state(tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    async with running_simulator(settings("w1"), state=state) as cloud:
        cloud.add_instance("later")
    async with running_simulator({"projects": [{"name": "else", "token": "e"}]}, state=state) as cloud:
        assert names(cloud) == []
    async with running_simulator(settings("w1"), state=state) as cloud:
        assert names(cloud) == ["w1", "later"]


def test_what_cannot_be_written_does_not_happen(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "state.db"))
    made = world.World(config.from_data(settings("w1")), storage)
    storage.write = _full_disk  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError):
        made.projects["demo"].create_volume(VolumeBody("data"))
    assert not made.projects["demo"].volumes.rows
    made.close()


def _full_disk(*_: Any) -> None:
    raise OSError("disk full")


def test_a_missing_folder_is_created(tmp_path: Path) -> None:
    Storage(str(tmp_path / "sim" / "state.db")).close()
    assert (tmp_path / "sim" / "state.db").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot use .*/file/state.db as the state file: .*; set another --state"):
        Storage(str(tmp_path / "file" / "state.db"))


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("this is not a database, and long enough to be none" * 10)
    with pytest.raises(StorageError, match=r"notes\.txt.*not a database"):
        Storage(str(text))


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    storage = Storage(path)
    assert storage._database is not None
    storage._database.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    storage.close()
    with pytest.raises(StorageError, match="schema 99"):
        Storage(path)
