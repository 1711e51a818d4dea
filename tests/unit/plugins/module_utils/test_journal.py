# SPDX-License-Identifier: Apache-2.0
"""The journal remembers the first content across runs, and refuses what it cannot trust."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils._journal import Journal, JournalRefused, alone

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
    assert (entry["original"]["mode"], entry["original"]["gid"], entry["original"]["flags"]) == (0o640, 5, ["--cloud-provider="])
    assert [written["run"] for written in entry["written"]] == ["run-1", "run-2"]
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700


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


def test_what_somebody_else_wrote_in_between_begins_a_new_baseline(tmp_path: pathlib.Path) -> None:
    """A kubeadm upgrade between two runs: the old image must not come back with the old bytes."""
    record(tmp_path, "run-1", b"image: v1.29\n--cloud-provider=aws", b"image: v1.29")
    record(tmp_path, "run-2", b"image: v1.31\n--cloud-provider=aws", b"image: v1.31")
    journal = Journal(str(tmp_path))
    assert journal.original(PATH) == b"image: v1.31\n--cloud-provider=aws"
    newest, first = journal.baselines(PATH)
    assert (newest.original, newest.written) == (b"image: v1.31\n--cloud-provider=aws", b"image: v1.31")
    assert (first.original, first.written) == (b"image: v1.29\n--cloud-provider=aws", b"image: v1.29")
    journal.undo(PATH, b"image: v1.31\n--cloud-provider=aws")
    (first,) = Journal(str(tmp_path)).baselines(PATH)
    assert first.written == b"image: v1.29"


def test_a_record_whose_write_never_came_begins_no_baseline(tmp_path: pathlib.Path) -> None:
    """A run that was killed between its record and its write, and the next one."""
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
