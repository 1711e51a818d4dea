# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal on each host: the original of every file that this collection changed, and what it wrote.

A rollback needs the journal. It keeps the original bytes, owner and mode of each file, and records files that did not exist. The record
is written *before* the file, so that a run that is killed in between can also be undone. The cluster has a copy of the journal
(journal_copy), which is used only if the host lost its journal.

Consecutive writes of this collection form one baseline: an original, and the contents that were written after it. If somebody else
(C(kubeadm upgrade), an operator) changes the file before the next write, a new baseline starts with that content. The earlier baselines
stay: their bytes are outdated, but a rollback must still undo the flags that they changed.

It uses only the standard library of Python 3.8, because it runs on managed nodes. Only root can access the journal's folder; the callers pass
its canonical path.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import time
import uuid
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, TypedDict

from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, secrets

VERSION = 1

#: Maximum size in bytes of the journal, and of one backup.
LIMIT = 64 << 20

#: States of a journal. C(DAMAGED): it is readable, but a recorded content is missing or altered. C(ROLLED_BACK): it is gone because nothing
#: was left to roll back.
MISSING, READABLE, UNREADABLE, DAMAGED, ROLLED_BACK = "missing", "readable", "unreadable", "damaged", "rolled back"

#: A file beside the journal with the C(id) and C(serial) of the last journal that was rolled back. It shows that this journal was not lost.
ENDED = "rolled-back.json"

#: Exceptions that reading a journal raises if the file is JSON of another form.
MISSHAPEN = (AttributeError, IndexError, KeyError, TypeError)

#: Components whose files may contain secrets that must stay on the host (see secrets.py).
SECRETIVE = ("k3s", "rke2")

#: Suffix of a file while it is written. A killed run leaves such a file behind.
UNFINISHED = ".new"


class JournalRefused(ValueError):
    """The journal cannot be read; the message says what to do."""


@contextlib.contextmanager
def alone(directory: str, patience: float) -> Iterator[None]:
    """Lock this host against other runs; raises JournalRefused if another run holds the lock for more than I(patience) seconds.

    If a run's controller was killed, its module still runs to its end on this host and may restore files. The kernel releases the lock
    with the process that holds it, so no stale lock remains. A folder that does not exist cannot be locked.
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
                    raise JournalRefused("another run is changing this host: it has locked {0} for more than {1} s. Wait until "
                                         "it ends, then run again".format(directory, int(patience))) from None
                time.sleep(0.2)
        yield
    finally:
        os.close(descriptor)


def digest(content: Optional[bytes]) -> str:
    """Return the SHA-256 of a file's content, '' for a file that does not exist."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


class Baseline(NamedTuple):
    """The original of a file (C(None): it did not exist), and what this collection last wrote (C(None): there is no copy).

    C(sha256) is the checksum of the original, '' if the file did not exist. C(written_sha256) are the checksums of all written contents.
    """

    original: Optional[bytes]
    sha256: str
    written: Optional[bytes]
    written_sha256: List[str]


class Original(TypedDict):
    """The original of a file: C(copy) is its path in the journal's folder, C(flags) are the flags with which the file's component ran."""

    exists: bool
    sha256: str
    copy: str
    mode: int
    uid: int
    gid: int
    flags: List[str]


class _Written(TypedDict):
    run: str
    sha256_before: str
    sha256: str
    backup: str


class Written(_Written, total=False):
    """What one run wrote to a file. C(copy) is missing in journals of releases that kept no copy."""

    copy: str


class Recorded(TypedDict):
    """A baseline in the journal: an original, and the consecutive writes after it."""

    original: Original
    written: List[Written]


class _JournalEntry(Recorded):
    component: str


class JournalEntry(_JournalEntry, total=False):
    """The journal's entry of a file: its newest baseline, and the earlier ones, oldest first."""

    service: Dict[str, Any]
    earlier: List[Recorded]


def ours(baseline: Recorded, sha256: str) -> Optional[List[Written]]:
    """Return the records that led to the current file, [] if it is the original, None if somebody else changed it.

    A run that was killed between its record and its write leaves a record that is not among the returned ones.
    """
    if sha256 == baseline["original"]["sha256"]:
        return []
    written = baseline["written"]
    return next((written[:index + 1] for index in reversed(range(len(written))) if written[index]["sha256"] == sha256), None)


class Journal:
    """The journal file and its folder. The first record creates I(directory).

    C(id) stays the same from the first record until nothing is left to roll back. C(serial) counts the writes. With I(copied), a result
    of exported(), the journal is read from I(copied) instead of the folder, and nothing is written before adopt().
    """

    def __init__(self, directory: str, copied: Optional[Dict[str, Any]] = None) -> None:
        self.directory = directory
        self.path = os.path.join(directory, "journal.json")
        self.files: Dict[str, JournalEntry] = {}
        self.id, self.serial = "", 0
        self._contents: Dict[str, bytes] = {}
        if copied is not None:
            self.id, self.serial, self.files = copied["id"], copied["serial"], copied["files"]
            self._contents = {path: base64.b64decode(content) for path, content in copied["contents"].items()}
            self._reveal()
            return
        try:
            content = files.read(self.path, LIMIT)
            if content is None:
                return
            data = json.loads(content.decode("utf-8"))
        except (OSError, ValueError) as exc:
            raise JournalRefused("cannot read {0}: {1}. A rollback needs it. Fix it or move it away"
                                 .format(self.path, exc)) from exc
        if data.get("version") != VERSION:
            raise JournalRefused("{0} has version {1}, but this collection reads {2}. Use the release that wrote it"
                                 .format(self.path, data.get("version"), VERSION))
        self.files = data["files"]
        self.id, self.serial = _identity(data)

    def exported(self) -> Dict[str, Any]:
        """Return a copy of the journal with everything that a rollback needs. C(contents): each content in base64, by its path in the folder.

        The contents of k3s and RKE2 files have placeholders for secrets.

        Raises JournalRefused for a content that is missing or altered.
        """
        contents = {}
        for name, entry in self.files.items():
            self.baselines(name)
            for path in _named(entry):
                content = files.read(os.path.join(self.directory, path), LIMIT) or b""
                if entry["component"] in SECRETIVE:
                    content = _bytes(secrets.hide(_text(content)))
                contents[path] = base64.b64encode(content).decode("ascii")
        return {"id": self.id, "serial": self.serial, "files": self.files, "contents": contents}

    def adopt(self) -> None:
        """Write this journal, which was read from a copy, into the folder. A journal that is already there is renamed first."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        os.chmod(self.directory, 0o700)
        if os.path.lexists(self.path):
            os.replace(self.path, "{0}.lost-{1}".format(self.path, uuid.uuid4().hex[:12]))
        for path, content in self._contents.items():
            target = os.path.join(self.directory, path)
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            _write(target, content)
        self._contents = {}
        self._save()

    def _reveal(self) -> None:
        """Replace placeholders with the secrets of the current files. A wrong secret does not match the checksum."""
        for name, entry in self.files.items():
            if entry["component"] in SECRETIVE:
                now = _text(files.read(name) or b"")
                for path in _named(entry):
                    self._contents[path] = _bytes(secrets.reveal(_text(self._contents.get(path, b"")), now))

    def original(self, name: str) -> Optional[bytes]:
        """Return the original of a recorded file's newest baseline; None if it did not exist. Raises JournalRefused."""
        return self._original(name, self.files[name])

    def baselines(self, name: str) -> List[Baseline]:
        """Return the baselines of a recorded file, newest first. Raises JournalRefused for a copy that is missing or altered."""
        entry = self.files[name]
        baselines = []
        for baseline in _baselines(entry)[::-1]:
            last = baseline["written"][-1] if baseline["written"] else None
            baselines.append(Baseline(self._original(name, baseline), baseline["original"]["sha256"],
                                      self._kept(name, last["copy"], last["sha256"]) if last and last.get("copy") else None,
                                      [written["sha256"] for written in baseline["written"]]))
        return baselines

    def record(self, name: str, component: str, run: str, before: Optional[bytes], after: bytes,
               mode: int, owner: "tuple[int, int]", flags_before: List[str], service: Any = None) -> str:
        """Back up the content for the run, and record what will be written; return the backup's path ('' for a new file)."""
        backup = self.keep(run, name, before)
        entry = self.files.get(name)
        written = None if entry is None else ours(entry, digest(before))
        if entry is None or written is None:
            earlier = [] if entry is None else _baselines(entry)
            copy = "" if before is None else os.path.relpath(self._copy("originals", name, before), self.directory)
            entry = self.files[name] = {
                "component": component,
                "service": service or {},
                "original": {"exists": before is not None, "sha256": digest(before), "copy": copy,
                             "mode": mode, "uid": owner[0], "gid": owner[1], "flags": flags_before},
                "earlier": earlier,
                "written": [],
            }
            written = []
        copy = os.path.relpath(self._copy("written", name, after), self.directory)
        entry["written"] = written + [{"run": run, "sha256_before": digest(before), "sha256": digest(after), "backup": backup,
                                       "copy": copy}]
        self._save()
        return backup

    def keep(self, run: str, name: str, content: Optional[bytes]) -> str:
        """Back up a file's content for a run; return the backup's path, or '' if C(content) is None because there is no file."""
        return "" if content is None else self._copy(os.path.join("backups", run), name, content)

    def undo(self, name: str, now: Optional[bytes]) -> None:
        """Remove the last record of a file if the file's current content (I(now)) is the content before that record.

        If the record stayed, the rollback would assume that somebody else changed the file. With any other content, it stays.
        """
        entry = self.files[name]
        written = entry["written"]
        if written and written[-1]["sha256_before"] == digest(now):
            written.pop()
            if not written and entry.get("earlier"):
                entry.update(entry["earlier"].pop())
            elif not written:
                del self.files[name]
            self._save()

    def forget(self, name: str) -> None:
        """Remove the entry of a restored file. The backups stay."""
        del self.files[name]
        self._save()

    def sweep(self) -> None:
        """Remove half-written files that a killed run left here."""
        for path in glob.glob(os.path.join(glob.escape(self.directory), "**", "*" + UNFINISHED), recursive=True):
            os.unlink(path)

    def _original(self, name: str, baseline: Recorded) -> Optional[bytes]:
        original = baseline["original"]
        return self._kept(name, original["copy"], original["sha256"]) if original["exists"] else None

    def _kept(self, name: str, copy: str, sha256: str) -> bytes:
        path = os.path.join(self.directory, copy)
        content = self._contents[copy] if copy in self._contents else files.read(path, LIMIT)
        if content is None:
            raise JournalRefused("the copy {0} of {1} is missing. Restore {1} by hand".format(path, name))
        if digest(content) != sha256:
            raise JournalRefused("the copy {0} of {1} was altered. Restore {1} by hand".format(path, name))
        return content

    def _copy(self, folder: str, name: str, content: bytes) -> str:
        target = os.path.join(self.directory, folder, name.strip("/").replace("/", "__"))
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        os.chmod(self.directory, 0o700)
        if os.path.lexists(target):
            if files.read(target, LIMIT) == content:
                return target
            target = "{0}.{1}".format(target, digest(content)[:12])
        _write(target, content)
        return target

    def _save(self) -> None:
        self.id, self.serial = self.id or uuid.uuid4().hex, self.serial + 1
        if not self.files:
            _write(os.path.join(self.directory, ENDED), json.dumps({"id": self.id, "serial": self.serial}).encode("utf-8"))
            if os.path.exists(self.path):
                os.unlink(self.path)
            return
        text = json.dumps({"version": VERSION, "id": self.id, "serial": self.serial, "files": self.files}, indent=1, sort_keys=True) + "\n"
        _write(self.path, text.encode("utf-8"))


def found(directory: str) -> Dict[str, Any]:
    """Return the C(state) of a host's journal, and its C(id) and C(serial).

    C(id) and C(serial) are '' and 0 if the journal is missing or cannot be read at all. If only an entry of the journal has another form,
    the state is unreadable, too, but C(id) and C(serial) are those of the journal. After a rollback, they are those of the journal's last write.
    """
    try:
        journal = Journal(directory)
    except (JournalRefused, ValueError, *MISSHAPEN):
        return {"state": UNREADABLE, "id": "", "serial": 0}
    if not journal.files:
        ended = _ended(directory)
        return {"state": ROLLED_BACK if ended[0] else MISSING, "id": ended[0], "serial": ended[1]}
    state = READABLE
    try:
        for name in journal.files:
            journal.baselines(name)
    except (JournalRefused, OSError):
        state = DAMAGED
    except MISSHAPEN:
        state = UNREADABLE
    return {"state": state, "id": journal.id, "serial": journal.serial}


def opened(directory: str, copied: Optional[Dict[str, Any]] = None, adopt: bool = False) -> Journal:
    """Return the journal of a host, or, if I(copied) is given and the state of the host's journal is not READABLE, the journal in I(copied).

    With I(adopt), that journal is then written to the host. Raises JournalRefused if the host's journal cannot be read and I(copied) is not given.
    """
    if copied is None or found(directory)["state"] == READABLE:
        return Journal(directory)
    journal = Journal(directory, copied)
    if adopt:
        journal.adopt()
    return journal


def _ended(directory: str) -> Tuple[str, int]:
    """Return the identity of the last journal that was rolled back; ('', 0) if none was, or if its record cannot be read."""
    try:
        return _identity(json.loads((files.read(os.path.join(directory, ENDED)) or b"{}").decode("utf-8")))
    except (OSError, ValueError, AttributeError):
        return "", 0


def _identity(data: Dict[str, Any]) -> Tuple[str, int]:
    name, serial = data.get("id"), data.get("serial")
    return name if isinstance(name, str) else "", serial if isinstance(serial, int) else 0


def _baselines(entry: JournalEntry) -> List[Recorded]:
    """Return the baselines of a file, oldest first."""
    return [*entry.get("earlier", []), {"original": entry["original"], "written": entry["written"]}]


def _named(entry: JournalEntry) -> List[str]:
    """Return the paths of the contents that a rollback of a file may need."""
    baselines = _baselines(entry)
    paths = [baseline["original"]["copy"] for baseline in baselines if baseline["original"]["exists"]]
    return paths + [baseline["written"][-1]["copy"] for baseline in baselines if baseline["written"] and baseline["written"][-1].get("copy")]


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


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
