# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root reads no file that others may have placed, except below folders of logs, and runs no such program anywhere.

The tests use real folders, links, FIFOs and devices.
"""

from __future__ import annotations

import os
import signal

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands, files

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="somebody else's files can be made by root only")
pytestmark = pytest.mark.threat("pod-cannot-steer-the-collection")


@pytest.fixture(autouse=True)
def in_time():
    """Let a call that waits for a FIFO's writer, or reads an endless file, fail after 10 s."""
    def late(*unused):
        raise AssertionError("it waits, or reads without end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def etc(tmp_path):
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    (folder / "secret").write_text("of root alone")
    return folder


def refused(path):
    with pytest.raises(files.Untrusted) as told:
        files.read(str(path))
    return told.value.strerror


def test_files_and_links_of_root_are_read(etc, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "config.yaml").write_text("a: b")
    (etc / "absolute").symlink_to(tmp_path / "disk")
    (etc / "relative").symlink_to("../disk")
    (etc / "file.yaml").symlink_to("absolute/config.yaml")
    for path in ("absolute/config.yaml", "relative/config.yaml", "file.yaml", "./absolute/../disk/config.yaml"):
        assert files.read(str(etc / path)) == b"a: b", path
        assert files.resolve(str(etc / path)) == str(tmp_path / "disk" / "config.yaml")
    assert files.listing(str(etc / "absolute")) == [str(etc / "absolute" / "config.yaml")]


def test_what_is_not_there_is_a_fact(etc):
    assert files.read(str(etc / "none")) is None and files.read(str(etc / "none" / "at" / "all")) is None
    assert files.resolve(str(etc / "none" / "at" / "all")) == str(etc / "none" / "at" / "all")
    assert files.read(str(etc / "secret" / "below")) is None
    assert files.listing(str(etc / "none")) == []


@needs_root
def test_a_link_of_somebody_else_leads_nowhere(etc):
    link = etc / "link"
    link.symlink_to(etc / "secret")
    os.lchown(str(link), NOBODY, NOBODY)
    assert "somebody other than root may have created" in refused(link)


@needs_root
def test_a_folder_of_somebody_else_is_not_entered(etc):
    theirs = etc / "theirs"
    theirs.mkdir()
    (theirs / "shadow").symlink_to("/etc/shadow")
    (theirs / "own").write_text("x")
    os.chown(str(theirs), NOBODY, NOBODY)
    for path in (theirs / "shadow", theirs / "own", theirs / "none"):
        assert "belongs to user 65534" in refused(path)
    with pytest.raises(files.Untrusted):
        files.listing(str(theirs))


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o2777])
def test_a_folder_that_everybody_writes_to_is_not_entered(etc, mode):
    """The kubelet creates an emptyDir like this: root owns it, and everybody may write to it."""
    volume = etc / "kubernetes.io~empty-dir"
    volume.mkdir()
    (volume / "kubelet.yaml").write_text("staticPodPath: /trap")
    volume.chmod(mode)
    assert "may write to the directory" in refused(volume / "kubelet.yaml")


@needs_root
def test_a_folder_of_another_group_is_entered_for_logs_alone(etc, monkeypatch):
    os.chown(str(etc), 0, 104)
    etc.chmod(0o775)
    assert "may write to the directory" in refused(etc / "secret")
    monkeypatch.setattr(files, "GROUP_WRITABLE", (str(etc),))
    assert files.read(str(etc / "secret")) == b"of root alone"


def test_in_a_folder_such_as_tmp_root_owns_what_counts(etc, tmp_path):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    tmp.chmod(0o1777)
    (tmp / "ours").mkdir()
    (tmp / "ours" / "file").write_text("x")
    assert files.read(str(tmp / "ours" / "file")) == b"x"
    os.link(str(etc / "secret"), str(tmp / "hard"))
    assert "somebody other than root may have created" in refused(tmp / "hard")
    (tmp / "link").symlink_to(etc / "secret")
    assert "somebody other than root may have created" in refused(tmp / "link")


def test_a_fifo_a_device_and_a_folder_are_no_files(etc):
    os.mkfifo(str(etc / "fifo"))
    (etc / "zero").symlink_to("/dev/zero")
    for path in (etc / "fifo", etc / "zero", etc):
        assert refused(path) == "it is not a regular file"
        with pytest.raises(files.Untrusted):
            files.tail(str(path), 10)


def test_sizes_are_bounded(etc):
    with open(str(etc / "huge"), "wb") as handle:
        handle.truncate(1 << 40)
    assert "more than 1048576 bytes" in refused(etc / "huge")
    assert len(files.tail(str(etc / "huge"), 100)) == 100
    (etc / "a").write_text("")
    with pytest.raises(files.Untrusted):
        files.listing(str(etc), limit=2)


@pytest.mark.parametrize("path", ["relative", "", "a\0b", "/proc/self/cwd/../../nowhere/../x"])
def test_paths_that_are_none(path):
    refused(path)


def test_a_circle_of_links_ends(etc):
    (etc / "one").symlink_to("two")
    (etc / "two").symlink_to("one")
    assert "more than 40 links" in refused(etc / "one")


# -- programs ----------------------------------------------------------------------------------------------------------


def script(path, text="echo \"$0 ran\"; env\n", mode=0o755):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(mode)
    return str(path)


def test_only_roots_programs_are_run(etc):
    good = script(etc / "good")
    assert commands.run([good]).stdout.startswith(good + " ran")
    for mode in (0o777, 0o757, 0o644):
        bad = script(etc / "bad", mode=mode)
        done = commands.run([bad])
        assert (done.returncode, done.stdout) == (126, "") and "is not run" in done.stderr, oct(mode)


@needs_root
def test_programs_of_others_and_in_others_folders_are_not_run(etc):
    theirs = script(etc / "theirs")
    os.chown(theirs, NOBODY, NOBODY)
    assert commands.run([theirs]).returncode == 126
    (etc / "folder").mkdir()
    inside = script(etc / "folder" / "inside")
    os.chown(str(etc / "folder"), NOBODY, NOBODY)
    assert commands.run([inside]).returncode == 126


def test_the_callers_path_and_environment_do_not_count(etc, monkeypatch):
    script(etc / "systemctl", "echo hijacked\n")
    monkeypatch.setenv("PATH", "{0}:{1}".format(etc, os.environ["PATH"]))
    monkeypatch.setenv("LD_PRELOAD_CANARY", "x")
    monkeypatch.setenv("SYSTEMD_PAGER", "x")
    monkeypatch.setattr(files, "PROGRAMS", (str(etc / "nowhere"),))
    assert commands.run(["systemctl"]).returncode == 127
    monkeypatch.setattr(files, "PROGRAMS", (str(etc),))
    script(etc / "show", "env\n")
    told = dict(line.split("=", 1) for line in commands.run(["show"]).stdout.splitlines())
    assert set(told) - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "LC_ALL", "HOME"} and str(etc) not in told["PATH"]


def test_a_program_that_others_put_before_the_systems_is_passed_over(etc, tmp_path, monkeypatch):
    (tmp_path / "local").mkdir()
    script(tmp_path / "local" / "ctr", "echo theirs\n")
    (tmp_path / "local").chmod(0o777)
    script(etc / "ctr", "echo root\n")
    monkeypatch.setattr(files, "PROGRAMS", (str(tmp_path / "local"), str(etc)))
    assert commands.run(["ctr"]).stdout == "root\n"


def test_a_walk_takes_the_files_that_go_would_take(tmp_path):
    """Go's filepath.WalkDir goes by name in each directory, includes dotted names, and does not enter links to directories."""
    for name in ("b.conf", ".a.conf", "a/z.conf", "a/.d/x.conf", "B.conf", "a-b.conf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    (tmp_path / "d.conf").symlink_to(tmp_path / "b.conf")
    found = [path[len(str(tmp_path)) + 1:] for path in files.walk(str(tmp_path))]
    assert found == [".a.conf", "B.conf", "a/.d/x.conf", "a/z.conf", "a-b.conf", "b.conf", "d.conf"]
    assert files.walk(str(tmp_path / "none")) == []
    with pytest.raises(files.Untrusted, match="more than 3 entries"):
        files.walk(str(tmp_path), 3)
