# SPDX-License-Identifier: Apache-2.0
"""What would stop or undo the change of a file: attributes, mounts, full and volatile file systems."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import types
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import places

INFO = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /run rw,nosuid shared:2 - tmpfs tmpfs rw,mode=755
24 22 0:22 / /var/lib/kubelet ro,relatime - xfs /dev/sdb rw
25 22 8:1 /secret /etc/default/kubelet rw - ext4 /dev/sda1 rw
26 22 0:23 / /mnt/two\\040words rw - tmpfs none rw
27 22 0:24 / /etc/over rw - ext4 /dev/sdc rw
28 22 0:25 / /etc/over rw - ramfs none rw
broken
"""


def test_the_mounts_of_a_host() -> None:
    known = places.mounts(INFO)
    assert [mount.point for mount in known] == ["/", "/run", "/var/lib/kubelet", "/etc/default/kubelet", "/mnt/two words", "/etc/over", "/etc/over"]
    assert known[2] == ("/var/lib/kubelet", ["ro", "relatime"], "xfs")
    assert any(mount.point == "/" for mount in places.of_this_host())


@pytest.mark.parametrize(("path", "words"), [
    ("/etc/default/kubelet", ""), ("/run/kubelet.env", "/run is empty after each start of the host"),
    ("/var/run/x", "/var/run is empty"), ("/runner/x", ""), ("/dev/shm/x", "/dev/shm is empty"),
    ("/mnt/two words/x", "/mnt/two words is in memory (tmpfs)"), ("/mnt/two", ""), ("/etc/over/x", "/etc/over is in memory (ramfs)"),
])
def test_what_a_reboot_removes(path: str, words: str) -> None:
    found = places.volatile(path, places.mounts(INFO))
    assert bool(found) is bool(words) and words in found


class Disk:
    """A file in a folder, and the kernel's answers about both."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.file = root, root / "kubelet"
        self.file.write_text("KUBELET_EXTRA_ARGS=\n")
        self.attributes: dict[str, int] = {}
        self.space = {"f_flag": 0, "f_files": 1000, "f_favail": 500, "f_bavail": 10000, "f_frsize": 4096}
        self.requests: set[int] = set()
        opened: dict[int, str] = {}
        real = os.open

        def remember(path: Any, *arguments: Any, **options: Any) -> int:
            descriptor = real(path, *arguments, **options)
            opened[descriptor] = str(path)
            return descriptor

        def ioctl(descriptor: int, request: int, buffer: Any, mutate: bool) -> int:
            self.requests.add(request)
            if opened[descriptor] not in self.attributes:
                raise OSError(errno.ENOTTY, "no such attributes here")
            buffer[0] = self.attributes[opened[descriptor]]
            return 0

        monkeypatch.setattr(places.os, "open", remember)
        monkeypatch.setattr(places.fcntl, "ioctl", ioctl)
        monkeypatch.setattr(places.os, "statvfs", lambda path: types.SimpleNamespace(**self.space))
        monkeypatch.setattr(places.platform, "machine", lambda: "x86_64")

    def obstacle(self, info: str = "", name: str = "kubelet") -> str:
        return places.obstacle(str(self.folder / name), places.mounts(info))


@pytest.fixture
def disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_nothing_is_in_the_way_of_an_ordinary_file(disk: Disk) -> None:
    assert disk.obstacle() == disk.obstacle(name="new") == disk.obstacle(name="no/such/folder/new") == ""
    disk.attributes = {str(disk.file): 0x80000, str(disk.folder): 0x1000}  # flags of ext4: extents, and an indexed folder
    assert disk.obstacle() == "" and disk.requests == {0x80086601}  # FS_IOC_GETFLAGS of linux/fs.h


@pytest.mark.parametrize(("flag", "word"), [(0x10, "chattr -i"), (0x20, "chattr -a"), (0x30, "chattr -i")])
@pytest.mark.parametrize("place", ["file", "folder"])
def test_attributes_that_keep_a_file_from_being_replaced(disk: Disk, flag: int, word: str, place: str) -> None:
    path = str(getattr(disk, place))
    disk.attributes = {path: flag | 0x80000}
    assert f"{word} {path}'" in disk.obstacle()
    assert bool(disk.obstacle(name="new")) is (place == "folder")


@pytest.mark.parametrize(("space", "words"), [
    ({"f_flag": os.ST_RDONLY}, "is mounted read-only"), ({"f_favail": 0}, "no free inodes"), ({"f_favail": 1}, "no free inodes"),
    ({"f_favail": 0, "f_files": 0}, ""), ({"f_bavail": 16}, "no free space"), ({"f_bavail": 17}, ""),
])
def test_file_systems_that_take_no_file(disk: Disk, space: dict[str, int], words: str) -> None:
    disk.space.update(space)
    found = disk.obstacle()
    assert words in found and bool(found) is bool(words)


def test_mounts_that_keep_a_file_from_being_replaced(disk: Disk) -> None:
    line = "1 0 8:1 / {0} {1} - ext4 /dev/sda1 rw\n"
    assert disk.obstacle(line.format(disk.folder, "ro")) == f"{disk.folder} is mounted read-only at {disk.folder}. Remount it writable"
    assert disk.obstacle(line.format(disk.folder, "ro") + line.format(disk.folder, "rw")) == ""
    assert "a mount of its own" in disk.obstacle(line.format(disk.file, "rw"))


def letters(path: pathlib.Path) -> str:
    """Return the attributes that lsattr prints for a file, '' if the file system has none."""
    return subprocess.run(["lsattr", "-d", str(path)], capture_output=True, text=True, check=False).stdout.partition(" ")[0]


@pytest.mark.parametrize("letter", ["i", "a", "A"])
def test_lsattr_and_the_kernel_agree(tmp_path: pathlib.Path, letter: str) -> None:
    """Only root can set the first two attributes, and not on each file system. A file without these two can be changed."""
    file, new = tmp_path / "kubelet", tmp_path / "new"
    file.write_text("old")
    new.write_text("new")
    subprocess.run(["chattr", "+" + letter, str(file)], capture_output=True, check=False)
    try:
        shown = letters(file)
        found = places.attributes(str(file))
        assert (bool(found & places.IMMUTABLE), bool(found & places.APPEND_ONLY)) == ("i" in shown, "a" in shown)
        refused = bool({"i", "a"} & set(shown))
        assert bool(places.obstacle(str(file), [])) == refused
        try:
            os.replace(new, file)
        except PermissionError:
            assert refused
        else:
            assert not refused
    finally:
        subprocess.run(["chattr", "-" + letter, str(file)], capture_output=True, check=False)
