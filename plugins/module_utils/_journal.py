# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal on each host: what every file was before the first change, and what we made of it.

It is the rollback's only source: the original bytes, owner and mode are kept beside it, and a file that was not there
is noted as such. The record is written *before* the file, so a run that is killed in between can be undone too.
Stdlib-only, it runs on managed nodes (Python 3.8). Its folder is root's alone; the callers give its canonical path.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import time
from typing import Any, Dict, Iterator, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils import _files

VERSION = 1

#: Bytes of the journal, and of one backup.
LIMIT = 64 << 20

#: Ends the name of a file that is being written; one that is still there later is the half of a run that was killed.
UNFINISHED = ".new"


class JournalRefused(ValueError):
    """The journal cannot be read; the message says what to do."""


@contextlib.contextmanager
def alone(directory: str, patience: float) -> Iterator[None]:
    """Keep other runs from this host meanwhile; raises JournalRefused when one goes on for longer than I(patience) seconds.

    A run whose controller was killed goes on here until its module ends, and may still put files back. The kernel ends
    the lock together with the process that holds it, so none is ever left behind. A folder that does not exist is held by nobody.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise JournalRefused(
                        "another run is changing this host: it has held {0} for more than {1} s. Wait until "
                        "it ends, then run again".format(directory, int(patience))
                    ) from None
                time.sleep(0.2)
        yield
    finally:
        os.close(descriptor)


def digest(content: Optional[bytes]) -> str:
    """Return the SHA-256 of a file's content, '' for a file that does not exist."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


class Journal:
    """The journal file and its folder; I(directory) is created with the first record."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = os.path.join(directory, "journal.json")
        self.files: Dict[str, Dict[str, Any]] = {}
        try:
            content = _files.read(self.path, LIMIT)
            if content is None:
                return
            data = json.loads(content.decode("utf-8"))
        except (OSError, ValueError) as exc:
            raise JournalRefused(
                "cannot read {0}: {1}. It says how to undo the migration: mend it or move it away".format(
                    self.path, exc
                )
            ) from exc
        if data.get("version") != VERSION:
            raise JournalRefused(
                "{0} has version {1}, this collection reads {2}: use the release that wrote it".format(
                    self.path, data.get("version"), VERSION
                )
            )
        self.files = data["files"]

    def original(self, name: str) -> Optional[bytes]:
        """Return the original content of a recorded file; None when it did not exist."""
        entry = self.files[name]["original"]
        if not entry["exists"]:
            return None
        content = _files.read(os.path.join(self.directory, entry["copy"]), LIMIT)
        if digest(content) != entry["sha256"]:
            raise JournalRefused(
                "the backup {0} of {1} was altered: restore {1} by hand".format(
                    os.path.join(self.directory, entry["copy"]), name
                )
            )
        return content

    def record(
        self,
        name: str,
        component: str,
        run: str,
        before: Optional[bytes],
        after: bytes,
        mode: int,
        owner: "tuple[int, int]",
        flags_before: Any,
        service: Any = None,
    ) -> str:
        """Back the content up under the run, note what will be written; return the backup's path ('' for a new file)."""
        backup = ""
        if before is not None:
            backup = self._copy(os.path.join("backups", run), name, before)
        entry = self.files.get(name)
        if entry is None:
            copy = "" if before is None else os.path.relpath(self._copy("originals", name, before), self.directory)
            entry = self.files[name] = {
                "component": component,
                "service": service or {},
                "original": {
                    "exists": before is not None,
                    "sha256": digest(before),
                    "copy": copy,
                    "mode": mode,
                    "uid": owner[0],
                    "gid": owner[1],
                    "flags": flags_before,
                },
                "written": [],
            }
        entry["written"].append(
            {"run": run, "sha256_before": digest(before), "sha256": digest(after), "backup": backup}
        )
        self._save()
        return backup

    def undo(self, name: str, now: Optional[bytes]) -> None:
        """Take back the last record of a file that has its content from before it again (I(now)), all of it if it is the first.

        Otherwise the rollback would take the file for changed by someone else.
        """
        written = self.files[name]["written"]
        if written and written[-1]["sha256_before"] == digest(now):
            written.pop()
            if not written:
                del self.files[name]
            self._save()

    def forget(self, name: str) -> None:
        """Drop a file that has been restored; the backups stay."""
        del self.files[name]
        self._save()

    def sweep(self) -> None:
        """Remove what a run that was killed while it wrote here has left half-written."""
        for path in glob.glob(os.path.join(glob.escape(self.directory), "**", "*" + UNFINISHED), recursive=True):
            os.unlink(path)

    def _copy(self, folder: str, name: str, content: bytes) -> str:
        target = os.path.join(self.directory, folder, name.strip("/").replace("/", "__"))
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        os.chmod(self.directory, 0o700)
        if os.path.lexists(target):
            if _files.read(target, LIMIT) == content:
                return target
            target = "{0}.{1}".format(target, digest(content)[:12])
        _write(target, content)
        return target

    def _save(self) -> None:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        if not self.files:
            if os.path.exists(self.path):
                os.unlink(self.path)
            return
        text = json.dumps({"version": VERSION, "files": self.files}, indent=1, sort_keys=True) + "\n"
        _write(self.path, text.encode("utf-8"))


def _write(path: str, content: bytes) -> None:
    temporary = path + UNFINISHED
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(temporary, path)
