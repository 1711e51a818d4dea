# SPDX-License-Identifier: Apache-2.0
"""The journal remembers the first content across runs, and refuses what it cannot trust."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import journal as _journal
from ansible_collections.outoftree.ccm.plugins.module_utils.host.journal import (
    Journal,
    JournalRefused,
    alone,
    digest,
    found,
)

PATH = "/etc/default/kubelet"


def record(directory: pathlib.Path, run: str, before: bytes | None, after: bytes) -> str:
    return Journal(str(directory)).record(PATH, "kubelet", run, before, after, 0o640, (0, 5), ["--cloud-provider="])


def test_the_first_content_is_the_original_however_often_it_is_changed(tmp_path: pathlib.Path) -> None:
    first, middle = b"a\r\n\xff", b"b"
    backup = record(tmp_path / "s", "run-1", first, middle)
    record(tmp_path / "s", "run-2", middle, b"c")
    journal = Journal(str(tmp_path / "s"))
    assert journal.original(PATH) == first and pathlib.Path(backup).read_bytes() == first
    entry = journal.files[PATH]
    original = entry["original"]
    assert (original["mode"], original["uid"], original["gid"], original["flags"]) == (0o640, 0, 5, ["--cloud-provider="])
    assert [written["run"] for written in entry["written"]] == ["run-1", "run-2"]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {(path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) for path in files} == {(0o700, 0o600)}


def test_a_file_that_was_not_there_has_no_original(tmp_path: pathlib.Path) -> None:
    assert record(tmp_path, "run-1", None, b"x") == ""
    assert Journal(str(tmp_path)).original(PATH) is None


def test_nothing_is_left_to_roll_back_after_forgetting(tmp_path: pathlib.Path) -> None:
    backup = record(tmp_path, "run-1", b"a", b"b")
    Journal(str(tmp_path)).forget(PATH)
    assert Journal(str(tmp_path)).files == {} and not (tmp_path / "journal.json").exists()
    assert pathlib.Path(backup).exists()
    record(tmp_path, "run-2", b"new", b"b")
    assert Journal(str(tmp_path)).original(PATH) == b"new"


def test_a_change_that_was_put_back_leaves_no_record(tmp_path: pathlib.Path) -> None:
    record(tmp_path, "run-1", b"a", b"b")
    record(tmp_path, "run-2", b"b", b"broken")
    Journal(str(tmp_path)).undo(PATH, b"b")
    assert [written["run"] for written in Journal(str(tmp_path)).files[PATH]["written"]] == ["run-1"]
    Journal(str(tmp_path)).undo(PATH, b"b")
    assert len(Journal(str(tmp_path)).files[PATH]["written"]) == 1
    Journal(str(tmp_path)).undo(PATH, b"a")
    assert Journal(str(tmp_path)).files == {}


@pytest.mark.parametrize(("text", "words"), [("{", "cannot read"), (json.dumps({"version": 9, "files": {}}), "version 9")])
def test_an_unreadable_journal_is_refused(tmp_path: pathlib.Path, text: str, words: str) -> None:
    (tmp_path / "journal.json").write_text(text)
    with pytest.raises(JournalRefused, match=words):
        Journal(str(tmp_path))


def test_an_altered_backup_is_not_restored(tmp_path: pathlib.Path) -> None:
    record(tmp_path, "run-1", b"a", b"b")
    next((tmp_path / "originals").iterdir()).write_bytes(b"evil")
    with pytest.raises(JournalRefused, match="altered"):
        Journal(str(tmp_path)).original(PATH)


def test_what_a_killed_run_has_half_written_goes(tmp_path: pathlib.Path) -> None:
    record(tmp_path, "run-1", b"a", b"b")
    whole = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for half in (tmp_path / "journal.json.new", tmp_path / "backups" / "run-1" / "etc__default__kubelet.new"):
        half.write_bytes(b"{")
    Journal(str(tmp_path)).sweep()
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == whole


def test_of_two_runs_one_waits_and_none_waits_for_the_dead(tmp_path: pathlib.Path) -> None:
    hold = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); print(flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(JournalRefused, match="another run is changing this host"), alone(str(tmp_path), 0):
            pass
    finally:
        other.kill()
        other.wait()
    with alone(str(tmp_path), 0), pytest.raises(JournalRefused), alone(str(tmp_path), 0):
        pass
    with alone(str(tmp_path / "missing"), 0):
        assert not (tmp_path / "missing").exists()
    (tmp_path / "file").touch()
    with alone(str(tmp_path / "file"), 0), alone(str(tmp_path / "file"), 0):
        pass


class Clock:
    """Replaces the module time: only sleeping takes time."""

    def __init__(self) -> None:
        self.naps: list[float] = []

    def monotonic(self) -> float:
        return sum(self.naps)

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)


@pytest.mark.parametrize(("patience", "naps"), [(0, 0), (0.4, 2), (1, 5)])
def test_a_run_asks_five_times_a_second_until_its_patience_ends(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, patience: float, naps: int) -> None:
    clock = Clock()
    monkeypatch.setattr(_journal, "time", clock)
    with alone(str(tmp_path), 0), pytest.raises(JournalRefused, match=f"for more than {int(patience)} s"), alone(str(tmp_path), patience):
        pass
    assert clock.naps == [0.2] * naps


def test_a_content_is_on_the_disk_before_it_gets_its_name(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(_journal.os, "fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_size, (tmp_path / "journal.json").exists())))
    record(tmp_path, "run-1", b"a", b"bb")
    assert synced == [(1, False), (1, False), (2, False), ((tmp_path / "journal.json").stat().st_size, False)]


def test_a_write_that_was_killed_is_no_obstacle(tmp_path: pathlib.Path) -> None:
    (tmp_path / "journal.json.new").write_text("{")
    record(tmp_path, "run-1", b"a", b"b")
    assert Journal(str(tmp_path)).original(PATH) == b"a" and not (tmp_path / "journal.json.new").exists()


def test_the_journal_is_sorted_and_one_thing_a_line(tmp_path: pathlib.Path) -> None:
    record(tmp_path, "run-1", b"a", b"b")
    text = (tmp_path / "journal.json").read_text()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


def test_another_content_of_a_file_does_not_replace_the_first(tmp_path: pathlib.Path) -> None:
    journal = Journal(str(tmp_path))
    first, again, other = (journal.keep("run-1", PATH, content) for content in (b"a", b"a", b"b"))
    assert (first, other) == (again, f"{first}.{digest(b'b')[:12]}")
    assert [pathlib.Path(path).read_bytes() for path in (first, other)] == [b"a", b"b"]


def test_a_copy_that_is_adopted_keeps_what_was_there_aside(tmp_path: pathlib.Path) -> None:
    record(tmp_path / "a", "run-1", b"a", b"b")
    copied = Journal(str(tmp_path / "a")).exported()
    there = tmp_path / "b"
    there.mkdir(mode=0o755)
    (there / "journal.json").write_text("{")
    Journal(str(there), copied).adopt()
    assert Journal(str(there)).original(PATH) == b"a" and there.stat().st_mode & 0o777 == 0o700
    (aside,) = there.glob("*.lost-*")
    assert re.fullmatch("journal.json.lost-[0-9a-f]{12}", aside.name) and aside.read_text() == "{"


def test_a_journal_of_a_release_that_kept_no_copies_of_what_it_wrote(tmp_path: pathlib.Path) -> None:
    record(tmp_path, "run-1", b"a", b"b")
    data = json.loads((tmp_path / "journal.json").read_text())
    del data["files"][PATH]["written"][0]["copy"]
    (tmp_path / "journal.json").write_text(json.dumps(data))
    journal = Journal(str(tmp_path))
    assert list(journal.exported()["contents"]) == [journal.files[PATH]["original"]["copy"]]


@pytest.mark.parametrize(("ended", "expected"), [
    (None, ("missing", "", 0)),
    ({"id": "x", "serial": 3}, ("rolled back", "x", 3)),
    ({"id": "x"}, ("rolled back", "x", 0)),
    ({"serial": 3}, ("missing", "", 3)),
    ([], ("missing", "", 0)),
])
def test_what_is_known_of_a_journal_that_is_gone(tmp_path: pathlib.Path, ended: Any, expected: tuple[str, str, int]) -> None:
    if ended is not None:
        (tmp_path / _journal.ENDED).write_text(json.dumps(ended))
    state = found(str(tmp_path))
    assert (state["state"], state["id"], state["serial"]) == expected


def test_what_somebody_else_wrote_in_between_begins_a_new_baseline(tmp_path: pathlib.Path) -> None:
    """kubeadm upgrades the host between two runs: restoring the old bytes must not bring the old image back."""
    record(tmp_path, "run-1", b"image: v1.29\n--cloud-provider=aws", b"image: v1.29")
    record(tmp_path, "run-2", b"image: v1.31\n--cloud-provider=aws", b"image: v1.31")
    journal = Journal(str(tmp_path))
    assert journal.original(PATH) == b"image: v1.31\n--cloud-provider=aws"
    newest, first = journal.baselines(PATH)
    assert (newest.original, newest.written) == (b"image: v1.31\n--cloud-provider=aws", b"image: v1.31")
    assert (first.original, first.written) == (b"image: v1.29\n--cloud-provider=aws", b"image: v1.29")
    record(tmp_path, "run-3", b"image: v1.32", b"image: v1.32\n--v=2")
    images = [baseline.original for baseline in Journal(str(tmp_path)).baselines(PATH)]
    assert images == [b"image: v1.32", b"image: v1.31\n--cloud-provider=aws", b"image: v1.29\n--cloud-provider=aws"]
    journal.undo(PATH, b"image: v1.31\n--cloud-provider=aws")
    (first,) = Journal(str(tmp_path)).baselines(PATH)
    assert first.written == b"image: v1.29"


def test_a_record_whose_write_never_came_begins_no_baseline(tmp_path: pathlib.Path) -> None:
    """A run was killed after it recorded a write and before the write itself; then the next run comes."""
    record(tmp_path, "run-1", b"a", b"b")
    record(tmp_path, "run-2", b"a", b"c")
    (only,) = Journal(str(tmp_path)).baselines(PATH)
    assert (only.original, only.written) == (b"a", b"c")
    record(tmp_path, "run-3", b"c", b"never written")
    record(tmp_path, "run-4", b"c", b"d")
    (only,) = Journal(str(tmp_path)).baselines(PATH)
    assert (only.original, only.written) == (b"a", b"d")
    assert [written["run"] for written in Journal(str(tmp_path)).files[PATH]["written"]] == ["run-2", "run-4"]


def test_a_copy_that_is_missing_is_named(tmp_path: pathlib.Path) -> None:
    record(tmp_path, "run-1", b"a", b"b")
    next((tmp_path / "originals").iterdir()).unlink()
    with pytest.raises(JournalRefused, match="etc__default__kubelet of /etc/default/kubelet is missing"):
        Journal(str(tmp_path)).baselines(PATH)
