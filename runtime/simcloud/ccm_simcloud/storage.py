# SPDX-License-Identifier: Apache-2.0
"""Persistent state: JSON rows in SQLite. A change of several rows is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SCHEMA = "1"


class StorageError(Exception):
    """The state file is unusable; the message says why and what to do."""


@dataclass(frozen=True)
class Change:
    """A change of one row. `json`: the new row, None to delete it."""

    project: str
    kind: str
    id: str
    json: bytes | None


class Storage:
    """The state file. `path`: None to store nothing. A missing folder is created. Raises StorageError if the file
    cannot be opened, is no SQLite database, or has another schema."""

    def __init__(self, path: str | None) -> None:
        self._database: sqlite3.Connection | None = None
        if path is None:
            return
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.executescript(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
                "CREATE TABLE IF NOT EXISTS rows (project TEXT, kind TEXT, id TEXT, json BLOB NOT NULL,"
                " PRIMARY KEY (project, kind, id)) WITHOUT ROWID;"
            )
            schema = self.meta("schema", SCHEMA)
            if schema != SCHEMA:
                raise StorageError(f"{path}: the state has schema {schema}, this version reads {SCHEMA}: move it away")
            self._database.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (SCHEMA,))
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise StorageError(f"cannot use {path} as the state file: {error}; set another --state") from None

    def meta(self, key: str, default: str) -> str:
        if self._database is None:
            return default
        row = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else default

    def load(self) -> Iterable[tuple[str, str, str, bytes]]:
        """Return all rows as (project, kind, id, json), sorted by id."""
        if self._database is None:
            return []
        return self._database.execute("SELECT project, kind, id, json FROM rows ORDER BY id").fetchall()

    def write(self, changes: Iterable[Change], last_number: int) -> None:
        """Write all changes and the counter of ids, or nothing."""
        if self._database is None:
            return
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            for change in changes:
                key = (change.project, change.kind, change.id)
                if change.json is None:
                    database.execute("DELETE FROM rows WHERE project = ? AND kind = ? AND id = ?", key)
                else:
                    database.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", (*key, change.json))
            database.execute("INSERT OR REPLACE INTO meta VALUES ('last_number', ?)", (str(last_number),))

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
