# SPDX-License-Identifier: Apache-2.0
"""Creates the databases with the services' own migrations. That takes a minute, so the result is cached."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from bed import locks, paths
from bed.progress import Progress
from bed.run import in_parallel, run
from rig import environment, places
from rig.mariadb import Database
from rig.processes import Processes
from rig.settings import DATABASES, Settings


def ensure(settings: Settings, database: Database, processes: Processes, progress: Progress) -> None:
    """Make the databases with their schemas, and keystone's keys, in the folder of the OpenStack services, unless they
    are there; start MariaDB.
    """
    if (settings.data / "keys").exists():
        database.start()
        return
    here = Path(__file__).parent
    key = places.fingerprint(places.REQUIREMENTS, here / "schema.py", here / "mariadb.py", more=DATABASES)
    cached = paths.cache() / "openstack" / f"schema-{key}"
    with locks.held("openstack-schema"):
        if not cached.exists():
            with progress.step("Schemas of the seven services, by their own migrations (kept for the next time)"):
                _make(settings, database)
                processes.end("mariadb")
                _copy(settings.data, cached)
    with progress.step("Databases"):
        if not (settings.data / "keys").exists():
            _copy(cached, settings.data)
        database.start()


def _copy(source: Path, target: Path) -> None:
    """Copy the folders with the data. The target appears when it is complete."""
    half = target.with_suffix(".half") if not target.exists() else target
    shutil.copytree(source / "mariadb", half / "mariadb", dirs_exist_ok=True)
    shutil.copytree(source / "keys", half / "keys")
    if half != target:
        half.rename(target)


def _make(settings: Settings, database: Database) -> None:
    for folder in ("mariadb", "keys"):
        shutil.rmtree(settings.data / folder, ignore_errors=True)
    database.create(DATABASES)
    in_parallel(lambda work: work(settings), _LANES)


def _keystone_and_small_ones(settings: Settings) -> None:
    manage = _program(settings, "keystone", "keystone-manage")
    manage("db_sync")
    user = f"{os.getuid()}", f"{os.getgid()}"
    for setup in ("fernet_setup", "credential_setup"):
        manage(setup, "--keystone-user", user[0], "--keystone-group", user[1])
    _program(settings, "octavia", "octavia-db-manage")("upgrade", "head")
    _program(settings, "glance-api", "glance-manage")("db_sync")
    _program(settings, "cinder", "cinder-manage")("db", "sync")
    _program(settings, "placement", "placement-manage")("db", "sync")


def _neutron(settings: Settings) -> None:
    _program(settings, "neutron", "neutron-db-manage")("upgrade", "heads")


def _nova(settings: Settings) -> None:
    manage = _program(settings, "nova", "nova-manage")
    # The URLs of cells have placeholders: nova fills in the current values of [database].
    server = "{scheme}://{username}:{password}@{hostname}:{port}"
    manage("api_db", "sync")
    manage("cell_v2", "map_cell0", "--database_connection", f"{server}/nova_cell0")
    manage("db", "sync")
    cell = ("--name", "cell1", "--database_connection", f"{server}/nova_cell1", "--transport-url", "fake:///")
    manage("cell_v2", "create_cell", *cell)


_LANES: list[Callable[[Settings], None]] = [_nova, _neutron, _keystone_and_small_ones]


def _program(settings: Settings, name: str, program: str) -> Callable[..., None]:
    env = environment.variables() | {"OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"}

    def call(*arguments: str) -> None:
        run(f"{settings.venv}/bin/{program}", "--config-file", str(settings.file(name)), *arguments, env=env)

    return call
